//! The hash table of an activity's users: what nearly every purchase waits for, because nothing
//! else of it lies anywhere in memory.
//!
//! - **One cache line a look-up.** Entries of 16 bytes lie four to a line, and a full line's
//!   surplus in the next ([linear probing]); users are never removed, so a look-up ends at the
//!   first vacancy, which is where the user would come.
//! - **Little is moved at once.** A table that grows moves all it holds, under the shard's lock,
//!   and with ten million users that is a pause which every shopper sees. So the table lies in
//!   parts, and a full part alone is split in two ([extendible hashing]): what one purchase can
//!   wait for is the moving of 3,276 entries, tens of microseconds. Who knows what will come can
//!   have the parts made ahead, and then nothing is moved: see `resize`.
//! - **An activity without users takes no memory**, for most are small.
//!
//! [linear probing]: https://en.wikipedia.org/wiki/Linear_probing
//! [extendible hashing]: https://en.wikipedia.org/wiki/Extendible_hashing

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::ids::{Position, UserId};

mod resize;

/// Entries in a cache line.
const LINE_USERS: usize = 4;

/// Lines of a new part.
const PART_LINES_MIN: usize = 2;
/// Lines of a part that is split instead of doubled.
const PART_LINES_MAX: usize = 1_024;

/// Parts from which on lines are fetched ahead: with fewer the table takes a megabyte at most.
const FETCHED_PARTS_MIN: usize = 16;

/// Users that are fetched at once: more than the processor reads from memory side by side, few
/// enough that what was fetched is at hand still when its turn comes.
pub(super) const FETCHED_TOGETHER: usize = 64;

const _: () = assert!(FETCHED_TOGETHER <= u64::BITS as usize, "a bit stands for each");

/// What is known of a user: 16 bytes with the id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct User {
    pub(super) id: UserId,
    /// Units reserved or bought, but for refunds that freed the limit.
    pub(super) held: u32,
    /// The newest reservation accepted here.
    pub(super) last: Option<Position>,
}

/// Entries from the front, then vacancies.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([Option<User>; LINE_USERS]);

const _: () = assert!(size_of::<Line>() == 64, "a line of the table is a line of the cache");

impl Line {
    /// The entry that ends the look for `id`: its own, or the first vacancy. All entries are looked
    /// at, without a branch: which one it is, is nothing that a processor could guess, and a wrong
    /// guess costs as much as the rest of the look.
    #[inline(always)]
    fn end_of_look(&self, id: UserId) -> Option<usize> {
        let ends = |user: &Option<User>| {
            let found = user.as_ref().map_or(0, |user| user.id.get());
            u32::from((found == 0) | (found == id.get()))
        };
        let [first, second, third, fourth] = &self.0;
        let all = ends(first) | ends(second) << 1 | ends(third) << 2 | ends(fourth) << 3;
        (all != 0).then(|| all.trailing_zeros() as usize)
    }

    /// Its users: they stand from the front.
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.iter().map(|user| usize::from(user.is_some())).sum()
    }
}

/// Where a user is, or would come. Good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    hash: u64,
    part: u32,
    line: u32,
    /// As wide as it is copied: a narrow one is read back before it was written.
    entry: usize,
}

/// Lines for a part of the largest size, made ahead.
#[derive(Debug)]
pub struct Lines(Box<[Line]>);

