//! What the log tells about itself, in counters that cost a relaxed add a commit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the sync histogram's buckets, microseconds; one more bucket takes the rest.
pub const SYNC_US_BOUNDS: [u64; 14] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000,
];

/// A sync slower than this is counted as slow.
pub const SLOW_SYNC_US: u64 = 10_000;

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) frames: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) frame_bytes: AtomicU64,
    pub(crate) watermarks: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) slow_syncs: AtomicU64,
    sync_us_sum: AtomicU64,
    /// When the write and sync under way began, device clock; 0 where none is.
    sync_began_us: AtomicU64,
    sync_us: [AtomicU64; SYNC_US_BOUNDS.len() + 1],
}

impl Counters {
    /// Notes that a write and its sync begin.
    pub(crate) fn begins(&self, now_us: u64) {
        self.sync_began_us.store(now_us, Ordering::Relaxed);
    }

    /// How long the write and sync under way have taken by now, microseconds; 0 where none is.
    pub(crate) fn under_way_us(&self, now_us: u64) -> u64 {
        match self.sync_began_us.load(Ordering::Relaxed) {
            0 => 0,
            began_us => now_us.saturating_sub(began_us),
        }
    }

    /// Notes a write-and-sync of `bytes` bytes with `records` records that took `us`.
    pub(crate) fn synced(&self, records: u32, bytes: usize, us: u64) {
        self.sync_began_us.store(0, Ordering::Relaxed);
        let kind = if records == 0 { &self.watermarks } else { &self.frames };
        kind.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(u64::from(records), Ordering::Relaxed);
        self.frame_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sync_us_sum.fetch_add(us, Ordering::Relaxed);
        if us > SLOW_SYNC_US {
            self.slow_syncs.fetch_add(1, Ordering::Relaxed);
        }
        let bucket = SYNC_US_BOUNDS.partition_point(|bound| *bound < us);
        self.sync_us[bucket].fetch_add(1, Ordering::Relaxed);
    }
}

/// The log's figures at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metrics {
    /// Frames with records made durable since the start.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes written for them, padding included.
    pub frame_bytes: u64,
    /// Watermarks written.
    pub watermarks: u64,
    /// Segments begun.
    pub rotations: u64,
    /// Syncs slower than [`SLOW_SYNC_US`].
    pub slow_syncs: u64,
    /// Sum of the times of all writes with their syncs, microseconds.
    pub sync_us_sum: u64,
    /// Number of them by time: one bucket a bound of [`SYNC_US_BOUNDS`], and the rest.
    pub sync_us: [u64; SYNC_US_BOUNDS.len() + 1],
    /// How long the write and sync under way have taken, microseconds; 0 where none is.
    pub sync_under_way_us: u64,
    /// Bytes appended and not yet durable.
    pub in_flight_bytes: u64,
    /// Segments ahead.
    pub spares: u64,
    /// Whether the log has room for new work.
    pub new_admitted: bool,
    /// Bytes of all segments kept.
    pub log_bytes: u64,
    /// Bytes of segments that hold anything the newest snapshot does not.
    pub snapshot_behind_bytes: u64,
    /// What the newest snapshot covers, 0 where there is none.
    pub snapshot_lsn: u64,
    /// Its length.
    pub snapshot_bytes: u64,
    /// Bytes of segments that the slowest sink that must deliver has not confirmed.
    pub backlog_bytes: u64,
    /// Whether that is more than an operator should leave alone.
    pub backlog_late: bool,
}

impl Counters {
    pub(crate) fn read(&self) -> Metrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            frames: get(&self.frames),
            records: get(&self.records),
            frame_bytes: get(&self.frame_bytes),
            watermarks: get(&self.watermarks),
            rotations: get(&self.rotations),
            slow_syncs: get(&self.slow_syncs),
            sync_us_sum: get(&self.sync_us_sum),
            sync_us: std::array::from_fn(|index| get(&self.sync_us[index])),
            ..Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_falls_into_the_first_bucket_that_holds_it() {
        let counters = Counters::default();
        for us in [20, 21, 5_000_000] {
            counters.synced(1, 4096, us);
        }
        let metrics = counters.read();
        assert_eq!((metrics.sync_us[0], metrics.sync_us[1], metrics.sync_us[14]), (1, 1, 1));
        assert_eq!((metrics.frames, metrics.slow_syncs), (3, 1));
    }
}
