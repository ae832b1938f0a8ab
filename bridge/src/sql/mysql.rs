//! MySQL 8 and MariaDB from 10.6 on.
//!
//! InnoDB with `READ COMMITTED`: the fenced update of the cursor is a transaction's first write
//! and locks its row, so that whoever else would write waits there, and reads after it see what
//! was committed before. Whatever the server's own settings are, the session is strict: a value
//! that does not fit is refused, never cut.
//!
//! The portable subset: no row aliases, no `RETURNING`, no `VALUES` as a table. An update of many
//! rows joins a table made of `SELECT`s, whose first row's casts give the columns their types.

use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::mysql::{
    MySql, MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Executor as _, Row as _, TypeInfo as _, ValueRef as _,
};

use super::chunks::{self, Meaning, Statements};
use super::database::{UrlError, without_secrets};
use super::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value};

/// Prepared statements a connection keeps: every table in every statement size fits.
const STATEMENTS_CACHED: usize = 256;

/// How long a server may take to accept a connection and its settings.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one statement may take. Beyond it the server or the way to it is taken for dead: TCP
/// alone would wait for hours. Above [`LOCK_WAIT_S`], whose error says more.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a statement waits for a row that another transaction holds: a connection that broke
/// is found by its server within that time, or the attempt is repeated.
const LOCK_WAIT_S: u32 = 10;

/// The largest statement: 256 callbacks with bodies of 4,096 bytes, and room.
const PACKET_BYTES_MIN: i64 = 4 << 20;

/// How every connection is set up, whatever the server's defaults are.
const SESSION: [&str; 3] = [
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION autocommit = 1",
];

/// How to connect to `url`.
///
/// # Errors
/// Where the URL can't be used: the operator must give another.
pub fn connect_options(url: &str) -> Result<MySqlConnectOptions, UrlError> {
    let options = MySqlConnectOptions::from_str(url)
        .map_err(|source| UrlError::Malformed { url: without_secrets(url), source })?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(UrlError::NoDatabase { url: without_secrets(url) });
    }
    // Equal to the columns' collation: a comparison of a column with a value can use its index.
    Ok(options
        .charset("utf8mb4")
        .collation("utf8mb4_bin")
        .statement_cache_capacity(STATEMENTS_CACHED))
}

/// A new connection with the session's settings.
pub(super) async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    within(CONNECT_TIMEOUT, async {
        let mut connection = options.connect().await?;
        set_up(&mut connection).await?;
        Ok(connection)
    })
    .await
}

/// Gives a connection the session's settings.
pub(super) async fn set_up(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    for text in SESSION {
        connection.execute(text).await?;
    }
    let lock_wait = format!("SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}");
    connection.execute(AssertSqlSafe(lock_wait)).await?;
    let packet_bytes: i64 = sqlx::query_scalar("SELECT CAST(@@max_allowed_packet AS SIGNED)")
        .fetch_one(connection)
        .await?;
    if packet_bytes < PACKET_BYTES_MIN {
        let text = format!(
            "its max_allowed_packet is {packet_bytes}: set it to {PACKET_BYTES_MIN} or more"
        );
        return Err(sqlx::Error::Configuration(text.into()));
    }
    Ok(())
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", limit.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}

/// What to do about `error`, after a colon, where its number tells.
pub(super) fn advice(error: &sqlx::Error) -> &'static str {
    match number(error) {
        Some(1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698) => {
            ": give Sluice's account ALL PRIVILEGES on its own database"
        }
        Some(1049) => ": create the database, empty, for Sluice alone",
        Some(1146 | 1054) => ": a table of Sluice's is gone or was changed, restore a backup",
        Some(1290 | 1792 | 1836) => ": the server is read only, make it writable or name another",
        _ => "",
    }
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

/// The database, with one connection for writing.
#[derive(Debug)]
pub struct MySqlStore {
    options: MySqlConnectOptions,
    /// `None` before the first use and after a transaction that was not committed cleanly: a
    /// connection in doubt is never used again.
    connection: Option<MySqlConnection>,
}

impl MySqlStore {
    /// A store that connects when it is first used.
    pub fn new(options: MySqlConnectOptions) -> Self {
        Self { options, connection: None }
    }
}

impl Store for MySqlStore {
    type Transaction<'a> = MySqlTransaction<'a>;

    async fn begin(&mut self) -> Result<MySqlTransaction<'_>, StoreError> {
        // One that is kept may have died since, with its server or of idleness: nothing has been
        // said over it yet, so another one is as good.
        let kept = match self.connection.take() {
            Some(mut connection) => start(&mut connection).await.ok().map(|()| connection),
            None => None,
        };
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let mut connection = connect(&self.options).await?;
                start(&mut connection).await?;
                connection
            }
        };
        Ok(MySqlTransaction { connection: Some(connection), home: self })
    }
}

/// A transaction of a [`MySqlStore`]. It owns the connection: only a clean commit gives it back,
/// everything else closes it, and with it what was not committed.
#[derive(Debug)]
pub struct MySqlTransaction<'a> {
    connection: Option<MySqlConnection>,
    home: &'a mut MySqlStore,
}

impl MySqlTransaction<'_> {
    fn connection(&mut self) -> &mut MySqlConnection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("the connection leaves with the transaction"),
        }
    }
}

async fn start(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    within(STATEMENT_TIMEOUT, connection.execute("START TRANSACTION")).await?;
    Ok(())
}

