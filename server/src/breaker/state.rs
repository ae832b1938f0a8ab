//! The breaker's rules: time and outcomes in, decisions out.
//!
//! | state | a call | turns |
//! |---|---|---|
//! | closed | passes | open, once too many of the last ten seconds' calls were bad |
//! | open | does not | half-open, five seconds later |
//! | half-open | three at a time pass | closed after three good in a row, open after a bad one |
//!
//! Too many are half that failed, or four of five that failed or were slow, of ten at least.

/// Seconds that count, each in a bucket of its own.
const WINDOW_SECONDS: usize = 10;

/// Fewer calls say nothing.
pub(super) const CALLS_MIN: u32 = 10;

/// Opens at this share of failed calls, in percent.
const FAILED_PERCENT: u32 = 50;

/// Opens at this share of calls that failed or were slow, in percent.
const SLOW_PERCENT: u32 = 80;

/// How long it stays open.
const OPEN_MS: u64 = 5_000;

/// Calls that try at once, and that have to succeed in a row.
const PROBES: u32 = 3;

/// A probe that has not come back for so long never will.
const PROBE_MS_MAX: u64 = 10_000;

/// How a breaker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Calls pass.
    Closed,
    /// None does.
    Open,
    /// A few try.
    HalfOpen,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Fine,
    Slow,
    Failed,
    /// Whoever asked went away: it says nothing.
    Abandoned,
}

/// A call that was let through: in which phase of the breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    phase: u64,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    second: u64,
    calls: u32,
    failed: u32,
    slow: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Closed,
    Open { since_ms: u64 },
    HalfOpen { under_way: u32, fine: u32, last_ms: u64 },
}

/// The state of a breaker.
pub(super) struct Core {
    mode: Mode,
    /// Grows with each change of mode: a call of an earlier one counts for nothing.
    phase: u64,
    opened: u64,
    buckets: [Bucket; WINDOW_SECONDS],
}

impl Default for Core {
    fn default() -> Self {
        let buckets = [Bucket::default(); WINDOW_SECONDS];
        Self { mode: Mode::Closed, phase: 0, opened: 0, buckets }
    }
}

