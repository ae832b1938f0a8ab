//! SQLite on the caller's own thread: how the sink writes.
//!
//! The sink has a thread to itself, so nothing is won by handing statements to another, and much is
//! lost: at every order's share of a batch the hand-over, the copies of its values and the text of
//! statements of many rows cost as much as SQLite itself. Here each row is one execution of a
//! statement that was prepared once. That is less work for SQLite, too: a statement of one row
//! needs no journal of its own to be undone by, one of many rows does.
//!
//! Whoever shares a thread with others goes through [`SqliteStore`](super::sqlite::SqliteStore):
//! here a call blocks while another writer is at work, and while a commit is synced.

use std::time::Duration;

use rusqlite::ffi::{self, SQLITE_BUSY, SQLITE_IOERR_FSYNC};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Error, ErrorCode, OpenFlags, Row, ToSql};
use sqlx::sqlite::SqliteConnectOptions;

use super::chunks::Meaning;
use super::sqlite::{BUSY_TIMEOUT, CACHE_KIB, STATEMENTS_CACHED};
use super::sqlite_pages::{Pages, empty_log};
use super::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value, part_name};
use crate::place;

/// The database file, with one connection for writing.
#[derive(Debug)]
pub struct DirectStore {
    options: SqliteConnectOptions,
    /// `None` before the first use and after a transaction that was not committed cleanly: a
    /// connection in doubt is never used again.
    connection: Option<Connection>,
    /// Commits are to be synced.
    lasting: bool,
    /// The connection syncs them.
    syncs: bool,
    /// A sync failed, and which pages it left in the kernel's cache alone only the disk knows.
    in_doubt: bool,
    /// Boxed: a store is one of several, which are about as large as each other.
    pages: Box<Pages>,
}

impl DirectStore {
    /// A store that connects when it is first used.
    pub fn new(options: SqliteConnectOptions) -> Self {
        let pages = Box::new(Pages::new(options.get_filename()));
        Self { options, connection: None, lasting: true, syncs: true, in_doubt: false, pages }
    }

    /// The settings are those of [`connect_options`](super::sqlite::connect_options).
    fn connect(&self) -> Result<Connection, Error> {
        // No mutex: a connection is used by one thread at a time, the borrow checker sees to it.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.options.get_filename(), flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", false)?;
        connection.pragma_update(None, "cache_size", -i64::from(CACHE_KIB))?;
        // A sync of another process may have failed, too; of that nothing is known, and readers who
        // never end need not keep us from starting.
        if !self.copy_again(&connection)? && self.in_doubt {
            let why = "a sync failed, and a reader keeps what it was for from being written again: \
                       end whoever reads the database";
            return Err(Error::SqliteFailure(ffi::Error::new(SQLITE_BUSY), Some(why.into())));
        }
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        Ok(connection)
    }

    /// Writes once more what a sync that failed was for, and tells whether nobody was in the way.
    /// Of commits that were not synced one by one it may have left some in the page cache alone,
    /// where the next sync finds nothing to do. And the log may have holes on the disk now, up to
    /// which a start after a power cut would put old pages over new ones: it is emptied.
    ///
    /// Nobody is waited for, who would wait for us meanwhile: a sink that failed tries again.
    fn copy_again(&self, connection: &Connection) -> Result<bool, Error> {
        connection.busy_timeout(Duration::ZERO)?;
        let is_empty = empty_log(connection)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if is_empty {
            // SQLite itself leaves that to the next commit: until then the disk has the log whole.
            self.pages.sync_log().map_err(|error| {
                let code = ffi::Error::new(SQLITE_IOERR_FSYNC);
                Error::SqliteFailure(code, Some(error.to_string()))
            })?;
        }
        Ok(is_empty)
    }

    /// Keeps a connection for the next transaction, and copies pages where it is time. One whose
    /// sync failed is closed: the kernel tells it once, and the next sync would seem to do.
    fn keep(&mut self, connection: Connection, is_pause: bool) -> Result<(), Error> {
        self.in_doubt = true;
        self.pages.copy(&connection, is_pause)?;
        self.in_doubt = false;
        self.connection = Some(connection);
        Ok(())
    }
}

impl Store for DirectStore {
    type Transaction<'a> = DirectTransaction<'a>;

