//! Connections that only read: a few of them, each question in a snapshot of its own.

use std::time::Duration;

use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{Executor as _, MySql, Sqlite};

use super::database::Database;
use super::store::{Record, StoreError, Value};
use super::{mysql, sqlite};

/// Readers at one time: SQLite reads in this process, more would only fight for the cores; a
/// server has its other clients.
const READERS_MAX: u32 = 4;

/// How long a reader waits for its turn before the caller is told that the database is busy.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// With a writer's isolation, each statement would see another state.
const MYSQL_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

const MYSQL_SNAPSHOT: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// Connections of some dialect.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the pools by their dialects")]
pub enum Readers {
    Sqlite(SqlitePool),
    MySql(MySqlPool),
}

impl Readers {
    /// Readers of `database`; they connect when first used.
    pub fn of(database: &Database) -> Self {
        match database {
            Database::Sqlite(options) => Self::Sqlite(
                SqlitePoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(READER_WAIT_MAX)
                    .connect_lazy_with(options.clone().pragma("query_only", "ON")),
            ),
            Database::MySql(options) => Self::MySql(
                MySqlPoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(READER_WAIT_MAX)
                    .after_connect(|connection, _| {
                        Box::pin(async move {
                            mysql::set_up(connection).await?;
                            connection.execute(MYSQL_ISOLATION).await?;
                            Ok(())
                        })
                    })
                    .connect_lazy_with(options.clone()),
            ),
        }
    }

    /// One state of the database, for as many reads as belong together.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(match self {
            Self::Sqlite(pool) => Snapshot::Sqlite(pool.begin().await?),
            Self::MySql(pool) => Snapshot::MySql(pool.begin_with(MYSQL_SNAPSHOT).await?),
        })
    }

    /// Closes the connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::MySql(pool) => pool.close().await,
        }
    }
}

/// A snapshot; it ends when dropped.
#[derive(Debug)]
#[expect(missing_docs, reason = "the transactions by their dialects")]
pub enum Snapshot {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    MySql(sqlx::Transaction<'static, MySql>),
}

impl Snapshot {
    /// The rows that `text` gives with `values` in its placeholders.
    ///
    /// # Errors
    /// Where the database does not answer, or a value is of none of the schema's types.
    pub async fn rows(
        &mut self,
        text: impl Into<String>,
        values: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        match self {
            Self::Sqlite(transaction) => sqlite::records(transaction, text.into(), values).await,
            Self::MySql(transaction) => mysql::records(transaction, text.into(), values).await,
        }
    }
}
