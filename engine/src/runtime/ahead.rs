//! Work in two halves: this thread makes batches, and another does with them what only one may do
//! at a time. A start has to do with all of a shop's past; whoever reads and decodes it need not
//! wait for the state, nor the state for it.
//!
//! - **Nothing but order is shared.** Batches are done one after another in the order in which they
//!   were given, on whichever thread, so the outcome is the same with one thread as with two.
//! - **Short work has no second thread**, nor has any on a machine with one core: it would take
//!   longer to start than to do.
//! - **Memory is bounded**: a few batches wait at most, and go round to be filled again.
//! - **Nothing hangs.** The first error ends the doing, and whoever gives is told at the next batch
//!   to stop; a panic on either side ends both and goes on in the caller.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

use crate::planted;

/// Batches that wait to be done: enough that neither side stops for a pause of the other.
const BATCHES_AHEAD: usize = 4;

/// What does the batches.
pub(crate) trait Stage: Send {
    /// What it does at once. An empty one is the default.
    type Batch: Default + Send;
    /// Why it does no more.
    type Error: Send;

    /// Does the next batch.
    fn apply(&mut self, batch: &Self::Batch) -> Result<(), Self::Error>;
}

/// The stage takes no more batches: [`beside`] tells why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what was read before does not hold")]
pub(crate) struct Stopped;

/// The near end of a stage.
pub(crate) struct Feed<'scope, 'env, S: Stage> {
    scope: &'scope Scope<'scope, 'env>,
    side: Side<'scope, 'env, S>,
    /// Batches that are still done on this thread.
    alone: usize,
}

enum Side<'scope, 'env, S: Stage> {
    /// On this thread.
    Here(&'env mut S),
    /// On one of its own.
    There {
        batches: SyncSender<S::Batch>,
        used: Receiver<S::Batch>,
        thread: ScopedJoinHandle<'scope, Result<(), S::Error>>,
    },
    /// It has ended.
    Over(Result<(), S::Error>),
}

/// Runs `feed`, which gives its batches to `stage`: `alone` of them are done on this thread, and
/// all that follow on another, where there is a core for it. Returns what `feed` did and, once all
/// is done, what became of it: an error of the stage stands before whatever `feed` met, for it is
/// about something earlier.
pub(crate) fn beside<'env, S: Stage, R>(
    stage: &'env mut S,
    alone: usize,
    feed: impl FnOnce(&mut Feed<'_, 'env, S>) -> R,
) -> (R, Result<(), S::Error>) {
    let alone = if has_cores() { alone } else { usize::MAX };
    thread::scope(|scope| {
        let mut near = Feed { scope, side: Side::Here(stage), alone };
        let fed = feed(&mut near);
        (fed, near.finish())
    })
}

