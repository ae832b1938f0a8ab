//! Why an engine can't be opened or closed, with the exit code of a server that ends for it.

use std::io;

use crate::core::event::Event;

/// The engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log could not be opened.
    #[error(transparent)]
    Log(#[from] wal::OpenError),
    /// The wall clock lies far behind the log.
    #[error(
        "the clock stands at {wall_ms} ms, more than an hour behind the log's last time, \
         {last_ms} ms: set the clock, or pass --accept-clock"
    )]
    Clock {
        /// Wall clock, Unix milliseconds.
        wall_ms: u64,
        /// The last time in the log, Unix milliseconds.
        last_ms: u64,
    },
    /// The log's constants are of a newer version.
    #[error("the directory was formatted by a newer version: start that version, or a newer one")]
    UnknownConstants,
    /// The log was begun before the first release, with request ids hashed otherwise.
    #[error(
        "the directory was formatted by a build before the first release, whose request ids this \
         version does not know again: go on with that build, or start with an empty directory"
    )]
    Unreleased,
    /// The log can't be read on.
    #[error("reading the log: {0}")]
    Read(#[from] wal::ReadError),
    /// A sink can't be registered.
    #[error("registering a sink: {0}")]
    Sink(#[from] wal::SinkError),
    /// A thread could not be started.
    #[error("starting a thread: {0}; raise the limit of processes")]
    Thread(io::Error),
}

impl OpenError {
    /// The exit code of a server that can't start for it: 2 configuration, 3 refused, 4 the log's
    /// I/O failed, 5 the directory is locked.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Log(error) => log_exit_code(error),
            Self::Thread(_) => 2,
            Self::Read(wal::ReadError::NoEnd(error)) => log_exit_code(error),
            Self::Read(_) | Self::Sink(wal::SinkError::LogUnavailable(_)) => 4,
            Self::Sink(_) => 2,
            Self::Clock { .. } | Self::UnknownConstants | Self::Unreleased => 3,
        }
    }

    /// Whether bytes of the log are damaged, or contradict each other: what a check looks for. The
    /// others say that it could not look.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Log(error) => log_is_damage(error),
            Self::Read(wal::ReadError::NoEnd(error)) => log_is_damage(error),
            Self::Read(error) => matches!(error, wal::ReadError::Damaged { .. }),
            _ => false,
        }
    }
}

const fn log_is_damage(error: &wal::OpenError) -> bool {
    use wal::OpenError::{NotOurs, Refused, Rejected};
    matches!(error, Refused { .. } | NotOurs { .. } | Rejected { .. })
}

fn log_exit_code(error: &wal::OpenError) -> u8 {
    match error {
        wal::OpenError::Locked { .. } => 5,
        wal::OpenError::BadFormat(_) | wal::OpenError::NoLog { .. } => 2,
        wal::OpenError::Io { source, .. } => match source.kind() {
            // The directory named is none that this user can keep a log in.
            io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported => 2,
            // It is there, and no file system for a log.
            io::ErrorKind::ReadOnlyFilesystem => 3,
            _ => 4,
        },
        _ => 3,
    }
}

/// The log failed while it was being closed: the process ends for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log failed while it was being closed")]
pub struct CloseError;

/// A record that does not follow from those before it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error(transparent)]
    Codec(#[from] crate::core::codec::CodecError),
    #[error(transparent)]
    Apply(#[from] crate::core::apply::ApplyError),
    #[error(transparent)]
    Control(#[from] crate::core::control::ControlError),
    #[error("activity {activity} has the ordinal of another one")]
    Ordinal { activity: crate::core::ids::ActivityId },
    #[error("it stands in shard {found} and belongs to shard {expected}")]
    Shard { found: u16, expected: u16 },
}

/// What replay can check beyond a single event, for the tools.
pub(crate) trait Witness {
    /// Sees every event, after it was applied.
    fn saw(&mut self, event: &Event<'_>);
}

impl Witness for () {
    fn saw(&mut self, _event: &Event<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_can_be_read_and_are_wrong_are_damage() {
        let path = || "log/0000000000000001.seg".to_owned();
        let io = |kind: io::ErrorKind| wal::OpenError::Io {
            op: "read",
            path: path(),
            source: kind.into(),
        };
        let too_new =
            || wal::OpenError::TooNew { path: path(), format_version: 9, feature_incompat: 0 };
        let not_ours = || wal::OpenError::NotOurs { path: path(), what: "its head is damaged" };
        let read = |error| OpenError::Read(wal::ReadError::NoEnd(Box::new(error)));
        let damaged = wal::ReadError::Damaged { path: path(), offset: 4096 };
        for (error, code, is_damage) in [
            (OpenError::from(io(io::ErrorKind::Other)), 4, false),
            (OpenError::from(io(io::ErrorKind::PermissionDenied)), 2, false),
            (OpenError::from(too_new()), 3, false),
            (read(too_new()), 3, false),
            (OpenError::UnknownConstants, 3, false),
            (OpenError::Unreleased, 3, false),
            (OpenError::from(not_ours()), 3, true),
            (read(not_ours()), 3, true),
            (OpenError::from(damaged), 4, true),
        ] {
            assert_eq!((error.exit_code(), error.is_damage()), (code, is_damage), "{error}");
        }
    }
}
