//! The log as a sink sees it: durable events in order, in batches of whole frames.
//!
//! Nothing here knows files. An [`EventSource`] may be the log's own reader or, later, a replicated
//! log or a stream: whatever numbers its records densely, groups them in frames that live or die
//! together, and chains the frames, so that one number proves "this is the history I know".
//!
//! A sink's place is always the end of a frame ([`FrameEnd`]): the events of one command never
//! straddle two frames, so a sink never holds half a command.

use std::error::Error;

use wal::{Epoch, Lsn};

/// Records after which a batch is closed, where its sink has no bound of its own: large enough that
/// what a call costs is shared by hundreds, small enough that each is visible soon.
pub const BATCH_RECORDS_MAX: usize = 2_000;

/// Bytes after which a batch is closed. With the frame that crosses the bound (1 MiB at most) a
/// batch stays within 2 MiB.
pub const BATCH_BYTES_MAX: usize = 1 << 20;

/// The end of a frame: the only places where a sink may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameEnd {
    /// LSN of the frame's last record.
    pub lsn: Lsn,
    /// The incarnation that wrote it.
    pub epoch: Epoch,
    /// The frame's link in the chain: differs between two histories that part before it.
    pub chain: u32,
    /// When it was committed, Unix microseconds.
    pub commit_us: u64,
}

/// One event as it stands in the log, not yet decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its place in the log.
    pub lsn: Lsn,
    /// Its shard.
    pub shard: u16,
    /// Its place in the shard.
    pub shard_seq: u64,
    /// What it is.
    pub kind: u8,
    /// Version of that kind's encoding.
    pub version: u8,
    /// Its bytes.
    pub body: &'a [u8],
}

/// Why a source can't stand where it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SeekError {
    /// The log ends before that place.
    #[error("the log ends at LSN {end}")]
    BeyondEnd {
        /// Its durable end.
        end: Lsn,
    },
    /// The log no longer holds what follows that place.
    #[error("the log begins at LSN {oldest}")]
    Retired {
        /// The first LSN it still holds.
        oldest: Lsn,
    },
    /// No frame ends there.
    #[error("no frame of the log ends there")]
    NotAFrameEnd,
    /// The log can't be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The log can't be read. The source's own error says why.
#[derive(Debug, thiserror::Error)]
#[error("the log can't be read: {source}")]
pub struct Unreadable {
    /// Whether trying again may help: the operating system refused. Damage stays.
    pub passing: bool,
    /// Why.
    pub source: Box<dyn Error + Send + Sync>,
}

/// Durable frames in order, never beyond the durable mark.
pub trait EventSource: Send {
    /// Stands behind the frame that ends with `lsn` (`Lsn(0)`: before the first frame) and returns
    /// that frame's chain (0 for `Lsn(0)`).
    ///
    /// # Errors
    /// Where no frame of this log ends there, or what follows is gone: see [`SeekError`].
    fn seek(&mut self, lsn: Lsn) -> Result<u32, SeekError>;

    /// Appends the next frame to `batch`, or returns `false` where it has caught up with the
    /// durable mark.
    ///
    /// # Errors
    /// Where the log can't be read.
    fn read_frame(&mut self, batch: &mut Batch) -> Result<bool, Unreadable>;
}

/// Whole frames of the log, copied out of it.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    records: Vec<RecordHead>,
    ends: Vec<FrameEnd>,
}

#[derive(Clone, Copy, Debug)]
struct RecordHead {
    lsn: Lsn,
    shard: u16,
    shard_seq: u64,
    kind: u8,
    version: u8,
    body_end: usize,
}

