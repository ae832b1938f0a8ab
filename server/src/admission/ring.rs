//! Which of the last numbers were spent: a bit each, in a ring.
//!
//! Numbers are given in order. One that lies too far back is taken for spent: that makes the
//! memory fixed, and whoever asks for numbers in masses only makes old ones end sooner.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits in the ring: 2 MiB.
const BITS: u64 = 1 << 24;

/// Numbers that can be spent. Half of the ring: a number's bit is cleared when the number is
/// given, long after the one before it in the same place has ended.
const LIVE: u64 = BITS / 2;

/// Spent numbers. The memory is taken with the first number.
#[derive(Default)]
pub(super) struct Ring {
    issued: AtomicU64,
    words: std::sync::OnceLock<Box<[AtomicU64]>>,
}

impl Ring {
    fn word(&self, number: u64) -> (&AtomicU64, u64) {
        let words = || (0..BITS / 64).map(|_| AtomicU64::new(0)).collect();
        let index = (number % BITS) as usize;
        (&self.words.get_or_init(words)[index / 64], 1 << (index % 64))
    }

    /// A number that was never given before.
    pub(super) fn issue(&self) -> u64 {
        let number = self.issued.fetch_add(1, Ordering::AcqRel);
        let (word, bit) = self.word(number);
        word.fetch_and(!bit, Ordering::AcqRel);
        number
    }

    /// Spends `number`; whether it could still be.
    pub(super) fn spend(&self, number: u64) -> bool {
        let issued = self.issued.load(Ordering::Acquire);
        if number >= issued || issued - number > LIVE {
            return false;
        }
        let (word, bit) = self.word(number);
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Undoes [`Ring::spend`].
    pub(super) fn unspend(&self, number: u64) {
        let (word, bit) = self.word(number);
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_spent_once_and_one_that_was_not_given_never() {
        let ring = Ring::default();
        let numbers: Vec<u64> = (0..1000).map(|_| ring.issue()).collect();
        assert!(!ring.spend(1000));
        for number in &numbers {
            assert!(ring.spend(*number));
            assert!(!ring.spend(*number));
        }
        ring.unspend(7);
        assert!(ring.spend(7));
    }

    #[test]
    fn of_many_who_spend_one_number_at_once_one_succeeds() {
        let ring = Ring::default();
        let number = ring.issue();
        let spent: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| usize::from(ring.spend(number)))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(spent, 1);
    }

    #[test]
    fn a_number_too_far_back_is_taken_for_spent() {
        let ring = Ring::default();
        let old = ring.issue();
        ring.issued.store(LIVE + 1, Ordering::Release);
        assert!(!ring.spend(old));
        assert!(ring.spend(1));
    }
}
