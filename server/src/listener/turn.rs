//! What one loop decides between two commits.
//!
//! A purchase that was decided on a loop's thread waits for that thread's own commit, which comes
//! when nothing else is left to decide: one durable write answers a whole turn, and no other thread
//! is woken on the way. Everywhere else the log's thread commits.

use std::cell::Cell;
use std::time::{Duration, Instant};

use engine::{Engine, LogUnavailable, Pending};

use crate::app::{App, Shared};

/// Decisions of one turn: about a frame of the log.
const DECIDED_MAX: u32 = 1024;

/// How long a decision waits while its loop finds other things to do.
const TURN_MAX: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Turn {
    /// Answers that wait for the commit.
    decided: u32,
    /// When the first of them was decided.
    since: Instant,
}

thread_local! {
    /// Set on the threads of loops alone.
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// From now on this thread commits what it decides, whenever [`end`] is called.
pub(super) fn begin() {
    TURN.set(Some(Turn { decided: 0, since: Instant::now() }));
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
    if let Some(Turn { decided, since }) = TURN.get() {
        let since = if decided == 0 { Instant::now() } else { since };
        TURN.set(Some(Turn { decided: decided + 1, since }));
        if decided + 1 >= DECIDED_MAX {
            end(app);
        }
    }
    pending.durable().await
}

/// Ends a turn that has lasted long enough: a loop that always has something to do never rests.
pub(super) fn end_overdue(shared: &Shared) {
    let is_overdue =
        matches!(TURN.get(), Some(Turn { decided: 1.., since }) if since.elapsed() >= TURN_MAX);
    if is_overdue && let Ok(app) = shared.app() {
        end(app);
    }
}

/// Commits what this thread has decided; whether there was anything.
pub(super) fn end(app: &App) -> bool {
    match TURN.get() {
        Some(Turn { decided: 1.., since }) => {
            TURN.set(Some(Turn { decided: 0, since }));
            // A log that has failed tells everybody who waits for it, and ends the process.
            app.committing.commit().is_ok()
        }
        _ => false,
    }
}