impl Lines {
    /// Vacant ones, whose memory was touched already.
    pub fn touched() -> Self {
        Self(vec![Line::default(); PART_LINES_MAX].into())
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct UserTable {
    hasher: FixedState,
    /// The part of each prefix of `depth` bits; none before the first user.
    directory: Vec<u32>,
    depth: u32,
    parts: Vec<Part>,
    /// Those of the next part, where somebody has made them ahead.
    stocked: Option<Lines>,
}

#[derive(Debug)]
struct Part {
    /// A power of two of them.
    lines: Box<[Line]>,
    count: u32,
    /// Users at most: see [`users_max`].
    count_max: u32,
    /// Bits of the prefix that its hashes have in common.
    depth: u32,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has looked for a user, in any table.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl UserTable {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { hasher, directory: Vec::new(), depth: 0, parts: Vec::new(), stocked: None }
    }

    /// The place of `id`, and the user where there is one.
    #[inline(always)]
    pub(super) fn find(&self, id: UserId) -> (Place, Option<&User>) {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let hash = self.hasher.hash_one(id);
        let Some(&part) = self.directory.get(prefix(hash, self.depth)) else {
            return (Place { hash, part: 0, line: 0, entry: 0 }, None);
        };
        let (line, entry, user) = self.parts[part as usize].find(hash, id);
        (Place { hash, part, line, entry }, user)
    }

    /// The user `id` at `place`, which was found since the table last changed; one that holds
    /// nothing is put there where there is none.
    #[inline(always)]
    pub(super) fn entry(&mut self, place: Place, id: UserId) -> &mut User {
        if self.has_room(place) {
            return self.at(place, id);
        }
        let place = self.make_room(place, id);
        self.at(place, id)
    }

    /// The user `id` at `place`, where there is room.
    #[inline(always)]
    fn at(&mut self, place: Place, id: UserId) -> &mut User {
        let part = &mut self.parts[place.part as usize];
        let entry = &mut part.lines[place.line as usize].0[place.entry];
        part.count += u32::from(entry.is_none());
        let user = entry.get_or_insert(User { id, held: 0, last: None });
        assert!(user.id == id, "a place is used before the table changes");
        user
    }

    /// Reads the lines of each of `users`. The reads do not wait for each other, so the lines come
    /// from memory side by side, and who looks the users up next finds them at hand.
    pub(super) fn fetch(&self, mut users: impl Iterator<Item = UserId>) {
        // A table that the processor's own memory holds is at hand anyway.
        if self.parts.len() < FETCHED_PARTS_MIN {
            return;
        }
        while self.fetch_some(users.by_ref().take(FETCHED_TOGETHER)) {}
    }

    /// The same for [`FETCHED_TOGETHER`] at most; whether there was one.
    fn fetch_some(&self, users: impl Iterator<Item = UserId>) -> bool {
        let mut next = [(0, 0); FETCHED_TOGETHER];
        let (mut count, mut full) = (0, 0u64);
        for (at, id) in users.enumerate() {
            let hash = self.hasher.hash_one(id);
            let index = self.directory[prefix(hash, self.depth)];
            let part = &self.parts[index as usize];
            let home = part.home(hash);
            next[at] = (index, part.after(home));
            full |= u64::from(part.lines[home].0[LINE_USERS - 1].is_some()) << at;
            count += 1;
        }
        // What does not fit a full line stands in the next. A processor that guesses at each line
        // whether it is full guesses wrong too often: all homes are here before the first is asked.
        let mut taken = 0;
        while full != 0 {
            let (index, line) = next[full.trailing_zeros() as usize];
            taken += usize::from(self.parts[index as usize].lines[line].0[0].is_some());
            full &= full - 1;
        }
        // The count is good for nothing, but the compiler must not find out.
        std::hint::black_box(taken);
        count > 0
    }

    /// The users, part by part by the highest bits of their hashes, and by the lowest within one:
    /// who adds them to another table in this order goes through that from one end to the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &User> {
        // The prefixes that lead to a part are neighbours.
        let parts = self.directory.chunk_by(|one, next| one == next).filter_map(|it| it.first());
        parts.flat_map(|part| self.parts[*part as usize].users())
    }

    /// Whether the user of `place` is there or may come there.
    #[inline]
    fn has_room(&self, place: Place) -> bool {
        let Some(part) = self.parts.get(place.part as usize) else { return false };
        part.count < part.count_max || part.lines[place.line as usize].0[place.entry].is_some()
    }

    /// Makes room for the user `id`, who is not there; where that is, once there is.
    #[cold]
    fn make_room(&mut self, mut place: Place, id: UserId) -> Place {
        while !self.has_room(place) {
            self.grow(place.hash);
            (place, _) = self.find(id);
        }
        place
    }

    /// Makes room for one more user with `hash`: doubles its part, or splits it in two. Hashes
    /// that agree in their next bit all go to one half, and may want this again.
    fn grow(&mut self, hash: u64) {
        if self.directory.is_empty() {
            self.directory.push(0);
            self.parts.push(Part::new(PART_LINES_MIN, 0));
            return;
        }
        let index = self.directory[prefix(hash, self.depth)];
        let part = &mut self.parts[index as usize];
        let (lines, depth) = (part.lines.len(), part.depth);
        if lines < PART_LINES_MAX {
            // One of several is to be large: see `allot`.
            let larger = match depth {
                0 => Part::new(2 * lines, depth),
                _ => Part::of(self.stocked.take().unwrap_or_else(Lines::touched).0, depth),
            };
            let old = std::mem::replace(part, larger);
            old.users().for_each(|user| part.insert(self.hasher.hash_one(user.id), *user));
            part.assert_holds(old.count);
            return;
        }
        let lines = self.stocked.take().unwrap_or_else(Lines::touched);
        self.split(hash, lines);
    }

    /// Splits the part of `hash`, which is of the largest size, in two; `lines` are for the users
    /// whose hashes have its next bit set.
    fn split(&mut self, hash: u64, lines: Lines) {
        let index = self.directory[prefix(hash, self.depth)];
        let part = &mut self.parts[index as usize];
        let (count, depth) = (part.count, part.depth);
        assert!(depth < PREFIX_BITS_MAX, "a hash that scatters nothing");
        if depth == self.depth {
            // Every prefix gets one more bit.
            self.depth += 1;
            self.directory = self.directory.iter().flat_map(|part| [*part; 2]).collect();
        }
        let upper = part.split(lines, |id| self.hasher.hash_one(id));
        assert!(part.count + upper.count == count, "W17: a split forgets no one's units");
        // The prefixes that lead to the part are neighbours; the next bit is set in the upper half.
        let prefixes = 1 << (self.depth - depth);
        let first = prefix(hash, self.depth) / prefixes * prefixes;
        let added = u32::try_from(self.parts.len())
            .unwrap_or_else(|_| unreachable!("four thousand million parts fit no memory"));
        self.directory[first + prefixes / 2..first + prefixes].fill(added);
        self.parts.push(upper);
        assert!(self.directory.len() == 1 << self.depth, "every prefix leads to a part");
    }
}

impl Part {
    fn new(lines: usize, depth: u32) -> Self {
        Self::of(vec![Line::default(); lines].into(), depth)
    }

