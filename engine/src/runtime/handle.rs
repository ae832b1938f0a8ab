//! How the holder of a handle goes through the engine.
//!
//! A thread that serves many callers in turns (an event loop) decides all that has arrived, then
//! makes it durable itself: no other thread is woken on the way, and a lone request costs one write
//! and no hand-over. While somebody else commits it waits for that commit, and then finds its own
//! records taken along or commits them.

use wal::{Batch, Busy, Class, Committed, LogUnavailable};

use super::engine::Engine;
use super::pending::Pending;

/// What is peculiar to one handle.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handle {
    /// Its holder commits: nobody is woken for its records.
    commits: bool,
    /// Its commands are decided at this instant instead of the clock's.
    at_ms: Option<u64>,
}

impl Engine {
    /// The same engine for a thread that makes durable what it decides, by
    /// [`Engine::commit_until`] or [`Engine::commit`]: its commands wake no committer.
    pub fn committing(&self) -> Self {
        let handle = Handle { commits: true, ..self.handle };
        Self { handle, ..self.clone() }
    }

    /// The same engine, whose commands are decided at `at_ms`: for tests that let a sale's life
    /// pass. Everything else, time-outs above all, goes by the clock.
    pub fn at(&self, at_ms: u64) -> Self {
        let handle = Handle { at_ms: Some(at_ms), ..self.handle };
        Self { handle, ..self.clone() }
    }

    /// Waits for an answer by committing on this thread what it rests on.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log failed first: the outcome is unknown.
    ///
    /// # Panics
    /// Where nothing is left to be committed and the answer is still not durable (W1).
    pub fn commit_until<T>(&self, mut pending: Pending<T>) -> Result<T, LogUnavailable> {
        loop {
            match pending.try_durable() {
                Ok(answer) => return answer,
                Err(later) => pending = later,
            }
            // What it rests on was appended before: this commit takes it, or found it taken.
            if self.commit()? == Committed::Nothing {
                let told = pending.try_durable();
                return told.unwrap_or_else(|_| panic!("W1: what an answer rests on is nowhere"));
            }
        }
    }

    /// Lets a later frame vouch for the last one, where none does yet: for a thread that commits
    /// by itself and has been idle for a moment.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log has failed.
    pub fn seal_idle(&self) -> Result<(), LogUnavailable> {
        self.inner.log.seal_idle()
    }

    pub(crate) fn begin(&self, shard: u16, room: usize, class: Class) -> Result<Batch<'_>, Busy> {
        let mut batch = self.inner.log.begin(shard, room, class)?;
        if self.handle.commits {
            batch.caller_commits();
        }
        Ok(batch)
    }

    /// When a command of this handle is decided.
    pub(crate) fn decision_ms(&self) -> u64 {
        self.handle.at_ms.unwrap_or_else(|| self.inner.clock.now_ms())
    }
}
