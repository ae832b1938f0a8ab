//! Waits between attempts: doubling, bounded, from the start again after a success.

use std::time::Duration;

/// The first wait: a lock or a restart of the database is often over by then.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The longest wait: how much longer than the outage itself orders can be late.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait to come.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: WAIT_MIN }
    }

    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(WAIT_MAX);
        wait
    }

    pub(crate) fn reset(&mut self) {
        self.next = WAIT_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_start_again_after_a_success() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..8).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), WAIT_MIN);
    }
}