/// Whether a second thread has a core to work on.
pub(crate) fn has_cores() -> bool {
    thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

impl<'env, S: Stage> Feed<'_, 'env, S> {
    /// Gives a batch. Returns one to fill next, which may hold what was done before.
    pub(crate) fn give(&mut self, batch: S::Batch) -> Result<S::Batch, Stopped> {
        match self.alone.checked_sub(1) {
            Some(left) => self.alone = left,
            None => self.part(),
        }
        match &mut self.side {
            Side::Here(stage) => match stage.apply(&batch) {
                Ok(()) => Ok(batch),
                Err(error) => {
                    self.side = Side::Over(Err(error));
                    Err(Stopped)
                }
            },
            Side::There { batches, used, .. } => {
                batches.send(batch).map_err(|_| Stopped)?;
                Ok(used.try_recv().unwrap_or_default())
            }
            Side::Over(_) => Err(Stopped),
        }
    }

    /// Lets a thread of its own go on with the stage; where there is none to be had, this one does.
    fn part(&mut self) {
        let side = std::mem::replace(&mut self.side, Side::Over(Ok(())));
        let Side::Here(stage) = side else {
            self.side = side;
            return;
        };
        // Handed over once the thread is there: one that can't be had must not take it along.
        let (hand, taken) = channel::<&'env mut S>();
        let (batches, waiting) = sync_channel(BATCHES_AHEAD);
        let (done, used) = channel();
        let works = planted::handed_on(move || {
            let Ok(stage) = taken.recv() else { return Ok(()) };
            for batch in waiting {
                stage.apply(&batch)?;
                // Nobody fills it again after the last.
                let _ = done.send(batch);
            }
            Ok(())
        });
        let name = "engine-ahead".to_owned();
        self.side = match Builder::new().name(name).spawn_scoped(self.scope, works) {
            Ok(thread) => match hand.send(stage) {
                Ok(()) => Side::There { batches, used, thread },
                Err(refused) => Side::Here(refused.0),
            },
            Err(_) => {
                self.alone = usize::MAX;
                Side::Here(stage)
            }
        };
    }

    /// Waits until everything that was given is done.
    fn finish(self) -> Result<(), S::Error> {
        match self.side {
            Side::Here(_) => Ok(()),
            Side::Over(outcome) => outcome,
            Side::There { batches, thread, .. } => {
                drop(batches);
                let outcome: Result<_, Box<dyn Any + Send>> = thread.join();
                outcome.unwrap_or_else(|panic| resume_unwind(panic))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::ThreadId;

    use super::*;

    /// Notes what comes, up to a batch that it can't take.
    #[derive(Default)]
    struct Book {
        taken: Vec<u32>,
        threads: Vec<ThreadId>,
        refused: Option<u32>,
        feared: Option<u32>,
    }

    impl Stage for Book {
        type Batch = Vec<u32>;
        type Error = u32;

        fn apply(&mut self, batch: &Vec<u32>) -> Result<(), u32> {
            for number in batch {
                assert_ne!(self.feared, Some(*number), "feared");
                if self.refused == Some(*number) {
                    return Err(*number);
                }
                self.taken.push(*number);
            }
            self.threads.push(thread::current().id());
            Ok(())
        }
    }

    /// Gives `0..count` one by one, and tells how many were taken off its hands.
    fn give(feed: &mut Feed<'_, '_, Book>, count: u32) -> u32 {
        let mut batch = Vec::new();
        for number in 0..count {
            batch.clear();
            batch.push(number);
            match feed.give(batch) {
                Ok(next) => batch = next,
                Err(Stopped) => return number,
            }
        }
        count
    }

    #[test]
    fn batches_are_done_in_order_the_first_here_and_the_others_on_one_thread() {
        for alone in [0, 1, 5, 1_000] {
            let mut book = Book::default();
            let (given, outcome) = beside(&mut book, alone, |feed| give(feed, 100));
            assert_eq!((given, outcome), (100, Ok(())));
            assert!(book.taken.iter().copied().eq(0..100));
            let here = book.threads.iter().filter(|id| **id == thread::current().id()).count();
            let cores = thread::available_parallelism().unwrap().get();
            assert_eq!(here, if cores > 1 { alone.min(100) } else { 100 });
        }
    }

    /// Tells under which planted fault each batch is done.
    #[cfg(feature = "planted-bugs")]
    #[derive(Default)]
    struct Faulty(Vec<bool>);

    #[cfg(feature = "planted-bugs")]
    impl Stage for Faulty {
        type Batch = ();
        type Error = ();

        fn apply(&mut self, (): &()) -> Result<(), ()> {
            self.0.push(planted::has(planted::Bug::ReplayedAtAnotherTime));
            Ok(())
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_planted_fault_of_this_thread_is_one_of_the_thread_that_it_starts() {
        for bug in [None, Some(planted::Bug::ReplayedAtAnotherTime)] {
            planted::choose(bug);
            let mut faulty = Faulty::default();
            let (given, done) =
                beside(&mut faulty, 2, |feed| (0..9).all(|_| feed.give(()).is_ok()));
            assert!(given && done.is_ok());
            assert_eq!(faulty.0, [bug.is_some(); 9], "here and on the other thread");
        }
        planted::choose(None);
    }

    #[test]
    fn the_first_error_stops_the_giving_and_is_told() {
        for alone in [0, 1_000] {
            let mut book = Book { refused: Some(50), ..Book::default() };
            let (given, outcome) = beside(&mut book, alone, |feed| give(feed, 1_000_000));
            assert_eq!(outcome, Err(50));
            assert!(given < 1_000_000, "{given}");
            assert!(book.taken.iter().copied().eq(0..50), "nothing is done after it");
        }
    }

    #[test]
    fn an_error_in_the_last_batch_is_told_though_nobody_gives_any_more() {
        let mut book = Book { refused: Some(9), ..Book::default() };
        assert_eq!(beside(&mut book, 0, |feed| give(feed, 10)), (10, Err(9)));
    }

    #[test]
    fn a_panic_on_either_side_goes_on_in_the_caller() {
        for alone in [0, 1_000] {
            let mut book = Book { feared: Some(7), ..Book::default() };
            let run = AssertUnwindSafe(|| beside(&mut book, alone, |feed| give(feed, 1_000)));
            assert!(catch_unwind(run).is_err());
            let mut book = Book::default();
            let run = AssertUnwindSafe(|| {
                beside(&mut book, alone, |feed| {
                    give(feed, 100);
                    panic!("in the feed");
                })
            });
            assert!(catch_unwind(run).is_err());
            assert!(book.taken.iter().copied().eq(0..100));
        }
    }
}
