//! What tests hold the library and the engine against each other with.
//!
//! | module | holds |
//! |---|---|
//! | `process` | a private server, ended with the test |
//! | `valkey` | one with the library loaded |
//! | `call`, `reply` | a call and its answer, as either side understands them |
//! | `oracle` | the engine's core behind the same calls |
//! | `keys` | the compatibility keys: those on the server, and those the engine's state asks for |
//! | `history` | random histories |

#![allow(missing_docs, reason = "a test's tools: their names say it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod call;
pub mod history;
pub mod keys;
pub mod oracle;
pub mod process;
pub mod reply;
pub mod valkey;
