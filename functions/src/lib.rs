//! The rules of a flash sale as a Redis function library.
//!
//! [`LIBRARY`] is the text of `sluice.lua`, for `FUNCTION LOAD REPLACE` on Redis 7.2 or later, or
//! Valkey. It serves two ends. A shop that has a Redis and no Sluice yet calls the functions there
//! and later moves by changing host and port. And it is the oracle of the tests here: the engine's
//! core and this library, written apart in two languages, must answer every call alike, and leave
//! the same compatibility keys.
//!
//! | place | idea |
//! |---|---|
//! | `sluice.lua` | the library; its opening tells how it keeps its state |
//! | [`kit`] | a private server, the engine behind the same calls, random histories: for tests |
//! | `tests/library/claims*.rs` | the contract's tables of calls and keys, row by row |
//! | `tests/library/differential.rs` | random histories, library against engine |

#![warn(missing_docs)]

/// The library's text, as `FUNCTION LOAD` takes it.
pub const LIBRARY: &str = include_str!("../sluice.lua");

pub mod kit;
