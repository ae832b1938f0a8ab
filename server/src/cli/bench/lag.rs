//! How long an accepted purchase takes until the stores show it, sampled while the load runs, and
//! how long the last one takes.
//!
//! Each store has a few watchers, threads of their own. A watcher follows one purchase at a time:
//! it takes the next one that is accepted, asks the store for it until it is there, and takes
//! another one. What it asks costs the store little beside the load, and a store that falls behind
//! is asked less often, not more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bridge::redis::{MirrorError, Shown};
use bridge::sql::queries::Queries;
use bridge::sql::split::Split;
use engine::core::ids::{ActivityId, ReservationId};

use super::BenchError;
use super::shared::LoadArgs;
use super::tally::{Acceptance, Latencies, microseconds};

/// Between two looks for one purchase: the error of the times that are told.
const LOOK_WAIT: Duration = Duration::from_millis(2);

/// Watchers of a store: together they sample some ten to some hundred purchases a second.
const WATCHERS: usize = 2;

/// A purchase that was accepted.
#[derive(Clone, Copy, Debug)]
struct Sample {
    reservation: u64,
    accepted: Instant,
}

/// Where a watcher gets its purchases from.
#[derive(Debug, Default)]
struct Slot {
    is_wanted: AtomicBool,
    sample: Mutex<Option<Sample>>,
}

/// The load has ended.
#[derive(Clone, Copy, Debug)]
struct End {
    last_answer: Instant,
    last: Option<ReservationId>,
}

/// All watchers' slots, and the end of the load once it has come.
#[derive(Debug, Default)]
pub(super) struct Samples {
    slots: Vec<Slot>,
    end: OnceLock<End>,
}

impl Samples {
    /// A purchase was just accepted.
    pub(super) fn offer(&self, reservation: u64) {
        let wanting = self.slots.iter().find(|slot| slot.is_wanted.load(Ordering::Relaxed));
        let Some(slot) = wanting else { return };
        // Several threads may have seen that it is wanted; one gives.
        if slot.is_wanted.swap(false, Ordering::AcqRel) {
            let sample = Sample { reservation, accepted: Instant::now() };
            *slot.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
        }
    }

