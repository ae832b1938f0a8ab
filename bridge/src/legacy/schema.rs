//! The older system's tables, as far as they are there: some of its releases have columns that
//! others have not.

use std::collections::BTreeMap;

use crate::sql::database::Database;
use crate::sql::readers::Snapshot;
use crate::sql::store::{StoreError, Value};

/// A table and what is read of it.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name.
    pub(super) name: &'static str,
    /// Columns without which it says nothing.
    needed: &'static [&'static str],
    /// Columns that may be missing: read as NULL then.
    wanted: &'static [&'static str],
}

impl Table {
    /// All of them, in the order in which they are read.
    pub(super) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.needed.iter().chain(self.wanted).copied()
    }
}

pub(super) static ACTIVITIES: Table = Table {
    name: "flashsale_activities",
    needed: &["id", "sku_id", "price", "stock", "start_at", "end_at"],
    wanted: &[
        "title",
        "total_stock",
        "locked_stock",
        "sold_stock",
        "per_user_limit",
        "status",
        "payment_ttl_ms",
        "late_payment",
        "dead_letter",
    ],
};

pub(super) static RESERVATIONS: Table = Table {
    name: "flashsale_pre_deductions",
    needed: &["id", "user_id", "activity_id", "status"],
    wanted: &[
        "order_no",
        "client_request_id",
        "price",
        "quantity",
        "reason",
        "created_at",
        "updated_at",
        "rolled_back_at",
    ],
};

pub(super) static ORDERS: Table = Table {
    name: "orders",
    needed: &["order_no", "user_id", "activity_id", "status"],
    wanted: &[
        "order_type",
        "purchase_slot",
        "total_amount",
        "payment_no",
        "expire_at",
        "created_at",
        "updated_at",
    ],
};

pub(super) static ITEMS: Table =
    Table { name: "order_items", needed: &["order_no", "quantity"], wanted: &[] };

/// How a column is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Binary,
    Instant,
}

/// The columns of a table that are there.
#[derive(Debug)]
pub(super) struct Found {
    table: &'static Table,
    kinds: BTreeMap<String, Kind>,
    is_sqlite: bool,
}

impl Found {
    /// Looks at `table`. The inner error says what is missing.
    pub(super) async fn look(
        snapshot: &mut Snapshot,
        table: &'static Table,
    ) -> Result<Result<Self, String>, StoreError> {
        let is_sqlite = matches!(snapshot, Snapshot::Sqlite(_));
        let text = match is_sqlite {
            true => "SELECT lower(name), lower(type) FROM pragma_table_info(?)",
            false => {
                "SELECT CAST(LOWER(column_name) AS CHAR), CAST(LOWER(data_type) AS CHAR) \
                 FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name = ?"
            }
        };
        let mut kinds = BTreeMap::new();
        for row in snapshot.rows(text, &[Value::text(table.name)]).await? {
            kinds.insert(row.text(0)?.to_owned(), kind(row.text(1)?));
        }
        if kinds.is_empty() {
            return Ok(Err(format!("it has no table {}", table.name)));
        }
        let missing = table.needed.iter().find(|it| !kinds.contains_key(**it));
        if let Some(missing) = missing {
            return Ok(Err(format!("{} has no column {missing}", table.name)));
        }
        Ok(Ok(Self { table, kinds, is_sqlite }))
    }

    /// Whether `column` is there.
    pub(super) fn has(&self, column: &str) -> bool {
        self.kinds.contains_key(column)
    }

    /// Whether the database is SQLite.
    pub(super) fn is_sqlite(&self) -> bool {
        self.is_sqlite
    }

    /// `SELECT ... FROM table`: each column as bytes or text, whatever its type, so that a value
    /// that can't be read spoils its own row alone.
    pub(super) fn select(&self) -> String {
        let cells: Vec<_> = self.table.columns().map(|column| self.cell(column)).collect();
        format!("SELECT {} FROM {}", cells.join(", "), self.table.name)
    }

    fn cell(&self, column: &str) -> String {
        let Some(kind) = self.kinds.get(column) else { return "NULL".to_owned() };
        match kind {
            _ if self.is_sqlite => format!("CAST({column} AS BLOB)"),
            Kind::Plain => format!("CAST({column} AS CHAR)"),
            Kind::Binary => format!("CAST({column} AS BINARY)"),
            // In the session's time zone, as the server filled it in. What UNIX_TIMESTAMP has no
            // number for, beyond 2038 in some releases, is counted, by today's offset.
            Kind::Instant => format!(
                "CAST(COALESCE(NULLIF(FLOOR(UNIX_TIMESTAMP({column}) * 1000), 0), \
                 TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column}) DIV 1000 \
                 - TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) * 1000) AS CHAR)"
            ),
        }
    }
}

fn kind(data_type: &str) -> Kind {
    match data_type {
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Binary,
        "datetime" | "timestamp" | "date" => Kind::Instant,
        _ => Kind::Plain,
    }
}

/// Whether a server of Sluice's has written to the database.
pub(super) async fn is_ours(snapshot: &mut Snapshot) -> Result<bool, StoreError> {
    let text = match snapshot {
        Snapshot::Sqlite(_) => "SELECT name FROM sqlite_schema WHERE name = ?",
        Snapshot::MySql(_) => {
            "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = ?"
        }
    };
    if snapshot.rows(text, &[Value::text("bridge_cursor")]).await?.is_empty() {
        return Ok(false);
    }
    Ok(!snapshot.rows("SELECT sink FROM bridge_cursor LIMIT 1", &[]).await?.is_empty())
}

/// The database at `url`, to be read alone: it is neither made nor set up.
pub(super) fn database(url: &str) -> Result<Database, crate::sql::database::UrlError> {
    Ok(match Database::at(url)? {
        Database::Sqlite(options) => {
            let path = options.get_filename();
            let look = sqlx::sqlite::SqliteConnectOptions::new().filename(path).read_only(true);
            Database::Sqlite(look.foreign_keys(false))
        }
        // Its instants are in its own time zone, unless the URL names another.
        Database::MySql(options) if !url.contains("timezone=") && !url.contains("time-zone=") => {
            Database::MySql(options.timezone(None))
        }
        other => other,
    })
}
