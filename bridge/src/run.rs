//! The bridge's thread.
//!
//! A thread of its own with its own small runtime, which gives way to others until it is late
//! ([`place`]). It never gives up on a database that does not answer, never goes on where a
//! person must decide, and ends when it is told to, after what is durable has been delivered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use wal::Lsn;

use crate::backoff::Backoff;
use crate::follow::{FollowError, Follower, Step};
use crate::host::Host;
use crate::lag::{Cause, Lag, State, Status};
use crate::lasting::FAST_RECORDS_MIN;
use crate::place;
use crate::sql::database::{Database, UrlError};
use crate::sql::schema::SchemaError;
use crate::sql::sink::OrderOptions;
use crate::sql::store::Store;

/// How long the thread waits for the log before it looks whether it shall stop.
pub(crate) const IDLE_WAIT: Duration = Duration::from_millis(50);

/// A log that has failed answers at once that nothing more will be durable: without a pause the
/// thread would spin until the process has ended.
pub(crate) const FAILED_LOG_WAIT: Duration = Duration::from_millis(1);

/// How long after its deadline a thread that hangs in its database is waited for.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How long a sink that met a row it can't go on with waits before it looks again: a person, or
/// `reconcile`, may have moved it aside.
pub(crate) const HALTED_WAIT: Duration = Duration::from_secs(5);

/// How far apart two transactions begin while orders come fast. Each costs its sync and a copy of
/// every index page it touched, however few orders share them. It is time that an order is
/// invisible, too: far below what a person sees.
const PACE: Duration = Duration::from_millis(50);

/// How far apart commits are synced while orders come fast: for so long, at most, a reservation
/// whose order can be seen does not show `ordered` yet.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// What a bridge is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where orders go: `sqlite:<path>` or `mysql://<user>@<host>/<database>`.
    pub database_url: String,
    /// How orders are written.
    pub orders: OrderOptions,
}

/// Why a bridge could not be started at all.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The URL.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The operating system gave no thread or no runtime.
    #[error("the bridge's thread can't be started: {0}")]
    Thread(#[source] std::io::Error),
}

#[derive(Clone, Copy, Debug)]
struct Stop {
    target: Lsn,
    deadline: Instant,
}

/// Whether everything was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Everything that was durable when the bridge was told to stop is in the sink.
    Yes,
    /// The next start delivers the rest.
    No {
        /// What is in the sink.
        applied: Lsn,
        /// What was durable.
        durable: Lsn,
    },
}

/// A look at a running bridge; cheap to clone.
#[derive(Clone)]
pub struct Watcher {
    lag: Arc<Lag>,
    durable_lsn: Arc<dyn Fn() -> Lsn + Send + Sync>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watcher").field(&self.status()).finish()
    }
}

impl Watcher {
    /// Place and state.
    pub fn status(&self) -> Status {
        self.lag.status((self.durable_lsn)())
    }

    /// What is wrong where the database follows another history: the server must end, exit code 3.
    pub fn fork(&self) -> Option<String> {
        match self.status().state {
            State::Halted { why, cause: Cause::Fork } => Some(why),
            _ => None,
        }
    }

    /// Changes of the state, the present one first.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.lag.subscribe()
    }

    /// Waits until the sink has been met, or could not be: until the state is known.
    pub async fn first_contact(&self) -> State {
        let mut states = self.subscribe();
        match states.wait_for(|state| *state != State::Starting).await {
            Ok(state) => state.clone(),
            Err(_) => State::Stopped,
        }
    }
}

/// A running bridge. Dropped without [`BridgeHandle::stop`], it ends soon, without a drain.
#[derive(Debug)]
pub struct BridgeHandle {
    watcher: Watcher,
    stop: watch::Sender<Option<Stop>>,
    ended: mpsc::Receiver<()>,
}

impl BridgeHandle {
    /// A look at it for metrics and readiness.
    pub fn watcher(&self) -> Watcher {
        self.watcher.clone()
    }

