//! A breaker: what fails or drags is left alone for a while, then tried again by a few.
//!
//! It stands in front of what a request may ask but does not need: SQL today. While it is open
//! the answer comes from the engine at once, instead of from nowhere after a time-out. Purchases,
//! payments and cancels never pass through one.

mod state;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bridge::sql::store::StoreError;

pub(crate) use state::State;
use state::{Core, Outcome};

/// A call that takes longer counts as slow.
const SLOW: Duration = Duration::from_secs(1);

/// A call that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(3);

/// An error that a breaker can judge. Whatever else than SQL is to stand behind one says here which
/// of its errors mean that it is away.
pub(crate) trait Outage: fmt::Display {
    /// Whether nothing was answered. What is refused, is answered.
    fn is_outage(&self) -> bool;
}

impl Outage for StoreError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The breaker is open: nobody was asked.
    Open,
    /// There was no answer in time.
    TimedOut,
    /// It answered with an error.
    Refused,
}

/// A breaker over calls to one other system.
pub(crate) struct Breaker {
    started: Instant,
    core: Mutex<Core>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { started: Instant::now(), core: Mutex::new(Core::default()) }
    }
}

impl Breaker {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How it is, and how often it opened.
    pub(crate) fn state(&self) -> (State, u64) {
        let now_ms = self.now_ms();
        let core = self.core();
        (core.state(now_ms), core.opened())
    }

    /// What `call` answers, where the breaker lets it ask.
    ///
    /// # Errors
    /// [`Failed`]
    pub(crate) async fn call<T, E: Outage>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failed> {
        let asked_ms = self.now_ms();
        let ticket = self.core().enter(asked_ms).ok_or(Failed::Open)?;
        // A caller that hangs up leaves no probe behind for ever.
        let mut entered = Entered { breaker: self, ticket, outcome: Outcome::Abandoned };
        let answer = tokio::time::timeout(TIMEOUT, call).await;
        let slow = self.now_ms() - asked_ms >= u64::try_from(SLOW.as_millis()).unwrap_or(u64::MAX);
        entered.outcome = match &answer {
            Err(_) => Outcome::Failed,
            Ok(Err(error)) if error.is_outage() => Outcome::Failed,
            Ok(_) if slow => Outcome::Slow,
            Ok(_) => Outcome::Fine,
        };
        drop(entered);
        match answer {
            Err(_) => Err(Failed::TimedOut),
            Ok(answer) => answer.map_err(|error| {
                tracing::debug!(%error, "a query failed");
                Failed::Refused
            }),
        }
    }
}

/// A call on its way.
struct Entered<'a> {
    breaker: &'a Breaker,
    ticket: state::Ticket,
    outcome: Outcome,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let now_ms = self.breaker.now_ms();
        self.breaker.core().leave(self.ticket, self.outcome, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(work)
    }

    #[test]
    fn a_call_that_never_answers_is_given_up_and_opens_the_breaker_for_the_rest() {
        run(async {
            let breaker = Breaker::default();
            for _ in 0..state::CALLS_MIN {
                let answer = breaker.call(std::future::pending::<Result<(), StoreError>>()).await;
                assert!(matches!(answer, Err(Failed::TimedOut)));
            }
            let asked = breaker.call(async { Ok::<_, StoreError>(()) }).await;
            assert!(matches!(asked, Err(Failed::Open)), "{asked:?}");
            assert_eq!(breaker.state(), (State::Open, 1));
        });
    }

    #[test]
    fn what_the_database_refuses_is_an_answer() {
        run(async {
            let breaker = Breaker::default();
            for _ in 0..100 {
                let refused = StoreError::Unreadable { column: 1 };
                let _ = breaker.call(async { Err::<(), _>(refused) }).await;
            }
            assert_eq!(breaker.state().0, State::Closed);
        });
    }
}
