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
    /// For so long, at most, a commit may be undone, while orders come fast; `None`: all last.
    most: Option<Duration>,
    fast_records_min: usize,
    /// When the first one was made that may be undone.
    owed_since: Option<Instant>,
}

impl Lasting {
    /// Every commit lasts.
    pub(crate) fn always() -> Self {
        Self { most: None, fast_records_min: FAST_RECORDS_MIN, owed_since: None }
    }

    /// One in a while lasts.
    pub(crate) fn once_in(most: Duration) -> Self {
        Self { most: Some(most), ..Self::always() }
    }

    /// Orders come fast from this many records in a batch on.
    pub(crate) fn set_fast_records_min(&mut self, records: usize) {
        self.fast_records_min = records;
    }

    /// Whether the commit of a batch of so many records must last.
    pub(crate) fn is_due(&self, records: usize) -> bool {
        records < self.fast_records_min || self.most.is_none()
    }

    /// A commit was made; whether it `lasts`, and all before it.
    pub(crate) fn committed(&mut self, lasts: bool, now: Instant) {
        self.owed_since = if lasts { None } else { self.owed_since.or(Some(now)) };
    }

    /// Whether there are commits that may be undone.
    pub(crate) const fn is_owed(&self) -> bool {
        self.owed_since.is_some()
    }

    /// Whether they have waited long enough. They are made to last by a commit of its own, which
    /// is small: what the disk is sent with a sync is waited for by everybody.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let waits = self.owed_since.map(|since| now.saturating_duration_since(since));
        waits.zip(self.most).is_some_and(|(waits, most)| waits >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_orders_come_fast_commits_are_made_to_last_once_in_a_while() {
        let mut lasting = Lasting::once_in(Duration::from_secs(1));
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        for (ms, records, is_due, is_overdue) in [
            (5_000, 100, false, false),
            (5_999, 32, false, false),
            (6_000, 100, false, true),
            (6_001, 31, true, false),
            (7_500, 100, false, false),
            (8_499, 100, false, false),
            (8_500, 100, false, true),
        ] {
            assert_eq!(lasting.is_due(records), is_due, "{records} after {ms} ms");
            lasting.committed(is_due, at(ms));
            assert_eq!(lasting.is_owed(), !is_due);
            assert_eq!(lasting.is_overdue(at(ms)), is_overdue, "after {ms} ms");
        }
        let mut always = Lasting::always();
        assert!(always.is_due(5_000));
        always.committed(true, begun);
        assert!(!always.is_overdue(at(9_000)));
    }
}
