//! The engine's figures, for metrics.

use super::engine::Engine;

/// Figures at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineStats {
    /// The log's.
    pub log: wal::Metrics,
    /// The wall clock was stepped during this run.
    pub clock_stepped: bool,
}

impl Engine {
    /// The engine's figures.
    pub fn stats(&self) -> EngineStats {
        EngineStats { log: self.inner.log.metrics(), clock_stepped: self.inner.clock.stepped() }
    }
}
