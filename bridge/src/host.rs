//! What the bridge needs of the engine, and nothing more.

use std::error::Error;
use std::time::Duration;

pub use engine::Busy;
use engine::core::ids::{OrderPrefix, ReservationId};
use wal::{LogIdentity, Lsn};

use crate::images::ImageSource;
use crate::tail::{EventSource, Unreadable};

/// The engine as the bridge sees it: a log to read, and an ear for how far the sinks are.
pub trait Host: Send + Sync + 'static {
    /// Reads the log.
    type Source: EventSource;

    /// Reads the state.
    type Images: ImageSource;

    /// Which log, in which incarnation.
    fn identity(&self) -> LogIdentity;

    /// A new reader.
    fn source(&self) -> Self::Source;

    /// The newest images of the state; `None` where none were made: then the log is whole.
    ///
    /// # Errors
    /// Where they can't be read.
    fn images(&self) -> Result<Option<Self::Images>, Unreadable>;

    /// The orders sink has come back older than it was: what follows `lsn` is kept for it until
    /// [`Host::caught_up`].
    fn keep_from(&self, _lsn: Lsn) {}

    /// The orders sink is where it was before it came back older, if ever it did.
    fn caught_up(&self) {}

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
    /// A mark that is lost with a crash is announced again after the next start.
    ///
    /// # Errors
    /// Where nothing was appended; the bridge asks again later.
    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy>;

    /// No order can hold these reservations, because of `why`. By its activity's policy each is
    /// given back or kept for an operator. Returns once that is durable; one that is a dead letter
    /// already, or was given back before, changes nothing.
    ///
    /// # Errors
    /// Where not all were taken; the bridge asks again later, for all of them.
    fn dead_letter(&self, failures: &[Failure], why: &str) -> Result<(), Busy>;
}

/// A reservation that no order can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The reservation.
    pub reservation: ReservationId,
    /// Sequence in its shard of the record that asked for the order: its acceptance, or a retry. A
    /// failure from before a retry, told again after a crash, is no news.
    pub shard_seq: u64,
}

impl Host for engine::Engine {
    type Source = wal::Reader;
    type Images = engine::SnapshotContents;

    fn identity(&self) -> LogIdentity {
        self.identity()
    }

    fn source(&self) -> wal::Reader {
        self.reader()
    }

    fn images(&self) -> Result<Option<engine::SnapshotContents>, Unreadable> {
        let unreadable = |error| Unreadable {
            passing: false,
            source: Box::<dyn Error + Send + Sync>::from(error),
        };
        self.snapshot_contents().map_err(unreadable)
    }

    fn keep_from(&self, lsn: Lsn) {
        if let Err(error) = self.keep_for_orders(lsn) {
            tracing::warn!(%error, "the log is not kept for a database that is behind");
        }
    }

    fn caught_up(&self) {
        if let Err(error) = self.orders_caught_up() {
            tracing::warn!(%error, "the log is still kept for a database that was behind");
        }
    }

    fn durable_lsn(&self) -> Lsn {
        self.durable_lsn()
    }

    fn wait_durable_beyond(&self, lsn: Lsn, timeout: Duration) -> bool {
        self.wait_durable_beyond(lsn, timeout)
    }

    fn order_prefix(&self) -> OrderPrefix {
        self.order_prefix()
    }

    fn request_hash_key(&self) -> [u8; 16] {
        self.request_hash_key()
    }

    fn announced_lsn(&self, sink: &str) -> Lsn {
        self.announced_lsn(sink)
    }

    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy> {
        self.sink_advanced(sink, lsn, marks)
    }

    fn dead_letter(&self, failures: &[Failure], why: &str) -> Result<(), Busy> {
        // Told together, waited for together: they share a sync.
        let mut told = Vec::with_capacity(failures.len());
        for Failure { reservation, shard_seq } in failures {
            told.push(self.dead_lettered(*reservation, *shard_seq, why)?);
        }
        for answer in told {
            // Refused is done with, too: nothing is left for this reservation to lead to.
            let _ = answer.wait().map_err(|_| Busy::LogUnavailable)?;
        }
        Ok(())
    }
}
