//! The SQL sink: events become orders.
//!
//! ```text
//! batch - needs --> rows read -+
//!   +- events ----------------> fold --> rows --> sink: one transaction with the cursor
//!                               activities reservations orders payments
//!                               refunds flows audit dead_letters
//! ```
//!
//! [`sink`] drives; `fold` and the tables beside it are free of any dialect; [`store`] is the
//! seam to the database and [`sqlite`] one implementation of it. [`queries`] and [`accounts`] are
//! what the server reads and writes there.

pub mod accounts;
mod activities;
mod audit;
mod dead_letters;
mod fault;
mod flows;
mod fold;
mod needs;
mod orders;
mod payments;
pub mod queries;
mod refunds;
mod reservations;
pub mod schema;
pub mod sink;
pub mod sqlite;
pub mod store;

pub use fault::SinkError;
