//! A lane: the records of one shard that wait, in chunks that go into a frame whole.

use std::collections::VecDeque;

use crate::record::RECORD_HEADER_BYTES;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

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

/// A lane, and what is ready to leave it.
pub(super) struct Lane {
    state: Mutex<LaneState>,
    /// Taken after `state` where both are.
    full: Mutex<Full>,
    /// See [`Lane::is_long`].
    long: AtomicBool,
}

/// What the batches of a lane append to.
#[derive(Default)]
pub(super) struct LaneState {
    /// The chunk being filled.
    pub(super) open: Chunk,
    /// Sequence of the lane's last record (W4).
    pub(super) last_seq: u64,
}

/// Chunks that are full.
#[derive(Default)]
struct Full {
    chunks: VecDeque<Chunk>,
    /// Sequence of the last record that the committer took.
    taken_seq: u64,
}

impl Lane {
    /// A lane that goes on after the record `last_seq`.
    pub(super) fn after(last_seq: u64) -> Self {
        let state = LaneState { last_seq, ..LaneState::default() };
        let full = Full { taken_seq: last_seq, ..Full::default() };
        Self { state: Mutex::new(state), full: Mutex::new(full), long: AtomicBool::new(false) }
    }

    /// Holds what batches append to.
    pub(super) fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock()
    }

    /// Leaves what is open in `state`, which is this lane's, to the committer, and goes on in a
    /// chunk of `next`, an empty buffer.
    pub(super) fn close_open(&self, state: &mut LaneState, next: Vec<u8>) {
        self.full.lock().chunks.push_back(state.replace_open(next));
    }

    /// Says, under the lane's lock, whether the batch that holds it is a long one.
    pub(super) fn note_long(&self, is_long: bool) {
        self.long.store(is_long, Ordering::Relaxed);
    }

    /// Whether a batch holds the lane that takes long: it rings when it has filled a chunk, and
    /// when it ends, unless its caller commits. An old answer does no harm: who misses a beginning
    /// waits. Who misses an end is rung after it, or has missed nothing but what that caller
    /// commits; whoever appends next rings or commits, and either one sees the end.
    fn is_long(&self) -> bool {
        self.long.load(Ordering::Relaxed)
    }

    /// Takes the next chunk, where it fits `room`. A chunk that is open leaves too, and `make`
    /// makes the buffer of the next, but for one of a long batch that is not waited for.
    pub(super) fn take(
        &self,
        room: usize,
        waits: bool,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Option<Chunk> {
        {
            let mut full = self.full.lock();
            if !full.chunks.is_empty() || (!waits && self.is_long()) {
                return full.take(room);
            }
        }
        let mut state = self.state.lock();
        let mut full = self.full.lock();
        // One that was filled meanwhile is before what is open.
        if full.chunks.is_empty() && state.open.records > 0 && state.open.bytes.len() <= room {
            full.chunks.push_back(state.replace_open(make()));
        }
        full.take(room)
    }

    /// Holds that nothing is left here, and that all of it is durable.
    ///
    /// # Panics
    /// Where a record is left.
    pub(super) fn assert_drained(&self, durable_seq: u64) {
        let (state, full) = (self.state.lock(), self.full.lock());
        assert!(full.chunks.is_empty() && state.open.records == 0, "W1: records are left behind");
        assert!(full.taken_seq == state.last_seq, "W4: a lane ends at two places");
        assert!(durable_seq == state.last_seq, "W1: somebody still waits for a record");
    }
}

impl LaneState {
    /// Goes on in a chunk of `bytes`, an empty buffer; the chunk before it.
    ///
    /// # Panics
    /// Where that chunk does not end with the lane's last record, or the buffer still holds what
    /// another left in it: that would be committed again.
    fn replace_open(&mut self, bytes: Vec<u8>) -> Chunk {
        assert!(bytes.is_empty(), "W4: a chunk begins with the records of another");
        assert!(self.open.last_seq == self.last_seq, "W4: what is taken was appended");
        std::mem::replace(&mut self.open, Chunk { bytes, ..Chunk::default() })
    }
}

