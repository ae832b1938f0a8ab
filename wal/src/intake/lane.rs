//! A lane: the records of one shard that wait, in chunks that go into a frame whole.

use std::collections::VecDeque;

use crate::record::RECORD_HEADER_BYTES;

/// Records of one lane that go into a frame together.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u32,
    pub(super) last_seq: u64,
}

impl Chunk {
    /// Copies its bytes to the beginning of `to`, in pieces that the C library copies with vector
    /// instructions: a longer one it leaves to `rep movsb`, which is no faster and which a counter
    /// of instructions takes for one a byte.
    pub(super) fn copy_to(&self, to: &mut [u8]) {
        const PIECE_BYTES: usize = 2048;
        let to = &mut to[..self.bytes.len()];
        for (to, from) in to.chunks_mut(PIECE_BYTES).zip(self.bytes.chunks(PIECE_BYTES)) {
            to.copy_from_slice(from);
        }
    }
}

#[derive(Default)]
pub(super) struct LaneState {
    /// Chunks that are full.
    pub(super) full: VecDeque<Chunk>,
    /// The chunk being filled.
    pub(super) open: Chunk,
    /// Sequence of the lane's last record (W4).
    pub(super) last_seq: u64,
    /// Sequence of the last record that the committer took.
    taken_seq: u64,
}

impl LaneState {
    /// A lane that goes on after the record `last_seq`.
    pub(super) fn after(last_seq: u64) -> Self {
        Self { last_seq, taken_seq: last_seq, ..Self::default() }
    }

    /// Goes on in a chunk of `bytes`, an empty buffer; the chunk before it.
    ///
    /// # Panics
    /// Where the buffer still holds what another chunk left in it: it would be committed again.
    /// And where the chunk before does not end with the lane's last record (W4).
    pub(super) fn replace_open(&mut self, bytes: Vec<u8>) -> Chunk {
        assert!(bytes.is_empty(), "W4: a chunk begins with the records of another");
        assert!(self.open.last_seq == self.last_seq, "W4: a chunk ends before its lane does");
        std::mem::replace(&mut self.open, Chunk { bytes, ..Chunk::default() })
    }

    /// Notes that the committer takes `chunk`.
    ///
    /// # Panics
    /// Where it is not the next one: its records would stand in the log out of order, twice, or
    /// behind a gap that no start gets past (W4).
    pub(super) fn take(&mut self, chunk: Chunk) -> Chunk {
        self.taken_seq += u64::from(chunk.records);
        assert!(self.taken_seq == chunk.last_seq, "W4: a lane's chunks leave in order, each once");
        assert!(self.taken_seq <= self.last_seq, "W4: what is taken was appended");
        assert!(chunk.bytes.len().is_multiple_of(8), "records are aligned");
        let headers_bytes = chunk.records as usize * RECORD_HEADER_BYTES;
        assert!(chunk.records > 0, "nothing is taken that holds no record");
        assert!(chunk.bytes.len() >= headers_bytes, "a chunk counts more records than it holds");
        chunk
    }

    /// Holds that nothing is left here, and that all of it is durable.
    ///
    /// # Panics
    /// Where a record is left.
    pub(super) fn assert_drained(&self, durable_seq: u64) {
        assert!(self.full.is_empty() && self.open.records == 0, "W1: records are left behind");
        assert!(self.taken_seq == self.last_seq, "W4: a lane ends at two places");
        assert!(durable_seq == self.last_seq, "W1: somebody still waits for a record");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(records: u32, last_seq: u64) -> Chunk {
        Chunk { bytes: vec![0; records as usize * RECORD_HEADER_BYTES], records, last_seq }
    }

    #[test]
    fn chunks_that_leave_in_order_leave_a_lane_drained() {
        let mut lane = LaneState { last_seq: 9, ..LaneState::after(4) };
        lane.take(chunk(2, 6));
        lane.take(chunk(3, 9));
        lane.assert_drained(9);
    }

    #[test]
    fn a_chunk_that_leaves_twice_or_before_its_turn_is_a_bug() {
        for (records, last_seq) in [(2, 5), (2, 7), (1, 6), (9, 13)] {
            let mut lane = LaneState { last_seq: 9, ..LaneState::after(4) };
            let take = || lane.take(chunk(records, last_seq)).records;
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(take)).is_err();
            assert!(panicked, "{records} records up to {last_seq}");
        }
    }

    #[test]
    fn a_chunk_that_does_not_hold_what_it_counts_is_a_bug() {
        for bytes in [0, RECORD_HEADER_BYTES, 2 * RECORD_HEADER_BYTES + 1] {
            let mut lane = LaneState { last_seq: 9, ..LaneState::after(4) };
            let short = Chunk { bytes: vec![0; bytes], ..chunk(2, 6) };
            let take = || lane.take(short).records;
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(take)).is_err();
            assert!(panicked, "two records in {bytes} bytes");
        }
    }

    #[test]
    fn a_chunk_that_begins_with_another_s_records_is_a_bug() {
        let mut lane = LaneState { last_seq: 9, open: chunk(1, 9), ..LaneState::after(4) };
        let full = lane.replace_open(Vec::new());
        assert_eq!((full.records, lane.open.records), (1, 0));
        let mut lane = LaneState { last_seq: 9, open: chunk(1, 9), ..LaneState::after(4) };
        let begin = || lane.replace_open(full.bytes).records;
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin)).is_err());
    }
}
