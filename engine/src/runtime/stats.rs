//! The engine's figures, for metrics.

use std::sync::atomic::Ordering;

use super::engine::Engine;

/// Figures at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineStats {
    /// The log's.
    pub log: wal::Metrics,
    /// The wall clock was stepped during this run.
    pub clock_stepped: bool,
    /// Snapshots made during this run.
    pub snapshots_made: u64,
    /// Snapshots that could not be made.
    pub snapshots_failed: u64,
    /// Why the last one could not be made; gone once one was.
    pub snapshot_failure: Option<String>,
    /// Bytes of memory made ahead of purchases for what is for sale, about.
    pub memory_ahead_bytes: u64,
    /// Whether no more of it is to be made: see [`Engine::prepare_sales`].
    pub memory_ahead_ready: bool,
    /// The registered sinks.
    pub sinks: Vec<wal::SinkState>,
}

impl Engine {
    /// The engine's figures.
    pub fn stats(&self) -> EngineStats {
        let house = &self.inner.house;
        let (memory_ahead_bytes, memory_ahead_ready) = self.inner.provisions.figures();
        EngineStats {
            log: self.inner.log.metrics(),
            clock_stepped: self.inner.clock.stepped(),
            snapshots_made: house.made.load(Ordering::Relaxed),
            snapshots_failed: house.failed.load(Ordering::Relaxed),
            snapshot_failure: house.last_failure.lock().clone(),
            memory_ahead_bytes,
            memory_ahead_ready,
            sinks: self.sinks(),
        }
    }
}