    async fn begin(&mut self) -> Result<DirectTransaction<'_>, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.syncs = true;
                let connection = self.connect()?;
                self.in_doubt = false;
                self.pages.watch(&connection);
                connection
            }
        };
        if self.syncs != self.lasting {
            // NORMAL syncs where pages are copied into the database: it stays whole either way.
            let synchronous = if self.lasting { "FULL" } else { "NORMAL" };
            connection.pragma_update(None, "synchronous", synchronous)?;
            self.syncs = self.lasting;
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        Ok(DirectTransaction { connection, home: self })
    }

    fn set_lasting(&mut self, lasting: bool) -> bool {
        self.lasting = lasting;
        lasting
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        match self.connection.take() {
            Some(connection) => Ok(self.keep(connection, true)?),
            None => Ok(()),
        }
    }
}

/// A transaction of a [`DirectStore`]. It owns the connection: only a clean commit gives it back,
/// everything else closes it, and with it what was not committed.
#[derive(Debug)]
pub struct DirectTransaction<'a> {
    connection: Connection,
    home: &'a mut DirectStore,
}

impl DirectTransaction<'_> {
    /// Whether its commit will be synced.
    ///
    /// # Errors
    /// SQLite does not say.
    pub fn syncs(&self) -> Result<bool, StoreError> {
        const NORMAL: i64 = 1;
        let mode = self.connection.pragma_query_value(None, "synchronous", |row| row.get(0));
        Ok(mode.map(|mode: i64| mode > NORMAL)?)
    }

    fn insert_rows(&self, rows: &Rows<'_>) -> Result<(), StoreError> {
        let (name, Table { columns, .. }) = (rows.table_name(), rows.table());
        let marks = vec!["?"; columns.len()].join(", ");
        let text = format!("INSERT INTO {name} ({}) VALUES ({marks})", columns.join(", "));
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut indexes = Vec::new();
        let mut first = None;
        for index in 0..rows.len() {
            let Err(source) = execute(&mut statement, rows.values(index, 1)) else { continue };
            match meaning(&source) {
                Meaning::Duplicate => {
                    let source = source.into();
                    return Err(StoreError::Duplicate { row: rows.name(index), source });
                }
                // SQLite undid that row alone: the others are tried too, so that all that are
                // refused are known at once. The transaction is given up after.
                Meaning::Refused => {
                    indexes.push(index);
                    first.get_or_insert((rows.name(index), source.into()));
                }
                Meaning::Unavailable => return Err(source.into()),
            }
        }
        match first {
            None => Ok(()),
            Some((row, source)) => Err(StoreError::Refused { row, indexes, source }),
        }
    }

    fn update_rows(&self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        let (name, Table { columns, key_columns, .. }) = (rows.table_name(), rows.table());
        let pairs = |from: usize, to: usize, separator: &str| {
            let pair = |number: usize| format!("{} = ?{number}", columns[number - 1]);
            (from..=to).map(pair).collect::<Vec<_>>().join(separator)
        };
        let set = pairs(key_columns + 1, columns.len(), ", ");
        let matches = pairs(1, *key_columns, " AND ");
        let text = format!("UPDATE {name} SET {set} WHERE {matches}");
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut hit = 0;
        for index in 0..rows.len() {
            hit +=
                execute(&mut statement, rows.values(index, 1)).map_err(|source| {
                    match meaning(&source) {
                        Meaning::Duplicate | Meaning::Refused => StoreError::Refused {
                            row: rows.name(index),
                            indexes: Vec::new(),
                            source: source.into(),
                        },
                        Meaning::Unavailable => source.into(),
                    }
                })?;
        }
        Ok(hit)
    }

    fn delete_rows(&self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        let (name, Table { columns, key_columns, .. }) = (rows.table_name(), rows.table());
        assert!(columns.len() == *key_columns, "a row to delete is its key");
        let matches: Vec<_> = columns.iter().map(|key| format!("{key} = ?")).collect();
        let text = format!("DELETE FROM {name} WHERE {}", matches.join(" AND "));
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut hit = 0;
        for index in 0..rows.len() {
            hit += execute(&mut statement, rows.values(index, 1))?;
        }
        Ok(hit)
    }

    fn select_rows(&self, lookup: &Lookup, keys: &[Value<'_>]) -> Result<Vec<Record>, StoreError> {
        let (columns, key) = (lookup.columns.join(", "), lookup.key);
        let from = part_name(lookup.from, lookup.part);
        let only = lookup.only.map(|(column, text)| format!("{column} = '{text}' AND "));
        let only = only.unwrap_or_default();
        let text = format!("SELECT {columns} FROM {from} WHERE {only}{key} = ?");
        let mut statement = self.connection.prepare_cached(&text)?;
        let mut records = Vec::with_capacity(keys.len());
        for key in keys {
            place::rest();
            statement.raw_bind_parameter(1, key)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                records.push(record(row, lookup.columns.len())?);
            }
        }
        Ok(records)
    }
}

