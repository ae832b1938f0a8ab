//! The SQL schema, one folder a dialect, forward only.
//!
//! A file that was ever released is never edited: a change is a new file. One schema serves every
//! dialect; what differs is how a type is written:
//!
//! | meaning | SQLite |
//! |---|---|
//! | id, quantity, money in the smallest unit | `INTEGER` (ids stay below 2^53) |
//! | instant | `INTEGER`, Unix milliseconds, UTC: exact, sortable, free of time zones |
//! | yes or no | `INTEGER`, 0 or 1 |
//! | text that people read | `TEXT`, compared byte by byte (SQLite's `BINARY` collation) |
//! | bytes that a client chose, hashes, log ids | `BLOB` |
//!
//! Tables are `STRICT`: a value of another type is refused, never converted.

use sqlx::migrate::Migrator;

/// The schema for SQLite.
pub static SQLITE: Migrator = sqlx::migrate!("./sqlite");

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
