//! What the engine and its bridge get in place of the machine: a clock, and somebody who commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridge::host::{Failure, Host};
use bridge::redis::Present;
use engine::core::activity::Activity;
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId};
use engine::{Busy, Engine, TimeSource};
use wal::{LogIdentity, Lsn};

/// A clock that stands until it is moved.
#[derive(Default)]
pub(super) struct SimTime(AtomicU64);

impl SimTime {
    /// A clock that shows `ms`, Unix milliseconds.
    pub(super) fn new(ms: u64) -> Self {
        Self(AtomicU64::new(ms))
    }

    /// Moves it on.
    pub(super) fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl TimeSource for SimTime {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.wall_ms())
    }
}

/// The engine as its bridge sees it where nobody else commits.
#[derive(Clone)]
pub(super) struct SimHost(pub(super) Engine, pub(super) Arc<SimTime>);

impl Host for SimHost {
    type Source = wal::Reader;

    fn identity(&self) -> LogIdentity {
        self.0.identity()
    }

    fn source(&self) -> wal::Reader {
        self.0.reader()
    }

    fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn wait_durable_beyond(&self, lsn: Lsn, _: Duration) -> bool {
        self.0.durable_lsn() > lsn
    }

    fn order_prefix(&self) -> OrderPrefix {
        self.0.order_prefix()
    }

    fn request_hash_key(&self) -> [u8; 16] {
        self.0.request_hash_key()
    }

    fn announced_lsn(&self, sink: &str) -> Lsn {
        self.0.announced_lsn(sink)
    }

    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy> {
        self.0.sink_advanced(sink, lsn, marks)
    }

    fn dead_letter(&self, failures: &[Failure], why: &str) -> Result<(), Busy> {
        for failure in failures {
            let told = self.0.dead_lettered(failure.reservation, failure.shard_seq, why)?;
            self.0.commit().map_err(|_| Busy::LogUnavailable)?;
            let _ = told.wait().map_err(|_| Busy::LogUnavailable)?;
        }
        Ok(())
    }
}

impl Present for SimHost {
    fn activities(&self) -> Vec<ActivityId> {
        Present::activities(&self.0)
    }

    fn look<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> Option<T> {
        Present::look(&self.0, id, read)
    }

    fn activity_of(&self, id: ReservationId) -> Option<ActivityId> {
        Present::activity_of(&self.0, id)
    }

    fn settle(&self) -> Option<Lsn> {
        self.0.commit().ok()?;
        self.0.settle()
    }

    fn mirror_confirmed(&self, lsn: Lsn) {
        self.0.mirror_confirmed(lsn);
    }

    fn wall_us(&self) -> u64 {
        self.1.wall_ms() * 1_000
    }

    fn controls(&self, prefix: &str) -> Vec<(String, u64)> {
        Present::controls(&self.0, prefix)
    }
}
