//! What can stop a batch, and who must act.

use engine::core::codec::CodecError;
use engine::core::event::Figures;
use wal::Lsn;

use super::store::StoreError;

/// Why a batch could not be applied. The transaction is gone with it.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The database refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cursor is not where this sink left it: another server moved it, or the database was
    /// put back. It is read and judged again.
    #[error("the cursor was moved by somebody else")]
    CursorMoved,
    /// An event that this version can't read.
    #[error("the event at LSN {lsn} can't be projected: {source}")]
    Undecodable {
        /// Its place.
        lsn: Lsn,
        /// Why.
        source: CodecError,
    },
    /// The log speaks of a row that the database does not have.
    #[error("{table}.id = {id} is missing, though the log goes on with it: restore the database")]
    RowMissing {
        /// The table.
        table: &'static str,
        /// The row.
        id: u64,
    },
    /// An update should have hit each of its rows.
    #[error("an update of {table} hit {hit} of {expected} rows: restore the database")]
    RowsMissing {
        /// The table.
        table: &'static str,
        /// Rows it hit.
        hit: u64,
        /// Rows it should have hit.
        expected: u64,
    },
    /// An event's units don't follow from the row's.
    #[error(
        "the event at LSN {lsn} leaves {event:?}, which does not follow from {row:?} in \
         flashsale_activities.id = {activity}: the row was changed by somebody else"
    )]
    FiguresDisagree {
        /// The event's place.
        lsn: Lsn,
        /// The activity.
        activity: u64,
        /// The units after the event.
        event: Figures,
        /// The units in the row before it.
        row: Figures,
    },
}

impl SinkError {
    /// Whether trying again may help: the database may come back, the cursor is read again.
    /// Everything else halts the sink until a person has acted.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable(_)) | Self::CursorMoved)
    }
}
