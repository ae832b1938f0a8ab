//! The SQL sink: events become orders.
//!
//! ```text
//! batch - needs --> rows read -+
//!   +- events ----------------> fold --> rows --> sink: one transaction with the cursor
//!                               activities reservations orders payments
//!                               refunds flows audit dead_letters blacklist
//! ```
//!
//! [`sink`] drives; [`fill`] writes a database that the log has passed by; `fold` and the tables
//! beside it are free of any dialect; [`store`] is the seam to the database, [`sqlite`] and
//! [`mysql`] implement it, and [`sqlite_direct`] for the sink itself, with `sqlite_pages` for when
//! its pages go to the disk; [`database`] is any of them as a URL names it. [`queries`] and
//! [`accounts`] are what the server reads and writes there.

pub mod accounts;
mod activities;
pub mod archived;
pub mod audit;
mod blacklist;
mod chunks;
pub mod database;
pub mod dead_letter_list;
pub mod dead_letters;
pub mod driver_error;
pub mod export;
pub(crate) mod facts;
mod fault;
pub mod fill;
mod flows;
mod fold;
mod look;
pub(crate) mod mend;
pub mod money_list;
pub mod mysql;
pub(crate) mod needs;
mod orders;
mod payments;
pub mod queries;
pub mod readers;
mod refunds;
mod reservations;
pub mod schema;
mod sent;
pub mod sink;
pub mod split;
pub mod sqlite;
pub mod sqlite_direct;
mod sqlite_pages;
pub mod store;
mod stored_reservations;
mod tables;
pub mod tally;

pub(crate) use chunks::placeholders;
pub use fault::SinkError;
