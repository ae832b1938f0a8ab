//! The mirror's thread.
//!
//! A thread of its own, as the SQL sink's: a session meets Redis and follows the log; an error ends
//! the session, and another one begins after a wait. Redis being down, full, emptied or put back
//! stops nothing else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use wal::Lsn;

use super::confirm::Confirmed;
use super::fault::MirrorError;
use super::layouts::Layout;
use super::nodes::Address;
use super::present::Present;
use super::scrub::Repair;
use super::sink::{Bounds, Mirror, Step};
use crate::backoff::Backoff;
use crate::lag::{Cause, Lag, State, Status};
use crate::place;
use crate::run::{BridgeHandle, Drained, FAILED_LOG_WAIT, IDLE_WAIT, StartError, Stopped, Watcher};

/// How often what is in Redis is confirmed.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);

/// How often quiet lanes are moved to where the log was read.
const ADVANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Repairs kept for whoever asks.
const REPAIRS_KEPT_MAX: usize = 1_000;

/// What a mirror is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// `redis://<user>:<password>@<host>:<port>/<db>` or `redis+unix://<path>`; with layout
    /// `cluster`, any member.
    pub url: String,
    /// Which keys.
    pub layout: Layout,
    /// How much goes into one call and one write.
    pub bounds: Bounds,
    /// How often the scrubber takes a piece of the state, or compares it.
    pub scrub_interval: Duration,
}

impl Options {
    /// The defaults, for the Redis at `url`.
    pub fn new(url: String) -> Self {
        let (layout, bounds) = (Layout::default(), Bounds::default());
        // A piece is 128 reservations: 640 a second, some 2,500 keys.
        Self { url, layout, bounds, scrub_interval: Duration::from_millis(100) }
    }
}

/// Why a mirror could not be started at all.
#[derive(Debug, thiserror::Error)]
pub enum MirrorStartError {
    /// The URL names no Redis. It is not repeated: it may hold a password.
    #[error("redis: this is no URL of a Redis: redis://HOST:PORT or redis+unix://PATH ({0})")]
    Url(String),
    /// The operating system gave no thread or no runtime.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What is counted over all sessions.
#[derive(Debug, Default)]
struct Counts {
    confirmed_lsn: AtomicU64,
    is_confirmable: AtomicBool,
    resyncs: AtomicU64,
    repairs: AtomicU64,
    scrub_rounds: AtomicU64,
    is_stale: AtomicBool,
    found: Mutex<VecDeque<Repair>>,
}

/// How a mirror is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorStatus {
    /// Place and state; `applied_lsn` is what is in Redis.
    pub sink: Status,
    /// What is in Redis' append-only file, too; `None` where it keeps none.
    pub confirmed_lsn: Option<Lsn>,
    /// Whether `sluice:stale` exists, as far as the mirror knows.
    pub is_stale: bool,
    /// Keys that were not as they should be, and were written right.
    pub repairs: u64,
    /// Times the keys were written anew.
    pub resyncs: u64,
    /// Rounds of the scrubber over all keys.
    pub scrub_rounds: u64,
}

/// A running mirror.
#[derive(Debug)]
pub struct MirrorHandle {
    bridge: BridgeHandle,
    watcher: MirrorWatcher,
}

/// A look at a running mirror; cheap to clone.
#[derive(Clone, Debug)]
pub struct MirrorWatcher {
    watcher: Watcher,
    counts: Arc<Counts>,
    layout: Layout,
}

impl MirrorHandle {
    /// A look at it.
    pub fn watcher(&self) -> MirrorWatcher {
        self.watcher.clone()
    }

    /// Delivers what is durable now, `timeout` at most, and ends. Blocks.
    pub fn stop(self, timeout: Duration) -> Drained {
        self.bridge.stop(timeout)
    }
}

impl MirrorWatcher {
    /// Place, state and counts.
    pub fn status(&self) -> MirrorStatus {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let is_confirmable = self.counts.is_confirmable.load(Ordering::Relaxed);
        MirrorStatus {
            sink: self.watcher.status(),
            confirmed_lsn: is_confirmable.then(|| Lsn(get(&self.counts.confirmed_lsn))),
            is_stale: self.counts.is_stale.load(Ordering::Relaxed),
            repairs: get(&self.counts.repairs),
            resyncs: get(&self.counts.resyncs),
            scrub_rounds: get(&self.counts.scrub_rounds),
        }
    }

    /// The last keys that were not as they should be, the latest last.
    pub fn repairs(&self) -> Vec<Repair> {
        let found = self.counts.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().cloned().collect()
    }

    /// The layout of the keys.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// State and changes of it.
    pub fn sink(&self) -> &Watcher {
        &self.watcher
    }
}

/// Whether `url` names a Redis at all.
///
/// # Errors
/// [`MirrorStartError::Url`] where it does not.
pub fn check(url: &str) -> Result<(), MirrorStartError> {
    address(url).map(drop)
}

fn address(url: &str) -> Result<Address, MirrorStartError> {
    Address::at(url).map_err(|error| MirrorStartError::Url(error.category().to_owned()))
}

