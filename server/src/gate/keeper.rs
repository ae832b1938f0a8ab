//! What follows time rather than requests: once a second, as long as the server runs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use engine::Engine;

use super::Gate;
use crate::limits::adaptive::{CpuTimes, follow};

/// How often the keeper looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks between two sweeps of what has ended.
const SWEEP_EVERY: u64 = 60;

/// Where the kernel tells how busy the cores are.
const STAT: &str = "/proc/stat";

impl Gate {
    /// Follows load, starts and ends, until dropped.
    pub(crate) async fn keep(self: &Arc<Self>, engine: &Engine) {
        let mut before = None;
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for look in 0_u64.. {
            interval.tick().await;
            let rules = self.rules();
            if rules.stable.adaptive.0 || rules.trial.adaptive.0 {
                before = self.follow_load(before);
            }
            let ramp = rules.stable.ramp.0.max(rules.trial.ramp.0);
            if !ramp.is_zero() {
                self.note_starts(engine, ramp);
            }
            if look.is_multiple_of(SWEEP_EVERY) {
                self.controls.sweep(engine.now_ms());
            }
        }
    }

    /// Adapts to the load since `before`; what the next look compares with.
    fn follow_load(&self, before: Option<CpuTimes>) -> Option<CpuTimes> {
        // The kernel answers from memory: this file blocks nobody.
        let now = std::fs::read_to_string(STAT).ok().and_then(|stat| CpuTimes::parse(&stat));
        let load = now.zip(before).and_then(|(now, before)| now.load_percent_since(before));
        if let Some(load) = load {
            let speed = follow(self.load_speed(), load);
            self.speed.store(speed.thousandths(), Ordering::Relaxed);
        }
        now
    }

    /// Notes which activities start soon: a purchase would have to take a lock to ask.
    fn note_starts(&self, engine: &Engine, ramp: Duration) {
        let now_ms = engine.now_ms();
        let soon_ms = now_ms + u64::try_from((ramp + INTERVAL * 2).as_millis()).unwrap_or(0);
        let soon = engine.activities().into_iter().map(|view| (view.id, view.terms.start_ms));
        let soon = soon.filter(|(_, start_ms)| (now_ms..=soon_ms).contains(start_ms)).collect();
        *self.starts.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(soon);
    }
}
