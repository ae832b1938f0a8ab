//! Fail-stop: the one way the log fails.
//!
//! After a failed write or sync nobody knows what the disk holds: the kernel may have marked the
//! pages clean and lost them, so a second sync that succeeds proves nothing. After a panic between
//! the two nobody knows what was done. Nothing is retried, nothing more is acknowledged; the
//! process ends with exit code 4, and the next start reads from the disk what really is there. What
//! becomes of the file is [`failure`](crate::failure)'s.

use std::fmt;
use std::io;

/// What failed, for the one line that is logged and for the exit.
#[derive(Debug)]
pub struct Fatal {
    /// What was tried.
    pub op: &'static str,
    /// On which file.
    pub path: String,
    /// What the operating system said.
    pub source: io::Error,
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the log failed: {} {}: {}; nothing more is acknowledged, the process ends: look after \
             the disk, then start again",
            self.op, self.path, self.source
        )
    }
}

impl std::error::Error for Fatal {}

impl Fatal {
    /// Whether nothing of the disk's ended the log, but a fault of this program.
    pub fn is_panic(&self) -> bool {
        self.source.get_ref().is_some_and(|source| source.is::<Panicked>())
    }
}

/// The source of a [`Fatal`] that is a panic.
#[derive(Debug, thiserror::Error)]
#[error("a fault of the program, not of the disk: report the panic above")]
pub(crate) struct Panicked;

/// Called once, when the log has failed and every waiting caller has been told. A server ends the
/// process here, shortly after, with exit code 4.
pub type OnFatal = Box<dyn Fn(&Fatal) + Send + Sync>;
