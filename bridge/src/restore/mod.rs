//! A fresh data directory from what SQL knows, when the old one is lost.
//!
//! ```text
//! source   the cursor row: which log is lost, how far SQL came, the key that hashes request ids
//! open     the caller formats a directory with that key and prefix; time-outs are held
//! rebuild  activities, reservations, payments, refunds, dead letters, blacklist,
//!          disabled accounts: adoption events
//! take     one transaction: the cursor row names the new log, the old one stands beside it, and
//!          activities have ordinals above all that were ever used
//! ```
//!
//! The rows are there already, so the cursor is set behind the adoption events: nothing is written
//! twice. It is moved only from where it was read: a server that still writes is noticed, and
//! nothing was taken over. From then on a server on the old directory finds another log's cursor
//! and ends with exit code 3.
//!
//! Restocks and decreases are done again, before any unit is reserved, from fewer units than the
//! activity has by now: so their keys stay used, and the figures come out right. Repeated, they are
//! answered the figures of that moment.
//!
//! Every reservation keeps its id and order number; its units, its payments, and the numbers of
//! both stay used. What the lost log held beyond the cursor, and what SQL never has, is told in
//! [`Unknown`].

mod controls;
mod facts;
mod money;
mod numbers;
mod operations;
mod rebuild;
mod source;
mod take;

pub use rebuild::Restored;
pub(crate) use rebuild::retried;
pub use source::Source;

use wal::{Epoch, LogUuid, Lsn};

use crate::sql::SinkError;
use crate::sql::schema::SchemaError;
use crate::sql::store::StoreError;

/// Ordinals and activity ids that are left free for what the lost log gave beyond the cursor.
pub const NUMBERS_LEFT_FREE: u32 = 1_024;

/// Why a directory could not be rebuilt. The database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The database is none of Sluice's, or a newer one's.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// No server ever wrote to it.
    #[error("the database holds no cursor: there is nothing to restore")]
    Empty,
    /// It was being filled from a snapshot of the directory: it is not whole.
    #[error(
        "the database is being filled from the directory that it belongs to, and is not whole: \
         start the server on that directory, or restore from a backup of the database"
    )]
    Filling,
    /// It can't be read.
    #[error("the database can't be read: {0}")]
    Read(#[from] StoreError),
    /// It can't be written.
    #[error("the database can't be taken over: {0}")]
    Write(#[from] SinkError),
    /// Somebody moved the cursor meanwhile.
    #[error("a server still writes to the database: stop it, remove the new directory, try again")]
    Moved,
    /// All ordinals are used, or nearly.
    #[error("the ordinals of activities are used up: no activity could be made any more")]
    OrdinalsExhausted,
    /// The new log failed.
    #[error("the new log failed: remove the new directory and try again")]
    Log,
}

/// What could not be known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The lost log.
    pub uuid: LogUuid,
    /// Its last incarnation that wrote to SQL.
    pub epoch: Epoch,
    /// What it held beyond this is lost: purchases answered and not yet ordered, payments,
    /// give-backs.
    pub lsn: Lsn,
    /// Rows that contradict others, and were left out or taken as told.
    pub rows: Vec<String>,
    /// How many there were.
    pub rows_count: u64,
}

/// What SQL never has, in words.
pub const NEVER_IN_SQL: [&str; 3] = [
    "limits, canary and kill switch that operators set, and revoked tokens",
    "accounts disabled before a database that was itself lost was filled anew: they are enabled",
    "publications that were still scheduled in the past: such activities wait for an operator",
];
