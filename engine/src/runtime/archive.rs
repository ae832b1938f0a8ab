//! Activities whose life is over leave memory.

use std::sync::atomic::Ordering;

use wal::{Busy, Class};

use super::engine::{COMMAND_ROOM, Engine, record};
use super::sinks::ORDERS_SINK;
use crate::core::command::Command;
use crate::core::control::keys::ADOPTED_PREFIX;
use crate::core::decide::{Outcome, decide};
use crate::core::event::Actor;
use crate::core::ids::{ActivityId, Ordinal, ReservationId};

/// What memory keeps of an archived activity. SQL has the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedView {
    /// The activity.
    pub id: ActivityId,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// The end of its window, Unix milliseconds.
    pub end_ms: u64,
}

impl Engine {
    /// What is left of an activity, where it is archived.
    pub fn archived(&self, id: ActivityId) -> Option<ArchivedView> {
        let shard = self.lock(self.shard_index(id));
        let tombstone = shard.tombstone(id)?;
        Some(ArchivedView { id, ordinal: tombstone.ordinal, end_ms: tombstone.end_ms })
    }

    /// The archived activity whose reservation `id` is or was: SQL answers for it. `None` as well
    /// for one that it had adopted.
    pub fn archived_with(&self, id: ReservationId) -> Option<ArchivedView> {
        self.archived(self.activity_of(id)?)
    }

    /// All activities that are archived, by id.
    pub fn archived_activities(&self) -> Vec<ActivityId> {
        let shards = 0..self.inner.log.format().shard_count;
        let of_shard = |index| -> Vec<ActivityId> {
            self.lock(index).tombstones().map(|(id, _)| id).collect()
        };
        let mut ids: Vec<ActivityId> = shards.flat_map(of_shard).collect();
        ids.sort_unstable();
        ids
    }

    /// Whether an activity was ever archived. Numbers of reservations that it had adopted lead
    /// nowhere any more: SQL alone knows whose they are.
    pub fn has_archived(&self) -> bool {
        self.inner.directory.read().has_archived()
    }

    /// Has the timer archive from now on, once a minute: for who answers from SQL what is then
    /// asked of an archived activity. Saying it again changes nothing.
    pub fn archive_when_over(&self) {
        self.inner.archives.store(true, Ordering::Release);
    }

    /// Archives every activity whose time has come; how many.
    ///
    /// # Errors
    /// [`Busy`]: not all were looked at.
    pub fn archive_ended(&self) -> Result<usize, Busy> {
        let mut count = 0;
        for index in 0..self.inner.log.format().shard_count {
            let covered_seq = self.covered_seq(index);
            let due: Vec<ActivityId> = {
                let now_ms = self.inner.clock.now_ms();
                let shard = self.lock(index);
                let command = Command::Archive { covered_seq };
                let is_due =
                    |id| matches!(decide(&shard, id, &command, now_ms), Outcome::Accepted { .. });
                shard.activities().map(|(id, _)| id).filter(|id| is_due(*id)).collect()
            };
            for id in due {
                if !self.keep_adopted_floor(id)? {
                    continue;
                }
                count += usize::from(self.archive(index, id, covered_seq)?);
            }
        }
        Ok(count)
    }

    /// The sequence of shard `index` that every sink covers: none before there are orders in SQL,
    /// nor while they are behind what they once were, since then the marks say too much.
    fn covered_seq(&self, index: u16) -> u64 {
        if self.orders_are_behind() {
            return 0;
        }
        let control = self.inner.control.lock();
        if control.sink(ORDERS_SINK).is_none() {
            return 0;
        }
        let seqs = control.sinks().map(|(_, sink)| sink.shards.get(&index).copied());
        let covered = seqs.map(Option::unwrap_or_default).min().unwrap_or_default();
        drop(control);
        let last = self.inner.log.last_seq(index);
        assert!(covered <= last, "W13: sinks hold {covered} records of shard {index}, of {last}");
        covered
    }

    /// What an activity adopted is forgotten with it, and with the snapshots that follow so is
    /// which ids were given: a control says it first. Whether it does, or needn't.
    fn keep_adopted_floor(&self, id: ActivityId) -> Result<bool, Busy> {
        let Some(floor) = self.inner.directory.read().adopted_floor(id) else { return Ok(true) };
        let key = format!("{ADOPTED_PREFIX}{floor}");
        let set = self.control_set(Actor::NONE, &key, b"", 0)?;
        match set.wait() {
            Ok(told) => Ok(told.is_ok()),
            Err(_) => Err(Busy::LogUnavailable),
        }
    }

    fn archive(&self, index: u16, id: ActivityId, covered_seq: u64) -> Result<bool, Busy> {
        {
            let mut shard = self.lock(index);
            let mut batch = self.inner.log.begin(index, COMMAND_ROOM, Class::Reserved)?;
            let at_ms = self.inner.clock.now_ms();
            let command = Command::Archive { covered_seq };
            let Outcome::Accepted { events } = decide(&shard, id, &command, at_ms) else {
                return Ok(false);
            };
            record(&mut shard, &mut batch, COMMAND_ROOM, events.iter(), 0);
            assert!(shard.activity(id).is_none(), "activity {id} is archived and still sold");
            assert!(shard.tombstone(id).is_some(), "activity {id} left nothing behind");
        }
        // After the shard's lock is free: the directory is never taken under it.
        self.inner.directory.write().forget_adopted(id);
        Ok(true)
    }
}
