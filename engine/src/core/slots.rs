//! An activity's reservations by position, in chunks: a million of them must not be moved at once
//! because one more came, while the shard's lock is held.

use super::ids::UserId;
use super::reservation::Slot;

/// Slots in a chunk: 56 KiB.
const CHUNK_SLOTS: usize = 1024;

/// An empty chunk that was made ahead.
#[derive(Debug)]
pub struct Chunk(Vec<Slot>);

impl Chunk {
    /// One whose memory was touched already.
    pub fn touched() -> Self {
        let user = UserId::new(1).unwrap_or_else(|| unreachable!("ids begin at 1"));
        let mut slots = vec![Slot::new(user, 0, 0, 0, 0); CHUNK_SLOTS];
        slots.clear();
        Self(slots)
    }
}

/// A dense array that grows by one chunk at a time.
#[derive(Debug, Default)]
pub struct Slots {
    /// All full but the last. The first grows as it fills, for most activities are small.
    chunks: Vec<Vec<Slot>>,
    count: usize,
    /// The next chunks, where somebody has made some ahead.
    stocked: Vec<Chunk>,
}

impl Slots {
    /// Reservations in it.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The reservation at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<&Slot> {
        self.chunks.get(index / CHUNK_SLOTS)?.get(index % CHUNK_SLOTS)
    }

    /// The reservations, by position.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flatten()
    }

    /// Whether the next chunk is here already.
    pub(super) const fn is_stocked(&self) -> bool {
        !self.stocked.is_empty()
    }

    /// Keeps `chunk` for when the last one is full.
    ///
    /// # Panics
    /// Where it is not empty, or of another size: a slot's index would lead beside it.
    pub(super) fn stock(&mut self, chunk: Option<Chunk>) {
        if let Some(Chunk(slots)) = &chunk {
            assert!(slots.is_empty(), "a chunk made ahead holds reservations of another sale");
            assert!(slots.capacity() == CHUNK_SLOTS, "a chunk of {} slots", slots.capacity());
        }
        self.stocked.extend(chunk);
    }

    /// A chunk that was kept and is not wanted any more.
    pub(super) fn unstock(&mut self) -> Option<Chunk> {
        let chunk = self.stocked.pop();
        if self.stocked.is_empty() {
            self.stocked = Vec::new();
        }
        chunk
    }

    /// Reservations that find room in the chunks that are kept.
    pub(super) const fn stocked(&self) -> usize {
        self.stocked.len() * CHUNK_SLOTS
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.chunks.get_mut(index / CHUNK_SLOTS)?.get_mut(index % CHUNK_SLOTS)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, slot: Slot) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < last.capacity() => last.push(slot),
            _ => self.push_with_room(slot),
        }
        self.count += 1;
    }

    #[cold]
    fn push_with_room(&mut self, slot: Slot) {
        self.make_room();
        let last = self.chunks.last_mut();
        last.unwrap_or_else(|| unreachable!("there is room now")).push(slot);
    }

    /// Room in the last chunk for one more.
    fn make_room(&mut self) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_SLOTS => {
                let more = chunk.len().min(CHUNK_SLOTS - chunk.len());
                chunk.reserve_exact(more);
            }
            last => {
                let is_full = last.is_none_or(|last| last.len() == CHUNK_SLOTS);
                assert!(is_full, "a slot's index says which chunk it is in");
                let room = if self.chunks.is_empty() { 1 } else { CHUNK_SLOTS };
                let stocked = self.stocked.pop().map(|chunk| chunk.0);
                self.chunks.push(stocked.unwrap_or_else(|| Vec::with_capacity(room)));
            }
        }
        assert!(self.chunks.len() == self.count / CHUNK_SLOTS + 1, "every chunk is in use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_stays_where_it_was_put_in_memory_made_ahead_or_not() {
        each_slot_stays(|| None);
        each_slot_stays(|| Some(Chunk::touched()));
    }

    #[test]
    fn a_chunk_that_is_in_use_or_of_another_size_is_a_bug() {
        let user = UserId::new(1).unwrap();
        let used = vec![Slot::new(user, 1, 0, 0, 1); CHUNK_SLOTS];
        for chunk in [Chunk(used), Chunk(Vec::with_capacity(CHUNK_SLOTS + 1)), Chunk(Vec::new())] {
            let stock = || Slots::default().stock(Some(chunk));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(stock)).is_err());
        }
    }

    fn each_slot_stays(made: impl Fn() -> Option<Chunk>) {
        let mut slots = Slots::default();
        assert!(slots.is_empty() && slots.get(0).is_none());
        let count = 3 * CHUNK_SLOTS as u64 + 1;
        for number in 1..=count {
            slots.push(Slot::new(UserId::new(number).unwrap(), 1, 0, 0, number));
            assert_eq!(slots.len() as u64, number);
            if !slots.is_stocked() {
                slots.stock(made());
            }
        }
        for (index, number) in (1..=count).enumerate() {
            assert_eq!(slots.get(index).unwrap().shard_seq(), number);
        }
        assert!(slots.get(slots.len()).is_none());
        assert!(slots.iter().map(Slot::shard_seq).eq(1..=count));
        slots.get_mut(CHUNK_SLOTS).unwrap().set_attempts(9);
        assert_eq!(slots.iter().position(|slot| slot.attempts() == 9), Some(CHUNK_SLOTS));
    }
}
