//! What the bridge needs of the engine, and nothing more.

use std::time::Duration;

use engine::core::ids::OrderPrefix;
use wal::{LogIdentity, Lsn};

use crate::tail::EventSource;

/// The engine as the bridge sees it: a log to read, and an ear for how far the sinks are.
pub trait Host: Send + Sync + 'static {
    /// Reads the log.
    type Source: EventSource;

    /// Which log, in which incarnation.
    fn identity(&self) -> LogIdentity;

    /// A new reader.
    fn source(&self) -> Self::Source;

    /// Everything up to here is durable.
    fn durable_lsn(&self) -> Lsn;

    /// Blocks until something beyond `lsn` is durable, `timeout` at most; whether it is.
    fn wait_durable_beyond(&self, lsn: Lsn, timeout: Duration) -> bool;

    /// The site's prefix of order numbers.
    fn order_prefix(&self) -> OrderPrefix;

    /// The key under which the engine hashes request ids. It is kept beside the orders, so that a
    /// directory rebuilt from them still recognises a replay.
    fn request_hash_key(&self) -> [u8; 16];

    /// The LSN of the last `SinkAdvanced` of `sink` in the log; 0 where there is none.
    fn announced_lsn(&self, sink: &str) -> Lsn;

    /// Appends "`sink` holds everything up to `lsn`, which is `marks` (shard, its sequence)".
    /// Needn't be durable when it returns: a lost one is announced again after the next start.
    ///
    /// # Errors
    /// Where nothing was appended; the bridge asks again later.
    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy>;
}

/// The engine took nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Busy {
    /// Too much in flight.
    #[error("the engine has too much in flight")]
    Overloaded,
    /// The log has failed.
    #[error("the log is not available")]
    LogUnavailable,
}
