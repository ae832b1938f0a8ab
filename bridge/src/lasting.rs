//! Which commits of a sink must outlast a machine that stops.
//!
//! While a database syncs its file, durable writes of the log beside it wait: for the disk there is
//! one queue. So while orders come fast, few commits are synced. A power cut may undo those behind
//! the last that was; nothing rests on them. The engine is told of what lasts and of nothing else,
//! keeps the log from there on, and the sink reads its own cursor when it comes back.

use std::time::{Duration, Instant};

/// From this many records in a batch on, orders come fast.
pub(crate) const FAST_RECORDS_MIN: usize = 32;

/// What a follower asks of its sink's commits.
#[derive(Debug)]
pub(crate) struct Lasting {
    /// Between two commits that last, while orders come fast; `None`: all do.
    every: Option<Duration>,
    fast_records_min: usize,
    last: Instant,
    is_owed: bool,
}

impl Lasting {
    /// Every commit lasts.
    pub(crate) fn always() -> Self {
        let last = Instant::now();
        Self { every: None, fast_records_min: FAST_RECORDS_MIN, last, is_owed: false }
    }

    /// One in a while lasts.
    pub(crate) fn once_in(every: Duration) -> Self {
        Self { every: Some(every), ..Self::always() }
    }

    /// Orders come fast from this many records in a batch on.
    pub(crate) fn set_fast_records_min(&mut self, records: usize) {
        self.fast_records_min = records;
    }

    /// Whether the commit of a batch of so many records must last.
    pub(crate) fn is_due(&self, records: usize, now: Instant) -> bool {
        let is_soon = |every| now.saturating_duration_since(self.last) < every;
        records < self.fast_records_min || !self.every.is_some_and(is_soon)
    }

    /// A commit was made; whether it `lasts`, and all before it.
    pub(crate) fn committed(&mut self, lasts: bool, now: Instant) {
        self.is_owed = !lasts;
        if lasts {
            self.last = now;
        }
    }

    /// Whether there are commits that may be undone.
    pub(crate) const fn is_owed(&self) -> bool {
        self.is_owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_orders_come_fast_a_commit_lasts_once_in_a_while() {
        let mut lasting = Lasting::once_in(Duration::from_secs(1));
        let begun = lasting.last;
        let at = |ms| begun + Duration::from_millis(ms);
        for (ms, records, is_due) in [
            (0, 100, false),
            (0, 31, true),
            (999, 32, false),
            (1_000, 100, true),
            (1_001, 100, false),
        ] {
            assert_eq!(lasting.is_due(records, at(ms)), is_due, "{records} after {ms} ms");
            lasting.committed(is_due, at(ms));
            assert_eq!(lasting.is_owed(), !is_due);
        }
        let always = Lasting::always();
        assert!(always.is_due(5_000, always.last));
    }
}
