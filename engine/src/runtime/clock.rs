//! The engine's clock: monotonic within a run, steered gently toward the wall clock.
//!
//! A sale must not reopen, nor all holds expire, because somebody set the machine's clock. So the
//! engine counts on from where it started and follows the wall clock at no more than
//! [`SLEW_PPM`]; a step of the wall clock raises a flag and is never followed at once.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How fast the engine's time may run from or after the wall clock, in parts per million. What
/// NTP daemons allow themselves.
const SLEW_PPM: i64 = 500;

/// The wall clock moved this much more or less than the monotonic one between two looks: a step.
const STEP_MS: i64 = 1_000;

/// At start the wall clock may lie this far behind the last time in the log.
pub(crate) const BEHIND_MS_MAX: u64 = 3_600_000;

/// Where the engine has its time from, where that is not the machine: simulations.
pub trait TimeSource: Send + Sync {
    /// The wall clock, Unix milliseconds.
    fn wall_ms(&self) -> u64;

    /// Time since some instant; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The two clocks that are read.
#[derive(Clone)]
pub(crate) enum Clocks {
    /// The machine's.
    Machine {
        /// When the monotonic one was zero.
        started: Instant,
    },
    /// Others.
    Given(Arc<dyn TimeSource>),
}

impl Clocks {
    /// Those of `source`, else the machine's.
    pub(crate) fn of(source: Option<Arc<dyn TimeSource>>) -> Self {
        source.map_or_else(|| Self::Machine { started: Instant::now() }, Self::Given)
    }

    /// The wall clock, Unix milliseconds.
    pub(crate) fn wall_ms(&self) -> u64 {
        match self {
            Self::Machine { .. } => machine_wall_ms(),
            Self::Given(source) => source.wall_ms(),
        }
    }

    fn elapsed_us(&self) -> i64 {
        let elapsed = match self {
            Self::Machine { started } => started.elapsed(),
            Self::Given(source) => source.monotonic(),
        };
        i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
    }
}

fn machine_wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The engine's clock.
pub(crate) struct Clock {
    clocks: Clocks,
    /// What the monotonic clock showed when this one was at `base_ms`.
    base_us: i64,
    base_ms: u64,
    offset_us: AtomicI64,
    last_ms: AtomicU64,
    stepped: AtomicBool,
    last_look: Mutex<Look>,
}

#[derive(Clone, Copy)]
struct Look {
    elapsed_ms: i64,
    wall_ms: i64,
}

impl Clock {
    /// A clock that starts at the wall clock, but not before `last_ms`, the last time in the log.
    pub(crate) fn start(clocks: Clocks, last_ms: u64) -> Self {
        let (wall_ms, base_us) = (clocks.wall_ms(), clocks.elapsed_us());
        Self {
            clocks,
            base_us,
            base_ms: wall_ms.max(last_ms),
            offset_us: AtomicI64::new(0),
            last_ms: AtomicU64::new(last_ms),
            stepped: AtomicBool::new(false),
            last_look: Mutex::new(Look { elapsed_ms: 0, wall_ms: signed(wall_ms) }),
        }
    }

    /// Engine time, Unix milliseconds; never less than before.
    pub(crate) fn now_ms(&self) -> u64 {
        self.at(self.elapsed_us())
    }

    fn at(&self, elapsed_us: i64) -> u64 {
        let moved_ms = (elapsed_us + self.offset_us.load(Ordering::Relaxed)) / 1_000;
        let now_ms = self.base_ms.saturating_add_signed(moved_ms);
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    fn elapsed_us(&self) -> i64 {
        self.clocks.elapsed_us() - self.base_us
    }

    /// Looks at the wall clock and leans toward it. To be called a few times a second.
    pub(crate) fn steer(&self) {
        self.lean(self.elapsed_us(), signed(self.clocks.wall_ms()));
    }

    fn lean(&self, elapsed_us: i64, wall_ms: i64) {
        let elapsed_ms = elapsed_us / 1_000;
        let mut last = self.last_look.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let since_ms = elapsed_ms - last.elapsed_ms;
        let jump_ms = (wall_ms - last.wall_ms) - since_ms;
        *last = Look { elapsed_ms, wall_ms };
        if jump_ms.abs() > STEP_MS {
            self.stepped.store(true, Ordering::Relaxed);
        }
        let behind_us = (wall_ms - signed(self.at(elapsed_us))).saturating_mul(1_000);
        let slew_us = since_ms.max(0) * SLEW_PPM / 1_000;
        self.offset_us.fetch_add(behind_us.clamp(-slew_us, slew_us), Ordering::Relaxed);
    }

    /// Whether the wall clock stepped during this run.
    pub(crate) fn stepped(&self) -> bool {
        self.stepped.load(Ordering::Relaxed)
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 1_700_000_000_000;
    struct At(u64);

    impl TimeSource for At {
        fn wall_ms(&self) -> u64 {
            self.0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(7)
        }
    }

    fn start(wall_ms: u64, last_ms: u64) -> Clock {
        Clock::start(Clocks::of(Some(Arc::new(At(wall_ms)))), last_ms)
    }

    const SECOND_US: i64 = 1_000_000;

    #[test]
    fn a_step_is_noticed_and_followed_at_no_more_than_the_slew() {
        let year_ms = 365 * 24 * 3_600 * 1_000;
        for step_ms in [year_ms, -3_600_000] {
            let clock = start(WALL, 0);
            let mut before = clock.at(0);
            for second in 1..=100 {
                clock.lean(second * SECOND_US, signed(WALL) + second * 1_000 + step_ms);
                let now = clock.at(second * SECOND_US);
                assert!((999..=1_001).contains(&(now - before)), "{}", now - before);
                before = now;
            }
            assert!(clock.stepped());
        }
    }

    #[test]
    fn a_small_difference_is_made_up_for_without_alarm() {
        let clock = start(WALL, WALL + 20);
        for second in 1..=100 {
            clock.lean(second * SECOND_US, signed(WALL) + second * 1_000);
        }
        assert!(!clock.stepped());
        assert!(clock.at(100 * SECOND_US).abs_diff(WALL + 100_000) <= 1);
    }

    #[test]
    fn time_starts_no_earlier_than_the_log_ends() {
        assert!(start(WALL, WALL + 5_000).now_ms() >= WALL + 5_000);
    }
}
