//! Between the reading of a log and the first byte written to it.

use std::sync::Arc;

use wal::{Judged, LogIdentity, Reader, RetentionLimits, SinkClass};

use super::ahead::has_cores;
use super::clock::{Clock, Clocks};
use super::engine::{Engine, Inner};
use super::error::OpenError;
use super::handle::Handle;
use super::open::OpenReport;
use super::owner::Owner;
use super::provisions::{Provider, Provisions};
use super::replay::Replayed;
use super::snapshots::{House, Housekeeper};
use super::supplies::Supplies;
use super::timer::Timer;
use crate::core::ids::ActivityId;

/// An engine whose log was read, in a directory in which nothing has changed yet: whoever finds
/// that it must not be served drops it, and everything is as it was. A directory that held no log
/// was formatted.
pub struct Recovered {
    pub(super) judged: Judged,
    pub(super) replayed: Replayed<()>,
    pub(super) owner: Owner,
    pub(super) clocks: Clocks,
    pub(super) retention: RetentionLimits,
    pub(super) sinks: Vec<(String, SinkClass)>,
    pub(super) house: House,
    pub(super) provisions: Provisions,
    pub(super) threads: bool,
}

impl Recovered {
    /// The log, in the incarnation that [`Recovered::finish`] begins.
    pub fn identity(&self) -> LogIdentity {
        self.judged.identity()
    }

    /// Reads the log as it is.
    pub fn reader(&self) -> Reader {
        self.judged.reader()
    }

    /// The activities that are not archived.
    pub fn activities(&self) -> Vec<ActivityId> {
        self.replayed.shards.iter().flat_map(|shard| shard.activities().map(|(id, _)| id)).collect()
    }

    /// Begins to write, and to serve.
    ///
    /// # Errors
    /// [`OpenError`]: the log's I/O failed, or there are no threads.
    ///
    /// # Panics
    /// Where the state is not that of the log's last record: a fault of this program (W14).
    pub fn finish(self) -> Result<(Engine, OpenReport), OpenError> {
        let Self { judged, replayed, owner, clocks, retention, sinks, house, provisions, threads } =
            self;
        let (log, report) = judged.finish()?;
        let replayed_to = report.snapshot_lsn.plus(replayed.records);
        assert!(replayed_to == report.last_lsn, "W14: the state is that of LSN {replayed_to}");
        let report = OpenReport {
            log: report,
            records: replayed.records,
            activities: replayed.shards.iter().map(|shard| shard.activities().count() as u64).sum(),
        };
        // Looked at anew: to finish took its time, and a clock that starts a second behind needs
        // half an hour to catch up.
        let clock = Clock::start(clocks, replayed.last_ms);
        log.set_retention_limits(retention);
        for (name, class) in &sinks {
            log.register_sink(name, *class)?;
        }
        let inner = Arc::new(Inner::new(log, replayed, owner, clock, house, provisions));
        let engine = Engine { inner, handle: Handle::default() };
        engine.confirm_announced();
        engine.expect_sales();
        if threads {
            let threads = engine.inner.log.start().map_err(OpenError::Thread)?;
            *engine.inner.threads.lock() = Some(threads);
            *engine.inner.timer.lock() = Some(Timer::start(&engine)?);
            *engine.inner.housekeeper.lock() = Some(Housekeeper::start(&engine)?);
            *engine.inner.supplies.lock() = has_cores().then(Supplies::default);
            *engine.inner.provider.lock() = Some(Provider::start(&engine)?);
        }
        Ok((engine, report))
    }
}
