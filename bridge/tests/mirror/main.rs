//! The Redis mirror on a real Valkey.
//!
//! | module | holds |
//! |---|---|
//! | `valkey` | private servers, and a cluster of three masters |
//! | `sale` | the engine's state and log in memory, and a random crowd |
//! | `library` | the function library as the oracle: a log replayed as calls |
//! | `keys` | key spaces, compared with values and ends |
//! | `following` | the same keys as the library, at every cursor |
//! | `histories` | the same histories as library and port |
//! | `healing` | lost, old, evicted and tampered data |
//! | `fencing` | forks, and two servers on one Redis |
//! | `events` | what no call of the library leads to, and the SKU layouts |
//! | `thread` | the running mirror of a running engine |
//! | `failover` | a replica that was behind takes over under the running mirror |
//! | `relay` | the address that it takes over |
//! | `clustered` | layout `cluster` on three masters |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "each module uses a part of the support code")]

mod clustered;
mod events;
mod failover;
mod fencing;
mod following;
mod healing;
mod histories;
mod keys;
mod library;
mod relay;
mod sale;
#[path = "../support/mod.rs"]
mod support;
mod thread;
mod valkey;

use bridge::redis::MirrorError;
use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use redis::Connection;
use wal::Lsn;

use sale::Sale;
use valkey::Valkey;

/// A sale, its mirror's Redis in database 1, and the library in database 0 of the same server.
pub struct Shop {
    pub server: Valkey,
    pub sale: Sale,
    pub library: library::Library,
    pub redis: Connection,
}

impl Shop {
    pub fn open(seed: u64) -> Self {
        Self::on(Valkey::start(), seed)
    }

    pub fn on(server: Valkey, seed: u64) -> Self {
        let library = library::Library::load(server.connect(0));
        let redis = server.connect(1);
        Self { server, sale: Sale::open(seed, 3), library, redis }
    }

    pub async fn meet(&self) -> Result<Mirror<'_, Sale>, MirrorError> {
        Mirror::meet(&self.sale, &self.server.url(1), Layout::Flashsale, Bounds::default()).await
    }

    /// Meets and follows to the end; whether the keys were written anew.
    pub async fn catch_up(&self) -> Result<bool, MirrorError> {
        let mut mirror = self.meet().await?;
        while mirror.step().await? != Step::CaughtUp {}
        Ok(mirror.was_resynced())
    }

    /// The keys are those that the library leaves at the log's end.
    pub fn assert_same(&mut self) {
        let end = bridge::Host::durable_lsn(&self.sale);
        self.assert_same_at(end);
    }

    pub fn assert_same_at(&mut self, lsn: Lsn) {
        self.library.replay(&self.sale, lsn);
        let expected = keys::present(&mut self.library.connection, "flashsale:*");
        let found = keys::present(&mut self.redis, "flashsale:*");
        keys::assert_same(&found, &expected, &format!("at LSN {lsn}"));
    }

    pub fn say<T: redis::FromRedisValue>(&mut self, line: &str) -> T {
        valkey::say(&mut self.redis, line)
    }

    /// The keys that the library leaves from an empty database, whatever became of its own.
    pub fn oracle(&mut self) -> keys::Keys {
        let mut library = library::Library::load(self.server.connect(2));
        let () = valkey::say(&mut library.connection, "FLUSHDB");
        let whole = self.sale.memory.copied();
        whole.retire(0);
        library.replay(&whole, bridge::Host::durable_lsn(&whole));
        keys::present(&mut library.connection, "flashsale:*")
    }

    /// Database 1, as a server that was started again has it.
    pub fn reconnect(&mut self) {
        self.redis = self.server.connect(1);
    }
}
