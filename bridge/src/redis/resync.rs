//! Writing the keys anew, in place, from the engine's state.
//!
//! ```text
//! 1  the cursor becomes `resync`, `sluice:stale` is set
//! 2  the durable end of the log is noted
//! 3  every activity and reservation is written as it is now, piece by piece
//! 4  keys that nothing asks for are deleted
//! 5  what was read may not be durable yet: wait until it is
//! 6  the log is replayed from 2 to 5: pieces read at different instants meet
//! 7  the cursor is set; once caught up, `sluice:stale` goes
//! ```
//!
//! Values are absolute, so a replay over newer values passes through older ones and ends at the
//! right ones. A crash on the way leaves `resync` in the cursor, and the next session begins again.

use std::collections::BTreeSet;

use engine::core::codec;
use engine::core::ids::ActivityId;
use redis::{Cmd, cmd};
use wal::Lsn;

use super::fault::MirrorError;
use super::layouts::{Known, Layout};
use super::library;
use super::mark::{Mark, Place};
use super::present::{self, BLACKLIST_PREFIX, Present};
use super::projection::Change;
use super::servers::Servers;
use super::sink::{CALL_RECORDS_MAX, Lane, Mirror};
use super::writes::{Part, Write, Writes};
use crate::tail::{Batch, EventSource as _};