    /// Delivers what is durable now, `timeout` at most, and ends. Blocks.
    pub fn stop(self, timeout: Duration) -> Drained {
        let target = (self.watcher.durable_lsn)();
        let stop = Stop { target, deadline: Instant::now() + timeout };
        self.stop.send_replace(Some(stop));
        // Disconnected is ended, too.
        let _ = self.ended.recv_timeout(timeout + STOP_GRACE);
        let applied = self.watcher.status().applied_lsn;
        if applied >= target { Drained::Yes } else { Drained::No { applied, durable: target } }
    }
}

/// Starts the bridge from `host`'s log into the database that `options` names.
///
/// # Errors
/// Where the database can't even be named or there is no thread. A database that does not answer
/// is no error: the state says so, and it is asked again.
pub fn start<H: Host>(host: Arc<H>, options: &Options) -> Result<BridgeHandle, StartError> {
    let database = Database::at(&options.database_url)?;
    let orders = options.orders;
    launch(host, "bridge-sql", move |host, lag, stopped| async move {
        Runner { host: &*host, database, orders, lag: &lag, stopped }.run().await;
    })
}

/// Starts a sink's thread, named `name`, which runs `body` and ends with it.
pub(crate) fn launch<H: Host, F, B>(
    host: Arc<H>,
    name: &'static str,
    body: F,
) -> Result<BridgeHandle, StartError>
where
    F: FnOnce(Arc<H>, Arc<Lag>, Stopped) -> B + Send + 'static,
    B: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let lag = Arc::new(Lag::new());
    let (stop, stopped) = watch::channel(None);
    let (end, ended) = mpsc::sync_channel(1);
    let durable_host = Arc::clone(&host);
    let watcher = Watcher {
        lag: Arc::clone(&lag),
        durable_lsn: Arc::new(move || durable_host.durable_lsn()),
    };
    let thread = move || {
        wal::lower_priority(place::NICE_STEPS);
        let run = || runtime.block_on(body(host, Arc::clone(&lag), Stopped(stopped)));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            let why = "the bridge broke one of its invariants and stands still: \
                       restart the server, and report the panic in its log";
            tracing::error!(why);
            lag.set(State::Halted { why: why.to_owned(), cause: Cause::Content });
        }
        // Nobody waits where the handle was dropped.
        let _ = end.send(());
    };
    thread::Builder::new().name(name.to_owned()).spawn(thread).map_err(StartError::Thread)?;
    Ok(BridgeHandle { watcher, stop, ended })
}

/// Whether, and by when, a sink is told to end.
pub(crate) struct Stopped(watch::Receiver<Option<Stop>>);

impl Stopped {
    /// Whether a sink that holds everything up to `position` may end.
    pub(crate) fn may_end(&self, position: Lsn) -> bool {
        match *self.0.borrow() {
            Some(stop) => position >= stop.target || Instant::now() >= stop.deadline,
            // A handle that was dropped.
            None => self.0.has_changed().is_err(),
        }
    }

    /// Waits until `until`, or until it is told to stop.
    async fn wait_until(&mut self, until: Instant) {
        let is_told = self.0.borrow_and_update().is_some();
        if !is_told {
            let rest = until.saturating_duration_since(Instant::now());
            // Elapsed, told to stop, or the handle was dropped: the caller looks.
            let _ = tokio::time::timeout(rest, self.0.changed()).await;
        }
    }

    /// Waits for `wait`, but not beyond the end that was asked for; whether to end.
    pub(crate) async fn is_told_to_stop_within(&mut self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            let stop = *self.0.borrow_and_update();
            let now = Instant::now();
            let end = stop.map_or(until, |stop| until.min(stop.deadline));
            if now >= end {
                return stop.is_some_and(|stop| now >= stop.deadline);
            }
            let change = tokio::time::timeout(end - now, self.0.changed()).await;
            if let Ok(Err(_)) = change {
                // The handle was dropped.
                return true;
            }
        }
    }
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Follow(#[from] FollowError),
}

impl SessionError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Schema(error) => error.is_transient(),
            Self::Follow(error) => error.is_transient(),
        }
    }

    fn cause(&self) -> Cause {
        match self {
            Self::Schema(_) => Cause::Schema,
            Self::Follow(FollowError::Fork(_)) => Cause::Fork,
            Self::Follow(_) => Cause::Content,
        }
    }
}