    /// A part of vacant `lines`.
    fn of(lines: Box<[Line]>, depth: u32) -> Self {
        let count_max = u32::try_from(users_max(lines.len())).unwrap_or(u32::MAX);
        Self { lines, count: 0, count_max, depth }
    }

    /// The line and the entry of `id`, or those of the vacancy where it would come: there is
    /// always one, for a part is never full.
    #[inline(always)]
    fn find(&self, hash: u64, id: UserId) -> (u32, usize, Option<&User>) {
        let mut line = self.home(hash);
        loop {
            let users = &self.lines[line];
            if let Some(entry) = users.end_of_look(id) {
                #[expect(clippy::cast_possible_truncation, reason = "a part is small")]
                return (line as u32, entry, users.0[entry].as_ref());
            }
            line = self.after(line);
        }
    }

    /// Takes out those whose hash has the next bit set, as a part of their own. The others move up
    /// where they stay: half of the memory, and half of the new lines, of two fresh halves.
    fn split(&mut self, vacant: Lines, hash_of: impl Fn(UserId) -> u64) -> Self {
        let lines = self.lines.len();
        self.depth += 1;
        self.count = 0;
        let mut upper = Self::of(vacant.0, self.depth);
        // Nobody went past a line with a vacancy, so behind it everybody has a home that was looked
        // at before, and comes to stand there or before where it stood.
        let has_vacancy = |line: &Line| line.0[LINE_USERS - 1].is_none();
        let first = self.lines.iter().position(has_vacancy);
        let mut line = first.unwrap_or_else(|| unreachable!("a part is never full"));
        for _ in 0..lines {
            line = self.after(line);
            for user in std::mem::take(&mut self.lines[line]).0.into_iter().flatten() {
                let hash = hash_of(user.id);
                let is_upper = prefix(hash, self.depth) % 2 == 1;
                let half = if is_upper { &mut upper } else { &mut *self };
                half.insert(hash, user);
            }
        }
        upper
    }

    /// # Panics
    /// Where it does not hold `count` users, with room for a look-up to end in.
    fn assert_holds(&self, count: u32) {
        assert!(self.count == count, "W17: growing forgets no one's units");
        assert!(self.count < self.count_max, "a look-up for a stranger ends at a vacancy");
    }

    /// Adds a user that is not there.
    #[inline]
    fn insert(&mut self, hash: u64, user: User) {
        let mut line = self.home(hash);
        self.count += 1;
        loop {
            let users = &mut self.lines[line];
            let count = users.count();
            if let Some(vacancy) = users.0.get_mut(count) {
                *vacancy = Some(user);
                return;
            }
            line = self.after(line);
        }
    }

    /// The line where a user with `hash` is looked for first.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the mask keeps what a part has")]
        let line = hash as usize & (self.lines.len() - 1);
        line
    }

    /// The line after `line`, the first after the last.
    #[inline]
    fn after(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }

    fn users(&self) -> impl Iterator<Item = &User> {
        self.lines.iter().flat_map(|line| line.0.iter().flatten())
    }
}

/// Users of a part at most: four fifths of its room. A look-up for a stranger then sees one line
/// or two, and less than four in a part that is about to grow; beyond, the lines it sees double
/// with every few users. Right after it grew a part is half as full, which is the worst case of
/// [`Slot`](super::reservation::Slot)'s budget.
const fn users_max(lines: usize) -> usize {
    lines * LINE_USERS * 4 / 5
}

