//! Tells people of a disk that makes everybody wait, before they look at a metric.
//!
//! | since the last look                                        | told as | again after       |
//! |------------------------------------------------------------|---------|-------------------|
//! | a sync of the log took more than 10 ms                     | warning | a minute          |
//! | one took more than a second, or has not come back for one  | error   | ten seconds       |
//!
//! What falls between two tellings is counted in the second.

use std::time::{Duration, Instant};

use engine::Engine;
use tokio::time::{MissedTickBehavior, interval};
use wal::Metrics;

/// Between two looks: what hangs is told of soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A burst of slow syncs is one line.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A disk that stands still is told of for as long as it does.
const ALARM_EVERY: Duration = Duration::from_secs(10);

/// From here on a sync stands still: no batch makes up for it.
const STALLED_US: u64 = 1_000_000;

/// What the disk did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// So many syncs were slow.
    Slow(u64),
    /// So many stood still; one has been under way for that many microseconds.
    Stalled(u64, u64),
}

/// What was told of a disk so far.
#[derive(Default)]
pub(crate) struct DiskWatch {
    slow: u64,
    stalled: u64,
    warned: Option<Instant>,
    alarmed: Option<Instant>,
}

impl DiskWatch {
    /// Looks at the log of `engine` for as long as it is awaited.
    pub(crate) async fn keep(mut self, engine: Engine) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.look(&engine.stats().log, Instant::now()) {
                Some(Told::Slow(count)) => tracing::warn!(
                    "{count} syncs of the log took more than 10 ms: every answer waits for one; \
                     look for a neighbour on its disk"
                ),
                Some(Told::Stalled(count, under_way_us)) => tracing::error!(
                    "the disk of the log stands still: {count} syncs took more than a second, one \
                     is under way for {} ms; nothing is answered meanwhile: look after the disk",
                    under_way_us / 1_000
                ),
                None => {}
            }
        }
    }

    fn look(&mut self, log: &Metrics, now: Instant) -> Option<Told> {
        let may = |told: Option<Instant>, every: Duration| {
            told.is_none_or(|at| now.saturating_duration_since(at) >= every)
        };
        let stalled = stalled_syncs(log);
        let stands_still = stalled > self.stalled || log.sync_under_way_us > STALLED_US;
        if stands_still && may(self.alarmed, ALARM_EVERY) {
            let count = stalled - self.stalled;
            (self.stalled, self.slow) = (stalled, log.slow_syncs);
            (self.alarmed, self.warned) = (Some(now), Some(now));
            return Some(Told::Stalled(count, log.sync_under_way_us));
        }
        let slow = log.slow_syncs - self.slow;
        if slow == 0 || stands_still || !may(self.warned, WARN_EVERY) {
            return None;
        }
        (self.slow, self.warned) = (log.slow_syncs, Some(now));
        Some(Told::Slow(slow))
    }
}

/// Syncs of more than a second: the last bucket of their times.
fn stalled_syncs(log: &Metrics) -> u64 {
    const LAST: usize = wal::SYNC_US_BOUNDS.len();
    const _: () = assert!(wal::SYNC_US_BOUNDS[LAST - 1] == STALLED_US);
    log.sync_us[LAST]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk after so many slow syncs, stalled ones among them, and one under way.
    fn log(slow: u64, stalled: u64, under_way_us: u64) -> Metrics {
        let mut log =
            Metrics { slow_syncs: slow, sync_under_way_us: under_way_us, ..Metrics::default() };
        log.sync_us[wal::SYNC_US_BOUNDS.len()] = stalled;
        log
    }

    /// What is told of a disk that is looked at after so many seconds.
    fn told(looks: &[(u64, Metrics)]) -> Vec<Option<Told>> {
        let (mut watch, start) = (DiskWatch::default(), Instant::now());
        let look = |(at, log): &(u64, Metrics)| watch.look(log, start + Duration::from_secs(*at));
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_burst_of_slow_syncs_is_one_warning_a_minute_that_counts_them_all() {
        let looks = [
            (0, log(0, 0, 0)),
            (1, log(3, 0, 9_000)),
            (2, log(50, 0, 0)),
            (60, log(90, 0, 0)),
            (61, log(90, 0, 0)),
            (200, log(90, 0, 0)),
            (201, log(91, 0, 0)),
        ];
        let slow = |count| Some(Told::Slow(count));
        assert_eq!(told(&looks), [None, slow(3), None, None, slow(87), None, slow(1)]);
    }

    #[test]
    fn a_disk_that_stands_still_is_an_alarm_at_once_and_as_long_as_it_does() {
        let looks = [
            (1, log(2, 0, 0)),
            // It has not come back yet, and the warning's minute is not over.
            (3, log(2, 0, 1_400_000)),
            (5, log(2, 0, 3_400_000)),
            (13, log(2, 0, 11_400_000)),
            (20, log(3, 1, 0)),
            (23, log(3, 1, 0)),
            (24, log(3, 1, 0)),
        ];
        let stalled = |count, under_way_us| Some(Told::Stalled(count, under_way_us));
        assert_eq!(
            told(&looks),
            [
                Some(Told::Slow(2)),
                stalled(0, 1_400_000),
                None,
                stalled(0, 11_400_000),
                None,
                stalled(1, 0),
                None
            ]
        );
    }
}
