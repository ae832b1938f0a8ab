//! How far behind a sink is, and how it is: what metrics, readiness and operators look at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use wal::Lsn;

use crate::sql::fill::Filled;

/// How a sink is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It has not met its database yet.
    Starting,
    /// The log has passed it by: it is written from a snapshot.
    Filling,
    /// It follows the log.
    Running,
    /// The database does not answer; it is asked again and again.
    Retrying {
        /// Since when.
        since: Instant,
        /// What it said last.
        error: String,
    },
    /// It stands still until a person has acted. The sale goes on.
    Halted {
        /// What is wrong and what to do.
        why: String,
        /// What kind of wrong it is.
        cause: Cause,
    },
    /// It was told to stop, and did.
    Stopped,
}

impl State {
    /// Whether a sink in this state may yet come further by itself.
    pub fn may_move(&self) -> bool {
        matches!(self, Self::Starting | Self::Filling | Self::Running)
    }
}

/// Why a sink stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The database follows another history than this data directory: the server must end.
    Fork,
    /// The database is somebody else's, or of a schema that this binary does not know: a server
    /// that finds it so when it starts must not serve; one that is selling goes on.
    Schema,
    /// A row, an event, or the bridge itself. The sale goes on, over restarts as well.
    Content,
}

/// A sink's place and state at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Everything up to here is in the sink.
    pub applied_lsn: Lsn,
    /// Everything up to here is durable in the log.
    pub durable_lsn: Lsn,
    /// Records not yet in the sink.
    pub lag_records: u64,
    /// Age of the oldest record that is not yet in the sink.
    pub lag: Duration,
    /// How it is.
    pub state: State,
    /// What it was filled with since the start, and what is gone; `None` where it never was.
    pub filled: Option<Filled>,
}

/// Shared between a sink's thread and whoever looks at it.
#[derive(Debug)]
pub(crate) struct Lag {
    applied_lsn: AtomicU64,
    /// Commit time of the oldest record being applied, Unix microseconds; 0 where none is.
    oldest_commit_us: AtomicU64,
    state: watch::Sender<State>,
    filled: Mutex<Option<Filled>>,
}

impl Lag {
    pub(crate) fn new() -> Self {
        Self {
            applied_lsn: AtomicU64::new(0),
            oldest_commit_us: AtomicU64::new(0),
            state: watch::Sender::new(State::Starting),
            filled: Mutex::new(None),
        }
    }

    /// A batch is about to be applied.
    pub(crate) fn batch_read(&self, oldest_commit_us: u64) {
        self.oldest_commit_us.store(oldest_commit_us, Ordering::Relaxed);
    }

    pub(crate) fn applied(&self, lsn: Lsn) {
        self.applied_lsn.store(lsn.0, Ordering::Release);
        self.oldest_commit_us.store(0, Ordering::Relaxed);
    }

    pub(crate) fn filled(&self, filled: Filled) {
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(filled);
    }

    pub(crate) fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The sink failed and will try again; "since" is kept over repeated failures.
    pub(crate) fn retrying(&self, error: String) {
        self.state.send_modify(|state| {
            let since = match state {
                State::Retrying { since, .. } => *since,
                _ => Instant::now(),
            };
            *state = State::Retrying { since, error };
        });
    }

    pub(crate) fn status(&self, durable_lsn: Lsn) -> Status {
        let applied_lsn = Lsn(self.applied_lsn.load(Ordering::Acquire));
        let state = self.state.borrow().clone();
        let lag_records = durable_lsn.0.saturating_sub(applied_lsn.0);
        let oldest_us = self.oldest_commit_us.load(Ordering::Relaxed);
        let lag = match (lag_records, oldest_us, &state) {
            (0, ..) => Duration::ZERO,
            (_, 0, State::Retrying { since, .. }) => since.elapsed(),
            (_, 0, _) => Duration::ZERO,
            (_, oldest_us, _) => age(oldest_us),
        };
        let filled = *self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        Status { applied_lsn, durable_lsn, lag_records, lag, state, filled }
    }
}

/// How long ago it was, by the wall clock.
pub(crate) fn age(commit_us: u64) -> Duration {
    let commit = UNIX_EPOCH + Duration::from_micros(commit_us);
    SystemTime::now().duration_since(commit).unwrap_or_default()
}
