//! Two ways to count, each in one 64-bit word that is idle once it no longer binds anybody.
//!
//! A *bucket* (GCRA) keeps the instant at which the caller would be back within its rate. A
//! *window* begins with the first call, lasts a period, and takes so many calls, as `INCR` with
//! `EXPIRE` does. Both are pure: state and time in, state out.

use super::rate::{Rate, Speed};

/// Bits of a window's count; the rest is its end in milliseconds.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// How a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meter {
    /// Evenly, with a burst.
    Bucket,
    /// So many in a period that begins with the first.
    Window,
}

/// It has to wait so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// Nanoseconds until one more call would be let through.
    pub(crate) ns: u64,
}

impl Meter {
    /// Whether `state` binds nobody any more: it may be forgotten.
    pub(super) fn is_idle(self, state: u64, now_ns: u64) -> bool {
        match self {
            Self::Bucket => state <= now_ns,
            Self::Window => ends_ns(state) <= now_ns,
        }
    }

    /// Whether one more call passes.
    pub(super) fn check(self, state: u64, now_ns: u64, rate: Rate) -> Result<(), Wait> {
        match self {
            Self::Bucket => {
                let ahead_ns = state.saturating_sub(now_ns);
                match ahead_ns.checked_sub(rate.tolerance_ns()) {
                    None | Some(0) => Ok(()),
                    Some(ns) => Err(Wait { ns }),
                }
            }
            Self::Window if self.is_idle(state, now_ns) => Ok(()),
            Self::Window if state & COUNT_MASK < u64::from(rate.count) => Ok(()),
            Self::Window => Err(Wait { ns: ends_ns(state) - now_ns }),
        }
    }

    /// The state after one more call. In a cell that several callers share (`shared`) a window
    /// lasts a period from each call: none of them may be let through sooner than alone.
    pub(super) fn take(
        self,
        state: u64,
        now_ns: u64,
        rate: Rate,
        speed: Speed,
        shared: bool,
    ) -> u64 {
        match self {
            Self::Bucket => state.max(now_ns).saturating_add(rate.interval_ns(speed)),
            Self::Window => {
                let idle = self.is_idle(state, now_ns);
                let count = if idle { 1 } else { (state & COUNT_MASK) + 1 };
                let ends_ms = (now_ns / 1_000_000).saturating_add(rate.period_ms + 1);
                let ends_ms = if idle || shared { ends_ms } else { state >> COUNT_BITS };
                ends_ms << COUNT_BITS | count.min(COUNT_MASK)
            }
        }
    }

    /// The state without a call that was taken at the same rate and speed.
    pub(super) fn give_back(self, state: u64, rate: Rate, speed: Speed) -> u64 {
        match self {
            Self::Bucket => state.saturating_sub(rate.interval_ns(speed)),
            Self::Window => state - u64::from(state & COUNT_MASK > 0),
        }
    }

    /// Calls that would pass at once.
    #[cfg(test)]
    pub(super) fn remaining(self, state: u64, now_ns: u64, rate: Rate, speed: Speed) -> u32 {
        let left = match self {
            Self::Bucket => {
                let full_ns = rate.tolerance_ns() + rate.interval_ns(speed);
                let free_ns = full_ns.saturating_sub(state.saturating_sub(now_ns));
                free_ns / rate.interval_ns(speed)
            }
            Self::Window if self.is_idle(state, now_ns) => u64::from(rate.count),
            Self::Window => u64::from(rate.count).saturating_sub(state & COUNT_MASK),
        };
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}

fn ends_ns(window: u64) -> u64 {
    (window >> COUNT_BITS).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    /// Calls that pass when `calls` come at each of `instants_ns`.
    fn passed(meter: Meter, rate: Rate, speed: Speed, instants_ns: &[u64], calls: u32) -> Vec<u32> {
        let mut state = 0;
        let at = |now_ns: &u64| {
            (0..calls)
                .filter(|_| {
                    let passes = meter.check(state, *now_ns, rate).is_ok();
                    if passes {
                        state = meter.take(state, *now_ns, rate, speed, false);
                    }
                    passes
                })
                .count()
        };
        instants_ns.iter().map(at).map(|count| u32::try_from(count).unwrap()).collect()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let instants = [1, 2, 3, 4].map(|second| second * SECOND);
        let table = [
            ("5/1s", Speed::FULL, [5, 5, 5, 5]),
            ("5/1s burst 1", Speed::FULL, [1, 1, 1, 1]),
            ("1/2s burst 3", Speed::FULL, [3, 0, 1, 0]),
            ("10/1s burst 20", Speed::FULL, [20, 10, 10, 10]),
        ];
        for (text, speed, expected) in table {
            assert_eq!(passed(Meter::Bucket, rate(text), speed, &instants, 50), expected, "{text}");
        }
    }

    #[test]
    fn a_window_takes_its_count_from_the_first_call_on() {
        let instants = [SECOND, 5 * SECOND, 10 * SECOND, 12 * SECOND];
        assert_eq!(passed(Meter::Window, rate("3/10s"), Speed::FULL, &instants, 2), [2, 1, 0, 2]);
    }

    #[test]
    fn a_refused_call_is_told_how_long_to_wait_and_passes_then() {
        for (meter, text) in [(Meter::Bucket, "2/3s"), (Meter::Window, "2/3s")] {
            let (rate, mut state, now) = (rate(text), 0, 7 * SECOND + 123);
            for _ in 0..2 {
                assert!(meter.check(state, now, rate).is_ok());
                state = meter.take(state, now, rate, Speed::FULL, false);
            }
            let Wait { ns } = meter.check(state, now, rate).unwrap_err();
            assert_eq!(meter.remaining(state, now, rate, Speed::FULL), 0);
            assert!(meter.check(state, now + ns - 1, rate).is_err(), "{meter:?}");
            assert!(meter.check(state, now + ns, rate).is_ok(), "{meter:?}");
        }
    }

    #[test]
    fn what_was_taken_and_given_back_is_as_if_it_had_never_been() {
        for meter in [Meter::Bucket, Meter::Window] {
            let (rate, now) = (rate("4/1s"), 9 * SECOND);
            let before = meter.take(0, now, rate, Speed::FULL, false);
            let taken = meter.take(before, now, rate, Speed::FULL, false);
            assert_eq!(meter.give_back(taken, rate, Speed::FULL), before);
        }
    }

    #[test]
    fn an_idle_state_binds_nobody() {
        let (rate, now) = (rate("3/10s"), 5 * SECOND);
        for meter in [Meter::Bucket, Meter::Window] {
            let state = meter.take(0, now, rate, Speed::FULL, false);
            assert!(!meter.is_idle(state, now));
            let later = now + 11 * SECOND;
            assert!(meter.is_idle(state, later));
            assert_eq!(
                meter.remaining(state, later, rate, Speed::FULL),
                meter.remaining(0, later, rate, Speed::FULL)
            );
        }
    }
}
