//! Asks providers for refunds, until each is settled or refused.
//!
//! The engine's list of open refunds is the whole work list. What is remembered here, how often
//! somebody was asked and when to ask again, may be lost: then providers are asked again under the
//! same numbers. Nothing is ever given up: an unknown outcome may be money that went back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bridge::sql::accounts::Accounts;
use engine::core::ids::{ActivityId, ReservationId};
use engine::{Busy, Engine, LogUnavailable, PendingRefund};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Payments;
use super::channels::Channels;
use super::counts::{Asked, Counts};
use super::provider::{Answer, Ask, Provider, ProviderError};

/// How often the list is looked at where nobody says that there is something new: late money does
/// not.
const LOOK: Duration = Duration::from_millis(500);

/// Open refunds that are looked at in one go.
const OPEN_MAX: usize = 16 * 1024;

/// Questions at one time to one channel's provider: a slow one holds up nobody else's.
const IN_FLIGHT_MAX: usize = 8;

/// Before the second question, doubled before each further one.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Between two questions at most.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// Before a provider that has taken a refund is asked how it went.
const TAKEN_BACKOFF_MIN: Duration = Duration::from_secs(5);

/// Rows that are marked as sent at one time. Where SQL is slower than providers some stay unmarked
/// until they are settled: nobody waits for SQL, and no line forms in front of it.
const MARKS_MAX: usize = 8;

/// A refund among all.
type Key = (ActivityId, ReservationId, String);

fn key(refund: &PendingRefund) -> Key {
    (refund.activity, refund.reservation, refund.refund_no.clone())
}

/// How it went so far.
struct Tries {
    count: u32,
    next: Instant,
    is_asked: bool,
}

/// What the provider's answer came to.
struct Told {
    key: Key,
    channel: String,
    outcome: Result<Option<Answer>, RecordError>,
}

/// An answer could not be recorded: it is asked for again.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error("the answer could not be recorded: {0:?}")]
    Busy(Busy),
    #[error("the answer could not be recorded: {0}")]
    Log(#[from] LogUnavailable),
}

impl From<Busy> for RecordError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

/// The one who asks.
#[derive(Clone)]
pub(crate) struct Refunder {
    /// Knows what is open, and is told what came of it.
    engine: Engine,
    channels: Arc<Channels>,
    counts: Arc<Counts>,
    accounts: Arc<Accounts>,
    news: Arc<Notify>,
    marks: Arc<Semaphore>,
}

