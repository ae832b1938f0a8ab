//! What the log tells about itself, in counters that cost a relaxed add a commit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of a histogram's buckets; one more bucket takes the rest.
pub type Bounds = [u64; 14];

/// Counts, one bucket a bound, and the rest.
pub type Buckets = [u64; BUCKETS];

const BUCKETS: usize = 15;

/// Bounds of the times of a write with its sync, microseconds.
pub const SYNC_US_BOUNDS: Bounds = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000,
];

/// Bounds of the records of a frame: how many answers one sync gave.
pub const FRAME_RECORDS_BOUNDS: Bounds =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000];

/// Bounds of the bytes of a frame, padding included: from a block to the largest frame.
pub const FRAME_BYTES_BOUNDS: Bounds = [
    4 << 10,
    8 << 10,
    12 << 10,
    16 << 10,
    24 << 10,
    32 << 10,
    48 << 10,
    64 << 10,
    96 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    768 << 10,
    1 << 20,
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
    sync_us: Histogram,
    frame_records: Histogram,
    frame_sizes: Histogram,
}

/// Whether each bound is above the one before, as finding a bucket takes it to be.
const fn ascends(bounds: &Bounds) -> bool {
    let mut at = 1;
    while at < bounds.len() && bounds[at - 1] < bounds[at] {
        at += 1;
    }
    at == bounds.len()
}

const _: () = assert!(ascends(&SYNC_US_BOUNDS));
const _: () = assert!(ascends(&FRAME_RECORDS_BOUNDS));
const _: () = assert!(ascends(&FRAME_BYTES_BOUNDS));
const _: () = assert!(SYNC_US_BOUNDS.len() + 1 == BUCKETS, "the last bucket has no bound");

#[derive(Default)]
struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    fn note(&self, bounds: &Bounds, value: u64) {
        let bucket = bounds.partition_point(|bound| *bound < value);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Buckets {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
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
        if records == 0 {
            self.watermarks.fetch_add(1, Ordering::Relaxed);
        } else {
            let (records, bytes) = (u64::from(records), bytes as u64);
            self.frames.fetch_add(1, Ordering::Relaxed);
            self.records.fetch_add(records, Ordering::Relaxed);
            self.frame_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.frame_records.note(&FRAME_RECORDS_BOUNDS, records);
            self.frame_sizes.note(&FRAME_BYTES_BOUNDS, bytes);
        }
        self.sync_us_sum.fetch_add(us, Ordering::Relaxed);
        if us > SLOW_SYNC_US {
            self.slow_syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.sync_us.note(&SYNC_US_BOUNDS, us);
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
    /// How long the write and sync under way have taken, microseconds; 0 where none is.
    pub sync_under_way_us: u64,
    /// Number of them by time, see [`SYNC_US_BOUNDS`].
    pub sync_us: Buckets,
    /// Frames with records by how many those are, see [`FRAME_RECORDS_BOUNDS`].
    pub frame_records: Buckets,
    /// Frames with records by their length, see [`FRAME_BYTES_BOUNDS`].
    pub frame_sizes: Buckets,
    /// Age of the segment being filled, milliseconds.
    pub segment_age_ms: u64,
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
            sync_us: self.sync_us.read(),
            frame_records: self.frame_records.read(),
            frame_sizes: self.frame_sizes.read(),
            ..Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_do_not_ascend_are_found() {
        assert!(ascends(&SYNC_US_BOUNDS));
        for at in 1..SYNC_US_BOUNDS.len() {
            let mut bounds = SYNC_US_BOUNDS;
            bounds[at] = bounds[at - 1];
            assert!(!ascends(&bounds), "{at}");
        }
    }

    #[test]
    fn a_write_that_hangs_is_seen_while_it_does() {
        let counters = Counters::default();
        assert_eq!(counters.under_way_us(9_000), 0, "none is under way");
        counters.begins(1_000);
        assert_eq!(counters.under_way_us(9_000), 8_000);
        assert_eq!(counters.under_way_us(900), 0, "a clock that was set back");
        counters.synced(1, 4096, 8_000);
        assert_eq!(counters.under_way_us(9_000), 0);
    }

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

    #[test]
    fn a_frame_is_counted_by_its_records_and_bytes_and_a_watermark_is_not() {
        let counters = Counters::default();
        for (records, bytes) in [(1, 4096), (3, 4096), (16_000, 1 << 20), (0, 4096)] {
            counters.synced(records, bytes, 100);
        }
        let metrics = counters.read();
        let buckets = |counts: Buckets| counts.map(|count| count > 0);
        let met = |buckets: [usize; 3]| std::array::from_fn(|index| buckets.contains(&index));
        assert_eq!(buckets(metrics.frame_records), met([0, 2, 13]));
        assert_eq!((metrics.frame_sizes[0], metrics.frame_sizes[13]), (2, 1));
        let sums = (metrics.frames, metrics.records, metrics.frame_bytes, metrics.watermarks);
        assert_eq!(sums, (3, 16_004, (1 << 20) + 8192, 1));
    }
}