// What is empty is not even prepared: a batch has rows for few of the tables.
impl Transaction for DirectTransaction<'_> {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        if rows.is_empty() { Ok(()) } else { self.insert_rows(rows) }
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() { Ok(0) } else { self.update_rows(rows) }
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        if keys.is_empty() { Ok(Vec::new()) } else { self.select_rows(lookup, keys) }
    }

    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() { Ok(0) } else { self.delete_rows(rows) }
    }

    async fn commit(self) -> Result<(), StoreError> {
        let Self { connection, home } = self;
        if let Err(error) = connection.execute_batch("COMMIT") {
            home.in_doubt = true;
            return Err(error.into());
        }
        home.pages.committed(home.syncs);
        // Committed it is, whatever comes of this.
        if let Err(error) = home.keep(connection, false) {
            tracing::warn!(%error, "SQLite could not copy pages from its log into its file");
        }
        Ok(())
    }
}

/// Runs `statement` with `values`, one for each of its placeholders; how many rows it hit.
fn execute(statement: &mut CachedStatement<'_>, values: &[Value<'_>]) -> Result<u64, Error> {
    place::rest();
    for (number, value) in (1_usize..).zip(values) {
        statement.raw_bind_parameter(number, value)?;
    }
    statement.raw_execute().map(|hit| hit as u64)
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

fn record(row: &Row<'_>, width: usize) -> Result<Record, StoreError> {
    let value = |index| {
        Ok(match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(value) => Value::Integer(value),
            ValueRef::Text(value) => match str::from_utf8(value) {
                Ok(text) => Value::text(text.to_owned()),
                Err(_) => return Err(StoreError::Unreadable { column: index }),
            },
            ValueRef::Blob(value) => Value::bytes(value.to_vec()),
            ValueRef::Real(_) => return Err(StoreError::Unreadable { column: index }),
        })
    };
    (0..width).map(value).collect::<Result<_, _>>().map(Record)
}

/// What `error` means for the rows.
fn meaning(error: &Error) -> Meaning {
    use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
    match error.sqlite_error() {
        Some(error) if error.code == ErrorCode::ConstraintViolation => match error.extended_code {
            SQLITE_CONSTRAINT_PRIMARYKEY | SQLITE_CONSTRAINT_UNIQUE => Meaning::Duplicate,
            _ => Meaning::Refused,
        },
        _ => Meaning::Unavailable,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
    use sqlx::sqlite::SqliteConnectOptions;

    use super::super::sqlite::CHECKPOINT_PAGES;
    use super::*;

    fn no_copies(context: AuthContext<'_>) -> Authorization {
        match context.action {
            AuthAction::Pragma { pragma_name: "wal_checkpoint", .. } => Authorization::Deny,
            _ => Authorization::Allow,
        }
    }

    /// Whether the next transaction has another connection than the last.
    async fn is_renewed(store: &mut DirectStore) -> Result<bool, StoreError> {
        let transaction = store.begin().await?;
        let mark = "SELECT COUNT(*) FROM temp.sqlite_schema";
        let marks: i64 = transaction.connection.query_row(mark, (), |row| row.get(0))?;
        transaction.connection.execute_batch("CREATE TEMP TABLE IF NOT EXISTS mark (a)")?;
        transaction.commit().await?;
        Ok(marks == 0)
    }

    #[tokio::test]
    async fn a_connection_whose_copying_failed_is_replaced_once_all_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let mut store = DirectStore::new(SqliteConnectOptions::new().filename(&path));
        store.set_lasting(false);
        assert!(is_renewed(&mut store).await.unwrap());
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM sqlite_schema").unwrap();
        let transaction = store.begin().await.unwrap();
        let bytes = u64::from(CHECKPOINT_PAGES) * 4096;
        let sql = format!("CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob({bytes}))");
        transaction.connection.execute_batch(&sql).unwrap();
        transaction.commit().await.unwrap();
        assert!(!is_renewed(&mut store).await.unwrap());

        store.connection.as_ref().unwrap().authorizer(Some(no_copies)).unwrap();
        assert!(store.tidy().is_err());
        assert!(is_renewed(&mut store).await.is_err(), "a reader keeps pages from being written");
        reader.execute_batch("COMMIT").unwrap();
        assert!(is_renewed(&mut store).await.unwrap());
        assert_eq!(path.with_extension("db-wal").metadata().unwrap().len(), 0, "it had holes");
        assert!(!is_renewed(&mut store).await.unwrap());
    }
}
