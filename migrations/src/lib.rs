//! The SQL schema, one folder a dialect, forward only.
//!
//! A file that was ever released is never edited: a change is a new file. One schema serves every
//! dialect; what differs is how a type is written:
//!
//! | meaning | SQLite | MySQL, MariaDB |
//! |---|---|---|
//! | id | `INTEGER` (ids stay below 2^53) | `BIGINT UNSIGNED` |
//! | quantity, money in the smallest unit | `INTEGER` | `BIGINT` |
//! | instant: Unix milliseconds, UTC, exact, sortable | `INTEGER` | `BIGINT` |
//! | yes or no: 0 or 1 | `INTEGER` | `TINYINT` |
//! | text that people read | `TEXT` (`BINARY` collation) | `VARCHAR`, `utf8mb4_bin` |
//! | text in a key that somebody else chose | `TEXT` | `VARBINARY`, UTF-8 |
//! | request ids, hashes, log ids | `BLOB` | `VARBINARY` |
//!
//! SQLite's tables are `STRICT`: a value of another type is refused, never converted. On MySQL a
//! connection's `sql_mode` does the same. The one binary collation of utf8mb4 that MySQL and
//! MariaDB share takes `a` and `a ` for equal, so keys chosen elsewhere are kept as bytes there.
//!
//! DDL commits by itself on MySQL: there a file is one statement, which may run again after a
//! crash in its middle.

use sqlx::migrate::Migrator;

/// The schema for SQLite.
pub static SQLITE: Migrator = sqlx::migrate!("./sqlite");

/// The schema for MySQL and MariaDB. Run it without sqlx's own lock, which MariaDB does not grant.
pub static MYSQL: Migrator = sqlx::migrate!("./mysql");

/// Every table that the schema makes, beside the migrator's own.
pub const TABLES: &[&str] = &[
    "audit",
    "blacklist",
    "bridge_cursor",
    "dead_letters",
    "flashsale_activities",
    "flashsale_pre_deductions",
    "order_items",
    "orders",
    "payment_callbacks",
    "payments",
    "refunds",
    "skus",
    "stock_flows",
    "user_addresses",
    "users",
];

/// The table in which the migrator remembers what it applied.
pub const MIGRATIONS_TABLE: &str = "_sqlx_migrations";
