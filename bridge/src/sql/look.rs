//! A look at the database that changes nothing: whose it is, whether its schema is ours, and where
//! its cursor stands.
//!
//! A server looks before it writes anything to its log; the sink is met later, by
//! [`follow`](crate::follow), and judged again.

use std::path::Path;

use sqlx::Connection as _;
use sqlx::migrate::Migrator;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use wal::{Epoch, LogUuid, Lsn};

use super::mysql;
use super::schema::{SchemaError, refuse_foreign_tables, refuse_other_schema};
use super::sink::{FILLING_NAME, SINK_NAME};
use super::split::Split;
use super::tables::{self, IS_WRITTEN};
use crate::cursor::{Cursor, Standing};

const CURSOR: &str = "SELECT log_uuid, epoch, lsn, chain FROM bridge_cursor WHERE sink = ?";

const MIGRATIONS: &str =
    "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version";

/// A row of the cursors.
type Row = (Vec<u8>, i64, i64, i64);

/// A database that can be asked what it holds, in whatever dialect.
pub(super) trait Looked {
    /// The schema that this binary makes there.
    fn schema() -> &'static Migrator;

    /// Tables and views in order of their names, and whether each is a table.
    async fn tables(&mut self) -> Result<Vec<(String, bool)>, sqlx::Error>;

    /// The migrations that were applied: version and checksum.
    async fn migrations(&mut self) -> Result<Vec<(i64, Vec<u8>)>, sqlx::Error>;

    /// Whether the projection has begun.
    async fn is_written(&mut self) -> Result<bool, sqlx::Error>;

    /// The cursor of that name.
    async fn cursor(&mut self, name: &'static str) -> Result<Option<Row>, sqlx::Error>;
}

/// sqlx has no word for "a connection of either": the questions are the same, their types differ.
macro_rules! looked {
    ($connection:ty, $schema:path, $tables:literal) => {
        impl Looked for $connection {
            fn schema() -> &'static Migrator {
                &$schema
            }

            async fn tables(&mut self) -> Result<Vec<(String, bool)>, sqlx::Error> {
                sqlx::query_as($tables).fetch_all(self).await
            }

            async fn migrations(&mut self) -> Result<Vec<(i64, Vec<u8>)>, sqlx::Error> {
                sqlx::query_as(MIGRATIONS).fetch_all(self).await
            }

            async fn is_written(&mut self) -> Result<bool, sqlx::Error> {
                let written: i64 = sqlx::query_scalar(IS_WRITTEN).fetch_one(self).await?;
                Ok(written != 0)
            }

            async fn cursor(&mut self, name: &'static str) -> Result<Option<Row>, sqlx::Error> {
                sqlx::query_as(CURSOR).bind(name).fetch_optional(self).await
            }
        }
    };
}

looked!(
    SqliteConnection,
    migrations::SQLITE,
    "SELECT name, type = 'table' FROM sqlite_schema WHERE type IN ('table', 'view') \
     AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
);

looked!(
    MySqlConnection,
    migrations::MYSQL,
    "SELECT CAST(table_name AS CHAR), table_type = 'BASE TABLE' \
     FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name"
);

/// Where the file says that it stands; one that is not there is not made.
pub(super) async fn sqlite(
    options: &SqliteConnectOptions,
    split: Split,
) -> Result<Standing, SchemaError> {
    let path = options.get_filename();
    if !path.exists() {
        return Ok(Standing::default());
    }
    // Opening for writing sets the journal mode, and closing copies the WAL: changes. A reader
    // makes a WAL where there is none, unless it is told that nobody writes: then nobody does.
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let is_still = !Path::new(&wal).exists();
    let look = SqliteConnectOptions::new().filename(path).read_only(true).immutable(is_still);
    let mut connection = SqliteConnection::connect_with(&look).await?;
    let standing = standing(&mut connection, split).await?;
    connection.close().await?;
    Ok(standing)
}

/// The same of a server's database.
pub(super) async fn mysql(
    options: &MySqlConnectOptions,
    split: Split,
) -> Result<Standing, SchemaError> {
    let mut connection = mysql::connect(options).await?;
    let standing = standing(&mut connection, split).await?;
    // Read is read, however the goodbye goes.
    let _ = connection.close().await;
    Ok(standing)
}

async fn standing(connection: &mut impl Looked, split: Split) -> Result<Standing, SchemaError> {
    let mut standing = Standing::default();
    if refuse_foreign_tables(connection).await? {
        refuse_other_schema(connection).await?;
        tables::refuse_other_split(connection, split).await?;
        standing.cursor = connection.cursor(SINK_NAME).await?.and_then(cursor);
        standing.filling = connection.cursor(FILLING_NAME).await?.and_then(cursor);
    }
    Ok(standing)
}

/// The cursor of a row. One that the schema does not allow is left to the meeting, which says what
/// is wrong with it.
fn cursor((uuid, epoch, lsn, chain): Row) -> Option<Cursor> {
    Some(Cursor {
        uuid: LogUuid(uuid.try_into().ok()?),
        epoch: Epoch(u64::try_from(epoch).ok()?),
        lsn: Lsn(u64::try_from(lsn).ok()?),
        chain: u32::try_from(chain).ok()?,
    })
}