impl Statements for MySqlTransaction<'_> {
    async fn execute(&mut self, text: String, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        // sqlx asks for matched rows, not changed ones: a row set to what it is counts as hit.
        let execution = bound(text, values).execute(self.connection());
        Ok(within(STATEMENT_TIMEOUT, execution).await?.rows_affected())
    }

    async fn fetch(
        &mut self,
        text: String,
        values: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        records(self.connection(), text, values).await
    }

    fn update_text(name: &str, table: &Table, values: &[Value<'_>]) -> String {
        let Table { columns, key_columns, .. } = table;
        let width = columns.len();
        let casts: Vec<_> = (0..width).map(|column| cast(values, column, width)).collect();
        let first: Vec<_> = (1..).zip(&casts).map(|(n, cast)| format!("{cast} AS v{n}")).collect();
        let mut rows = format!("SELECT {}", first.join(", "));
        let more = format!(" UNION ALL SELECT {}", casts.join(", "));
        rows.push_str(&more.repeat(values.len() / width - 1));
        let pair = |number: usize| format!("t.{} = v.v{number}", columns[number - 1]);
        let matches: Vec<_> = (1..=*key_columns).map(pair).collect();
        let set: Vec<_> = (key_columns + 1..=width).map(pair).collect();
        let (matches, set) = (matches.join(" AND "), set.join(", "));
        format!("UPDATE {name} AS t JOIN ({rows}) AS v ON {matches} SET {set}")
    }

    fn meaning(error: &sqlx::Error) -> Meaning {
        match number(error) {
            Some(1062 | 1586) => Meaning::Duplicate,
            // NULL, bad value, cut, out of range, too long; a character that the column's set has
            // not; a foreign key, a trigger's SIGNAL, CHECK in MySQL and in MariaDB.
            Some(
                1048 | 1364 | 1265 | 1264 | 1292 | 1366 | 1406 | 1452 | 1644 | 3819 | 3988 | 4025,
            ) => Meaning::Refused,
            _ => Meaning::Unavailable,
        }
    }
}

impl Transaction for MySqlTransaction<'_> {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        chunks::insert(self, rows).await
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        chunks::update(self, rows).await
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        chunks::select(self, lookup, keys).await
    }

    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        chunks::delete(self, rows).await
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        within(STATEMENT_TIMEOUT, self.connection().execute("COMMIT")).await?;
        self.home.connection = self.connection.take();
        Ok(())
    }
}

/// A placeholder of the type that the column's values have. Without it a server that prepares a
/// statement before it sees a value takes it for text, and compares ids as such, without an index.
fn cast(values: &[Value<'_>], column: usize, width: usize) -> &'static str {
    let mut column = values.iter().skip(column).step_by(width);
    match column.find(|value| !matches!(value, Value::Null)) {
        Some(Value::Text(_)) => "CAST(? AS CHAR)",
        Some(Value::Bytes(_)) => "CAST(? AS BINARY)",
        Some(Value::Integer(_) | Value::Null) | None => "CAST(? AS SIGNED)",
    }
}

/// Values are bound, NULL too: nothing in them is ever part of a statement's text.
fn bound<'q>(
    text: String,
    values: &'q [Value<'_>],
) -> sqlx::query::Query<'q, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(text));
    values.iter().fold(query, |query, value| match value {
        Value::Null => query.bind(None::<i64>),
        Value::Integer(value) => query.bind(*value),
        Value::Text(value) => query.bind(value.as_ref()),
        Value::Bytes(value) => query.bind(value.as_ref()),
    })
}

/// The rows that `text` gives with `values` in its placeholders.
pub(super) async fn records(
    connection: &mut MySqlConnection,
    text: String,
    values: &[Value<'_>],
) -> Result<Vec<Record>, StoreError> {
    let rows = within(STATEMENT_TIMEOUT, connection.fetch_all(bound(text, values))).await?;
    rows.iter().map(record).collect()
}

fn record(row: &MySqlRow) -> Result<Record, StoreError> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            values.push(Value::Null);
            continue;
        }
        let type_name = raw.type_info().name().to_owned();
        values.push(match type_name.as_str() {
            "BIGINT UNSIGNED" => {
                let value: u64 = row.try_get(index)?;
                Value::Integer(
                    i64::try_from(value).map_err(|_| StoreError::Unreadable { column: index })?,
                )
            }
            "BIGINT" | "INT" | "TINYINT" => Value::Integer(row.try_get(index)?),
            "BOOLEAN" => Value::integer(row.try_get::<bool, _>(index)?),
            "VARCHAR" | "CHAR" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" => {
                Value::text(row.try_get::<String, _>(index)?)
            }
            // MariaDB calls a TEXT with a binary collation a BLOB.
            "VARBINARY" | "BINARY" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
                Value::bytes(row.try_get::<Vec<u8>, _>(index)?)
            }
            _ => return Err(StoreError::Unreadable { column: index }),
        });
    }
    Ok(Record(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_database_is_refused_without_its_password() {
        let error = connect_options("mysql://sluice:secret@host:3306?ssl-mode=disabled");
        let text = error.unwrap_err().to_string();
        assert!(text.contains("mysql://host:3306") && !text.contains("secret"), "{text}");
        assert!(connect_options("mysql://root@localhost/shop?socket=/run/s.sock").is_ok());
    }

    #[test]
    fn an_update_of_many_rows_gives_every_column_its_type() {
        static TABLE: Table = Table { name: "t", columns: &["id", "name"], key_columns: 1 };
        let mut rows = Rows::new(&TABLE);
        rows.push([Value::integer(1u64), Value::Null]);
        rows.push([Value::integer(2u64), Value::text("x")]);
        assert_eq!(
            MySqlTransaction::update_text("t", &TABLE, rows.values(0, 2)),
            "UPDATE t AS t JOIN (SELECT CAST(? AS SIGNED) AS v1, CAST(? AS CHAR) AS v2 \
             UNION ALL SELECT CAST(? AS SIGNED), CAST(? AS CHAR)) AS v \
             ON t.id = v.v1 SET t.name = v.v2"
        );
    }
}
