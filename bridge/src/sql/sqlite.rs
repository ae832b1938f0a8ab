//! SQLite, the embedded default.
//!
//! WAL mode with `synchronous = FULL`: a committed transaction is on disk, unless the sink says
//! that it need not be yet, and readers never wait for the writer. The bridge holds one connection
//! for writing; every transaction begins `IMMEDIATE`, so that it waits for another writer at its
//! beginning and never fails for one in its middle. sqlx hands each statement to a thread of its
//! own: one statement of many rows costs one hand-over.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::sqlite::{
    Sqlite, SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _, TypeInfo as _, ValueRef as _};

use super::chunks::{self, Meaning, Statements, placeholders};
use super::database::UrlError;
use super::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value};

/// How long a writer waits for another: accounts are written beside the bridge, in transactions of
/// milliseconds.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Prepared statements a connection keeps: every table in every statement size fits.
pub(super) const STATEMENTS_CACHED: usize = 256;

/// Page cache of a connection, in KiB. SQLite's own 2 MiB can't hold the index pages that one batch
/// touches: it would write and read them again and again within the transaction.
pub(super) const CACHE_KIB: u32 = 64 * 1024;

/// WAL pages (of 4 KiB) from which on the sink copies them into the database in its next pause: a
/// page that many batches touch is then copied and synced once for all of them.
pub(super) const CHECKPOINT_PAGES: u32 = 16 * 1024;

/// In a rush pages are copied from here on: half a minute at 20,000 orders a second. The other
/// connections, whose commits a shopper waits for, leave the copying to the sink for as long.
/// Bounds the WAL at some 512 MiB, unless somebody reads for long.
pub(super) const CHECKPOINT_PAGES_MAX: u32 = 8 * CHECKPOINT_PAGES;

/// How to connect to `url`, with the settings that durability rests on.
///
/// # Errors
/// Where the URL can't be used: the operator must give another.
pub fn connect_options(url: &str) -> Result<SqliteConnectOptions, UrlError> {
    if !url.starts_with("sqlite:") {
        return Err(UrlError::Scheme { url: url.to_owned() });
    }
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(UrlError::InMemory { url: url.to_owned() });
    }
    if let Some(option) = ["vfs=", "immutable=", "mode=ro"].into_iter().find(|it| url.contains(it))
    {
        return Err(UrlError::Option { url: url.to_owned(), option });
    }
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|source| UrlError::Malformed { url: url.to_owned(), source })?;
    Ok(options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES_MAX.to_string())
        .statement_cache_capacity(STATEMENTS_CACHED))
}

/// The database file, with one connection for writing.
#[derive(Debug)]
pub struct SqliteStore {
    options: SqliteConnectOptions,
    /// `None` before the first use and after a transaction that was not committed cleanly: a
    /// connection in doubt is never used again.
    connection: Option<SqliteConnection>,
}

impl SqliteStore {
    /// A store that connects when it is first used.
    pub fn new(options: SqliteConnectOptions) -> Self {
        Self { options, connection: None }
    }
}

impl Store for SqliteStore {
    type Transaction<'a> = SqliteTransaction<'a>;

    async fn begin(&mut self) -> Result<SqliteTransaction<'_>, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => SqliteConnection::connect_with(&self.options).await?,
        };
        let mut transaction = SqliteTransaction { connection: Some(connection), home: self };
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(transaction.connection()).await?;
        Ok(transaction)
    }
}

/// A transaction of a [`SqliteStore`]. It owns the connection: only a clean commit gives it back,
/// everything else closes it, and with it what was not committed.
#[derive(Debug)]
pub struct SqliteTransaction<'a> {
    connection: Option<SqliteConnection>,
    home: &'a mut SqliteStore,
}

impl SqliteTransaction<'_> {
    fn connection(&mut self) -> &mut SqliteConnection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("the connection leaves with the transaction"),
        }
    }
}

impl Statements for SqliteTransaction<'_> {
    async fn execute(&mut self, text: String, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        Ok(bound(text, values).execute(self.connection()).await?.rows_affected())
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
        let set: Vec<_> = (key_columns + 1..=columns.len())
            .map(|number| format!("{} = v.column{number}", columns[number - 1]))
            .collect();
        let matches: Vec<_> = (1..=*key_columns)
            .map(|number| format!("t.{} = v.column{number}", columns[number - 1]))
            .collect();
        let tuples = vec![placeholders(columns.len()); values.len() / columns.len()].join(", ");
        let (set, matches) = (set.join(", "), matches.join(" AND "));
        format!("UPDATE {name} AS t SET {set} FROM (VALUES {tuples}) AS v WHERE {matches}")
    }

    fn meaning(error: &sqlx::Error) -> Meaning {
        match error.as_database_error() {
            Some(error) if error.is_unique_violation() => Meaning::Duplicate,
            Some(_) if is_constraint(error) => Meaning::Refused,
            _ => Meaning::Unavailable,
        }
    }
}

impl Transaction for SqliteTransaction<'_> {
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
        sqlx::raw_sql("COMMIT").execute(self.connection()).await?;
        self.home.connection = self.connection.take();
        Ok(())
    }
}

fn is_constraint(error: &sqlx::Error) -> bool {
    /// `SQLITE_CONSTRAINT`, the low byte of every extended code of that family.
    const SQLITE_CONSTRAINT: i64 = 19;
    error
        .as_database_error()
        .and_then(|error| error.code()?.parse::<i64>().ok())
        .is_some_and(|code| code & 0xFF == SQLITE_CONSTRAINT)
}

/// Values are bound, NULL too: the statement's text must not depend on them.
fn bound<'q>(
    text: String,
    values: &'q [Value<'_>],
) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
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
    connection: &mut SqliteConnection,
    text: String,
    values: &[Value<'_>],
) -> Result<Vec<Record>, StoreError> {
    let rows = connection.fetch_all(bound(text, values)).await?;
    rows.iter().map(record).collect()
}

fn record(row: &SqliteRow) -> Result<Record, StoreError> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            values.push(Value::Null);
            continue;
        }
        let type_name = raw.type_info().name().to_owned();
        values.push(match type_name.as_str() {
            "INTEGER" => Value::Integer(row.try_get(index)?),
            "TEXT" => Value::text(row.try_get::<String, _>(index)?),
            "BLOB" => Value::bytes(row.try_get::<Vec<u8>, _>(index)?),
            _ => return Err(StoreError::Unreadable { column: index }),
        });
    }
    Ok(Record(values))
}
