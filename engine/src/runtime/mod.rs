//! The shards over a log: everything that needs a clock, a lock, a file or a thread.

pub(crate) mod archive;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod controls;
pub(crate) mod dead_letters;
pub(crate) mod directory;
pub(crate) mod engine;
pub(crate) mod entries;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod open;
pub(crate) mod operator;
pub(crate) mod owner;
pub(crate) mod payment;
pub(crate) mod payments;
pub(crate) mod pending;
pub(crate) mod present;
pub(crate) mod purchase;
pub(crate) mod refunds;
pub(crate) mod replay;
pub(crate) mod sinks;
pub(crate) mod skus;
pub(crate) mod stats;
pub(crate) mod timer;
pub(crate) mod verify;
pub(crate) mod views;
mod without_order;
