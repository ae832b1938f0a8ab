//! A failed operation of the log: all stops, and the file that saw the error is never used again
//! (W7).
//!
//! | the file              | the failing process, as its last act | later                        |
//! |-----------------------|--------------------------------------|------------------------------|
//! | the segment in use    | notes it in CONTROL                  | read and sealed by the next  |
//! |                       |                                      | start; to `quarantine/` once |
//! |                       |                                      | it is given back             |
//! | a segment synced at a | notes it in CONTROL                  | the same                     |
//! | start                 |                                      |                              |
//! | a spare, made or      | moves it to `quarantine/`            |                              |
//! | headed                |                                      |                              |
//! | CONTROL, a directory  |                                      |                              |
//! | none: a panic         |                                      |                              |
//!
//! A broken disk may refuse the last act too. So whatever a run did not close stays suspect
//! without a note: its last segment is removed when it is given back, not used again, and of its
//! spares only those are used whose making it finished and which the disk itself gives back as
//! never begun.
//!
//! The owner is told before that last act: a disk that hangs delays no exit.

use std::io;

use crate::committer::Parts;
use crate::control::Control;
use crate::device::Device;
use crate::error::LogUnavailable;
use crate::fatal::{Fatal, Panicked};
use crate::ids::SegmentId;
use crate::limits::NEVER_RECYCLE_MAX;
use crate::names;
use crate::planted::{self, Bug};
use crate::spares::Failed;

/// The file that an operation failed on, where one must never be used again.
pub(crate) enum Seen {
    /// A segment.
    Segment(SegmentId),
    /// A spare, at this path.
    Spare(String),
    /// None whose bytes are in doubt.
    Nothing,
}

/// An I/O operation that failed; the callers of the log never see one.
pub(crate) struct Failure {
    pub(crate) op: &'static str,
    /// The path as people know it.
    pub(crate) path: String,
    pub(crate) source: io::Error,
    pub(crate) seen: Seen,
}

impl Failure {
    /// Of an operation on the spare at `path`.
    pub(crate) fn of_spare(device: &dyn Device, op: &'static str, failed: Failed) -> Self {
        let Failed { path, source } = failed;
        Self { op, path: device.display(&path), source, seen: Seen::Spare(path) }
    }
}

/// The one way the log fails: no mark moves again, every caller is told, the owner ends the
/// process. Returns what is to be noted of the file; nothing where another failure came first.
pub(crate) fn fail(parts: &Parts, failure: Failure) -> Seen {
    let Failure { op, path, source, seen } = failure;
    if planted::has(Bug::FailureNotPoisoned) {
        return Seen::Nothing;
    }
    let first = parts.watermark.poison();
    parts.intake.close();
    // A commit and the making of a spare may fail side by side: the owner is told once.
    if first {
        (parts.on_fatal)(&Fatal { op, path, source });
    }
    if planted::has(Bug::FileReusedAfterError) { Seen::Nothing } else { seen }
}

/// Fails the log for a spare that could not be made.
pub(crate) fn fail_spare(parts: &Parts, failed: Failed) -> LogUnavailable {
    if let Seen::Spare(path) = fail(parts, Failure::of_spare(&*parts.device, "create", failed)) {
        // Where there is no such file, or the disk refuses: see above.
        let _ = set_aside(&*parts.device, &path);
    }
    LogUnavailable
}

/// Runs `act`, which leaves the end of the log, or a spare, half way through something where it
/// panics: nobody may take that up, so the log has failed. The panic goes no further: unwinding
/// through a guard that aborts it would end the process before its callers are told.
pub(crate) fn guarded<T>(
    parts: &Parts,
    act: impl FnOnce() -> Result<T, LogUnavailable>,
) -> Result<T, LogUnavailable> {
    // The model checkers end their executions by unwinding through everything.
    if cfg!(any(loom, shuttle)) {
        return act();
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or_else(|_| {
        let path = parts.device.display(names::WAL_DIR);
        let source = io::Error::other(Panicked);
        fail(parts, Failure { op: "write to", path, source, seen: Seen::Nothing });
        Err(LogUnavailable)
    })
}

/// Notes in CONTROL that a segment saw an error. A full list changes nothing: see above.
///
/// # Panics
/// Where it was given back: the note would be forgotten, and the file used again (W7).
pub(crate) fn condemn(control: &mut Control, segment: SegmentId) {
    assert!(segment >= control.oldest_needed_segment, "W7: {segment} has another life by now");
    let list = &mut control.never_recycle;
    if list.len() < NEVER_RECYCLE_MAX && !list.contains(&segment) {
        list.push(segment);
    }
}

/// Moves a file to where it is never used again.
pub(crate) fn set_aside(device: &dyn Device, path: &str) -> io::Result<()> {
    device.rename(path, &names::quarantined(path))?;
    device.sync_dir(names::QUARANTINE_DIR)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "failure_tests.rs"]
mod tests;
