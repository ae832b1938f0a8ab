//! A sink that is waited for, with bounds.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wal::Lsn;

use crate::Watcher;
use crate::lag::State;
use crate::run::HALTED_WAIT;

/// How long a sink is waited for.
const SINK_PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at where it is.
const SINK_POLL: Duration = Duration::from_millis(10);

/// A sink, and how long it is still waited for: of two sinks, one that is far behind must not cost
/// the other its time.
pub(super) struct Followed {
    watcher: Watcher,
    patience: Duration,
}

impl Followed {
    /// The sink that `watcher` looks at.
    pub(super) const fn by(watcher: Watcher) -> Self {
        Self { watcher, patience: SINK_PATIENCE }
    }

    /// Waits until the sink holds everything up to `target`; whether it does.
    pub(super) async fn passed(&mut self, target: Lsn) -> bool {
        let until = Instant::now() + self.patience;
        loop {
            let status = self.watcher.status();
            if status.applied_lsn >= target {
                self.patience = SINK_PATIENCE;
                return true;
            }
            if !status.state.may_move() || Instant::now() >= until {
                // One that is far behind is waited for once, not page by page.
                self.patience = Duration::ZERO;
                return false;
            }
            sleep(SINK_POLL).await;
        }
    }

    /// Waits for a sink that has halted to try again, and to come up to `target`; whether it does.
    pub(super) async fn goes_on(&self, target: Lsn) -> bool {
        let until = Instant::now() + SINK_PATIENCE + HALTED_WAIT;
        while self.watcher.status().applied_lsn < target {
            if Instant::now() >= until {
                return false;
            }
            sleep(SINK_POLL).await;
        }
        true
    }

    /// Why the sink comes no further by itself, where it does not.
    pub(super) fn stands_still(&self) -> Option<String> {
        match self.watcher.status().state {
            State::Starting | State::Filling | State::Running => None,
            State::Retrying { error, .. } => Some(error),
            State::Halted { why, .. } => Some(why),
            State::Stopped => Some("it was stopped".to_owned()),
        }
    }
}
