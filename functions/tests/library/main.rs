//! The library on a real server: its contract row by row, and random histories against the engine.
//!
//! | module | holds |
//! |---|---|
//! | `claims_calls` | every call and every code |
//! | `claims_keys` | every compatibility key, its value and its life |
//! | `claims_input` | what is refused unread |
//! | `differential` | random histories, compared call by call and key by key |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims_calls;
mod claims_input;
mod claims_keys;
#[path = "../../../sim/src/counts.rs"]
mod counts;
mod differential;
