//! A look at the sinks between the reading of a log and the first byte written to it.
//!
//! A data directory that was rolled back, or was given another one's database or Redis, is found
//! out by what stands in the sinks ([`cursor`]), and so is a database whose schema another build
//! made. A server looks before it writes: one that must not start leaves its log, the database and
//! Redis as they are. What can't be looked at is met later, while the server runs, and judged then.

use engine::core::ids::ActivityId;
use wal::{LogIdentity, Lsn};

use crate::cursor::{self, Fork, Place, Verdict};
use crate::redis::layouts::Layout;
use crate::redis::{self, MirrorError};
use crate::sql::database::{Database, UrlError};
use crate::sql::schema::SchemaError;
use crate::sql::split::Split;
use crate::tail::{EventSource, Unreadable};

/// What a look at the database came to, where it is not what the log expects.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It belongs to another history.
    #[error(transparent)]
    Fork(#[from] Fork),
    /// It is somebody else's or another build's, or does not answer.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The URL names none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] Unreadable),
}

/// Looks whether the database at `url`, whose orders are spread as `split` says, belongs to the log
/// `ours`, which `source` reads.
///
/// # Errors
/// Where it does not, or nobody can tell now.
pub async fn at_orders(
    (url, split): (&str, Split),
    ours: LogIdentity,
    source: &mut impl EventSource,
) -> Result<(), LookError> {
    let standing = Database::at(url)?.look(split).await?;
    let at = standing.furthest().map_or(Lsn(0), |cursor| cursor.lsn);
    let place = Place::of(source.seek(at))?;
    match cursor::judge(&standing, ours, place) {
        Verdict::Fork(fork) => Err(fork.into()),
        Verdict::Resume { .. } | Verdict::Fill => Ok(()),
    }
}

/// Looks whether the Redis at `url`, which has a cursor or, on a cluster, one for each of
/// `activities`, belongs to the log `ours`, which `source` reads.
///
/// # Errors
/// Where it does not, or nobody can tell now.
pub async fn at_mirror(
    (url, layout): (&str, Layout),
    ours: LogIdentity,
    source: &mut impl EventSource,
    activities: &[ActivityId],
) -> Result<(), MirrorError> {
    redis::look((url, layout), ours, source, activities).await
}
