//! The library on a real server: its contract row by row, and random histories against the engine.
//!
//! | module | holds |
//! |---|---|
//! | `server` | a private Valkey, ended with the test |
//! | `call`, `reply` | a call and its answer, as either side understands them |
//! | `claims_calls` | every call and every code |
//! | `claims_keys` | every compatibility key, its value and its life |
//! | `claims_input` | what is refused unread |
//! | `oracle` | the engine's core behind the same calls |
//! | `keys` | the compatibility keys: those on the server, and those the engine's state asks for |
//! | `history`, `differential` | random histories, compared call by call and key by key |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod call;
mod claims_calls;
mod claims_input;
mod claims_keys;
mod differential;
mod history;
mod keys;
mod oracle;
mod reply;
mod server;
