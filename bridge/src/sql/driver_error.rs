//! What a driver says, whichever it is.

use super::mysql;

/// An error of one of the database drivers.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the drivers by their names")]
pub enum DriverError {
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
    #[error(transparent)]
    Rusqlite(#[from] rusqlite::Error),
}

impl DriverError {
    /// What to do about it, after a colon, where that is known.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Sqlx(error) => mysql::advice(error),
            Self::Rusqlite(_) => "",
        }
    }
}
