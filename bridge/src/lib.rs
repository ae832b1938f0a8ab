//! The way outward: what the log says has happened becomes orders, exactly once.
//!
//! ```text
//!  the log --> tail --> follow --> sql: one transaction holds many orders and the cursor
//!   ^                     |
//!   +---- SinkAdvanced ---+   once the commit lasts: reservations now show `ordered`
//! ```
//!
//! The bridge never sees a request. It reads durable events in order ([`tail`]), in batches of
//! whole frames, and writes what they mean into SQL ([`sql`]), in one transaction with the place
//! it has reached. It may die at any instant: the next one reads that place from the database,
//! compares it with the log ([`cursor`] is the table of what may be found) and goes on, or halts
//! because the two do not belong together. There is no queue beside the log, no second write that
//! could be lost, nothing that guesses.
//!
//! * [`host`]: what the bridge needs of the engine, and nothing more.
//! * [`tail`]: durable events in batches, free of the log's files; [`images`]: the state after one
//!   of them, for a sink that the log has passed by.
//! * [`cursor`]: where a sink is, and the decision table that is judged at every meeting.
//! * [`first_look`]: that table asked once before a server writes anything at all.
//! * [`sql`]: events folded into rows, rows written by a store of some dialect.
//! * [`follow`]: meet the sink, then batch by batch; [`run`]: the thread around it, which retries
//!   what may pass and halts where a person must act.
//! * [`reconcile`]: engine, SQL and Redis held against each other, and mended toward the log.
//! * [`restore`]: a fresh data directory from what SQL knows, when the old one is lost.
//! * [`legacy`]: reservations of an older system, taken over from its tables and keys.
//! * [`lag`]: how far behind, and how it is; `place`, `background`: where a sink works, and
//!   behind whom; `lasting`: which of its commits are synced.
//!
//! A sink that stands still or a database that is down stops nothing else: purchases, payments and
//! cancels go on, and the log keeps what was not delivered.

mod announce;
mod background;
mod backoff;
pub mod cursor;
mod fill;
pub mod first_look;
pub mod follow;
pub mod host;
pub mod images;
pub mod lag;
mod lasting;
pub mod legacy;
mod log_source;
mod place;
pub mod reconcile;
pub mod redis;
pub mod restore;
pub mod run;
pub mod sql;
pub mod tail;

pub use host::Host;
pub use run::{BridgeHandle, Drained, Options, StartError, Watcher, start};
