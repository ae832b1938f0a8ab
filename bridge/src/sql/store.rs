//! A database as the projection sees it: rows in, rows by key out, one transaction a batch.
//!
//! The projection never names a dialect. It hands over tables, columns and values; a store turns
//! them into its own SQL, in statements of few fixed sizes so that each is prepared once. A new
//! dialect is one implementation of [`Store`], and a test that fails at a chosen instant is
//! another.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use super::driver_error::DriverError;

/// One value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// Ids, quantities, money, instants, booleans.
    Integer(i64),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes, compared byte by byte.
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Value<'a> {
    /// `value` as an integer. Ids and money stay below 2^53; a number beyond `i64` could only be an
    /// amount that an outside party made up, and is stored as the largest.
    pub fn integer(value: impl Into<u64>) -> Self {
        Self::Integer(i64::try_from(value.into()).unwrap_or(i64::MAX))
    }

    /// `value` as an integer, `None` as NULL.
    pub fn integer_or_null(value: Option<u64>) -> Self {
        value.map_or(Self::Null, Self::integer)
    }

    /// Text.
    pub fn text(value: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(value.into())
    }

    /// Text, `None` as NULL.
    pub fn text_or_null(value: Option<impl Into<Cow<'a, str>>>) -> Self {
        value.map_or(Self::Null, |value| Self::Text(value.into()))
    }

    /// Bytes.
    pub fn bytes(value: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::Bytes(value.into())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Integer(value) => value.fmt(f),
            // Escaped: it goes into one line of a log.
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bytes(value) => value.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// Columns of a table that are written together. The first `key_columns` name a row.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns, key first.
    pub columns: &'static [&'static str],
    /// How many of them make the key.
    pub key_columns: usize,
}

/// Which of the tables that a table is split into; `None` where it is one.
pub type Part = Option<u16>;

/// What `table` is called in the database.
pub(crate) fn part_name(table: &'static str, part: Part) -> Cow<'static, str> {
    part.map_or(Cow::Borrowed(table), |part| Cow::Owned(format!("{table}_{part}")))
}

/// Rows for one table.
#[derive(Debug)]
pub struct Rows<'a> {
    table: &'static Table,
    part: Part,
    values: Vec<Value<'a>>,
}

impl<'a> Rows<'a> {
    /// No rows yet.
    pub fn new(table: &'static Table) -> Self {
        Self::of_part(table, None)
    }

    /// No rows yet, for a part of `table`.
    pub fn of_part(table: &'static Table, part: Part) -> Self {
        assert!(table.key_columns >= 1 && table.key_columns <= table.columns.len());
        Self { table, part, values: Vec::new() }
    }

    /// Adds one row, in the order of the table's columns.
    pub fn push<const N: usize>(&mut self, row: [Value<'a>; N]) {
        assert!(N == self.table.columns.len(), "a row of {} has its columns", self.table.name);
        self.values.extend(row);
    }

    /// The table.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// The table's name in the database.
    pub(crate) fn table_name(&self) -> Cow<'static, str> {
        part_name(self.table.name, self.part)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.table.columns.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values of rows `start..start + count`, row after row.
    pub fn values(&self, start: usize, count: usize) -> &[Value<'a>] {
        let width = self.table.columns.len();
        &self.values[start * width..(start + count) * width]
    }

    /// The row at `index` by its key, for a person.
    pub(crate) fn name(&self, index: usize) -> String {
        let mut name = String::new();
        let width = self.table.columns.len();
        let key = &self.values[index * width..][..self.table.key_columns];
        for (column, value) in self.table.columns.iter().zip(key) {
            let separator = if name.is_empty() { "" } else { ", " };
            let table = self.table_name();
            // Writing to a String can't fail.
            let _ = write!(name, "{separator}{table}.{column} = {value}");
        }
        name
    }
}

/// A look-up of rows by one key column.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// What is read.
    pub columns: &'static [&'static str],
    /// The table, or a join of tables.
    pub from: &'static str,
    /// The column that must equal one of the keys.
    pub key: &'static str,
    /// Which part of the table.
    pub part: Part,
    /// A column, and the one text in it, where only such rows are looked for.
    pub only: Option<(&'static str, &'static str)>,
}

/// A row that was read, in the order of the look-up's columns.
#[derive(Debug)]
pub struct Record(pub Vec<Value<'static>>);

impl Record {
    /// Takes the value of column `index`.
    pub fn take(&mut self, index: usize) -> Result<Value<'static>, StoreError> {
        match self.0.get_mut(index) {
            Some(value) => Ok(std::mem::replace(value, Value::Null)),
            None => Err(StoreError::Unreadable { column: index }),
        }
    }

    /// The number in column `index`.
    pub fn number(&self, index: usize) -> Result<u64, StoreError> {
        self.number_or_null(index)?.ok_or(StoreError::Unreadable { column: index })
    }

    /// The number in column `index`, if there is one.
    pub fn number_or_null(&self, index: usize) -> Result<Option<u64>, StoreError> {
        match self.0.get(index) {
            Some(Value::Null) => Ok(None),
            Some(Value::Integer(value)) => u64::try_from(*value)
                .map(Some)
                .map_err(|_| StoreError::Unreadable { column: index }),
            _ => Err(StoreError::Unreadable { column: index }),
        }
    }

    /// The text in column `index`. A dialect may keep it as bytes, so that it is compared as such.
    pub fn text(&self, index: usize) -> Result<&str, StoreError> {
        self.text_or_null(index)?.ok_or(StoreError::Unreadable { column: index })
    }

    /// The text in column `index`, if there is one.
    pub fn text_or_null(&self, index: usize) -> Result<Option<&str>, StoreError> {
        match self.0.get(index) {
            Some(Value::Null) => Ok(None),
            Some(Value::Text(value)) => Ok(Some(value)),
            Some(Value::Bytes(value)) => std::str::from_utf8(value)
                .map(Some)
                .map_err(|_| StoreError::Unreadable { column: index }),
            _ => Err(StoreError::Unreadable { column: index }),
        }
    }

    /// The bytes in column `index`.
    pub fn bytes(&self, index: usize) -> Result<&[u8], StoreError> {
        match self.0.get(index) {
            Some(Value::Bytes(value)) => Ok(value),
            _ => Err(StoreError::Unreadable { column: index }),
        }
    }
}

