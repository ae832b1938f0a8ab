//! The pure core: no clock, no randomness, no files, no threads.
//!
//! A [`Shard`](shard::Shard) is a deterministic state machine. [`decide`] looks at it and at a
//! [`Command`](command::Command) and says what shall happen, as [`Event`](event::Event)s, or why
//! nothing shall; [`apply`] makes an event happen. Those two alone know the rules. Replay calls
//! the same `apply`, so live state equals replayed state, which [`digest`] shows. A
//! [`Till`](till::Till) runs the two in one step for the purchase, the hot path. [`codec`] is the
//! events' bytes, [`snapshot`] the state's. [`model`] is the same machine once more, written to be
//! plain instead of fast: the tests hold the two against each other.

pub mod activity;
pub mod apply;
pub mod audit;
pub mod codec;
pub mod codes;
pub mod command;
pub mod control;
pub mod decide;
pub mod digest;
pub mod event;
pub mod ids;
mod invariants;
pub mod lifecycle;
pub mod limits;
pub mod model;
pub mod order_no;
pub(crate) mod packed;
pub mod publication;
pub mod request;
pub mod reservation;
pub mod shard;
pub mod side;
pub mod slots;
pub mod snapshot;
pub mod stock;
mod table;
pub mod terms;
pub mod till;
mod user;
pub(crate) mod user_table;
pub mod validate;
