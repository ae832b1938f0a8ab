//! What can stop the mirror, and who must act.

use engine::core::codec::CodecError;
use redis::RedisError;
use wal::Lsn;

use crate::cursor::Fork;
use crate::tail::{SeekError, Unreadable};

/// Why a session with Redis ended.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// Redis and log don't belong together.
    #[error("the Redis mirror: {0}")]
    Fork(#[from] Fork),
    /// Redis refused or did not answer.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The cursor is not where this server left it: another server moved it, or the data was lost
    /// or put back. It is read and judged again.
    #[error("the mirror's cursor is not where this server left it: {found:?} was found")]
    CursorMoved {
        /// What stands there.
        found: String,
    },
    /// Something answers that is no Redis of ours.
    #[error("Redis answered {answer} to {command}: is it Redis 7.2 or later, or Valkey?")]
    Answer {
        /// What was asked.
        command: &'static str,
        /// What it said.
        answer: String,
    },
    /// The keys must be written anew from the engine's state.
    #[error("the mirror is written anew: {0}")]
    Resync(&'static str),
    /// An event that this version can't read.
    #[error("the event at LSN {lsn} can't be mirrored: {source}")]
    Undecodable {
        /// Its place.
        lsn: Lsn,
        /// Why.
        source: CodecError,
    },
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] Unreadable),
    /// The log no longer has what it had a moment ago.
    #[error("the log can't be read from where the mirror stands: {0}")]
    Lost(#[source] SeekError),
    /// The log has failed: the process is about to end.
    #[error("the log has failed")]
    LogFailed,
}

impl MirrorError {
    /// Whether another session may go better. Redis down, full, read only or without privileges
    /// stops nothing: it is asked again until somebody has mended it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Log(error) => error.passing,
            Self::Fork(_) | Self::Undecodable { .. } | Self::Lost(_) => false,
            Self::Redis(_)
            | Self::CursorMoved { .. }
            | Self::Answer { .. }
            | Self::Resync(_)
            | Self::LogFailed => true,
        }
    }
}
