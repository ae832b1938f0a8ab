//! A table that grows before its users come, and becomes small again once they will not.
//!
//! Growing while they come costs each purchase a little, and some of them tens of microseconds.
//! Whoever knows how many will come has the parts split while they are vacant. All of it is done a
//! part at a time, for the shard's lock is held: neither a step up nor a step down moves more users
//! than a split does.

use std::hash::BuildHasher;

use super::{
    Line, Lines, PART_LINES_MAX, PART_LINES_MIN, PART_USERS_CALM, Part, UserTable, users_max,
};

/// Users of two parts that are joined, at most: half of what one holds, so that a table which was
/// made smaller does not grow again with the next few.
const JOINED_USERS_MAX: usize = users_max(PART_LINES_MAX) / 2;

/// What a user takes at most of a table that was made for as many as came.
const USER_BYTES_MAX: usize = (PART_LINES_MAX * LINE_BYTES * 2).div_ceil(PART_USERS_CALM);

/// Bytes of a line.
const LINE_BYTES: usize = size_of::<Line>();

/// Parts among which `users` scatter without filling one.
const fn parts_for(users: usize) -> usize {
    users.div_ceil(PART_USERS_CALM).next_power_of_two()
}

impl UserTable {
    /// Whether lines for the next part are here already, or will not be asked for soon where there
    /// are `users` at most.
    pub(in super::super) const fn is_stocked(&self, users: usize) -> bool {
        let is_even = self.parts.len() == self.directory.len();
        self.stocked.is_some() || (is_even && users < self.parts.len() * PART_USERS_CALM)
    }

    /// Whether lines for the next part that grows are here already.
    pub(in super::super) const fn has_lines(&self) -> bool {
        self.stocked.is_some()
    }

    /// Keeps `lines` for the next part that is split.
    pub(in super::super) fn stock(&mut self, lines: Option<Lines>) {
        self.stocked = lines;
    }

    /// Makes the parts that `users` will want of a table that has none, so that none is split when
    /// they come. Each is small until some do.
    pub(in super::super) fn allot(&mut self, users: usize) {
        if !self.directory.is_empty() || users <= users_max(PART_LINES_MAX) {
            return;
        }
        self.depth = parts_for(users).ilog2();
        self.directory = (0..1 << self.depth).collect();
        let small = || Part::new(PART_LINES_MIN, self.depth);
        self.parts = self.directory.iter().map(|_| small()).collect();
    }

    /// How many users there are.
    pub(in super::super) fn count(&self) -> usize {
        self.parts.iter().map(|part| part.count as usize).sum()
    }

    /// Whether it should [grow](Self::enlarge) by a part more, so that `more` beside `users` find
    /// room without growing it. Not where most of that would be room for others: a large table is
    /// not doubled ahead for a few.
    pub(in super::super) fn lacks_parts(&self, users: usize, more: usize) -> bool {
        let is_small = self.parts.first().is_none_or(|part| part.lines.len() < PART_LINES_MAX);
        let missing = parts_for(users + more).saturating_sub(self.parts.len());
        let pays = missing * PART_LINES_MAX * LINE_BYTES <= more * USER_BYTES_MAX;
        more > 0 && pays && (is_small || missing > 0)
    }

    /// Whether it has more than twice the parts that `users` and `more` want: as many of them as
    /// the next power of two are kept, so that nothing is joined and split in turn.
    pub(in super::super) fn exceeds(&self, users: usize, more: usize) -> bool {
        self.parts.len() > 2 * parts_for(users + more)
    }

    /// Grows by `lines`: a part of the largest size, which half of the users move to of the part
    /// that is split, of those that stand for the most hashes.
    pub(in super::super) fn enlarge(&mut self, lines: Lines) {
        let Some((index, part)) = self.parts.iter().enumerate().min_by_key(|(_, it)| it.depth)
        else {
            self.directory.push(0);
            self.parts.push(Part::of(lines.0, 0));
            return;
        };
        if part.lines.len() < PART_LINES_MAX {
            // The only one, or one that was allotted and has nobody yet.
            let larger = Part::of(lines.0, part.depth);
            let old = std::mem::replace(&mut self.parts[index], larger);
            let part = &mut self.parts[index];
            old.users().for_each(|user| part.insert(self.hasher.hash_one(user.id), *user));
            part.assert_holds(old.count);
            return;
        }
        let at = self.directory.iter().position(|it| *it as usize == index);
        let at = at.unwrap_or_else(|| unreachable!("a prefix leads to every part"));
        // Any hash with this prefix.
        self.split((at as u64).rotate_right(self.depth), lines);
    }

