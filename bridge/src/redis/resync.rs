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
use engine::core::ids::{ActivityId, ReservationId, UserId};
use redis::{Cmd, cmd};
use wal::Lsn;

use super::fault::MirrorError;
use super::layouts::{Known, Layout, Subject, flash_sale};
use super::library;
use super::mark::{Mark, Place};
use super::present::{self, BLACKLIST_PREFIX, Present};
use super::projection::Change;
use super::servers::Servers;
use super::sink::{CALL_RECORDS_MAX, Lane, Mirror};
use super::writes::{Part, Write, Writes};
use crate::tail::{Batch, EventSource as _};

/// Keys that one SCAN looks at.
pub(super) const SCAN_COUNT: usize = 1_000;

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
        let keys = self.own_keys(id);
        let index = self.nodes.index(id);
        let found = self.nodes.ask(index, cmd("GET").arg(&keys.cursor)).await;
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
        let mark = Mark::new(self.identity, None);
        let text = mark.to_string();
        let mut writes = Writes::default();
        writes.put(keys.known.clone(), Write::Absent);
        let call = library::apply(&keys, &found, &text, true, &writes);
        self.send(vec![(index, call)]).await?;
        self.lanes.insert(id, Lane { keys, mark, text, is_stale: true });
        Ok(())
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

    /// Deletes the keys of `lanes` that nothing asks for.
    async fn delete_strays(&mut self, lanes: &BTreeSet<u64>) -> Result<(), MirrorError> {
        for index in 0..self.nodes.count() {
            for pattern in self.layout.patterns() {
                let mut at = 0;
                loop {
                    let (next, keys) = self.scan(index, pattern, at).await?;
                    let mut calls = Vec::new();
                    if self.layout == Layout::FlashSale {
                        let anew = self.sets_anew(&keys);
                        if !anew.is_empty() {
                            calls.push(self.under_mark(super::sink::ONLY_LANE, &anew));
                        }
                    }
                    let strays = self.strays(keys);
                    for (lane, writes) in strays {
                        if lanes.contains(&lane) && self.lanes.contains_key(&lane) {
                            calls.push(self.under_mark(lane, &writes));
                        } else if !self.lanes.contains_key(&lane) {
                            calls.push(self.ownerless(lane, &writes));
                        }
                    }
                    self.send(calls).await?;
                    at = next;
                    if at == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// A call for keys of an activity that there is none of.
    pub(super) fn ownerless(&self, lane: u64, writes: &Writes) -> (usize, Cmd) {
        let call = library::apply(&self.own_keys(lane), "", "", false, writes);
        (self.nodes.index(lane), call)
    }

    pub(super) async fn scan(
        &self,
        index: usize,
        pattern: &str,
        at: u64,
    ) -> Result<(u64, Vec<String>), MirrorError> {
        let mut scan = cmd("SCAN");
        scan.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<Vec<u8>>) = self.nodes.ask(index, &scan).await?;
        // Ours are ASCII.
        Ok((next, keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect()))
    }

    /// Of `keys`, those that the layout writes and that nothing in the state asks for now, by lane.
    pub(super) fn strays(&self, keys: Vec<String>) -> Vec<(u64, Writes)> {
        let mut found = std::collections::BTreeMap::<u64, Writes>::new();
        for key in keys {
            let Some(subject) = self.subject(&key) else { continue };
            if self.is_due(&key, subject) {
                continue;
            }
            let lane = match self.layout {
                Layout::Cluster => tag(&key).unwrap_or(super::sink::ONLY_LANE),
                _ => super::sink::ONLY_LANE,
            };
            found.entry(lane).or_default().absent(key);
        }
        found.into_iter().collect()
    }

    /// Whether the engine's state, as it is now, asks for `key`.
    fn is_due(&self, key: &str, subject: Subject) -> bool {
        let mut asked = Writes::default();
        let keys = &self.projection.keys;
        let of_user = |known: &Known, user| {
            self.host.look(known.id, |activity| activity.held(user)).unwrap_or(0)
        };
        match subject {
            Subject::Activity(id) => {
                let Some(known) = self.written(id) else { return false };
                keys.activity(&known, &mut asked);
            }
            Subject::Sku(sku) => {
                let Some(known) = self.written_of_sku(sku) else { return false };
                keys.activity(&known, &mut asked);
            }
            Subject::User(id, user) => {
                let Some(known) = self.written(id) else { return false };
                keys.user(&known, user, of_user(&known, user), &mut asked);
            }
            Subject::UserOfSku(sku, user) => {
                let Some(known) = self.written_of_sku(sku) else { return false };
                match (self.layout, of_user(&known, user)) {
                    // Of who holds nothing, what was refunded is in the set still.
                    (Layout::FlashSale, 0) => asked = self.asked_by_user(&known, user),
                    // Its members are judged one by one, with their reservations.
                    (Layout::FlashSale, _) => return true,
                    (_, held) => keys.user(&known, user, held, &mut asked),
                }
            }
            Subject::Reservation(id) => {
                let Some((known, reserved)) = self.reservation(id) else { return false };
                if !self.projection.is_written(&known) {
                    return false;
                }
                keys.reservation(&known, &reserved, &mut asked);
            }
            Subject::Blacklisted(user) => {
                let own = format!("{BLACKLIST_PREFIX}{user}");
                return self.host.controls(&own).iter().any(|(key, _)| *key == own);
            }
        }
        let whole = asked.get(key).is_some_and(|write| *write != Write::Absent);
        let in_part = |(of, _, part): (&str, &str, &Part)| {
            of == key && matches!(part, Part::Member(_) | Part::Field(_))
        };
        whole || asked.parts().any(in_part)
    }

    /// An activity as it is now, where its keys are written.
    fn written(&self, id: ActivityId) -> Option<Known> {
        let known = self.host.look(id, |activity| Known::of(id, activity))?;
        self.projection.is_written(&known).then_some(known)
    }

    /// The one that the keys of a SKU tell of.
    fn written_of_sku(&self, sku: u64) -> Option<Known> {
        self.written(self.projection.owner(sku)?.id)
    }

    /// What the reservations of a user ask for, as they are now.
    fn asked_by_user(&self, known: &Known, user: UserId) -> Writes {
        let mut asked = Writes::default();
        let read = |activity: &_| present::reservations_of(activity, user);
        for (reserved, _) in self.host.look(known.id, read).unwrap_or_default() {
            self.projection.keys.reservation(known, &reserved, &mut asked);
        }
        asked
    }

    /// The users' sets among `keys` with the members that the state asks for and no others. What
    /// stands in one may have been bought in a run that ended before it was durable, while keys
    /// were written anew: nothing is left then that would ask for its removal.
    fn sets_anew(&self, keys: &[String]) -> Writes {
        let mut anew = Writes::default();
        for key in keys {
            let Some(Subject::UserOfSku(sku, user)) = self.subject(key) else { continue };
            let Some(known) = self.written_of_sku(sku) else { continue };
            let asked = self.asked_by_user(&known, user);
            let members =
                asked.parts().filter(|(of, _, part)| of == key && matches!(part, Part::Member(_)));
            for (_, name, part) in members {
                anew.absent(key.clone());
                anew.part(key.clone(), name.to_owned(), part.clone());
            }
        }
        anew
    }

    /// What a key is about. Of an order number the engine knows best.
    fn subject(&self, key: &str) -> Option<Subject> {
        let of_layout = self.layout == Layout::FlashSale;
        let number = of_layout.then(|| flash_sale::order_no(key)).flatten();
        let known = number.and_then(|number| self.host.reservation_of_order(number));
        known.map(Subject::Reservation).or_else(|| self.layout.subject(key))
    }

    fn reservation(&self, id: ReservationId) -> Option<(Known, super::layouts::Reserved)> {
        let look = |of: ActivityId| {
            let read = |it: &_| Some((Known::of(of, it), present::reservation(it, id)?.0));
            self.host.look(of, read)?
        };
        match self.host.activity_of(id) {
            Some(of) => look(of),
            // Adopted: its id does not say whose it is.
            None => self.host.activities().into_iter().find_map(look),
        }
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

/// The activity in a key's hash tag.
fn tag(key: &str) -> Option<u64> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}')?.0.parse().ok()
}