impl Refunder {
    /// Asks for the refunds that `engine` knows of, as `payments` says; `accounts` tells SQL.
    pub(crate) fn new(engine: &Engine, payments: &Payments, accounts: Arc<Accounts>) -> Self {
        Self {
            engine: engine.clone(),
            channels: Arc::clone(&payments.channels),
            counts: Arc::clone(&payments.counts),
            accounts,
            news: Arc::clone(&payments.refunds),
            marks: Arc::new(Semaphore::new(MARKS_MAX)),
        }
    }

    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut tries: HashMap<Key, Tries> = HashMap::new();
        let mut asking: JoinSet<Told> = JoinSet::new();
        let mut in_flight: HashMap<String, usize> = HashMap::new();
        loop {
            self.ask_due(&mut tries, &mut asking, &mut in_flight);
            tokio::select! {
                // Questions that are cut off are put again by the next start.
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
                () = self.news.notified() => {}
                Some(told) = asking.join_next() => match told {
                    Ok(told) => {
                        let left = in_flight.entry(told.channel.clone()).or_default();
                        *left = left.saturating_sub(1);
                        self.note(&mut tries, told);
                    }
                    Err(error) => tracing::error!("a refund's question died: {error}"),
                },
            }
        }
    }

    /// Puts every question whose time has come, as far as there is room.
    fn ask_due(
        &self,
        tries: &mut HashMap<Key, Tries>,
        asking: &mut JoinSet<Told>,
        in_flight: &mut HashMap<String, usize>,
    ) {
        let open = self.engine.pending_refunds(OPEN_MAX);
        let keys: HashSet<Key> = open.iter().map(key).collect();
        tries.retain(|key, it| it.is_asked || keys.contains(key));
        let (mut without_provider, now) = (0, Instant::now());
        let oldest_ms = open.iter().map(|refund| refund.requested_ms).min().unwrap_or_default();
        let count = open.len();
        for refund in open {
            let Some(provider) = self.channels.provider(&refund.channel) else {
                without_provider += 1;
                continue;
            };
            let fresh = Tries { count: 0, next: now, is_asked: false };
            let it = tries.entry(key(&refund)).or_insert(fresh);
            let asked = in_flight.entry(refund.channel.clone()).or_default();
            if it.is_asked || it.next > now || *asked >= IN_FLIGHT_MAX {
                continue;
            }
            *asked += 1;
            it.is_asked = true;
            asking.spawn(self.clone().ask(provider, refund));
        }
        self.counts.open(count, without_provider, oldest_ms);
    }

    /// Asks, and records what was answered.
    async fn ask(self, provider: Arc<dyn Provider>, refund: PendingRefund) -> Told {
        self.mark_as_sent(&refund);
        let outcome = self.settle(&*provider, &refund).await;
        Told { key: key(&refund), channel: refund.channel, outcome }
    }

    /// SQL shows it where it can; the refund does not wait for SQL.
    fn mark_as_sent(&self, refund: &PendingRefund) {
        let Ok(place) = Arc::clone(&self.marks).try_acquire_owned() else { return };
        let (accounts, now_ms) = (Arc::clone(&self.accounts), self.engine.now_ms());
        // The order's number is its payment's without two digits.
        let end = refund.payment_no.len().saturating_sub(2);
        let order_no = refund.payment_no.get(..end).unwrap_or_default().to_owned();
        let refund_no = refund.refund_no.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = accounts.refund_sent(&order_no, &refund_no, now_ms).await {
                tracing::debug!(%error, "the row of a refund could not be marked as sent");
            }
        });
    }

    /// `None` where an operator's word came between: the refund is not open any more.
    async fn settle(
        &self,
        provider: &dyn Provider,
        refund: &PendingRefund,
    ) -> Result<Option<Answer>, RecordError> {
        let answer = provider.refund(&Ask::of(refund)).await?;
        let (activity, reservation) = (refund.activity, refund.reservation);
        let recorded = match &answer {
            Answer::Taken => return Ok(Some(answer)),
            Answer::Settled => {
                self.engine.refund_settled(activity, reservation, &refund.refund_no)?
            }
            Answer::Refused(why) => {
                self.engine.refund_failed(activity, reservation, &refund.refund_no, why)?
            }
        };
        Ok(recorded.durable().await?.is_ok().then_some(answer))
    }

    fn note(&self, tries: &mut HashMap<Key, Tries>, told: Told) {
        let (_, reservation, refund_no) = &told.key;
        let outcome = match &told.outcome {
            Ok(Some(Answer::Settled)) => Some(Asked::Settled),
            Ok(Some(Answer::Taken)) => Some(Asked::Taken),
            Ok(Some(Answer::Refused(why))) => {
                tracing::error!(
                    "refund {refund_no} of purchase {reservation} was refused by its provider \
                     ({why}): the order is paid again; an operator must look at it"
                );
                Some(Asked::Refused)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!("refund {refund_no} of purchase {reservation}: {error}");
                Some(Asked::NoAnswer)
            }
        };
        if let Some(outcome) = outcome {
            self.counts.asked(outcome);
        }
        let Some(it) = tries.get_mut(&told.key) else { return };
        it.is_asked = false;
        let first = if outcome == Some(Asked::Taken) { TAKEN_BACKOFF_MIN } else { BACKOFF_MIN };
        it.next = Instant::now() + backoff(first, it.count);
        it.count = it.count.saturating_add(1);
    }
}

/// How long to wait after question `count`, from 0.
fn backoff(first: Duration, count: u32) -> Duration {
    first.saturating_mul(1 << count.min(16)).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_asked_ever_more_seldom_and_never_given_up() {
        let seconds = |count| backoff(BACKOFF_MIN, count).as_secs();
        assert_eq!([0, 1, 2, 8, 9, 40, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300, 300]);
    }
}
