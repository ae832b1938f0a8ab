//! Reservations of an older system, taken over from its own tables and keys.
//!
//! ```text
//! schema   which of its tables and columns are there; nothing is ever written to it
//! rows     page by page, each cell on its own: a bad row is named, the rows behind it go on
//! judge    what a row and its order come to, as a table
//! units    with how many units an activity begins, so that none is taken twice
//! keys     what its Redis knows beyond its tables
//! take     what is new; pass: adoption events of it, each once however often this runs
//! ```
//!
//! It runs before anything is sold, at every start, and takes over what is not here yet; then it
//! writes nothing at all. The engine knows adopted numbers and order numbers, so that a crash
//! between two of them only leaves less to do, and [`ADOPTING`] stands in the log until all are
//! here: a start that leaves the older system out before then is refused by the server.
//!
//! What is here already is ruled by this log alone, whatever the older system does with its rows
//! later: it must have stopped before.
//!
//! [`ADOPTING`]: engine::core::control::keys::ADOPTING

mod cells;
mod judge;
mod keys;
mod left;
mod pass;
mod report;
mod rows;
mod schema;
mod source;
mod take;
mod units;

pub use report::Report;
pub use source::Source;

use crate::redis::MirrorError;
use crate::sql::database::UrlError;
use crate::sql::store::StoreError;

/// Why nothing, or not all, was taken over. The older system's database is as it was.
#[derive(Debug, thiserror::Error)]
pub enum LegacyError {
    /// The URL names no database that can be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It can't be read.
    #[error(
        "the older system's database {database} can't be read: {source}; mend it, or leave \
         --legacy-database out once everything was taken over"
    )]
    Unreadable {
        /// Its URL, without what may be secret.
        database: String,
        /// Why.
        source: StoreError,
    },
    /// It is not the older system's.
    #[error("{database} is no database of the older system: {why}")]
    Schema {
        /// Its URL, without what may be secret.
        database: String,
        /// What is missing.
        why: String,
    },
    /// It is one of Sluice's own.
    #[error("{database} is a database of Sluice's own: `sluice restore` takes such a one over")]
    Own {
        /// Its URL, without what may be secret.
        database: String,
    },
    /// Its Redis can't be read.
    #[error(
        "the older system's keys can't be read: {0}; start its Redis, or leave --redis out to take \
         over without them"
    )]
    Keys(#[source] MirrorError),
    /// The log failed.
    #[error("the log failed while the older system's reservations were taken over")]
    Log,
}