impl<H: Present, S: Servers> Mirror<'_, H, S> {
    /// Writes the keys of `lanes` anew. Afterwards the log is read from where the rearmost of all
    /// lanes stands.
    pub(super) async fn resync(&mut self, lanes: &[u64]) -> Result<(), MirrorError> {
        tracing::warn!(lanes = lanes.len(), "the keys in Redis are written anew from the state");
        let lanes: BTreeSet<u64> = lanes.iter().copied().collect();
        self.scrub.forget_piece();
        for lane in &lanes {
            self.begin(*lane).await?;
        }
        let from = self.durable_place()?;
        if self.layout != Layout::Cluster {
            self.projection.forget_all();
        }
        for id in self.host.activities() {
            let lane = self.lane_of_activity(id);
            if lanes.contains(&lane) {
                self.write_activity(lane, id).await?;
            }
        }
        self.write_blacklist().await?;
        self.delete_strays(&lanes).await?;
        let target = self.host.settle().ok_or(MirrorError::LogFailed)?;
        let end = self.replay(&lanes, from, target).await?;
        let mark = Mark::new(self.identity, Some(end));
        for lane in &lanes {
            self.move_lane(*lane, mark).await?;
        }
        // An activity that was made meanwhile has a lane of its own to come, from its beginning.
        let others = self.lanes.values().map(Lane::place);
        let rearmost = others.chain([from]).min_by_key(|place| place.reached()).unwrap_or(from);
        let stand = if self.layout == Layout::Cluster { rearmost } else { end };
        self.source.seek(stand.lsn).map_err(MirrorError::Lost)?;
        self.read = Place::frame_end(stand.lsn, stand.chain);
        self.applied = stand.reached();
        tracing::info!(lsn = %end.lsn, "the keys in Redis are those of the log again");
        Ok(())
    }

    pub(super) fn lane_of_activity(&self, id: ActivityId) -> u64 {
        if self.layout == Layout::Cluster { id.get() } else { super::sink::ONLY_LANE }
    }

    /// Marks a lane as being written anew, from whatever stands there that is not another server's.
    async fn begin(&mut self, id: u64) -> Result<(), MirrorError> {
        let (keys, index) = (self.own_keys(id), self.nodes.index(id));
        let found = self.cursor_of(id).await?;
        let mark = Mark::new(self.identity, None);
        let text = mark.to_string();
        let mut writes = Writes::default();
        writes.put(keys.known.clone(), Write::Absent);
        let call = library::apply(&keys, &found, &text, true, &writes);
        self.send(vec![(index, call)]).await?;
        self.lanes.insert(id, Lane { keys, mark, text, is_stale: true });
        Ok(())
    }

    /// The text of a lane's cursor, whatever it is; none counts as empty.
    ///
    /// # Errors
    /// It is another server's.
    pub(super) async fn cursor_of(&self, id: u64) -> Result<String, MirrorError> {
        let cursor = self.own_keys(id).cursor;
        let found = self.nodes.ask(self.nodes.index(id), cmd("GET").arg(cursor)).await;
        let found: Option<String> = match found {
            Err(MirrorError::Redis(error)) if error.code() == Some("WRONGTYPE") => None,
            found => found?,
        };
        let found = found.unwrap_or_default();
        let theirs = Mark::parse(&found);
        if theirs.is_some_and(|it| it.uuid != self.identity.uuid || it.epoch > self.identity.epoch)
        {
            return Err(MirrorError::CursorMoved { found });
        }
        Ok(found)
    }

    /// A call that writes under the lane's present mark.
    pub(super) fn under_mark(&self, id: u64, writes: &Writes) -> (usize, Cmd) {
        let lane = &self.lanes[&id];
        let (keys, text) = (&lane.keys, lane.text.as_str());
        (self.nodes.index(id), library::apply(keys, text, text, lane.is_stale, writes))
    }

    async fn move_lane(&mut self, id: u64, mark: Mark) -> Result<(), MirrorError> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Ok(()) };
        let to = mark.to_string();
        let call = library::apply(&lane.keys, &lane.text, &to, true, &Writes::default());
        (lane.mark, lane.text, lane.is_stale) = (mark, to, true);
        let index = self.nodes.index(id);
        self.send(vec![(index, call)]).await
    }

    async fn write_activity(&mut self, lane: u64, id: ActivityId) -> Result<(), MirrorError> {
        let Some(known) = self.host.look(id, |activity| Known::of(id, activity)) else {
            return Ok(());
        };
        self.projection.know(known);
        let mut writes = Writes::default();
        writes.part(self.lanes[&lane].keys.known.clone(), id.to_string(), field(&known));
        let is_written = self.projection.is_written(&known);
        if is_written {
            self.projection.keys.activity(&known, &mut writes);
        }
        let call = self.under_mark(lane, &writes);
        self.send(vec![call]).await?;
        if is_written { self.write_reservations(lane, &known).await } else { Ok(()) }
    }

    async fn write_reservations(&mut self, lane: u64, of: &Known) -> Result<(), MirrorError> {
        let (mut calls, mut from) = (Vec::new(), 0);
        loop {
            let read = |it: &_| present::reservations(it, from, CALL_RECORDS_MAX);
            let seen = self.host.look(of.id, read).unwrap_or_default();
            if seen.is_empty() {
                return self.send(calls).await;
            }
            from += seen.len();
            let mut writes = Writes::default();
            for (reserved, held) in seen {
                self.projection.keys.user(of, reserved.user, held, &mut writes);
                self.projection.keys.reservation(of, &reserved, &mut writes);
            }
            calls.push(self.under_mark(lane, &writes));
            if calls.len() >= CALLS_AT_ONCE {
                self.send(std::mem::take(&mut calls)).await?;
            }
        }
    }

    async fn write_blacklist(&mut self) -> Result<(), MirrorError> {
        if self.layout != Layout::Seckill {
            return Ok(());
        }
        let mut writes = Writes::default();
        for (key, expires_ms) in self.host.controls(BLACKLIST_PREFIX) {
            self.projection.control(&key, Some(expires_ms), &mut writes);
        }
        let call = self.under_mark(super::sink::ONLY_LANE, &writes);
        self.send(vec![call]).await
    }

    /// Replays the log from `from` to `target` or the frame behind it, under the lanes' marks.
    async fn replay(
        &mut self,
        lanes: &BTreeSet<u64>,
        from: Place,
        target: Lsn,
    ) -> Result<Place, MirrorError> {
        let mut at = from;
        let mut batch = Batch::default();
        self.source.seek(from.lsn).map_err(MirrorError::Lost)?;
        while at.lsn < target {
            batch.fill(&mut self.source, CALL_RECORDS_MAX)?;
            let Some(end) = batch.end() else {
                return Err(MirrorError::LogFailed);
            };
            let mut changes = std::collections::BTreeMap::<u64, Change>::new();
            for entry in batch.entries() {
                let event = codec::decode(entry.kind, entry.version, entry.body)
                    .map_err(|source| MirrorError::Undecodable { lsn: entry.lsn, source })?;
                let Some(lane) = self.lane_of(&event).filter(|lane| lanes.contains(lane)) else {
                    continue;
                };
                self.projection.take(&event, self.host, changes.entry(lane).or_default())?;
            }
            let mut calls = Vec::new();
            for (lane, change) in changes {
                let writes = self.projection.finish(change, &self.lanes[&lane].keys.known);
                calls.push(self.under_mark(lane, &writes));
            }
            self.send(calls).await?;
            at = Place::frame_end(end.lsn, end.chain);
        }
        Ok(at)
    }
}

/// Calls of a resync on their way at once.
const CALLS_AT_ONCE: usize = 16;

/// An activity in the mirror's own hash.
pub(super) fn field(known: &Known) -> Part {
    Part::Field(known.encode())
}
