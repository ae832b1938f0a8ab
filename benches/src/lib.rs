//! What the benches share: an engine on a real disk with one hot activity, and buyers without end.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

pub mod in_process;
pub mod raw;
pub mod rules;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::core::event::{Actor, DeadLetterPolicy, Definition, Front, LatePayment};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::core::limits::{TIME_MS_MAX, UNITS_MAX};
use engine::{BatchAnswer, BatchRequest, Busy, Engine, EngineOptions, Pending};
use tempfile::TempDir;
use wal::SpareMade;

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

/// A directory on the disk that the build lies on: a temporary one is often memory. Where
/// `BENCH_DIR` names a folder it lies there; in memory, say, to see the processor's share alone.
pub fn data_dir() -> TempDir {
    let target = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target");
    let root = std::env::var_os("BENCH_DIR").map_or_else(target, PathBuf::from);
    std::fs::create_dir_all(&root).unwrap();
    tempfile::Builder::new().prefix("bench-").tempdir_in(root).unwrap()
}

/// How an engine in `dir` is opened: with its own threads or without, with snapshots or never one.
pub fn options(dir: &Path, threads: bool, snapshots: bool) -> EngineOptions {
    let accept_file_system = std::env::var_os("BENCH_DIR").is_some();
    let defaults = EngineOptions::new(dir);
    let snapshot_after_bytes = if snapshots { defaults.snapshot_after_bytes } else { u64::MAX };
    EngineOptions { threads, snapshot_after_bytes, accept_file_system, ..defaults }
}

/// An engine with one hot activity, on a real disk with real syncs.
pub struct Sale {
    /// The engine.
    pub engine: Engine,
    /// The activity on sale.
    pub activity: ActivityId,
    /// The data directory, removed in the end; `None` where the caller keeps one.
    pub dir: Option<TempDir>,
    next_user: AtomicU64,
}

impl Sale {
    /// A fresh sale that commits by itself.
    pub fn open() -> Self {
        Self::in_temporary(true, UNITS_MAX)
    }

    /// The same with so many units for sale.
    pub fn open_with(units: u32) -> Self {
        Self::in_temporary(true, units)
    }

    /// A fresh sale whose caller commits.
    pub fn without_threads() -> Self {
        Self::in_temporary(false, UNITS_MAX)
    }

    fn in_temporary(threads: bool, units: u32) -> Self {
        let dir = data_dir();
        let sale = Self::with(dir.path(), threads, units);
        Self { dir: Some(dir), ..sale }
    }

    /// A fresh sale in `dir`, which is empty or missing.
    pub fn at(dir: &Path, threads: bool) -> Self {
        Self::with(dir, threads, UNITS_MAX)
    }

    fn with(dir: &Path, threads: bool, units: u32) -> Self {
        // Without threads nobody makes snapshots either: what is read again is the log.
        let (engine, _) = Engine::open(options(dir, threads, threads)).unwrap();
        if !threads {
            make_spares(&engine);
        }
        let commit = || {
            if !threads {
                engine.commit().unwrap();
            }
        };
        let created = engine.create(None, ACTOR, units, definition()).unwrap();
        commit();
        let activity = created.wait().unwrap().unwrap().id;
        let published = engine.publish(activity, ACTOR).unwrap();
        commit();
        published.wait().unwrap().unwrap();
        // What a real sale has between its creation and its opening: time for its memory.
        engine.prepare_sales();
        Self { engine, activity, dir: None, next_user: AtomicU64::new(1) }
    }

    /// `count` buyers that never bought.
    pub fn users(&self, count: u64) -> Range<u64> {
        let first = self.next_user.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// Buys one unit for each of `count` fresh users, in one batch, without waiting for the disk.
    pub fn batch(&self, count: u64) -> Pending<Vec<BatchAnswer>> {
        self.batch_of(self.users(count), REQUEST_ID, 1)
    }

    /// Buys `quantity` units for each of `users`, in one batch, without waiting for the disk.
    pub fn batch_of(
        &self,
        users: Range<u64>,
        request_id: &str,
        quantity: u32,
    ) -> Pending<Vec<BatchAnswer>> {
        self.batch_in(self.activity, users, request_id, quantity)
    }

    /// The same in another activity.
    pub fn batch_in(
        &self,
        activity: ActivityId,
        users: Range<u64>,
        request_id: &str,
        quantity: u32,
    ) -> Pending<Vec<BatchAnswer>> {
        let user = |user| UserId::new(user).unwrap();
        let requests: Vec<_> =
            users.map(|it| BatchRequest { user: user(it), request_id, quantity }).collect();
        patient(|| self.engine.reserve_batch(activity, &requests, Front::Api))
    }

    /// Makes `count` more activities of `units` each and puts them on sale, for a sale that commits
    /// by itself.
    pub fn more_activities(&self, count: u64, units: u32) -> Vec<ActivityId> {
        let sku = |number: u64| SkuId::new(definition().sku.get() + 1 + number).unwrap();
        let made = (0..count).map(|number| {
            let definition = Definition { sku: sku(number), ..definition() };
            patient(|| self.engine.create(None, ACTOR, units, definition))
        });
        // All are on their way before the first is waited for: they share their syncs.
        let made: Vec<_> = made.collect();
        let ids: Vec<_> = made.into_iter().map(|it| it.wait().unwrap().unwrap().id).collect();
        let publish = |id: &ActivityId| patient(|| self.engine.publish(*id, ACTOR));
        let published: Vec<_> = ids.iter().map(publish).collect();
        published.into_iter().for_each(|it| _ = it.wait().unwrap().unwrap());
        self.engine.prepare_sales();
        ids
    }

    /// Buys for `count` fresh users in whole batches, and commits each on this thread: for a sale
    /// without threads.
    pub fn fill(&self, count: u64) {
        self.fill_with(count, REQUEST_ID);
    }

    /// The same, with another request id.
    pub fn fill_with(&self, count: u64, request_id: &str) {
        for _ in 0..count / USERS_A_BATCH {
            let pending = self.batch_of(self.users(USERS_A_BATCH), request_id, 1);
            self.engine.commit().unwrap();
            make_spares(&self.engine);
            pending.wait().unwrap();
        }
    }
}

/// Calls until the log has room.
fn patient<T>(call: impl Fn() -> Result<T, Busy>) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(Busy::Overloaded) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes the segments that must be ahead, or new purchases are refused: no thread does it here.
fn make_spares(engine: &Engine) {
    while engine.make_spare().unwrap() == SpareMade::Made {}
}

/// Purchases in a batch: what a busy event loop gathers in one turn.
pub const USERS_A_BATCH: u64 = 1_024;

/// As long as the ids of those who number their requests.
pub const SHORT_REQUEST_ID: &str = "7f3a";

/// As long as a UUID is in text.
pub const REQUEST_ID: &str = "0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f";
