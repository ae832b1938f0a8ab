//! The sink of the orders: its sessions with the database.

use std::time::Duration;

use bridge::follow::{FollowError, Follower, Step};
use bridge::sql::sink::OrderOptions;

use super::shop::{Shop, Stop, ready};

impl Shop {
    /// Lets the bridge follow for `steps` batches, with `between` before each.
    pub(super) fn follow(
        &mut self,
        steps: u64,
        mut between: impl FnMut(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let host = self.host()?;
        let run = self.crashes;
        let met = ready(Follower::meet(&host, self.sql.connect(), OrderOptions::default()));
        let mut follower = match met {
            Ok(follower) => follower.with_records_max(1 + self.random.index(40)),
            Err(error) => return self.pass_over(&error),
        };
        if self.random.below(2) == 0 {
            // Never by the clock, which is not this simulation's.
            let records_min = 1 + self.random.index(4);
            let unsynced = follower.syncing_once_in(Duration::MAX);
            follower = unsynced.with_fast_records_min(records_min);
        }
        for _ in 0..steps {
            between(self)?;
            if self.crashes != run || !self.is_open() {
                return Ok(());
            }
            match ready(follower.step()) {
                Ok(Step::Applied { .. }) => {}
                Ok(Step::Filled { .. }) if self.sql.never_failed_over() => {
                    return Err(Stop::Wrong("O7: the log passed by what its sink lacks".into()));
                }
                Ok(Step::Filled { .. }) => self.portions_filled += 1,
                Ok(Step::CaughtUp) => return Ok(()),
                Err(error) => return self.pass_over(&error),
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, error: &FollowError) -> Result<(), Stop> {
        self.failures += 1;
        match error.is_transient() {
            true => Ok(()),
            // It halts and names the row; a person moves that aside.
            false if self.sql.move_stranger_aside() => Ok(()),
            false => Err(Stop::Wrong(format!("O7: the sink can't go on: {error}"))),
        }
    }
}
