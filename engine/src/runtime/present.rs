//! The state as it is now, for readers that compare or rebuild a copy of it.
//!
//! What is read here may be ahead of the durable mark: a crash may take it back. Whoever writes it
//! elsewhere must say so there until [`Engine::all_durable`] has told that it is durable.

use wal::{LogUnavailable, Lsn, Ticket};

use super::engine::Engine;
use crate::core::activity::Activity;
use crate::core::ids::ActivityId;

impl Engine {
    /// The activities in memory, by id, whether or not they are durable.
    pub fn live_activities(&self) -> Vec<ActivityId> {
        let mut ids = Vec::new();
        for shard in &self.inner.shards {
            ids.extend(shard.lock().activities().map(|(id, _)| id));
        }
        ids.sort_unstable();
        ids
    }

    /// What `read` makes of an activity. It runs under the shard's lock: it must be short.
    pub fn peek<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> Option<T> {
        let index = self.shard_index(id);
        let shard = self.inner.shards[usize::from(index)].lock();
        shard.activity(id).map(read)
    }

    /// Waits until everything that was applied before is durable; an LSN at or behind the last of
    /// it.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log has failed.
    pub fn all_durable(&self) -> Result<Lsn, LogUnavailable> {
        for (index, shard) in (0..).zip(&self.inner.shards) {
            let shard_seq = shard.lock().applied_seq();
            self.inner.log.wait_durable(Ticket { shard: index, shard_seq })?;
        }
        // The LSN is published behind the shards' marks, within the commit: another one waits.
        self.inner.log.commit()?;
        Ok(self.inner.log.durable_lsn())
    }

    /// The run-time controls whose key begins with `prefix`, as they are now, each with its end
    /// (Unix milliseconds, 0 for never).
    pub fn controls_under(&self, prefix: &str) -> Vec<(String, u64)> {
        let control = self.inner.control.lock();
        let wanted = control.table().under(prefix);
        wanted.map(|(key, setting)| (key.as_ref().to_owned(), setting.expires_ms)).collect()
    }
}
