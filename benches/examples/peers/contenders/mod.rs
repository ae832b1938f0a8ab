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
pub(crate) use valkey::redis_server;

use valkey::{Product, Script, Sync};

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

/// A Valkey that a mirror writes to, and its URL.
pub(crate) fn mirror_store(stage: &Stage<'_>) -> Result<(Box<dyn Any>, String), Trouble> {
    let started = valkey::start(stage, Product::Valkey, Sync::EverySecond, Script::Bare);
    started
        .map(|(server, address)| (Box::new(server) as Box<dyn Any>, format!("redis://{address}")))
}

/// A contender, and how it is started.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    /// Its name in the table.
    pub(crate) name: &'static str,
    start: fn(&Stage<'_>) -> Result<Standing, Trouble>,
    is_here: fn() -> bool,
}

impl Contender {
    const fn new(name: &'static str, start: fn(&Stage<'_>) -> Result<Standing, Trouble>) -> Self {
        Self { name, start, is_here: || true }
    }

    /// The same, which takes part only where `is_here` says so.
    const fn only_if(self, is_here: fn() -> bool) -> Self {
        Self { is_here, ..self }
    }

    /// Whether it takes part on this machine.
    pub(crate) fn is_here(&self) -> bool {
        (self.is_here)()
    }

    /// Starts it on `stage`.
    pub(crate) fn start(&self, stage: &Stage<'_>) -> Result<Standing, Trouble> {
        (self.start)(stage)
    }
}

/// Sluice over the Redis protocol.
pub(crate) const SLUICE_RESP: Contender = Contender::new("Sluice", sluice::resp);
/// Sluice over HTTP.
pub(crate) const SLUICE_HTTP: Contender = Contender::new("Sluice", sluice::http);
/// The same without the short way of plain purchases.
pub(crate) const SLUICE_ROUTER: Contender =
    Contender::new("Sluice, by hyper and axum alone", sluice::http_by_router);
/// A Valkey with the same functions, which syncs every turn of its loop.
pub(crate) const VALKEY_LIBRARY: Contender =
    Contender::new("Valkey always, the function library", |stage| {
        valkey::contend(stage, Product::Valkey, Sync::Always, Script::Library)
    });
/// The same with the older systems' script.
pub(crate) const VALKEY_BARE: Contender = Contender::new("Valkey always, a bare script", |stage| {
    valkey::contend(stage, Product::Valkey, Sync::Always, Script::Bare)
});
/// The same, asked with `WAITAOF` whether all is on disk.
pub(crate) const VALKEY_BARE_WAIT: Contender =
    Contender::new("Valkey always, a bare script, WAITAOF", |stage| {
        valkey::contend(stage, Product::Valkey, Sync::AlwaysAsked, Script::Bare)
    });
/// A Valkey that syncs once a second, asked with `WAITAOF` whether all is on disk.
pub(crate) const VALKEY_EVERYSEC: Contender =
    Contender::new("Valkey everysec, a bare script, WAITAOF", |stage| {
        valkey::contend(stage, Product::Valkey, Sync::EverySecond, Script::Bare)
    });
/// A Redis 8 that syncs every turn of its loop.
pub(crate) const REDIS_BARE: Contender = Contender::new("Redis 8 always, a bare script", |stage| {
    valkey::contend(stage, Product::Redis8, Sync::Always, Script::Bare)
})
.only_if(|| redis_server().is_some());
/// A Redis 8 that syncs once a second, asked with `WAITAOF` whether all is on disk.
pub(crate) const REDIS_EVERYSEC: Contender =
    Contender::new("Redis 8 everysec, a bare script, WAITAOF", |stage| {
        valkey::contend(stage, Product::Redis8, Sync::EverySecond, Script::Bare)
    })
    .only_if(|| redis_server().is_some());
/// A service over one multiplexed connection.
pub(crate) const SHOP_MULTIPLEXED: Contender =
    Contender::new("axum, one connection to Valkey always", |stage| {
        shop::contend(stage, Store::Multiplexed)
    });
/// A service over a pool.
pub(crate) const SHOP_POOL: Contender =
    Contender::new("axum, a pool to Valkey always, WAITAOF", |stage| {
        shop::contend(stage, Store::Pool)
    });
/// A service over a database.
pub(crate) const SHOP_MARIADB: Contender =
    Contender::new("axum, a MariaDB transaction a purchase", |stage| {
        shop::contend(stage, Store::Mariadb)
    });
/// The ceiling.
pub(crate) const HELLO: Contender =
    Contender::new("bare epoll, no shop", |stage| shop::hello(stage, &[]));
/// The same over io_uring, by a runtime made for that.
pub(crate) const HELLO_URING: Contender =
    Contender::new("compio over io_uring, no shop", |stage| shop::hello(stage, &["--uring"]));