/// What a database said.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key that must be new exists: the row is a stranger's, or was written twice.
    #[error("{row} can't be inserted, a row with such a key exists: {source}")]
    Duplicate {
        /// The row, by its key.
        row: String,
        /// The database's own words.
        source: DriverError,
    },
    /// A constraint refuses rows.
    #[error("{row} is refused: {source}")]
    Refused {
        /// The first of them, by its key.
        row: String,
        /// All that the statement which met it would have been refused for, by their places in the
        /// rows given.
        indexes: Vec<usize>,
        /// The database's own words.
        source: DriverError,
    },
    /// A value read is not what the schema says.
    #[error("column {column} of a row read holds what the schema does not allow")]
    Unreadable {
        /// Which column of the look-up.
        column: usize,
    },
    /// It does not answer, is locked, full, read only: it may come back.
    #[error("the database is not available: {0}{advice}", advice = .0.advice())]
    Unavailable(#[from] DriverError),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unavailable(error.into())
    }
}

/// A database.
#[expect(async_fn_in_trait, reason = "a sink runs on one thread: its futures needn't be Send")]
pub trait Store {
    /// Its transactions.
    type Transaction<'a>: Transaction
    where
        Self: 'a;

    /// Begins a transaction that nobody else can write beside. Connects first where there is no
    /// connection, or where the last transaction was not committed cleanly.
    ///
    /// # Errors
    /// Where the database is not available.
    async fn begin(&mut self) -> Result<Self::Transaction<'_>, StoreError>;

    /// Whether commits must outlast a machine that stops, from the next [`begin`](Self::begin) on.
    /// Where they need not, they may be undone by it, the last ones first; one that lasts makes
    /// those before it last. Tells whether they do: a store for which all commits cost the same
    /// makes them last always.
    fn set_lasting(&mut self, _lasting: bool) -> bool {
        true
    }

    /// Does what a store has put off until a pause. The next transaction may be begun after any
    /// error.
    ///
    /// # Errors
    /// Where the database is not available.
    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A transaction. Dropped, it leaves nothing behind.
#[expect(async_fn_in_trait, reason = "a sink runs on one thread: its futures needn't be Send")]
pub trait Transaction {
    /// Inserts `rows`, plainly: a duplicate is an error, never ignored.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] and [`StoreError::Refused`] name the row.
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError>;

    /// Sets, for each of `rows`, the columns behind the key where the key matches; how many rows of
    /// the table were hit.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError>;

    /// Reads the rows whose key is one of `keys`.
    ///
    /// # Errors
    /// Where the database is not available.
    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError>;

    /// Deletes the rows of the table whose key, all that a row here holds, is in `rows`; how many
    /// there were.
    ///
    /// # Errors
    /// Where the database is not available.
    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError>;

    /// Makes it durable. After an error it may or may not have happened.
    ///
    /// # Errors
    /// Where the database does not say that it did.
    async fn commit(self) -> Result<(), StoreError>;
}

/// Rows in one statement: few sizes, so that each statement is prepared once and cached, and the
/// largest stays under every dialect's bound on variables (256 rows of 24 columns = 6,144; SQLite
/// takes 32,766).
const STATEMENT_ROWS: [usize; 5] = [256, 64, 16, 4, 1];

/// Splits `count` rows into statements: (start, rows) pairs.
pub(crate) fn statements(count: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = count - start;
        let size = *STATEMENT_ROWS.iter().find(|size| **size <= rest)?;
        start += size;
        Some((start - size, size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_cover_every_row_once_in_order() {
        for count in [0, 1, 3, 4, 255, 256, 257, 1_000, 2_000] {
            let mut next = 0;
            for (start, rows) in statements(count) {
                assert_eq!(start, next);
                assert!(STATEMENT_ROWS.contains(&rows));
                next = start + rows;
            }
            assert_eq!(next, count);
        }
    }

    #[test]
    fn a_row_is_named_by_its_key_on_one_line() {
        static TABLE: Table = Table { name: "t", columns: &["a", "b", "c"], key_columns: 2 };
        let mut rows = Rows::new(&TABLE);
        rows.push([Value::Null, Value::Null, Value::Null]);
        rows.push([Value::integer(7u64), Value::text("x'\n"), Value::bytes(&[1][..])]);
        assert_eq!(rows.name(1), r#"t.a = 7, t.b = "x'\n""#);
    }
}