impl Full {
    /// Takes the first chunk, where it fits `room`.
    ///
    /// # Panics
    /// Where it is not the next one: its records would stand in the log out of order, twice, or
    /// behind a gap that no start gets past (W4).
    fn take(&mut self, room: usize) -> Option<Chunk> {
        let chunk = self.chunks.pop_front_if(|chunk| chunk.bytes.len() <= room)?;
        self.taken_seq += u64::from(chunk.records);
        assert!(self.taken_seq == chunk.last_seq, "W4: a lane's chunks leave in order, each once");
        assert!(chunk.bytes.len().is_multiple_of(8), "records are aligned");
        let headers_bytes = chunk.records as usize * RECORD_HEADER_BYTES;
        assert!(chunk.records > 0, "nothing is taken that holds no record");
        assert!(chunk.bytes.len() >= headers_bytes, "a chunk counts more records than it holds");
        Some(chunk)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn chunk(records: u32, last_seq: u64) -> Chunk {
        Chunk { bytes: vec![0; records as usize * RECORD_HEADER_BYTES], records, last_seq }
    }

    #[test]
    fn chunks_that_leave_in_order_leave_a_lane_drained() {
        let lane = Lane::after(4);
        *lane.lock() = LaneState { open: chunk(2, 6), last_seq: 6 };
        lane.close_open(&mut lane.lock(), Vec::new());
        *lane.lock() = LaneState { open: chunk(3, 9), last_seq: 9 };
        for last_seq in [6, 9] {
            let taken = lane.take(64, true, Vec::new).map(|chunk| chunk.last_seq);
            assert_eq!(taken, Some(last_seq));
        }
        lane.assert_drained(9);
    }

    #[test]
    fn a_chunk_that_leaves_twice_or_before_its_turn_is_a_bug() {
        for (records, last_seq) in [(2, 5), (2, 7), (1, 6)] {
            let mut full = Full { taken_seq: 4, chunks: [chunk(records, last_seq)].into() };
            assert!(panics(|| _ = full.take(64)), "{records} records up to {last_seq}");
        }
        let lane = Lane::after(4);
        *lane.lock() = LaneState { open: chunk(9, 13), last_seq: 9 };
        assert!(panics(|| lane.close_open(&mut lane.lock(), Vec::new())), "what nobody appended");
    }

    fn panics(act: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err()
    }

    #[test]
    fn a_chunk_that_does_not_hold_what_it_counts_is_a_bug() {
        for bytes in [0, RECORD_HEADER_BYTES, 2 * RECORD_HEADER_BYTES + 1] {
            let short = Chunk { bytes: vec![0; bytes], ..chunk(2, 6) };
            let mut full = Full { taken_seq: 4, chunks: [short].into() };
            assert!(panics(|| _ = full.take(64)), "two records in {bytes} bytes");
        }
    }

    #[test]
    fn a_chunk_that_begins_with_another_s_records_is_a_bug() {
        let mut state = LaneState { open: chunk(1, 1), last_seq: 1 };
        assert!(panics(|| _ = state.replace_open(vec![0; RECORD_HEADER_BYTES])));
    }

    #[test]
    fn a_chunk_without_room_stays_first() {
        let lane = Lane::after(0);
        *lane.lock() = LaneState { open: chunk(1, 1), last_seq: 1 };
        lane.close_open(&mut lane.lock(), Vec::new());
        *lane.lock() = LaneState { open: chunk(1, 2), last_seq: 2 };
        assert!(lane.take(15, true, Vec::new).is_none());
        assert_eq!(lane.take(64, true, Vec::new).map(|it| it.last_seq), Some(1));
    }

    #[test]
    fn the_open_chunk_of_a_long_batch_is_waited_for_or_left() {
        let lane = Lane::after(0);
        *lane.lock() = LaneState { open: chunk(1, 1), last_seq: 1 };
        let state = lane.lock();
        lane.note_long(true);
        assert!(lane.take(64, false, Vec::new).is_none(), "it would wait for this very thread");
        drop(state);
        assert!(lane.take(64, true, Vec::new).is_some());
    }
}
