//! A batch: the hold of a lane under which records are appended.

use super::Intake;
use super::lane::{Lane, LaneState};
use crate::record;
use crate::sync::MutexGuard;

/// A lane held, with room reserved in it.
pub struct Batch<'a> {
    pub(super) intake: &'a Intake,
    pub(super) lane: &'a Lane,
    pub(super) held: Option<MutexGuard<'a, LaneState>>,
    pub(super) shard: u16,
    pub(super) reserved: u64,
    pub(super) used: u64,
    /// The committing thread does not wait for it: see [`Lane::is_long`].
    pub(super) is_long: bool,
    /// Records of batches before it waited when it began, and the committer may have passed by.
    pub(super) keeps_others: bool,
    pub(super) rings: bool,
}

impl Batch<'_> {
    /// Wakes nobody when it is dropped: its caller commits. One that then did not would leave its
    /// records, and whoever waits for them, to the next that does.
    pub fn caller_commits(&mut self) {
        self.rings = false;
    }

    #[inline]
    fn state(&mut self) -> &mut LaneState {
        self.held.as_mut().expect("the lane is held until the batch is dropped")
    }

    /// Starts a command whose records take `bytes` in all: they will share a frame.
    ///
    /// # Panics
    /// Where they could not: callers bound their commands far below a frame.
    #[inline]
    pub fn command(&mut self, bytes: usize) {
        let chunk_bytes_max = self.intake.chunk_bytes_max;
        assert!(bytes <= chunk_bytes_max, "a command of {bytes} bytes does not fit a chunk");
        let state = self.state();
        if state.open.records > 0 && state.open.bytes.len() + bytes > chunk_bytes_max {
            self.close_chunk();
        }
    }

    /// Goes on in the next chunk.
    #[cold]
    pub(super) fn close_chunk(&mut self) {
        let Intake { chunk_bytes_max, pool, .. } = self.intake;
        // A lane that fills a chunk will fill the next: its room is made at once.
        let mut bytes = pool.take();
        bytes.reserve(*chunk_bytes_max);
        let lane = self.lane;
        lane.close_open(self.state(), bytes);
        if self.rings {
            self.intake.bell.ring();
        }
    }

    /// What a long batch leaves is a chunk of its own: the next may be long, too, and hold the lane
    /// before the committer is awake.
    fn end_long(&mut self) {
        let Self { lane, held, intake, .. } = self;
        let Some(state) = held else { return };
        if state.open.records > 0 {
            lane.close_open(state, intake.pool.take());
        }
        lane.note_long(false);
    }

    /// Appends a record of `kind`, whose body `write` appends. Returns its place in the shard.
    ///
    /// # Panics
    /// Where the batch's records outgrow the room it reserved: the reservation is what keeps an
    /// append from failing.
    #[inline]
    pub fn append(&mut self, kind: (u8, u8), write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.put(|buffer, shard, seq| record::append(buffer, kind, shard, seq, write))
    }

    /// [`Batch::append`] of a record whose body is `head` and then `tail`.
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn append_parts<const N: usize>(
        &mut self,
        kind: (u8, u8),
        head: &[u8; N],
        tail: &[u8],
    ) -> u64 {
        self.put(|buffer, shard, seq| {
            record::append_parts(buffer, kind, shard, seq, head, tail);
        })
    }

    #[inline]
    fn put(&mut self, append: impl FnOnce(&mut Vec<u8>, u16, u64)) -> u64 {
        let shard = self.shard;
        let state = self.state();
        let before = state.open.bytes.len();
        let seq = state.last_seq + 1;
        append(&mut state.open.bytes, shard, seq);
        state.last_seq = seq;
        state.open.last_seq = seq;
        state.open.records += 1;
        let bytes = (state.open.bytes.len() - before) as u64;
        self.used += bytes;
        assert!(self.used <= self.reserved, "a batch must stay within the room it reserved");
        seq
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.is_long {
            self.end_long();
        }
        // Let go of the lane first: the committer would wake up only to wait for it.
        self.held = None;
        self.intake.give_room_back(self.reserved.saturating_sub(self.used));
        if (self.used > 0 && self.rings) || self.keeps_others {
            self.intake.bell.ring();
        }
    }
}