/// Users of a part of the largest size among whom none of many such parts is full yet: hashes do
/// not scatter evenly, and with as many on average a part has a tenth more once in thousands.
const PART_USERS_CALM: usize = PART_LINES_MAX * LINE_USERS * 7 / 10;

/// Bits of a hash that choose its line within the largest part.
const LINE_BITS: u32 = PART_LINES_MAX.trailing_zeros();

/// Bits that are left to choose a part by.
const PREFIX_BITS_MAX: u32 = u64::BITS - LINE_BITS;

/// The `depth` highest bits of a hash.
#[inline]
const fn prefix(hash: u64, depth: u32) -> usize {
    // In two steps: a shift by all 64 bits would be none.
    (hash >> 1 >> (u64::BITS - 1 - depth)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART_USERS_MAX: usize = users_max(PART_LINES_MAX);

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn add_unit(table: &mut UserTable, id: u64) {
        let (place, _) = table.find(user(id));
        table.entry(place, user(id)).held += 1;
    }

    #[test]
    fn every_user_is_found_again_however_often_parts_were_split() {
        let mut table = UserTable::new(FixedState::with_seed(7));
        assert!(table.find(user(1)).1.is_none());
        let count = 40 * PART_USERS_MAX as u64;
        for round in 1..=2 {
            for id in 1..=count {
                add_unit(&mut table, id);
            }
            assert_eq!(table.iter().count() as u64, count);
            for id in 1..=count {
                let expected = User { id: user(id), held: round, last: None };
                assert_eq!(table.find(user(id)).1, Some(&expected));
            }
        }
        assert!(table.find(user(count + 1)).1.is_none());
        assert!(table.parts.len() > 40);
        for part in &table.parts {
            assert_eq!(part.count as usize, part.users().count());
            assert!(part.count as usize <= PART_USERS_MAX);
        }
    }

    #[test]
    fn a_table_without_users_takes_no_memory_and_a_small_one_little() {
        let mut table = UserTable::new(FixedState::with_seed(7));
        assert_eq!((table.directory.capacity(), table.parts.capacity()), (0, 0));
        (1..=6).for_each(|id| add_unit(&mut table, id));
        assert_eq!(table.parts.len(), 1);
        assert_eq!(table.parts[0].lines.len(), PART_LINES_MIN);
    }

    #[test]
    fn a_table_that_was_allotted_takes_the_users_of_another_in_any_order_and_splits_nothing() {
        let count = 20 * PART_USERS_MAX as u64;
        let mut one = UserTable::new(FixedState::with_seed(7));
        (1..=count).for_each(|id| add_unit(&mut one, id));
        let in_order: Vec<User> = one.iter().copied().collect();
        let hashes = in_order.iter().map(|user| prefix(one.hasher.hash_one(user.id), one.depth));
        assert!(hashes.is_sorted(), "part by part");
        let mut reversed = in_order.clone();
        reversed.reverse();
        for users in [in_order, reversed] {
            let mut other = UserTable::new(FixedState::with_seed(7));
            other.allot(users.len());
            let parts = other.parts.len();
            for user in &users {
                let (place, found) = other.find(user.id);
                assert_eq!(found, None);
                *other.entry(place, user.id) = *user;
            }
            assert_eq!((other.parts.len(), other.count()), (parts, users.len()));
            assert!(users.iter().all(|user| other.find(user.id).1 == Some(user)));
            assert!(other.find(user(count + 1)).1.is_none());
        }
    }

    #[test]
    fn a_full_part_still_answers_within_a_few_lines() {
        let mut table = UserTable::new(FixedState::with_seed(7));
        (1..=PART_USERS_MAX as u64).for_each(|id| add_unit(&mut table, id));
        let part = &table.parts[0];
        assert_eq!((table.parts.len(), part.count as usize), (1, PART_USERS_MAX));
        let strangers = PART_USERS_MAX as u64 + 1..=2 * PART_USERS_MAX as u64;
        let lines = |id| {
            let (place, _) = table.find(user(id));
            let home = place.hash % PART_LINES_MAX as u64;
            (u64::from(place.line) + PART_LINES_MAX as u64 - home) % PART_LINES_MAX as u64 + 1
        };
        let total: u64 = strangers.map(lines).sum();
        assert!(total < 5 * PART_USERS_MAX as u64, "{total} lines for {PART_USERS_MAX} strangers");
    }

    #[test]
    #[should_panic(expected = "before the table changes")]
    fn a_place_that_is_stale_is_a_bug() {
        let mut table = UserTable::new(FixedState::with_seed(7));
        add_unit(&mut table, 1);
        let (place, _) = table.find(user(1));
        table.entry(place, user(2));
    }
}
