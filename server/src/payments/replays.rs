//! Signed callbacks that come again byte for byte.
//!
//! Whatever a provider says is recorded, repeats included; but whoever has overheard one signed
//! callback could fill the log with it for as long as its timestamp is good. So the first few
//! copies are recorded, and the rest answered from here. What falls out of this memory is only
//! recorded again: the log knows what it has done, and a copy has no effect.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::signature::{SKEW_SECONDS_MAX, Signature};

/// Copies of one callback that are recorded.
const RECORDED_MAX: u8 = 3;

/// Signatures of one generation; there are two, some 4 MiB each when full.
const GENERATION_MAX: usize = 1 << 16;

/// A generation's time: a timestamp is good so far before and so far after now.
const GENERATION_SECONDS: u64 = 2 * SKEW_SECONDS_MAX;

#[derive(Default)]
struct Seen {
    since: u64,
    current: HashMap<Signature, u8>,
    previous: HashMap<Signature, u8>,
}

/// The signatures of the last minutes, with how often each was recorded.
#[derive(Default)]
pub(crate) struct Replays(Mutex<Seen>);

impl Replays {
    /// Whether `signature` was recorded often enough.
    pub(crate) fn is_known(&self, signature: &Signature) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = seen.current.get(signature).or_else(|| seen.previous.get(signature));
        count.is_some_and(|count| *count >= RECORDED_MAX)
    }

    /// `signature` was recorded, durably, at `now` (Unix seconds).
    pub(crate) fn recorded(&self, signature: Signature, now: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = now.saturating_sub(seen.since) > GENERATION_SECONDS;
        if over || seen.current.len() >= GENERATION_MAX {
            seen.since = now;
            seen.previous = std::mem::take(&mut seen.current);
        }
        let before = seen.current.get(&signature).or_else(|| seen.previous.get(&signature));
        let count = before.copied().unwrap_or_default().saturating_add(1);
        seen.current.insert(signature, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_known_once_it_was_recorded_a_few_times_and_until_its_time_is_over() {
        let replays = Replays::default();
        let (mine, other) = ([1; 32], [2; 32]);
        for _ in 0..RECORDED_MAX {
            assert!(!replays.is_known(&mine));
            replays.recorded(mine, 1_000_000);
        }
        assert!(replays.is_known(&mine) && !replays.is_known(&other));
        replays.recorded(other, 1_000_001 + GENERATION_SECONDS);
        assert!(replays.is_known(&mine), "its timestamp may still be good");
        replays.recorded(other, 1_000_002 + 2 * GENERATION_SECONDS);
        assert!(!replays.is_known(&mine));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let replays = Replays::default();
        for index in 0..3 * GENERATION_MAX as u64 {
            let mut signature = [0; 32];
            signature[..8].copy_from_slice(&index.to_le_bytes());
            replays.recorded(signature, 5);
        }
        let seen = replays.0.lock().unwrap();
        assert!(seen.current.len() + seen.previous.len() <= 2 * GENERATION_MAX);
    }
}