    /// The next purchase for a watcher; `None` once the load has ended.
    async fn taken(&self, slot: &Slot) -> Option<Sample> {
        slot.is_wanted.store(true, Ordering::Release);
        loop {
            if self.end.get().is_some() {
                return None;
            }
            let sample = slot.sample.lock().unwrap_or_else(PoisonError::into_inner).take();
            if sample.is_some() {
                return sample;
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
    }
}

/// A store that shows purchases.
#[derive(Clone, Debug)]
enum Store {
    Sql(String),
    Redis(String),
}

/// A connection to one.
enum Line {
    Sql(Queries),
    Redis(Shown),
}

impl Store {
    const fn name(&self) -> &'static str {
        match self {
            Self::Sql(_) => "order in SQL",
            Self::Redis(_) => "key in Redis",
        }
    }

    async fn connect(&self) -> Result<Line, BenchError> {
        Ok(match self {
            // A split database has views over its parts.
            Self::Sql(url) => Line::Sql(Queries::open(url, Split::ONE)?),
            Self::Redis(url) => Line::Redis(Shown::connect(url).await?),
        })
    }
}

impl Line {
    /// Waits until the store shows the reservation, or `deadline` has come.
    async fn wait(
        &self,
        activity: ActivityId,
        id: ReservationId,
        deadline: Instant,
    ) -> Result<(), BenchError> {
        loop {
            let is_there = match self {
                Self::Sql(queries) => queries.shows(id).await?,
                Self::Redis(shown) => shown.shows(activity, id).await?,
            };
            if is_there || Instant::now() >= deadline {
                return Ok(());
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
    }
}

/// A store, and how long purchases took until it showed them.
pub(super) struct Lag {
    /// The store's name.
    pub(super) name: &'static str,
    /// From acceptance to being there, of the purchases that were sampled.
    pub(super) sampled: Latencies,
    /// From the last answer until the last accepted purchase was there.
    pub(super) last: Duration,
}

/// Watchers at work.
pub(super) struct Watch {
    samples: Arc<Samples>,
    watchers: Vec<JoinHandle<Result<Lag, BenchError>>>,
}

impl Watch {
    /// Watches the stores that are named, if any.
    ///
    /// # Errors
    /// Where a thread can't be had.
    pub(super) fn begin(activity: u64, args: &LoadArgs) -> Result<Self, BenchError> {
        let LoadArgs { database, redis, drain_timeout: timeout, .. } = args;
        let activity = ActivityId::new(activity).ok_or(BenchError::Activity)?;
        let sql = database.clone().map(Store::Sql);
        let stores = sql.into_iter().chain(redis.clone().map(Store::Redis));
        let stores: Vec<_> =
            stores.flat_map(|store| std::iter::repeat_n(store, WATCHERS)).collect();
        let slots = stores.iter().map(|_| Slot::default()).collect();
        let samples = Arc::new(Samples { slots, end: OnceLock::new() });
        let mut watchers = Vec::new();
        for (index, store) in stores.into_iter().enumerate() {
            let watcher = Watcher { store, activity, timeout: *timeout };
            let samples = Arc::clone(&samples);
            let builder = std::thread::Builder::new().name("watcher".to_owned());
            watchers.push(builder.spawn(move || watcher.run(&samples, index))?);
        }
        Ok(Self { samples, watchers })
    }

    /// Where the load offers what was accepted.
    pub(super) fn samples(&self) -> Arc<Samples> {
        Arc::clone(&self.samples)
    }

    /// The load has just ended: the watchers now wait for the last of `acceptances`.
    pub(super) fn ended(&self, acceptances: &[Acceptance]) {
        let last_answer = Instant::now();
        let last = acceptances.iter().map(|one| one.reservation).max();
        let _ = self.samples.end.set(End { last_answer, last: last.and_then(ReservationId::new) });
    }

    /// What the watchers saw, store by store, once they have seen the last purchase.
    ///
    /// # Errors
    /// Where a store could not be reached or did not answer.
    pub(super) fn lags(self) -> Result<Vec<Lag>, BenchError> {
        let mut lags: Vec<Lag> = Vec::new();
        for watcher in self.watchers {
            let lag = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            match lags.last_mut().filter(|known| known.name == lag.name) {
                Some(known) => {
                    known.sampled.add(&lag.sampled);
                    known.last = known.last.min(lag.last);
                }
                None => lags.push(lag),
            }
        }
        Ok(lags)
    }
}

/// One that follows purchases into a store.
struct Watcher {
    store: Store,
    activity: ActivityId,
    timeout: Duration,
}

impl Watcher {
    fn run(&self, samples: &Samples, index: usize) -> Result<Lag, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (line, mut sampled) = (self.store.connect().await?, Latencies::new());
            while let Some(sample) = samples.taken(&samples.slots[index]).await {
                let Some(id) = ReservationId::new(sample.reservation) else { continue };
                line.wait(self.activity, id, sample.accepted + self.timeout).await?;
                sampled.record(microseconds(sample.accepted.elapsed()));
            }
            let mut last = Duration::ZERO;
            if let Some(End { last_answer, last: Some(id) }) = samples.end.get().copied() {
                line.wait(self.activity, id, last_answer + self.timeout).await?;
                last = last_answer.elapsed();
            }
            Ok(Lag { name: self.store.name(), sampled, last })
        })
    }
}

impl From<MirrorError> for BenchError {
    fn from(error: MirrorError) -> Self {
        Self::Redis(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purchase_goes_to_one_watcher_that_wants_one() {
        let slots = vec![Slot::default(), Slot::default()];
        let samples = Samples { slots, end: OnceLock::new() };
        let held = |index: usize| {
            let sample = samples.slots[index].sample.lock();
            sample.unwrap_or_else(PoisonError::into_inner).map(|sample| sample.reservation)
        };
        samples.offer(1);
        assert_eq!((held(0), held(1)), (None, None));
        samples.slots.iter().for_each(|slot| slot.is_wanted.store(true, Ordering::Release));
        for reservation in 2..5 {
            samples.offer(reservation);
        }
        assert_eq!((held(0), held(1)), (Some(2), Some(3)));
    }
}
