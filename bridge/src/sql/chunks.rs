//! What every dialect's transaction does alike: rows in statements of few fixed sizes, the row
//! behind a refusal found and named.

use super::store::{Lookup, Record, Rows, StoreError, Table, Value, part_name, statements};

/// What an error of a statement means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// A key that must be new exists.
    Duplicate,
    /// Another constraint refuses a value.
    Refused,
    /// Nothing about the rows: the database, the connection, the account.
    Unavailable,
}

/// One connection within a transaction, in some dialect.
pub(super) trait Statements {
    /// Runs `text` with `values` in its placeholders; how many rows it hit.
    async fn execute(&mut self, text: String, values: &[Value<'_>]) -> Result<u64, sqlx::Error>;

    /// Runs `text` with `values` in its placeholders; the rows it gives.
    async fn fetch(
        &mut self,
        text: String,
        values: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError>;

    /// The statement that updates the rows of `table`, called `name`, whose values are `values`,
    /// row after row.
    fn update_text(name: &str, table: &Table, values: &[Value<'_>]) -> String;

    /// What `error` means.
    fn meaning(error: &sqlx::Error) -> Meaning;
}

pub(super) async fn insert<S: Statements>(
    statement: &mut S,
    rows: &Rows<'_>,
) -> Result<(), StoreError> {
    for (start, count) in statements(rows.len()) {
        if let Err(error) = insert_chunk(statement, rows, start, count).await {
            return Err(name_refused(statement, rows, start, count, error).await);
        }
    }
    Ok(())
}

pub(super) async fn update<S: Statements>(
    statement: &mut S,
    rows: &Rows<'_>,
) -> Result<u64, StoreError> {
    let mut hit = 0;
    for (start, count) in statements(rows.len()) {
        let values = rows.values(start, count);
        let text = S::update_text(&rows.table_name(), rows.table(), values);
        hit += statement.execute(text, values).await.map_err(|source| {
            let row = || format!("one of {count} rows from {}", rows.name(start));
            match S::meaning(&source) {
                Meaning::Duplicate | Meaning::Refused => {
                    let source = source.into();
                    StoreError::Refused { row: row(), indexes: Vec::new(), source }
                }
                Meaning::Unavailable => source.into(),
            }
        })?;
    }
    Ok(hit)
}

pub(super) async fn delete<S: Statements>(
    statement: &mut S,
    rows: &Rows<'_>,
) -> Result<u64, StoreError> {
    let Table { columns, key_columns, .. } = rows.table();
    assert!(columns.len() == *key_columns, "a row to delete is its key");
    let mut hit = 0;
    for (start, count) in statements(rows.len()) {
        let name = rows.table_name();
        let rows_match = match columns {
            [key] => format!("{key} IN {}", placeholders(count)),
            keys => {
                let pairs: Vec<_> = keys.iter().map(|key| format!("{key} = ?")).collect();
                vec![format!("({})", pairs.join(" AND ")); count].join(" OR ")
            }
        };
        let text = format!("DELETE FROM {name} WHERE {rows_match}");
        hit += statement.execute(text, rows.values(start, count)).await?;
    }
    Ok(hit)
}

pub(super) async fn select<S: Statements>(
    statement: &mut S,
    lookup: &Lookup,
    keys: &[Value<'_>],
) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::with_capacity(keys.len());
    for (start, count) in statements(keys.len()) {
        let (columns, key) = (lookup.columns.join(", "), lookup.key);
        let from = part_name(lookup.from, lookup.part);
        let list = placeholders(count);
        let only = lookup.only.map(|(column, text)| format!("{column} = '{text}' AND "));
        let only = only.unwrap_or_default();
        let text = format!("SELECT {columns} FROM {from} WHERE {only}{key} IN {list}");
        records.extend(statement.fetch(text, &keys[start..start + count]).await?);
    }
    Ok(records)
}

async fn insert_chunk<S: Statements>(
    statement: &mut S,
    rows: &Rows<'_>,
    start: usize,
    count: usize,
) -> Result<(), sqlx::Error> {
    let (name, columns) = (rows.table_name(), rows.table().columns);
    let tuples = vec![placeholders(columns.len()); count].join(", ");
    let text = format!("INSERT INTO {name} ({}) VALUES {tuples}", columns.join(", "));
    let hit = statement.execute(text, rows.values(start, count)).await?;
    assert!(hit == count as u64, "a plain insert inserts every row");
    Ok(())
}

/// A statement of many rows was refused: finds for which. The databases undo such a statement
/// alone, so the transaction can be asked again row by row; it is given up after.
async fn name_refused<S: Statements>(
    statement: &mut S,
    rows: &Rows<'_>,
    start: usize,
    count: usize,
    error: sqlx::Error,
) -> StoreError {
    if S::meaning(&error) == Meaning::Unavailable {
        return error.into();
    }
    let mut indexes = Vec::new();
    let mut first = None;
    for index in start..start + count {
        let Err(source) = insert_chunk(statement, rows, index, 1).await else { continue };
        match S::meaning(&source) {
            Meaning::Duplicate => {
                let source = source.into();
                return StoreError::Duplicate { row: rows.name(index), source };
            }
            Meaning::Unavailable => return source.into(),
            Meaning::Refused => {
                indexes.push(index);
                first.get_or_insert((rows.name(index), source.into()));
            }
        }
    }
    match first {
        Some((row, source)) => StoreError::Refused { row, indexes, source },
        // Refused together and not one by one: whoever was in the way has gone.
        None => error.into(),
    }
}

/// `(?, ?, ?)`
pub(crate) fn placeholders(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}
