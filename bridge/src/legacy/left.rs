//! Which rows are not taken over, in a few bytes.
//!
//! A row that the engine refuses is refused at every start. So that a start needn't try each of
//! them again, the log keeps a digest of all: their number and the sum of their hashes, whatever
//! their order. A row that changed, came or went makes it another one. Reservations that only keys
//! stand for are summed apart: a start that can't read them still knows the rows.
//!
//! What was refused because its units were gone is worth a try once they are back. Some of those
//! are kept one by one; of more than that, each that finds its units may be one.

use std::collections::BTreeSet;

use engine::core::limits::CONTROL_VALUE_BYTES_MAX;

/// Rows short of units that are kept one by one.
const SHORT_MAX: usize = 64;

/// A hash in hexadecimal digits, with what parts it from the next.
const WORD_BYTES: usize = 33;

// Two sums with counts of 20 digits, the hashes, and the mark that there are more.
const _: () = assert!(2 * (21 + WORD_BYTES) + SHORT_MAX * WORD_BYTES + 1 < CONTROL_VALUE_BYTES_MAX);

/// The mark that more rows are short than are kept.
const MORE: &str = "+";

/// How many rows, and the sum of their hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    count: u64,
    hashes: u128,
}

impl Sum {
    fn add(&mut self, hash: u128) {
        self.count += 1;
        self.hashes = self.hashes.wrapping_add(hash);
    }

    fn read(word: &str) -> Option<Self> {
        let (count, hashes) = word.split_once('-')?;
        let hashes = u128::from_str_radix(hashes, 16).ok()?;
        Some(Self { count: count.parse().ok()?, hashes })
    }

    fn word(self) -> String {
        format!("{}-{:032x}", self.count, self.hashes)
    }
}

/// Rows that are left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Left {
    rows: Sum,
    /// Of keys alone.
    keys: Sum,
    short: BTreeSet<u128>,
    is_more_short: bool,
}

/// A row as it is now: another one once any of it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    pub(super) hash: u128,
    pub(super) is_of_keys: bool,
}

impl Left {
    /// Adds a row.
    pub(super) fn add(&mut self, row: Digest) {
        if row.is_of_keys { self.keys.add(row.hash) } else { self.rows.add(row.hash) }
    }

    /// Adds a row that found no units.
    pub(super) fn add_short(&mut self, row: Digest) {
        self.add(row);
        match self.short.len() < SHORT_MAX {
            true => drop(self.short.insert(row.hash)),
            false => self.is_more_short = true,
        }
    }

    /// Whether that row, which is among these, may have been refused for its units alone.
    pub(super) fn may_be_short(&self, row: Digest) -> bool {
        self.is_more_short || self.short.contains(&row.hash)
    }

    /// Whether there is none but the same rows in `other`.
    pub(super) fn is_known_to(&self, other: &Self) -> bool {
        let known = |own: Sum, other: Sum| own == Sum::default() || own == other;
        known(self.rows, other.rows) && known(self.keys, other.keys)
    }

    /// What the log keeps.
    pub(super) fn record(&self) -> Vec<u8> {
        let sums = [self.rows.word(), self.keys.word()];
        let short = self.short.iter().map(|hash| format!("{hash:032x}"));
        let more = self.is_more_short.then(|| MORE.to_owned());
        let words: Vec<_> = sums.into_iter().chain(short).chain(more).collect();
        words.join(" ").into_bytes()
    }

    /// What the log kept; none where it says nothing that can be read.
    pub(super) fn recorded(value: Option<&[u8]>) -> Self {
        value.and_then(Self::read).unwrap_or_default()
    }

    fn read(value: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(value).ok()?.split(' ');
        let rows = Sum::read(words.next()?)?;
        // A record of an earlier build ends here.
        let keys = words.next().map_or(Some(Sum::default()), Sum::read)?;
        let mut left = Self { rows, keys, ..Self::default() };
        for word in words {
            match word {
                MORE => left.is_more_short = true,
                hash => drop(left.short.insert(u128::from_str_radix(hash, 16).ok()?)),
            }
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hash: u128) -> Digest {
        Digest { hash, is_of_keys: false }
    }

    fn of(hashes: &[u128]) -> Left {
        let mut left = Left::default();
        hashes.iter().for_each(|hash| left.add(row(*hash)));
        left
    }

    #[test]
    fn the_same_rows_in_any_order_are_the_same_and_a_changed_one_is_not() {
        let left = of(&[7, u128::MAX, 9]);
        assert!(of(&[9, 7, u128::MAX]).is_known_to(&left) && of(&[]).is_known_to(&left));
        for other in [of(&[7, 9]), of(&[7, u128::MAX, 8]), of(&[15])] {
            assert!(!other.is_known_to(&left));
        }
        for unreadable in [None, Some(&b""[..]), Some(b"1-x"), Some(b"\xff-1"), Some(b"1-2 3")] {
            assert_eq!(Left::recorded(unreadable), Left::default());
        }
        assert_eq!(Left::recorded(Some(b"1-7")), of(&[7]), "an earlier build's");
    }

    #[test]
    fn keys_that_are_not_there_make_the_rows_no_others() {
        let mut left = of(&[7]);
        left.add(Digest { hash: 9, is_of_keys: true });
        assert!(of(&[7]).is_known_to(&left));
        let mut other = of(&[7]);
        other.add(Digest { hash: 8, is_of_keys: true });
        assert!(!other.is_known_to(&left));
    }

    #[test]
    fn what_the_log_keeps_is_bounded_and_names_who_was_short() {
        let mut left = of(&[1]);
        left.add_short(row(2));
        assert!(left.may_be_short(row(2)) && !left.may_be_short(row(1)));
        assert_eq!(left, Left::recorded(Some(&left.record())));
        (0..1_000).for_each(|hash| left.add_short(row(hash << 100)));
        assert!(left.record().len() < CONTROL_VALUE_BYTES_MAX);
        assert_eq!(left, Left::recorded(Some(&left.record())));
        assert!(left.may_be_short(row(1)), "nobody knows");
    }
}