    /// Joins two parts whose users one would hold well, if there are two. The memory that gets free
    /// is for the caller to let go of, once the lock is.
    pub(in super::super) fn reduce(&mut self) -> Option<Lines> {
        if let Some(stocked) = self.stocked.take() {
            return Some(stocked);
        }
        // Only those at the full depth have their sibling beside them in the directory.
        let is_whole = |index: u32| {
            let part = &self.parts[index as usize];
            part.depth == self.depth && part.lines.len() == PART_LINES_MAX
        };
        let count = |index: u32| self.parts[index as usize].count as usize;
        let pairs = self.directory.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let (at, (lower, upper)) = pairs.enumerate().find(|(_, (lower, upper))| {
            lower != upper
                && is_whole(*lower)
                && is_whole(*upper)
                && count(*lower) + count(*upper) <= JOINED_USERS_MAX
        })?;
        self.directory[2 * at + 1] = lower;
        let lines = self.join(lower, upper);
        if self.parts.iter().all(|part| part.depth < self.depth) {
            // Every prefix has a bit less.
            self.depth -= 1;
            self.directory = self.directory.iter().copied().step_by(2).collect();
        }
        Some(lines)
    }

    /// Moves the users of the part `upper` into `lower`, and takes it out of the parts.
    fn join(&mut self, lower: u32, upper: u32) -> Lines {
        let last = self.parts.len() - 1;
        let gone = self.parts.swap_remove(upper as usize);
        // The last part stands in the place of the one that is gone.
        self.directory.iter_mut().filter(|it| **it as usize == last).for_each(|it| *it = upper);
        let lower = if lower as usize == last { upper } else { lower };
        let part = &mut self.parts[lower as usize];
        let count = part.count + gone.count;
        gone.users().for_each(|user| part.insert(self.hasher.hash_one(user.id), *user));
        part.depth -= 1;
        part.assert_holds(count);
        Lines(gone.lines)
    }
}

#[cfg(test)]
mod tests {
    use foldhash::fast::FixedState;

    use super::super::{User, UserId, prefix};
    use super::*;

    const PARTS: usize = 64;

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn add(table: &mut UserTable, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            let (place, found) = table.find(user(id));
            assert!(found.is_none());
            table.entry(place, user(id)).held = 1;
        }
    }

    fn assert_holds(table: &UserTable, count: u64) {
        assert_eq!(table.iter().count() as u64, count);
        for id in 1..=count {
            let expected = User { id: user(id), held: 1, last: None };
            assert_eq!(table.find(user(id)).1, Some(&expected));
        }
        assert!(table.find(user(count + 1)).1.is_none());
        assert_eq!(table.directory.len(), 1 << table.depth);
        for (at, index) in table.directory.iter().enumerate() {
            let part = &table.parts[*index as usize];
            let its = |user: &User| {
                prefix(table.hasher.hash_one(user.id), part.depth)
                    == at >> (table.depth - part.depth)
            };
            assert!(part.users().all(its), "a part holds the users of its prefixes");
        }
    }

    fn enlarged(mut table: UserTable, users: usize) -> UserTable {
        let before = table.iter().count();
        while table.lacks_parts(before, users - before) {
            table.enlarge(Lines::touched());
        }
        table
    }

    #[test]
    fn a_table_made_ahead_takes_all_that_it_was_made_for_without_growing() {
        let users = PARTS * PART_USERS_CALM;
        for before in [0, 5, 4_000, 20_000] {
            let mut table = UserTable::new(FixedState::with_seed(7));
            add(&mut table, 1..=before);
            let mut table = enlarged(table, users);
            assert_eq!(table.parts.len(), PARTS);
            assert!(table.parts.iter().all(|part| part.depth == table.depth));
            assert_holds(&table, before);
            assert!(table.is_stocked(users - 1));
            add(&mut table, before + 1..=users as u64);
            assert_eq!(table.parts.len(), PARTS, "no part was split");
            assert_holds(&table, users as u64);
        }
    }

    #[test]
    fn a_large_table_is_not_doubled_for_a_few() {
        let mut table = UserTable::new(FixedState::with_seed(7));
        let users = PARTS * PART_USERS_CALM;
        add(&mut table, 1..=users as u64);
        assert!(!table.lacks_parts(users, 1_000), "they find room when they come");
        assert!(table.lacks_parts(users, users), "as many again");
    }

    #[test]
    fn a_table_that_was_not_needed_becomes_as_small_as_its_users_allow() {
        for (users, parts_max) in [(0, 1), (1, 1), (1_000, 1), (3_000, 2), (20_000, 16)] {
            let mut table = UserTable::new(FixedState::with_seed(7));
            add(&mut table, 1..=users / 2);
            let mut table = enlarged(table, PARTS * PART_USERS_CALM);
            add(&mut table, users / 2 + 1..=users);
            let mut freed = 0;
            while table.reduce().is_some() {
                freed += 1;
            }
            assert!(table.parts.len() <= parts_max, "{} for {users}", table.parts.len());
            assert_eq!(freed, PARTS - table.parts.len());
            assert_holds(&table, users);
            add(&mut table, users + 1..=users + 50_000);
            assert_holds(&table, users + 50_000);
        }
    }
}