struct Runner<'h, H> {
    host: &'h H,
    database: Database,
    orders: OrderOptions,
    lag: &'h Lag,
    stopped: Stopped,
}

impl<H: Host> Runner<'_, H> {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let Err(error) = self.session(&mut backoff).await else { break };
            if !error.is_transient() {
                let (why, cause) = (error.to_string(), error.cause());
                let halted = State::Halted { why, cause };
                if self.lag.state() != halted {
                    tracing::error!(%error, "the SQL sink stands still; the sale goes on");
                    self.lag.set(halted);
                }
                // Which log or schema a database has, only a start finds out anew.
                if cause != Cause::Content || self.stopped.is_told_to_stop_within(HALTED_WAIT).await
                {
                    return;
                }
                continue;
            }
            let wait = backoff.next_wait();
            tracing::warn!(%error, wait_ms = wait.as_millis(), "the SQL sink will try again");
            self.lag.retrying(error.to_string());
            if self.stopped.is_told_to_stop_within(wait).await {
                break;
            }
        }
        self.lag.set(State::Stopped);
    }

    /// Meets the sink and follows the log until told to stop.
    async fn session(&mut self, backoff: &mut Backoff) -> Result<(), SessionError> {
        self.database.prepare(self.orders.split).await?;
        let follower = Follower::meet(self.host, self.database.store(), self.orders).await?;
        let mut follower = follower.syncing_once_in(SYNC_INTERVAL);
        self.lag.applied(follower.position());
        let is_halted = || matches!(self.lag.state(), State::Halted { .. });
        if !is_halted() {
            self.lag.set(state_of(&follower));
        }
        loop {
            if self.stopped.may_end(follower.position()) {
                follower.settle().await?;
                return Ok(());
            }
            let begun = Instant::now();
            let read = |commit_us| {
                self.lag.batch_read(commit_us);
                place::choose(commit_us);
            };
            let step = match follower.step_watched(read).await {
                Ok(step) => step,
                Err(error) => {
                    // It may stand still for long: what it has written is made to last, and told,
                    // as far as that goes. A database that does not answer is met anew instead.
                    if !error.is_transient()
                        && let Err(error) = follower.settle().await
                    {
                        tracing::warn!(%error, "what SQL holds is told once it is met anew");
                    }
                    return Err(error.into());
                }
            };
            let present = state_of(&follower);
            // It got past what halted it, or is filled.
            if self.lag.state() != present {
                self.lag.set(present);
            }
            if let (Step::Filled { .. }, Some(filled)) = (step, follower.filled()) {
                self.lag.filled(filled);
                self.lag.applied(follower.position());
            }
            match step {
                Step::Applied { records, is_full } => {
                    backoff.reset();
                    self.lag.applied(follower.position());
                    if is_paced(records, is_full) {
                        self.stopped.wait_until(begun + PACE).await;
                    }
                }
                Step::Filled { .. } => backoff.reset(),
                Step::CaughtUp => {
                    // Blocks the runtime: nothing else runs in it.
                    if !self.host.wait_durable_beyond(follower.position(), IDLE_WAIT) {
                        tokio::time::sleep(FAILED_LOG_WAIT).await;
                    }
                }
            }
        }
    }
}

/// Whether the batch after one of that many `records` waits for its turn. One buyer at a time never
/// waits, and one that was full, by its records or by its bytes, is followed at once: the sink is
/// behind.
fn is_paced(records: usize, is_full: bool) -> bool {
    records >= FAST_RECORDS_MIN && !is_full
}

fn state_of<H: Host, S: Store>(follower: &Follower<'_, H, S>) -> State {
    if follower.is_filling() { State::Filling } else { State::Running }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_one_buyer_at_a_time_nor_a_sink_that_is_behind_waits() {
        assert!(!is_paced(1, false) && !is_paced(FAST_RECORDS_MIN - 1, false));
        assert!(is_paced(FAST_RECORDS_MIN, false) && is_paced(4_999, false));
        assert!(!is_paced(5_000, true), "full by its records");
        assert!(!is_paced(256, true), "full by its bytes: large callbacks");
    }
}
