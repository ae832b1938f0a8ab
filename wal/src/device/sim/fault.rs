//! Faults: which operation fails, and how.

use std::io;

pub(super) const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EINTR: i32 = 4;

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named for the device's calls")]
pub enum Op {
    Create,
    Open,
    Read,
    Write,
    Sync,
    Rename,
    Link,
    SyncDir,
    List,
    Remove,
    CreateDir,
}

/// How an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The disk reports an error; after a failed sync readers see the old content.
    ErrorOldContent,
    /// The disk reports an error; after a failed sync readers see the new content.
    ErrorNewContent,
    /// No room is left: creates and writes fail.
    Full,
    /// Half of a write is done.
    ShortWrite,
    /// A read or write was interrupted before it did anything.
    Interrupted,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::ErrorOldContent,
        Self::ErrorNewContent,
        Self::Full,
        Self::ShortWrite,
        Self::Interrupted,
    ];
}

/// An operation that fails, counted from the device's first as 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The operation's number.
    pub at: u64,
    /// Whether every later one fails as well.
    pub lasting: bool,
    /// How.
    pub kind: FaultKind,
}

impl Fault {
    fn hits(&self, number: u64) -> bool {
        number == self.at || self.lasting && number > self.at
    }

    pub(super) fn error(&self, op: Op, number: u64) -> Option<io::Error> {
        let code = match self.kind {
            FaultKind::ErrorOldContent | FaultKind::ErrorNewContent => EIO,
            FaultKind::Full if matches!(op, Op::Create | Op::Write | Op::CreateDir) => ENOSPC,
            // Interrupted for ever would be a hang, which no disk does.
            FaultKind::Interrupted if matches!(op, Op::Read | Op::Write) && number == self.at => {
                EINTR
            }
            FaultKind::Full | FaultKind::ShortWrite | FaultKind::Interrupted => return None,
        };
        self.hits(number).then(|| io::Error::from_raw_os_error(code))
    }

    pub(super) fn shortens(&self, number: u64) -> bool {
        self.kind == FaultKind::ShortWrite && self.hits(number)
    }

    pub(super) fn keeps_new_content(&self) -> bool {
        self.kind == FaultKind::ErrorNewContent
    }
}
