//! The tables that [`orders.split`](super::split) makes of `orders` and `order_items`.
//!
//! The migrations make one table of each. While nothing has been written, it can still become
//! `orders_0`, `orders_1`, ... with a view `orders` over them, for whoever reads all orders; from
//! the first batch on, the number is fixed. Every step may be the last one before a crash: an
//! unfinished split is put together again, then made.

use std::collections::BTreeMap;

use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use super::look::Looked;
use super::schema::SchemaError;
use super::split::{SPLIT_MAX, Split};

/// The tables that are split.
const SPLIT_TABLES: [&str; 2] = ["orders", "order_items"];

/// Whether `name` is a part of a split table.
pub(super) fn is_part(name: &str) -> bool {
    SPLIT_TABLES.iter().any(|table| part_of(table, name).is_some())
}

fn part_of(table: &str, name: &str) -> Option<u16> {
    let digits = name.strip_prefix(table)?.strip_prefix('_')?;
    let part: u16 = digits.parse().ok()?;
    (part < SPLIT_MAX && digits == part.to_string()).then_some(part)
}

/// What the database holds of one split table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Present {
    is_table: bool,
    is_view: bool,
    parts: u16,
}

impl Present {
    /// Of each split table; `kinds` says of each name whether it is a table.
    fn of_all(kinds: &BTreeMap<String, bool>) -> [Self; 2] {
        SPLIT_TABLES.map(|table| Self::of(table, kinds))
    }

    fn of(table: &str, kinds: &BTreeMap<String, bool>) -> Self {
        let parts = kinds.keys().filter(|name| part_of(table, name).is_some()).count();
        Self {
            is_table: kinds.get(table) == Some(&true),
            is_view: kinds.get(table) == Some(&false),
            parts: u16::try_from(parts).unwrap_or(u16::MAX),
        }
    }

    /// Over how many tables it is spread; `None` where a split was not finished.
    fn tables(self) -> Option<u16> {
        match self {
            Self { is_table: true, parts: 0, .. } => Some(1),
            Self { is_view: true, parts, .. } if parts > 1 => Some(parts),
            _ => None,
        }
    }
}

/// What is to be done to one table, as SQL that needs no values.
fn steps(
    table: &str,
    present: Present,
    wanted: Split,
    copy: impl Fn(&str, &str) -> Vec<String>,
) -> Vec<String> {
    let mut steps = Vec::new();
    if present.is_view {
        steps.push(format!("DROP VIEW {table}"));
    }
    if !present.is_table {
        steps.extend(copy(&format!("{table}_0"), table));
    }
    steps.extend((0..SPLIT_MAX).map(|part| format!("DROP TABLE IF EXISTS {table}_{part}")));
    if wanted != Split::ONE {
        let parts = || (0..wanted.tables()).map(|part| format!("{table}_{part}"));
        steps.extend(parts().flat_map(|part| copy(table, &part)));
        steps.push(format!("DROP TABLE {table}"));
        let all: Vec<_> = parts().map(|part| format!("SELECT * FROM {part}")).collect();
        steps.push(format!("CREATE VIEW {table} AS {}", all.join(" UNION ALL ")));
    }
    steps
}

/// Whether the tables are as `wanted` already.
///
/// # Errors
/// [`SchemaError::SplitFixed`] where they are otherwise, and have been written.
fn agrees(wanted: Split, present: [Present; 2], is_written: bool) -> Result<bool, SchemaError> {
    let tables = present.map(Present::tables);
    if tables == [Some(wanted.tables()); 2] {
        return Ok(true);
    }
    if is_written {
        let present = tables[0].or(tables[1]).unwrap_or(1);
        return Err(SchemaError::SplitFixed { present, wanted: wanted.tables() });
    }
    Ok(false)
}

/// Whether the projection has begun: no table may be dropped from then on.
pub(super) const IS_WRITTEN: &str = "SELECT CAST(((SELECT COUNT(*) FROM bridge_cursor) > 0 \
     OR EXISTS (SELECT 1 FROM flashsale_pre_deductions)) AS SIGNED)";

/// Looks at the tables alone.
///
/// # Errors
/// [`SchemaError::SplitFixed`] where they are otherwise than `wanted`, and have been written.
pub(super) async fn refuse_other_split(
    connection: &mut impl Looked,
    wanted: Split,
) -> Result<(), SchemaError> {
    let present = Present::of_all(&connection.tables().await?.into_iter().collect());
    agrees(wanted, present, connection.is_written().await?).map(drop)
}

/// Splits the tables of a MySQL or MariaDB; the caller holds the schema's lock.
pub(super) async fn split_mysql(
    connection: &mut MySqlConnection,
    wanted: Split,
) -> Result<(), SchemaError> {
    let present = Present::of_all(&connection.tables().await?.into_iter().collect());
    if agrees(wanted, present, connection.is_written().await?)? {
        return Ok(());
    }
    let copy = |from: &str, to: &str| vec![format!("CREATE TABLE {to} LIKE {from}")];
    for (table, present) in SPLIT_TABLES.into_iter().zip(present) {
        for step in steps(table, present, wanted, copy) {
            sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Splits the tables of an SQLite file, all in one transaction.
pub(super) async fn split_sqlite(
    connection: &mut SqliteConnection,
    wanted: Split,
) -> Result<(), SchemaError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let entries: Vec<(String, String, String, Option<String>)> =
        sqlx::query_as("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")
            .fetch_all(&mut *transaction)
            .await?;
    let present = Present::of_all(&transaction.tables().await?.into_iter().collect());
    if agrees(wanted, present, transaction.is_written().await?)? {
        return Ok(());
    }
    for (table, present) in SPLIT_TABLES.into_iter().zip(present) {
        // SQLite can't copy a table's rules: the text that made it can.
        let copy = |from: &str, to: &str| {
            let template = if present.is_table { table } else { &format!("{table}_0") };
            assert!(template == from || from == table, "a table is copied from one that exists");
            let of_template = entries.iter().filter(|(.., owner, _)| owner == template);
            of_template.filter_map(|(.., sql)| Some(sql.as_ref()?.replace(template, to))).collect()
        };
        for step in steps(table, present, wanted, copy) {
            sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_a_split_gives_are_parts() {
        for name in ["orders_0", "orders_63", "order_items_7"] {
            assert!(is_part(name), "{name}");
        }
        for name in ["orders", "orders_", "orders_64", "orders_00", "orders_x", "users_0"] {
            assert!(!is_part(name), "{name}");
        }
    }

    #[test]
    fn what_was_written_is_never_split_anew() {
        let one = Present { is_table: true, is_view: false, parts: 0 };
        let four = Present { is_table: false, is_view: true, parts: 4 };
        let unfinished = Present { is_table: true, is_view: false, parts: 2 };
        let split = |tables| Split::new(tables).unwrap();
        assert!(agrees(split(1), [one; 2], true).unwrap());
        assert!(agrees(split(4), [four; 2], true).unwrap());
        for (wanted, present) in [(4, one), (1, four), (2, unfinished)] {
            assert!(!agrees(split(wanted), [present; 2], false).unwrap());
            let error = agrees(split(wanted), [present; 2], true).unwrap_err();
            assert!(matches!(error, SchemaError::SplitFixed { .. }), "{error}");
        }
    }
}
