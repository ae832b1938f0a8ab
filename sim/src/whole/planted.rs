//! Faults of the way outward, to put the campaign itself to the test.

use std::cell::Cell;

/// A known fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The cursor moves before the transaction that it belongs to is committed.
    CursorOutside,
    /// A duplicate key is passed over in silence.
    InsertIgnore,
    /// After an unclear COMMIT the batch is taken for written.
    UnclearIsDone,
    /// A retried request that was not told its outcome is asked under a new id.
    RetryUnderNewId,
    /// The mirror's cursor moves in a call of its own, behind the keys.
    CursorApart,
    /// The log is given back up to what is in Redis, not to what Redis has synced.
    ConfirmedUnsynced,
    /// `sluice:stale` goes while the keys are still being written anew.
    StaleClearedEarly,
    /// Writing the keys anew leaves those that nothing asks for.
    StraysKept,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::CursorOutside,
        Self::InsertIgnore,
        Self::UnclearIsDone,
        Self::RetryUnderNewId,
        Self::CursorApart,
        Self::ConfirmedUnsynced,
        Self::StaleClearedEarly,
        Self::StraysKept,
    ];
}

thread_local! {
    static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Switches `bug` on in this thread, and every other one off.
pub fn choose(bug: Option<Bug>) {
    CHOSEN.set(bug);
}

/// Whether `bug` is switched on.
pub(super) fn is(bug: Bug) -> bool {
    CHOSEN.get() == Some(bug)
}