impl Batch {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.ends.clear();
    }

    /// Appends one record of the frame that is being read.
    pub fn push(&mut self, entry: Entry<'_>) {
        if let Some(last) = self.records.last() {
            assert!(last.lsn.0 + 1 == entry.lsn.0, "the log's records are dense (W4)");
        }
        self.bytes.extend_from_slice(entry.body);
        self.records.push(RecordHead {
            lsn: entry.lsn,
            shard: entry.shard,
            shard_seq: entry.shard_seq,
            kind: entry.kind,
            version: entry.version,
            body_end: self.bytes.len(),
        });
    }

    /// Closes the frame whose records were pushed.
    pub fn end_frame(&mut self, end: FrameEnd) {
        let last = self.records.last().map(|record| record.lsn);
        assert!(last == Some(end.lsn), "a frame ends with its last record");
        self.ends.push(end);
    }

    /// Reads frames until `records_max` records or [`BATCH_BYTES_MAX`] bytes are reached or the
    /// source has caught up. Whole frames only: the last one may cross the bound.
    ///
    /// # Errors
    /// Where the log can't be read; the batch is then of no use.
    pub fn fill(
        &mut self,
        source: &mut impl EventSource,
        records_max: usize,
    ) -> Result<(), Unreadable> {
        self.clear();
        while !self.is_full(records_max) {
            if !source.read_frame(self)? {
                break;
            }
            assert!(
                self.end().map(|end| end.lsn) == self.records.last().map(|record| record.lsn),
                "a source ends the frame it reads"
            );
        }
        Ok(())
    }

    /// Whether [`fill`](Self::fill) stopped because it had enough: the source may have more.
    pub fn is_full(&self, records_max: usize) -> bool {
        self.records.len() >= records_max || self.bytes.len() >= BATCH_BYTES_MAX
    }

    /// Where the last frame ends; `None` where the batch is empty.
    pub fn end(&self) -> Option<FrameEnd> {
        self.ends.last().copied()
    }

    /// Where each frame ends, in order.
    pub fn frame_ends(&self) -> &[FrameEnd] {
        &self.ends
    }

    /// When the oldest frame was committed, Unix microseconds.
    pub fn oldest_commit_us(&self) -> u64 {
        self.ends.first().map_or(0, |end| end.commit_us)
    }

    /// Records it holds.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut start = 0;
        self.records.iter().map(move |record| {
            let body = &self.bytes[start..record.body_end];
            start = record.body_end;
            Entry {
                lsn: record.lsn,
                shard: record.shard,
                shard_seq: record.shard_seq,
                kind: record.kind,
                version: record.version,
                body,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of `sizes` records, each record its LSN as `body_bytes` bytes.
    struct Frames {
        sizes: Vec<u64>,
        body_bytes: usize,
        next: usize,
        lsn: u64,
    }

    impl Frames {
        fn of(sizes: Vec<u64>) -> Self {
            Self { sizes, body_bytes: 8, next: 0, lsn: 0 }
        }
    }

    impl EventSource for Frames {
        fn seek(&mut self, _: Lsn) -> Result<u32, SeekError> {
            Err(SeekError::NotAFrameEnd)
        }

        fn read_frame(&mut self, batch: &mut Batch) -> Result<bool, Unreadable> {
            let Some(size) = self.sizes.get(self.next) else { return Ok(false) };
            self.next += 1;
            for _ in 0..*size {
                self.lsn += 1;
                let mut body = self.lsn.to_le_bytes().to_vec();
                body.resize(self.body_bytes, 0);
                let (lsn, shard_seq) = (Lsn(self.lsn), self.lsn);
                batch.push(Entry { lsn, shard: 0, shard_seq, kind: 1, version: 1, body: &body });
            }
            let end = FrameEnd {
                lsn: Lsn(self.lsn),
                epoch: Epoch(1),
                chain: u32::try_from(self.next).unwrap(),
                commit_us: self.lsn * 10,
            };
            batch.end_frame(end);
            Ok(true)
        }
    }

    #[test]
    fn a_batch_is_whole_frames_in_order_and_stops_at_the_bound() {
        let mut frames = Frames::of(vec![3, 4, 5, 1]);
        let mut batch = Batch::default();
        let mut seen = Vec::new();
        let mut ends = Vec::new();
        loop {
            batch.fill(&mut frames, 6).unwrap();
            let Some(end) = batch.end() else { break };
            ends.push((end.lsn.0, batch.len(), batch.oldest_commit_us()));
            seen.extend(batch.entries().map(|entry| {
                assert_eq!(entry.body, entry.lsn.0.to_le_bytes());
                entry.lsn.0
            }));
        }
        assert_eq!(ends, [(7, 7, 30), (13, 6, 120)]);
        assert_eq!(seen, (1..=13).collect::<Vec<_>>());
    }

    #[test]
    fn a_source_that_has_caught_up_leaves_the_batch_empty() {
        let mut batch = Batch::default();
        batch.fill(&mut Frames::of(vec![]), 10).unwrap();
        assert!(batch.is_empty() && batch.end().is_none());
    }

    #[test]
    fn a_batch_is_full_at_either_bound_and_not_where_the_source_has_no_more() {
        let filled = |sizes, body_bytes| {
            let mut batch = Batch::default();
            let mut frames = Frames { body_bytes, ..Frames::of(sizes) };
            batch.fill(&mut frames, 100).unwrap();
            (batch.len(), batch.is_full(100))
        };
        assert_eq!(filled(vec![50, 49], 8), (99, false));
        assert_eq!(filled(vec![50, 50, 1], 8), (100, true));
        // Few records, and yet enough: callbacks are large.
        let callback = 4 << 10;
        assert_eq!(filled(vec![50, 49], callback), (99, false));
        assert_eq!(filled(vec![50, 49, 1], 4 * callback), (99, true));
    }
}
