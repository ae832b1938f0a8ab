//! SQLite, the embedded default.
//!
//! WAL mode with `synchronous = FULL`: a committed transaction is on disk, and readers never wait
//! for the writer. The bridge holds one connection for writing; every transaction begins
//! `IMMEDIATE`, so that it waits for another writer at its beginning and never fails for one in
//! its middle. sqlx hands each statement to a thread of its own: one statement of many rows costs
//! one hand-over.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::query_builder::{QueryBuilder, Separated};
use sqlx::sqlite::{
    Sqlite, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{Connection as _, Row as _, TypeInfo as _, ValueRef as _};

use super::store::{
    Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value, statements,
};

/// How long a writer waits for another: accounts are written beside the bridge, in transactions of
/// milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Prepared statements a connection keeps: every table in every statement size fits.
const STATEMENTS_CACHED: usize = 256;

/// Page cache of a connection, in KiB. SQLite's own 2 MiB can't hold the index pages that one batch
/// touches: it would write and read them again and again within the transaction.
const CACHE_KIB: u32 = 64 * 1024;

/// WAL pages (of 4 KiB) after which a commit copies them into the database: a page that many
/// batches touch is then copied and synced once for all of them. Bounds the WAL at some 64 MiB.
const CHECKPOINT_PAGES: u32 = 16 * 1024;

/// A database URL that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("database URL {url:?}: only sqlite:<path> is supported")]
    Scheme {
        /// The URL.
        url: String,
    },
    /// In memory.
    #[error("database URL {url:?}: a database in memory would lose accounts and addresses")]
    InMemory {
        /// The URL.
        url: String,
    },
    /// Not understood.
    #[error("database URL {url:?}: {source}")]
    Malformed {
        /// The URL.
        url: String,
        /// Why.
        source: sqlx::Error,
    },
}

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
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|source| UrlError::Malformed { url: url.to_owned(), source })?;
    Ok(options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{CACHE_KIB}"))
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
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

    async fn insert_chunk(
        &mut self,
        rows: &Rows<'_>,
        start: usize,
        count: usize,
    ) -> Result<(), sqlx::Error> {
        let Table { name, columns, .. } = rows.table();
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO ");
        query.push(name).push(" (").push(columns.join(", ")).push(") ");
        query.push_values(rows.chunk(start, count), |mut tuple, row| {
            for value in row {
                bind(&mut tuple, value);
            }
        });
        let done = query.build().execute(self.connection()).await?;
        assert!(done.rows_affected() == count as u64, "a plain insert inserts every row");
        Ok(())
    }

    async fn update_chunk(
        &mut self,
        rows: &Rows<'_>,
        start: usize,
        count: usize,
    ) -> Result<u64, sqlx::Error> {
        let Table { name, columns, key_columns } = rows.table();
        let (keys, sets) = columns.split_at(*key_columns);
        let mut query = QueryBuilder::<Sqlite>::new("UPDATE ");
        query.push(name).push(" AS t SET ");
        for (index, column) in sets.iter().enumerate() {
            query.push(if index == 0 { "" } else { ", " });
            query.push(column).push(" = v.column").push(key_columns + index + 1);
        }
        query.push(" FROM (");
        query.push_values(rows.chunk(start, count), |mut tuple, row| {
            for value in row {
                bind(&mut tuple, value);
            }
        });
        query.push(") AS v WHERE ");
        for (index, column) in keys.iter().enumerate() {
            query.push(if index == 0 { "t." } else { " AND t." });
            query.push(column).push(" = v.column").push(index + 1);
        }
        Ok(query.build().execute(self.connection()).await?.rows_affected())
    }

    /// A statement of many rows was refused for one of them: finds which. SQLite undoes the
    /// statement alone, so the transaction can be asked again row by row; it is given up after.
    async fn name_refused(
        &mut self,
        rows: &Rows<'_>,
        start: usize,
        count: usize,
        error: sqlx::Error,
    ) -> StoreError {
        if !is_constraint(&error) {
            return StoreError::Unavailable(error);
        }
        for index in start..start + count {
            if let Err(source) = self.insert_chunk(rows, index, 1).await {
                let row = rows.name(index);
                return match source.as_database_error() {
                    Some(error) if error.is_unique_violation() => {
                        StoreError::Duplicate { row, source }
                    }
                    Some(_) if is_constraint(&source) => StoreError::Refused { row, source },
                    _ => StoreError::Unavailable(source),
                };
            }
        }
        StoreError::Unavailable(error)
    }
}

impl Transaction for SqliteTransaction<'_> {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        for (start, count) in statements(rows.len()) {
            if let Err(error) = self.insert_chunk(rows, start, count).await {
                return Err(self.name_refused(rows, start, count, error).await);
            }
        }
        Ok(())
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        let mut hit = 0;
        for (start, count) in statements(rows.len()) {
            hit += self.update_chunk(rows, start, count).await.map_err(|source| {
                if is_constraint(&source) {
                    let row = format!("one of {count} rows from {}", rows.name(start));
                    StoreError::Refused { row, source }
                } else {
                    StoreError::Unavailable(source)
                }
            })?;
        }
        Ok(hit)
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::with_capacity(keys.len());
        for (start, count) in statements(keys.len()) {
            let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
            query.push(lookup.columns.join(", ")).push(" FROM ").push(lookup.from);
            query.push(" WHERE ").push(lookup.key).push(" IN (");
            let mut list = query.separated(", ");
            for key in &keys[start..start + count] {
                bind(&mut list, key);
            }
            query.push(")");
            let rows = query.build().fetch_all(self.connection()).await?;
            for row in &rows {
                records.push(record(row)?);
            }
        }
        Ok(records)
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

fn bind(tuple: &mut Separated<'_, Sqlite, &str>, value: &Value<'_>) {
    match value {
        // Bound, not written out: the statement's text must not depend on the values.
        Value::Null => tuple.push_bind(None::<i64>),
        Value::Integer(value) => tuple.push_bind(*value),
        Value::Text(value) => tuple.push_bind(value.as_ref()),
        Value::Bytes(value) => tuple.push_bind(value.as_ref()),
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_another_scheme_or_in_memory_is_refused() {
        for url in ["mysql://u@h/d", "orders.db", ""] {
            assert!(matches!(connect_options(url), Err(UrlError::Scheme { .. })), "{url}");
        }
        for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite:x?mode=memory"] {
            assert!(matches!(connect_options(url), Err(UrlError::InMemory { .. })), "{url}");
        }
        assert!(connect_options("sqlite:data/orders.db").is_ok());
    }
}
