//! A look at the database that changes nothing: whose it is, and where its cursor stands.
//!
//! A server looks before it writes anything to its log; the sink is met later, by
//! [`follow`](crate::follow), and judged again.

use std::path::Path;

use sqlx::Connection as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use wal::{Epoch, LogUuid, Lsn};

use super::mysql;
use super::schema::{SchemaError, refuse_foreign_tables, refuse_foreign_tables_mysql};
use super::sink::{FILLING_NAME, SINK_NAME};
use crate::cursor::{Cursor, Standing};

const CURSOR: &str = "SELECT log_uuid, epoch, lsn, chain FROM bridge_cursor WHERE sink = ?";

type Row = (Vec<u8>, i64, i64, i64);

/// Where the file says that it stands; one that is not there is not made.
pub(super) async fn sqlite(options: &SqliteConnectOptions) -> Result<Standing, SchemaError> {
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
    let mut standing = Standing::default();
    if refuse_foreign_tables(&mut connection).await? {
        standing.cursor = sqlite_cursor(&mut connection, SINK_NAME).await?;
        standing.filling = sqlite_cursor(&mut connection, FILLING_NAME).await?;
    }
    connection.close().await?;
    Ok(standing)
}

async fn sqlite_cursor(
    connection: &mut SqliteConnection,
    name: &'static str,
) -> Result<Option<Cursor>, SchemaError> {
    let row: Option<Row> = sqlx::query_as(CURSOR).bind(name).fetch_optional(connection).await?;
    Ok(row.and_then(cursor))
}

/// The same of a server's database.
pub(super) async fn mysql(options: &MySqlConnectOptions) -> Result<Standing, SchemaError> {
    let mut connection = mysql::connect(options).await?;
    let mut standing = Standing::default();
    if refuse_foreign_tables_mysql(&mut connection).await? {
        standing.cursor = mysql_cursor(&mut connection, SINK_NAME).await?;
        standing.filling = mysql_cursor(&mut connection, FILLING_NAME).await?;
    }
    // Read is read, however the goodbye goes.
    let _ = connection.close().await;
    Ok(standing)
}

async fn mysql_cursor(
    connection: &mut MySqlConnection,
    name: &'static str,
) -> Result<Option<Cursor>, SchemaError> {
    let row: Option<Row> = sqlx::query_as(CURSOR).bind(name).fetch_optional(connection).await?;
    Ok(row.and_then(cursor))
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
