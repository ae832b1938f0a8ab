//! What one loop decides between two commits.
//!
//! A purchase that was decided on a loop's thread waits for that thread's own commit, which comes
//! when nothing else is left to decide: one durable write answers a whole turn, and no other thread
//! is woken on the way. Everywhere else the log's thread commits.
//!
//! Answers that need no commit leave with those of the turn, too: each write wakes its client, and
//! a client that is woken for one answer has slept again before the next.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use engine::{Engine, LogUnavailable, Pending};

use crate::app::{App, Shared};

/// Answers of one turn: about a frame of the log.
const ANSWERS_MAX: u32 = 1024;

/// How long an answer waits while its loop finds other things to do.
const TURN_MAX: Duration = Duration::from_millis(1);

/// A turn of one loop.
#[derive(Clone, Copy)]
struct Turn {
    /// Turns before it.
    number: u64,
    /// Answers that wait for its end.
    answers: u32,
    /// When the first of them was decided.
    since: Instant,
    /// Some of them wait for a commit.
    commits: bool,
}

thread_local! {
    /// Set on the threads of loops alone.
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
    /// Who waits for the end of the turn alone.
    static WAITING: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// From now on this thread commits what it decides, whenever [`end`] is called.
pub(super) fn begin() {
    TURN.set(Some(Turn { number: 0, answers: 0, since: Instant::now(), commits: false }));
}

/// The engine for a decision whose answer [`durable`] waits for.
pub(crate) fn engine(app: &App) -> &Engine {
    if TURN.get().is_some() { &app.committing } else { &app.engine }
}

/// The answer of a decision that [`engine()`] made, once durable.
///
/// # Errors
/// [`LogUnavailable`] where the log failed first: the outcome is unknown.
pub(crate) async fn durable<T>(app: &App, pending: Pending<T>) -> Result<T, LogUnavailable> {
    let pending = match pending.try_durable() {
        Ok(answer) => return answer,
        Err(later) => later,
    };
    wait_for_end(true, Some(app));
    pending.durable().await
}

/// The present turn; `None` on a thread that has none.
pub(crate) fn present() -> Option<u64> {
    TURN.get().map(|turn| turn.number)
}

/// Waits until `turn`, which was the present one, has ended.
pub(crate) async fn ended(app: Option<&App>, turn: Option<u64>) {
    if turn.is_none() || present() != turn {
        return;
    }
    wait_for_end(false, app);
    let mut is_known = false;
    poll_fn(|context| {
        if present() != turn {
            return Poll::Ready(());
        }
        if !is_known {
            is_known = true;
            WAITING.with_borrow_mut(|waiting| waiting.push(context.waker().clone()));
        }
        Poll::Pending
    })
    .await;
}

/// One more answer waits for the end of the turn, which ends where that are enough.
fn wait_for_end(commits: bool, app: Option<&App>) {
    let Some(mut turn) = TURN.get() else { return };
    if turn.answers == 0 {
        turn.since = Instant::now();
    }
    turn.answers += 1;
    turn.commits |= commits;
    TURN.set(Some(turn));
    if turn.answers >= ANSWERS_MAX {
        end(app);
    }
}

/// Ends a turn that has lasted long enough: a loop that always has something to do never rests.
pub(super) fn end_overdue(shared: &Shared) {
    let is_overdue =
        matches!(TURN.get(), Some(Turn { answers: 1.., since, .. }) if since.elapsed() >= TURN_MAX);
    if is_overdue {
        end(shared.app().ok());
    }
}

/// Ends the turn: commits what this thread has decided, and lets its answers leave. Tells whether
/// there was anything to commit.
pub(super) fn end(app: Option<&App>) -> bool {
    let Some(turn @ Turn { answers: 1.., .. }) = TURN.get() else { return false };
    TURN.set(Some(Turn { number: turn.number + 1, answers: 0, commits: false, ..turn }));
    // A log that has failed tells everybody who waits for it, and ends the process.
    let has_committed = turn.commits && app.is_some_and(|app| app.committing.commit().is_ok());
    let mut waiting = WAITING.take();
    waiting.drain(..).for_each(Waker::wake);
    WAITING.set(waiting);
    has_committed
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    fn is_ready(wait: &mut (impl Future + Unpin)) -> bool {
        pin!(wait).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn an_answer_that_needs_no_commit_leaves_with_its_turn() {
        let loop_thread = std::thread::spawn(|| {
            assert!(
                is_ready(&mut Box::pin(ended(None, present()))),
                "elsewhere there are no turns"
            );
            begin();
            let mut waits = [(); 3].map(|()| Box::pin(ended(None, present())));
            for _ in 0..2 {
                assert!(!waits.iter_mut().any(is_ready));
            }
            assert!(!end(None), "there was nothing to commit");
            assert!(waits.iter_mut().all(is_ready));
            assert!(!end(None), "nobody waits");
        });
        loop_thread.join().unwrap();
    }

    #[test]
    fn a_turn_ends_when_it_has_enough_answers() {
        let loop_thread = std::thread::spawn(|| {
            begin();
            let first = present();
            let mut waits: Vec<_> =
                (1..ANSWERS_MAX).map(|_| Box::pin(ended(None, first))).collect();
            assert!(!waits.iter_mut().any(is_ready));
            assert!(is_ready(&mut Box::pin(ended(None, first))) && present() != first);
            assert!(waits.iter_mut().all(is_ready));
        });
        loop_thread.join().unwrap();
    }
}
