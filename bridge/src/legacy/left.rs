//! Which rows are not taken over, in a few bytes.
//!
//! A row that the engine refuses is refused at every start. So that a start needn't try each of
//! them again, the log keeps a digest of all: their number and the sum of their hashes, whatever
//! their order. A row that changed, came or went makes it another one.

/// Rows that are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Left {
    count: u64,
    sum: u128,
}

impl Left {
    /// Adds the row of that `digest`.
    pub(super) fn add(&mut self, digest: u128) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(digest);
    }

    /// What the log keeps.
    pub(super) fn record(self) -> Vec<u8> {
        format!("{}-{:032x}", self.count, self.sum).into_bytes()
    }

    /// What the log kept; none where it says nothing that can be read.
    pub(super) fn recorded(value: Option<&[u8]>) -> Self {
        let read = |value| {
            let (count, sum) = str::from_utf8(value).ok()?.split_once('-')?;
            Some(Self { count: count.parse().ok()?, sum: u128::from_str_radix(sum, 16).ok()? })
        };
        value.and_then(read).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_rows_in_any_order_are_the_same_and_a_changed_one_is_not() {
        let of = |digests: &[u128]| {
            let mut left = Left::default();
            digests.iter().for_each(|digest| left.add(*digest));
            left
        };
        let left = of(&[7, u128::MAX, 9]);
        assert_eq!(left, of(&[9, 7, u128::MAX]));
        assert_eq!(left, Left::recorded(Some(&left.record())));
        for other in [of(&[7, 9]), of(&[7, u128::MAX, 8]), of(&[15])] {
            assert_ne!(left, other);
        }
        for unreadable in [None, Some(&b""[..]), Some(b"1-x"), Some(b"\xff-1")] {
            assert_eq!(Left::recorded(unreadable), Left::default());
        }
    }
}
