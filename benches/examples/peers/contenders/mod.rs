//! Who takes part: each is started for a turn, in an empty directory, and ends with it.

mod shop;
mod sluice;
mod valkey;

use std::any::Any;
use std::path::Path;

use crate::client::Target;
use crate::cost::Log;
use crate::trouble::Trouble;

pub(crate) use shop::Store;

/// What the tokens of a turn are signed with; a turn's servers live for seconds, on loopback.
const SECRET: &str = "only-for-the-length-of-one-measured-turn";

/// Where a turn finds its programs and its directory.
pub(crate) struct Stage<'a> {
    /// The binary that is shipped, server and client in one.
    pub(crate) sluice: &'a Path,
    /// This binary.
    pub(crate) me: &'a Path,
    /// An empty directory on the disk.
    pub(crate) dir: &'a Path,
}

/// A contender that is ready.
pub(crate) struct Standing {
    /// Whom the client loads.
    pub(crate) target: Target,
    /// Where its log is counted.
    pub(crate) log: Log,
    /// Its processes, which end with it, the first one first.
    _parts: Vec<Box<dyn Any>>,
}

/// A contender, and how it is started.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    /// Its name in the table.
    pub(crate) name: &'static str,
    start: fn(&Stage<'_>) -> Result<Standing, Trouble>,
}

impl Contender {
    /// Starts it on `stage`.
    pub(crate) fn start(&self, stage: &Stage<'_>) -> Result<Standing, Trouble> {
        (self.start)(stage)
    }
}

/// Sluice over the Redis protocol.
pub(crate) const SLUICE_RESP: Contender = Contender { name: "Sluice", start: sluice::resp };
/// Sluice over HTTP.
pub(crate) const SLUICE_HTTP: Contender = Contender { name: "Sluice", start: sluice::http };
/// A Valkey with the same functions, which syncs every turn of its loop.
pub(crate) const VALKEY_LIBRARY: Contender = Contender {
    name: "Valkey always, the function library",
    start: |stage| valkey::contend(stage, valkey::Sync::Always, valkey::Script::Library),
};
/// The same with the older systems' script.
pub(crate) const VALKEY_BARE: Contender = Contender {
    name: "Valkey always, a bare script",
    start: |stage| valkey::contend(stage, valkey::Sync::Always, valkey::Script::Bare),
};
/// The same, asked with `WAITAOF` whether all is on disk.
pub(crate) const VALKEY_BARE_WAIT: Contender = Contender {
    name: "Valkey always, a bare script, WAITAOF",
    start: |stage| valkey::contend(stage, valkey::Sync::AlwaysAsked, valkey::Script::Bare),
};
/// A Valkey that syncs once a second, asked with `WAITAOF` whether all is on disk.
pub(crate) const VALKEY_EVERYSEC: Contender = Contender {
    name: "Valkey everysec, a bare script, WAITAOF",
    start: |stage| valkey::contend(stage, valkey::Sync::EverySecond, valkey::Script::Bare),
};
/// A service over one multiplexed connection.
pub(crate) const SHOP_MULTIPLEXED: Contender = Contender {
    name: "axum, one connection to Valkey always",
    start: |stage| shop::contend(stage, Store::Multiplexed),
};
/// A service over a pool.
pub(crate) const SHOP_POOL: Contender = Contender {
    name: "axum, a pool to Valkey always, WAITAOF",
    start: |stage| shop::contend(stage, Store::Pool),
};
/// A service over a database.
pub(crate) const SHOP_MARIADB: Contender = Contender {
    name: "axum, a MariaDB transaction a purchase",
    start: |stage| shop::contend(stage, Store::Mariadb),
};
/// The ceiling.
pub(crate) const HELLO: Contender = Contender { name: "bare epoll, no shop", start: shop::hello };
