//! What can stop a batch, and who must act.

use engine::core::codec::CodecError;
use engine::core::event::Figures;
use engine::core::ids::ReservationId;
use engine::core::limits::NOTE_BYTES_MAX;
use wal::Lsn;

use super::store::StoreError;

/// Why a batch could not be applied. The transaction is gone with it.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The database refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No order can hold these reservations: they become dead letters, and the batch is written
    /// again without their orders.
    #[error("{} reservations become dead letters, the first because {why}", ids.len())]
    Undeliverable {
        /// The reservations.
        ids: Vec<ReservationId>,
        /// What the database says of the first.
        why: StoreError,
    },
    /// Their buyers have no default address: as [`SinkError::Undeliverable`].
    #[error("{} reservations become dead letters: their buyers have no default address", ids.len())]
    AddressMissing {
        /// The reservations.
        ids: Vec<ReservationId>,
    },
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
    /// A row stands under a key of the log's that is another purchase's.
    #[error("{table}.id = {id} is another purchase's than the log's: move the row aside")]
    RowForeign {
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

    /// The reservations that no order can hold, and why in the words of a dead letter; `None`
    /// where the error is another.
    pub(crate) fn undeliverable(&self) -> Option<(&[ReservationId], String)> {
        match self {
            Self::Undeliverable { ids, why } => Some((ids, note(&why.to_string()))),
            Self::AddressMissing { ids } => {
                Some((ids, "the buyer has no default address".to_owned()))
            }
            _ => None,
        }
    }
}

/// `text` on one line, within what the log keeps of a reason.
fn note(text: &str) -> String {
    let mut note = String::new();
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if note.len() + character.len_utf8() > NOTE_BYTES_MAX {
            break;
        }
        note.push(character);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_and_cut_between_characters() {
        assert_eq!(note("a\nb\0c"), "a b c");
        let long = "限".repeat(NOTE_BYTES_MAX);
        let cut = note(&long);
        assert!(long.starts_with(&cut) && cut.len() + 3 > NOTE_BYTES_MAX, "{}", cut.len());
    }
}