impl Core {
    /// How it is.
    pub(super) fn state(&self, now_ms: u64) -> State {
        match self.mode {
            Mode::Closed => State::Closed,
            Mode::Open { since_ms } if now_ms < since_ms.saturating_add(OPEN_MS) => State::Open,
            Mode::Open { .. } | Mode::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// How often it has opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    fn turn(&mut self, mode: Mode) {
        self.opened += u64::from(matches!(mode, Mode::Open { .. }));
        self.mode = mode;
        self.phase += 1;
        self.buckets = [Bucket::default(); WINDOW_SECONDS];
    }

    /// Lets a call through, or not.
    pub(super) fn enter(&mut self, now_ms: u64) -> Option<Ticket> {
        if matches!(self.mode, Mode::Open { .. }) && self.state(now_ms) == State::HalfOpen {
            self.turn(Mode::HalfOpen { under_way: 0, fine: 0, last_ms: now_ms });
        }
        match &mut self.mode {
            Mode::Closed => {}
            Mode::Open { .. } => return None,
            Mode::HalfOpen { under_way, last_ms, .. } => {
                if now_ms.saturating_sub(*last_ms) > PROBE_MS_MAX {
                    *under_way = 0;
                }
                if *under_way >= PROBES {
                    return None;
                }
                *under_way += 1;
                *last_ms = now_ms;
            }
        }
        Some(Ticket { phase: self.phase })
    }

    /// Notes how a call ended.
    pub(super) fn leave(&mut self, ticket: Ticket, outcome: Outcome, now_ms: u64) {
        if ticket.phase != self.phase {
            return;
        }
        match &mut self.mode {
            Mode::Closed => {
                self.count(outcome, now_ms);
                if self.is_bad(now_ms) {
                    self.turn(Mode::Open { since_ms: now_ms });
                }
            }
            Mode::Open { .. } => {}
            Mode::HalfOpen { under_way, fine, .. } => {
                *under_way = under_way.saturating_sub(1);
                match outcome {
                    Outcome::Abandoned => {}
                    Outcome::Fine if *fine + 1 >= PROBES => self.turn(Mode::Closed),
                    Outcome::Fine => *fine += 1,
                    Outcome::Slow | Outcome::Failed => {
                        self.turn(Mode::Open { since_ms: now_ms });
                    }
                }
            }
        }
    }

    fn count(&mut self, outcome: Outcome, now_ms: u64) {
        let second = now_ms / 1000;
        let index = usize::try_from(second).unwrap_or(0) % WINDOW_SECONDS;
        let bucket = &mut self.buckets[index];
        if bucket.second != second {
            *bucket = Bucket { second, ..Bucket::default() };
        }
        bucket.calls += u32::from(outcome != Outcome::Abandoned);
        bucket.failed += u32::from(outcome == Outcome::Failed);
        bucket.slow += u32::from(matches!(outcome, Outcome::Slow | Outcome::Failed));
    }

    fn is_bad(&self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        let recent = |bucket: &&Bucket| second - bucket.second < WINDOW_SECONDS as u64;
        let sum = |of: fn(&Bucket) -> u32| self.buckets.iter().filter(recent).map(of).sum::<u32>();
        let calls = sum(|bucket| bucket.calls);
        calls >= CALLS_MIN
            && (sum(|bucket| bucket.failed) * 100 >= calls * FAILED_PERCENT
                || sum(|bucket| bucket.slow) * 100 >= calls * SLOW_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(core: &mut Core, outcome: Outcome, now_ms: u64) -> bool {
        let ticket = core.enter(now_ms);
        if let Some(ticket) = ticket {
            core.leave(ticket, outcome, now_ms);
        }
        ticket.is_some()
    }

    fn opened_at(now_ms: u64) -> Core {
        let mut core = Core::default();
        for _ in 0..CALLS_MIN {
            run(&mut core, Outcome::Failed, now_ms);
        }
        core
    }

    #[test]
    fn it_opens_at_half_failed_or_four_of_five_slow_and_not_before() {
        use Outcome::{Abandoned, Failed, Fine, Slow};
        for (outcomes, state) in [
            (&[(Failed, 9)][..], State::Closed),
            (&[(Failed, 10)], State::Open),
            (&[(Fine, 6), (Failed, 5)], State::Closed),
            (&[(Fine, 6), (Failed, 6)], State::Open),
            (&[(Fine, 3), (Slow, 7)], State::Closed),
            (&[(Fine, 2), (Slow, 8)], State::Open),
            (&[(Fine, 10), (Abandoned, 90)], State::Closed),
        ] {
            let mut core = Core::default();
            for (outcome, count) in outcomes {
                for _ in 0..*count {
                    run(&mut core, *outcome, 100);
                }
            }
            assert_eq!(core.state(100), state, "{outcomes:?}");
        }
    }

    #[test]
    fn what_is_older_than_the_window_counts_no_more() {
        let mut core = Core::default();
        for second in 0..9 {
            run(&mut core, Outcome::Failed, second);
        }
        for _ in 0..9 {
            run(&mut core, Outcome::Fine, 60_000);
        }
        run(&mut core, Outcome::Failed, 60_000);
        assert_eq!(core.state(60_000), State::Closed);
    }

    #[test]
    fn open_it_lets_nobody_through_for_five_seconds_and_then_three() {
        let mut core = opened_at(1000);
        assert_eq!(core.enter(1000 + OPEN_MS - 1), None);
        let probes: Vec<_> = (0..5).filter_map(|_| core.enter(1000 + OPEN_MS)).collect();
        assert_eq!(probes.len(), 3);
        assert_eq!(core.state(1000 + OPEN_MS), State::HalfOpen);
    }

    #[test]
    fn three_probes_that_are_fine_close_it_and_one_that_is_not_opens_it_again() {
        let half = 1000 + OPEN_MS;
        let mut core = opened_at(1000);
        for _ in 0..PROBES {
            assert!(run(&mut core, Outcome::Fine, half));
        }
        assert_eq!((core.state(half), core.opened()), (State::Closed, 1));
        for bad in [Outcome::Failed, Outcome::Slow] {
            let mut core = opened_at(1000);
            assert!(run(&mut core, Outcome::Fine, half));
            assert!(run(&mut core, bad, half));
            assert_eq!((core.state(half), core.opened()), (State::Open, 2), "{bad:?}");
        }
    }

    #[test]
    fn a_probe_that_never_comes_back_does_not_keep_the_others_out_for_ever() {
        let mut core = opened_at(1000);
        let half = 1000 + OPEN_MS;
        while core.enter(half).is_some() {}
        assert!(core.enter(half + PROBE_MS_MAX + 1).is_some());
    }

    #[test]
    fn a_call_of_an_earlier_phase_says_nothing() {
        let mut core = Core::default();
        let slowest = core.enter(0).unwrap();
        for _ in 0..CALLS_MIN {
            run(&mut core, Outcome::Failed, 1000);
        }
        for _ in 0..PROBES {
            run(&mut core, Outcome::Fine, 1000 + OPEN_MS);
        }
        core.leave(slowest, Outcome::Failed, 1000 + OPEN_MS);
        assert_eq!(core.state(1000 + OPEN_MS), State::Closed);
    }
}
