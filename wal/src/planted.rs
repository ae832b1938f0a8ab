//! Known faults, for a campaign that must catch each of them.
//!
//! Without the feature `planted-bugs` every question below is the constant `false` and leaves no
//! trace in the binary. With it one fault at a time is chosen at run time, per thread, so that one
//! build serves all and campaigns can run side by side.

/// A fault that a careless change could bring in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Publishes the durable mark before the sync.
    AckBeforeSync,
    /// Leaves out the directory's sync after a rotation's rename.
    SkipDirectorySync,
    /// Reads the tail at open without syncing it first.
    SkipSyncAtOpen,
    /// Writes a promise of 0 into every frame.
    SyncedThroughStuckAtZero,
    /// Publishes one frame more than was synced.
    PublishOneFrameEarly,
    /// Does not check a frame's padding.
    PaddingUnchecked,
    /// Opens without making its epoch durable.
    EpochNotDurable,
    /// Does not check a frame's link to the one before.
    ChainUnchecked,
    /// Appends after a failed sync as if nothing had happened.
    RetryAfterFailedSync,
    /// Takes a damaged middle for a torn tail.
    DamageTakenForTornTail,
    /// Opens without making durable what a killed process left of CONTROL in the page cache.
    SkipControlSyncAtOpen,
    /// Believes of CONTROL what the page cache has and the disk never got.
    ControlReadThroughCache,
    /// Reads on behind the seal of a segment.
    ReaderPassesSeal,
    /// Gives segments back that a sink has not confirmed.
    RetireIgnoresSinks,
    /// Begins a file's next life under the stamp of the one before.
    StampNotRenewed,
    /// Gives a snapshot its name before it is synced.
    SnapshotRenamedBeforeSync,
    /// Begins from a snapshot without checking it.
    DamagedSnapshotAccepted,
}

impl Bug {
    /// Every fault.
    pub const ALL: &[Self] = &[
        Self::AckBeforeSync,
        Self::SkipDirectorySync,
        Self::SkipSyncAtOpen,
        Self::SyncedThroughStuckAtZero,
        Self::PublishOneFrameEarly,
        Self::PaddingUnchecked,
        Self::EpochNotDurable,
        Self::ChainUnchecked,
        Self::RetryAfterFailedSync,
        Self::DamageTakenForTornTail,
        Self::SkipControlSyncAtOpen,
        Self::ControlReadThroughCache,
        Self::ReaderPassesSeal,
        Self::RetireIgnoresSinks,
        Self::StampNotRenewed,
        Self::SnapshotRenamedBeforeSync,
        Self::DamagedSnapshotAccepted,
    ];
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Chooses the fault of this thread, or none.
#[cfg(feature = "planted-bugs")]
pub fn choose(bug: Option<Bug>) {
    CHOSEN.with(|chosen| chosen.set(bug));
}

/// Whether this thread runs with `bug`.
#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: Bug) -> bool {
    CHOSEN.with(|chosen| chosen.get() == Some(bug))
}

/// Whether this thread runs with a fault: never, in a build without them.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn has(_bug: Bug) -> bool {
    false
}