/// Starts the mirror of `host`'s log.
///
/// # Errors
/// Where Redis can't even be named or there is no thread. One that does not answer is no error: the
/// state says so, and it is asked again.
pub fn start<H: Present>(
    host: Arc<H>,
    options: &Options,
) -> Result<MirrorHandle, MirrorStartError> {
    let address = address(&options.url)?;
    let counts = Arc::new(Counts::default());
    let (of_runner, options, layout) = (Arc::clone(&counts), options.clone(), options.layout);
    let bridge = crate::run::launch(host, "bridge-redis", move |host, lag, stopped| async move {
        let runner =
            Runner { host: &*host, address, options, lag: &lag, stopped, counts: of_runner };
        runner.run().await;
    })?;
    let watcher = MirrorWatcher { watcher: bridge.watcher(), counts, layout };
    Ok(MirrorHandle { bridge, watcher })
}

struct Runner<'h, H> {
    host: &'h H,
    address: Address,
    options: Options,
    lag: &'h Lag,
    stopped: Stopped,
    counts: Arc<Counts>,
}

/// Counts as they were when a session began.
#[derive(Clone, Copy)]
struct Before {
    rounds: u64,
    resyncs: u64,
}

/// When what is done now and then is due.
struct Due {
    confirm: Instant,
    advance: Instant,
    scrub: Instant,
    asked: Option<JoinHandle<Result<Confirmed, MirrorError>>>,
}

impl<H: Present> Runner<'_, H> {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let Err(error) = self.session(&mut backoff).await else { break };
            if !error.is_transient() {
                let cause = match error {
                    MirrorError::Fork(_) => Cause::Fork,
                    _ => Cause::Content,
                };
                let why = error.to_string();
                tracing::error!(%error, "the Redis mirror stands still; the sale goes on");
                self.lag.set(State::Halted { why, cause });
                return;
            }
            let wait = backoff.next_wait();
            tracing::warn!(%error, wait_ms = wait.as_millis(), "the mirror will try again");
            self.lag.retrying(error.to_string());
            if self.stopped.is_told_to_stop_within(wait).await {
                break;
            }
        }
        self.lag.set(State::Stopped);
    }

    async fn session(&mut self, backoff: &mut Backoff) -> Result<(), MirrorError> {
        let Options { layout, bounds, .. } = self.options;
        let mut mirror = Mirror::meet_at(self.host, &self.address, layout, bounds).await?;
        self.lag.applied(mirror.applied());
        self.lag.set(State::Running);
        let now = Instant::now();
        let mut due =
            Due { confirm: now, advance: now + ADVANCE_INTERVAL, scrub: now, asked: None };
        let before = Before {
            rounds: self.counts.scrub_rounds.load(Ordering::Relaxed),
            resyncs: self.counts.resyncs.load(Ordering::Relaxed),
        };
        self.note(&mut mirror, before);
        loop {
            let step = mirror.step().await?;
            self.note(&mut mirror, before);
            if self.stopped.may_end(mirror.applied()) {
                return Ok(());
            }
            match step {
                Step::Moved => backoff.reset(),
                Step::CaughtUp => {
                    backoff.reset();
                    // Blocks the runtime: what else runs in it can wait as long.
                    if !self.host.wait_durable_beyond(mirror.applied(), IDLE_WAIT) {
                        tokio::time::sleep(FAILED_LOG_WAIT).await;
                    }
                }
            }
            self.now_and_then(&mut mirror, &mut due).await?;
        }
    }

    fn note(&self, mirror: &mut Mirror<'_, H>, before: Before) {
        self.lag.applied(mirror.applied());
        if let Some(commit_us) = mirror.oldest_commit_us() {
            self.lag.batch_read(commit_us);
            place::choose_beside_loops(commit_us);
        }
        let counts = &self.counts;
        counts.is_stale.store(mirror.is_stale(), Ordering::Relaxed);
        counts.scrub_rounds.store(before.rounds + mirror.scrub_rounds(), Ordering::Relaxed);
        counts.resyncs.store(before.resyncs + mirror.resyncs(), Ordering::Relaxed);
        let repairs = mirror.take_repairs();
        counts.repairs.fetch_add(repairs.len() as u64, Ordering::Relaxed);
        let mut found = counts.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(repairs);
        let surplus = found.len().saturating_sub(REPAIRS_KEPT_MAX);
        found.drain(..surplus);
    }

    async fn now_and_then(
        &self,
        mirror: &mut Mirror<'_, H>,
        due: &mut Due,
    ) -> Result<(), MirrorError> {
        let now = Instant::now();
        if let Some(asked) = due.asked.take_if(|asked| asked.is_finished()) {
            let said = asked.await;
            self.confirmed(
                said.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?,
            );
        }
        if now >= due.confirm && due.asked.is_none() {
            due.confirm = now + CONFIRM_INTERVAL;
            due.asked = Some(tokio::spawn(mirror.confirm()));
        }
        if now >= due.advance {
            due.advance = now + ADVANCE_INTERVAL;
            if self.options.layout == Layout::Cluster {
                mirror.advance().await?;
            }
        }
        if now >= due.scrub {
            due.scrub = now + self.options.scrub_interval;
            mirror.scrub().await?;
        }
        Ok(())
    }

    fn confirmed(&self, said: Confirmed) {
        let counts = &self.counts;
        match said {
            Confirmed::Upto(lsn) => {
                counts.confirmed_lsn.store(lsn.0, Ordering::Relaxed);
                counts.is_confirmable.store(true, Ordering::Relaxed);
                self.host.mirror_confirmed(lsn);
            }
            Confirmed::NotYet => {}
            Confirmed::Never => counts.is_confirmable.store(false, Ordering::Relaxed),
        }
    }
}
