//! Known faults, for a campaign that must catch each of them.
//!
//! Without the feature `planted-bugs` every question below is the constant `false` and leaves no
//! trace in the binary. With it one fault at a time is chosen at run time, per thread, so that one
//! build serves all and campaigns can run side by side; a thread that works for another is given
//! that one's ([`handed_on`]).

/// Makes a module of faults: their names with what each does, and the choice among them.
#[doc(hidden)]
#[macro_export]
macro_rules! planted_bugs {
    ($($name:ident = $does:literal;)*) => {
        /// A fault that a careless change could bring in.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug {
            $(#[doc = $does] $name,)*
        }

        impl Bug {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it does, in a sentence.
            pub const fn does(self) -> &'static str {
                match self {
                    $(Self::$name => $does,)*
                }
            }
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

        /// `work` for a thread that this one starts: it runs with the same fault.
        #[cfg(feature = "planted-bugs")]
        pub fn handed_on<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
            let chosen = CHOSEN.get();
            move || {
                choose(chosen);
                work()
            }
        }

        /// `work` as it is: there is no fault to hand on.
        #[cfg(not(feature = "planted-bugs"))]
        pub fn handed_on<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
            work
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
    };
}

crate::planted_bugs! {
    AckBeforeSync = "Publishes the durable mark before the sync.";
    SkipDirectorySync = "Leaves out the directory's sync after a rotation's rename.";
    SkipSyncAtOpen = "Reads the tail at open without syncing it first.";
    SyncedThroughStuckAtZero = "Writes a promise of 0 into every frame.";
    PublishOneFrameEarly = "Publishes one frame more than was synced.";
    PaddingUnchecked = "Does not check a frame's padding.";
    EpochNotDurable = "Opens without making its epoch durable.";
    ChainUnchecked = "Does not check a frame's link to the one before.";
    RetryAfterFailedSync = "Appends after a failed sync as if nothing had happened.";
    DamageTakenForTornTail = "Takes a damaged middle for a torn tail.";
    SkipControlSyncAtOpen = "Opens without syncing what a killed process wrote into CONTROL.";
    ControlReadThroughCache = "Believes of CONTROL what the page cache has and the disk never got.";
    ReaderPassesSeal = "Reads on behind the seal of a segment.";
    RetireIgnoresSinks = "Gives segments back that a sink has not confirmed.";
    StampNotRenewed = "Begins a file's next life under the stamp of the one before.";
    SnapshotRenamedBeforeSync = "Gives a snapshot its name before it is synced.";
    DamagedSnapshotAccepted = "Begins from a snapshot without checking it.";
    PayloadUnchecked = "Does not check a frame's payload.";
    CleanEndIgnored = "Forgets where the last clean shutdown left the log.";
    TailReadThroughCache = "Judges the end of the log by the page cache, not by the disk.";
    ShortWriteTakenForWhole = "Goes on after a write of which only a part was done.";
    HeaderNotSynced = "Gives a segment its name before its header is synced.";
    ControlSlotNotAlternating = "Writes CONTROL over its only slot that is whole.";
    FailureNotPoisoned = "Lets a log go on that has failed.";
    FileReusedAfterError = "Uses a file again that saw an I/O error.";
}
