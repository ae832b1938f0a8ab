//! What the benches share: an engine on a real disk with one hot activity, and buyers without end.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::sync::atomic::{AtomicU64, Ordering};

use engine::core::event::{Actor, DeadLetterPolicy, Definition, Front, LatePayment};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::core::limits::{TIME_MS_MAX, UNITS_MAX};
use engine::{BatchRequest, Engine, EngineOptions};
use tempfile::TempDir;

/// Who sets the sale up.
pub const ACTOR: Actor<'static> = Actor { name: "bench", request_id: "bench" };

/// A definition that never runs out by itself.
pub fn definition() -> Definition<'static> {
    Definition {
        sku: SkuId::new(20_001).unwrap(),
        title: "bench",
        price: 100,
        per_user_limit: 5,
        start_ms: 1,
        end_ms: TIME_MS_MAX,
        payment_ttl_ms: 30 * 24 * 3_600_000,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: 0,
    }
}

/// A directory on the disk that the build lies on: a temporary one is often memory.
pub fn data_dir() -> TempDir {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    tempfile::Builder::new().prefix("bench-").tempdir_in(root).unwrap()
}

/// An engine with one hot activity, on a real disk with real syncs.
pub struct Sale {
    /// The engine.
    pub engine: Engine,
    /// The activity on sale.
    pub activity: ActivityId,
    /// The data directory, removed in the end.
    pub dir: TempDir,
    next_user: AtomicU64,
}

impl Sale {
    /// Opens a fresh sale.
    pub fn open() -> Self {
        let dir = data_dir();
        let (engine, _) = Engine::open(EngineOptions::new(dir.path())).unwrap();
        let created = engine.create(None, ACTOR, UNITS_MAX, definition()).unwrap();
        let activity = created.wait().unwrap().unwrap().id;
        engine.publish(activity, ACTOR).unwrap().wait().unwrap().unwrap();
        Self { engine, activity, dir, next_user: AtomicU64::new(1) }
    }

    /// `count` buyers that never bought.
    pub fn users(&self, count: u64) -> std::ops::Range<u64> {
        let first = self.next_user.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// Buys one unit for each of `count` fresh users, in one batch, without waiting for the disk.
    pub fn batch(&self, count: u64) -> engine::Pending<Vec<engine::BatchAnswer>> {
        let requests: Vec<_> = self
            .users(count)
            .map(|user| BatchRequest {
                user: UserId::new(user).unwrap(),
                request_id: REQUEST_ID,
                quantity: 1,
            })
            .collect();
        loop {
            match self.engine.reserve_batch(self.activity, &requests, Front::Api) {
                Ok(pending) => return pending,
                Err(engine::Busy::Overloaded) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// As long as a UUID is in text.
pub const REQUEST_ID: &str = "0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f";
