//! What can go wrong, each with who must act.

use std::io;

use crate::ids::Lsn;
use crate::verdict::Case;

/// The log could not be opened. Nothing on disk was changed, but for what a fresh directory
/// already had made of it, and a note in CONTROL of a segment that saw an I/O error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the directory.
    #[error("{dir} is in use by another process: stop that one, or name another directory")]
    Locked {
        /// The directory.
        dir: String,
    },
    /// The log is damaged where that can't be a torn tail.
    #[error(
        "{path} at offset {offset}: {case}; records from LSN {first_lost_lsn} on{until} can't be \
         read: restore the directory from a backup elsewhere, or give them up with `sluice repair \
         --accept-loss-from {first_lost_lsn}`"
    )]
    Refused {
        /// The file.
        path: String,
        /// Where in it reading ended.
        offset: u64,
        /// What the evidence says.
        case: Case,
        /// The first record that can't be read.
        first_lost_lsn: Lsn,
        /// ` to LSN n` where a later frame tells, else empty.
        until: String,
    },
    /// Written by a newer version.
    #[error(
        "{path} was written by a newer version (format {format_version}, features \
         {feature_incompat:#x}): start that version, or a newer one"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its format.
        format_version: u32,
        /// Its incompatible features.
        feature_incompat: u32,
    },
    /// A file of the directory is none of this log's, or its head is damaged.
    #[error("{path}: {what}; restore the directory from a backup, or name another one")]
    NotOurs {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The directory holds other things.
    #[error("{dir} is no data directory and holds {entry:?}: name an empty or a new directory")]
    Foreign {
        /// The directory.
        dir: String,
        /// The first entry that is not ours.
        entry: String,
    },
    /// There is no log to read.
    #[error("{dir} holds no log: name the data directory of a server that has run")]
    NoLog {
        /// The directory.
        dir: String,
    },
    /// Its promise of durability is worth nothing there.
    #[error(
        "{dir} lies on {what}: choose a local disk, or pass --accept-file-system to run all the \
         same"
    )]
    Unsuitable {
        /// The directory.
        dir: String,
        /// What it lies on.
        what: &'static str,
    },
    /// The constants for a fresh directory are out of bounds.
    #[error("the log can't be formatted: {0}")]
    BadFormat(&'static str),
    /// The owner can't take a record.
    #[error("the record at LSN {lsn} does not fit the state before it: {why}")]
    Rejected {
        /// The record.
        lsn: Lsn,
        /// What the owner says.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system refused.
    #[error("{op} {path}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: String,
        /// What it said.
        source: io::Error,
    },
}

/// Nothing was decided or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Busy {
    /// Too much is in flight, or no room is left ahead: try again shortly.
    #[error("too much is in flight: try again shortly")]
    Overloaded,
    /// The log has failed; the process is about to end.
    #[error("the log has failed: the process is about to end")]
    LogUnavailable,
}

/// The log failed before the record was known to be durable: it may or may not be there after a
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log failed before the record was known to be durable: ask again after a restart")]
pub struct LogUnavailable;

/// A reader can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The log ends before that LSN.
    #[error("LSN {asked} lies beyond the durable end of the log, {end}")]
    BeyondEnd {
        /// The LSN asked for.
        asked: Lsn,
        /// The last durable one.
        end: Lsn,
    },
    /// The log begins after that LSN.
    #[error("LSN {asked} was given back; the log now begins at {oldest}")]
    Retired {
        /// The LSN asked for.
        asked: Lsn,
        /// The first that is there.
        oldest: Lsn,
    },
    /// Where the log ends can't be told.
    #[error(transparent)]
    NoEnd(Box<OpenError>),
    /// No frame ends there, so no reader can have stopped there.
    #[error("no frame ends at LSN {0}")]
    NotAFrameEnd(Lsn),
    /// A durable frame does not read back.
    #[error("{path} at offset {offset} does not read back: run `sluice check`")]
    Damaged {
        /// The file.
        path: String,
        /// Where.
        offset: u64,
    },
    /// The operating system refused.
    #[error("{op} {path}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: String,
        /// What it said.
        source: io::Error,
    },
}
