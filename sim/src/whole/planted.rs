//! Faults to put the campaign itself to the test: of the way outward, planted here, and those of
//! the engine, planted in its own code.

use std::cell::Cell;
use std::fmt;

use engine::planted as in_engine;

/// A known fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The cursor moves before the transaction that it belongs to is committed.
    CursorOutside,
    /// A duplicate key is passed over in silence.
    InsertIgnore,
    /// After an unclear COMMIT the batch is taken for written.
    UnclearIsDone,
    /// The engine is told of a commit that a power cut may still undo.
    UnsyncedAnnounced,
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
        Self::UnsyncedAnnounced,
        Self::RetryUnderNewId,
        Self::CursorApart,
        Self::ConfirmedUnsynced,
        Self::StaleClearedEarly,
        Self::StraysKept,
    ];
}

/// A fault, wherever it is planted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// On the way outward.
    Outward(Bug),
    /// In the engine.
    Engine(in_engine::Bug),
}

impl Fault {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let outward = Bug::ALL.iter().copied().map(Self::Outward);
        outward.chain(in_engine::Bug::ALL.iter().copied().map(Self::Engine)).collect()
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outward(bug) => bug.fmt(f),
            Self::Engine(bug) => bug.fmt(f),
        }
    }
}

thread_local! {
    static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Switches `fault` on in this thread, and every other one off.
pub fn choose(fault: Option<Fault>) {
    CHOSEN.set(match fault {
        Some(Fault::Outward(bug)) => Some(bug),
        _ => None,
    });
    in_engine::choose(match fault {
        Some(Fault::Engine(bug)) => Some(bug),
        _ => None,
    });
}

/// Whether `bug` is switched on.
pub(super) fn is(bug: Bug) -> bool {
    CHOSEN.get() == Some(bug)
}
