//! The mirror's sink: meet, then batch by batch.
//!
//! ```text
//! read -+- lane -+- call, call, ..   each at most CALL_RECORDS_MAX records and its cursor
//!       +- lane -+- call             on a cluster a lane is an activity, else all are one
//! ```
//!
//! The calls of a step go out in one write a server, and while they are on their way the next step
//! is read and folded. Each names the cursor that the one before it leaves: where one fails, those
//! behind it find another cursor and write nothing. Nothing is remembered over an error: whoever
//! drives the sink drops it and meets Redis anew.

use std::collections::BTreeMap;

use engine::core::codec;
use engine::core::event::{Body, Event};
use redis::Cmd;
use wal::{LogIdentity, Lsn};

use super::fault::MirrorError;
use super::layouts::Layout;
use super::library::{self, OwnKeys};
use super::mark::{Mark, Place};
use super::nodes::Nodes;
use super::present::Present;
use super::projection::{Change, Projection};
use super::servers::{Sent as _, Servers};
use super::writes::Writes;
use crate::tail::{BATCH_RECORDS_MAX, Batch, FrameEnd};

/// Records of one call: a call blocks the server for its readers, below a millisecond.
pub const CALL_RECORDS_MAX: usize = 128;

/// Age of the oldest record that Redis lacks above which it says so.
const STALE_AFTER_US: u64 = 1_000_000;

/// The lane of all activities where keys need no tag.
pub(super) const ONLY_LANE: u64 = 0;

/// A command passes from its task to the connection's before it is written.
const SENDING_TURNS: usize = 3;

/// A cursor and what moves with it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) keys: OwnKeys,
    pub(super) mark: Mark,
    /// The mark as it stands in Redis once all calls sent so far are done.
    pub(super) text: String,
    pub(super) is_stale: bool,
}

impl Lane {
    pub(super) fn place(&self) -> Place {
        self.mark.place.unwrap_or(Place::frame_end(Lsn(0), 0))
    }
}

/// How much goes into one call and one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Records of a call.
    pub call_records_max: usize,
    /// Records of a step: all its calls go out in one write.
    pub step_records_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { call_records_max: CALL_RECORDS_MAX, step_records_max: BATCH_RECORDS_MAX }
    }
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// More was sent; what was sent before is in Redis.
    Moved,
    /// Everything durable is in Redis.
    CaughtUp,
}

/// A mirror that follows a host's log.
pub struct Mirror<'h, H: Present, S: Servers = Nodes> {
    pub(super) host: &'h H,
    pub(super) identity: LogIdentity,
    pub(super) nodes: S,
    pub(super) layout: Layout,
    pub(super) projection: Projection,
    pub(super) lanes: BTreeMap<u64, Lane>,
    pub(super) source: H::Source,
    pub(super) batch: Batch,
    pub(super) bounds: Bounds,
    /// How far the log was read.
    pub(super) read: Place,
    pub(super) on_the_way: Option<OnTheWay<S::Sent>>,
    /// Everything up to here is in Redis.
    pub(super) applied: Lsn,
    pub(super) scrub: super::scrub::Scrub,
    pub(super) resyncs: u64,
}

pub(super) struct OnTheWay<T> {
    sent: T,
    reaches: Lsn,
    oldest_commit_us: u64,
}

impl<H: Present, S: Servers> std::fmt::Debug for Mirror<'_, H, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("applied", &self.applied).finish_non_exhaustive()
    }
}

/// A call that is being filled.
#[derive(Default)]
struct Filling {
    change: Change,
    records: usize,
    ends_lane: bool,
}

impl<H: Present, S: Servers> Mirror<'_, H, S> {
    /// Everything up to here is in Redis.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// When the oldest record on its way was committed, Unix microseconds.
    pub(super) fn oldest_commit_us(&self) -> Option<u64> {
        self.on_the_way.as_ref().map(|way| way.oldest_commit_us)
    }

    /// Whether keys were written anew since Redis was met.
    pub fn was_resynced(&self) -> bool {
        self.resyncs > 0
    }

    /// How often keys were written anew since Redis was met.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// Whether Redis says that it is behind.
    pub fn is_stale(&self) -> bool {
        self.lanes.values().any(|lane| lane.is_stale)
    }

    pub(super) fn own_keys(&self, lane: u64) -> OwnKeys {
        OwnKeys::of_lane(self.layout, lane)
    }

    pub(super) fn lane_of(&self, event: &Event<'_>) -> Option<u64> {
        match self.layout {
            Layout::Cluster => codec::activity(&event.body).map(|id| id.get()),
            _ => Some(ONLY_LANE),
        }
    }

    /// Sends what comes next, having waited for what was sent before.
    ///
    /// # Errors
    /// The mirror must be dropped then.
    pub async fn step(&mut self) -> Result<Step, MirrorError> {
        self.batch.fill(&mut self.source, self.bounds.step_records_max)?;
        let folded = self.fold();
        self.arrive().await?;
        let calls = match folded {
            // What is known does not lead on: what is in Redis stands, and is written anew.
            Err(MirrorError::Resync(why)) => {
                tracing::warn!(why, "the mirror can't follow from what is in Redis");
                let lanes: Vec<u64> = self.lanes.keys().copied().collect();
                self.resync(&lanes).await?;
                self.resyncs += 1;
                return Ok(Step::Moved);
            }
            folded => folded?,
        };
        let Some(end) = self.batch.end() else {
            return self.caught_up().await;
        };
        self.read = Place::frame_end(end.lsn, end.chain);
        let oldest_commit_us = self.batch.oldest_commit_us();
        let sent = self.nodes.send(calls);
        self.on_the_way = Some(OnTheWay { sent, reaches: end.lsn, oldest_commit_us });
        // The next step is folded while Redis works, once the tasks that send have had their turns.
        for _ in 0..SENDING_TURNS {
            tokio::task::yield_now().await;
        }
        Ok(Step::Moved)
    }

    /// Waits for what is on the way.
    pub(super) async fn arrive(&mut self) -> Result<(), MirrorError> {
        let Some(OnTheWay { sent, reaches, .. }) = self.on_the_way.take() else { return Ok(()) };
        for answer in sent.answers().await? {
            library::done(answer)?;
        }
        self.applied = reaches;
        Ok(())
    }

    /// Sends `calls` and waits for them.
    pub(super) async fn send(&self, calls: Vec<(usize, Cmd)>) -> Result<(), MirrorError> {
        for answer in self.nodes.send(calls).answers().await? {
            library::done(answer)?;
        }
        Ok(())
    }

    /// Nothing is left to read: no lane is behind.
    async fn caught_up(&mut self) -> Result<Step, MirrorError> {
        if self.is_stale() {
            self.move_lanes(|_| false).await?;
        }
        Ok(Step::CaughtUp)
    }

    /// Moves every lane to where the log was read: what is quiet must not pin the log.
    ///
    /// # Errors
    /// The mirror must be dropped then.
    pub async fn advance(&mut self) -> Result<(), MirrorError> {
        self.move_lanes(|lane| lane.is_stale).await
    }

    /// Moves the lanes to where the log was read, but for those whose keys, written anew, are ahead
    /// of that: a cursor behind its keys would have them be wrong.
    async fn move_lanes(&mut self, is_stale: impl Fn(&Lane) -> bool) -> Result<(), MirrorError> {
        self.arrive().await?;
        let (mark, mut calls) = (Mark::new(self.identity, Some(self.read)), Vec::new());
        let read = self.read.reached();
        for (id, lane) in self.lanes.iter_mut().filter(|(_, it)| it.place().reached() <= read) {
            let (to, is_stale) = (mark.to_string(), is_stale(lane));
            let call = library::apply(&lane.keys, &lane.text, &to, is_stale, &Writes::default());
            calls.push((self.nodes.index(*id), call));
            (lane.mark, lane.text, lane.is_stale) = (mark, to, is_stale);
        }
        self.send(calls).await
    }

    /// The calls that the batch asks for.
    fn fold(&mut self) -> Result<Vec<(usize, Cmd)>, MirrorError> {
        let now_us = self.host.wall_us();
        let (mut calls, mut filling) = (Vec::new(), BTreeMap::<u64, Filling>::new());
        let batch = std::mem::take(&mut self.batch);
        let (mut frames, mut before) = (batch.frame_ends().iter().peekable(), self.read);
        for entry in batch.entries() {
            let at = frames.peek().copied().map_or(before, |end| place(before, end, entry.lsn));
            let commit_us = frames.peek().map_or(0, |end| end.commit_us);
            if at.within == 0 {
                before = at;
                frames.next();
            }
            let event = codec::decode(entry.kind, entry.version, entry.body)
                .map_err(|source| MirrorError::Undecodable { lsn: entry.lsn, source })?;
            let Some(lane) = self.lane_of(&event) else { continue };
            if !self.is_news(lane, &event, entry.lsn) {
                continue;
            }
            let call = filling.entry(lane).or_default();
            self.projection.take(&event, self.host, &mut call.change)?;
            call.records += 1;
            call.ends_lane =
                self.layout == Layout::Cluster && matches!(event.body, Body::Archived { .. });
            if call.records >= self.bounds.call_records_max || call.ends_lane {
                let full = std::mem::take(call);
                let is_stale = now_us.saturating_sub(commit_us) > STALE_AFTER_US;
                calls.push(self.seal(lane, full, at, is_stale));
            }
        }
        if let Some(end) = batch.end() {
            let is_stale = now_us.saturating_sub(end.commit_us) > STALE_AFTER_US;
            for (lane, call) in filling.into_iter().filter(|(_, call)| call.records > 0) {
                calls.push(self.seal(lane, call, before, is_stale));
            }
            self.tell(&mut calls, is_stale);
        }
        self.batch = batch;
        Ok(calls)
    }

    /// The calls that say of every other lane whether it is behind, too. What comes behind a late
    /// batch is late, whosever it is; and behind one that is not, no lane lacks what is. A quiet
    /// lane hears of it here alone while others leave nothing to wait for.
    fn tell(&mut self, calls: &mut Vec<(usize, Cmd)>, is_stale: bool) {
        for (id, lane) in self.lanes.iter_mut().filter(|(_, it)| it.is_stale != is_stale) {
            let text = &lane.text;
            let call = library::apply(&lane.keys, text, text, is_stale, &Writes::default());
            calls.push((self.nodes.index(*id), call));
            lane.is_stale = is_stale;
        }
    }

    /// Whether a lane lacks the event at `lsn`. A lane is made by the event that makes its
    /// activity.
    fn is_news(&mut self, lane: u64, event: &Event<'_>, lsn: Lsn) -> bool {
        if let Some(lane) = self.lanes.get(&lane) {
            return lane.mark.place.is_none() || lane.place().reached() < lsn;
        }
        let makes =
            matches!(event.body, Body::ActivityCreated { .. } | Body::ActivityAdopted { .. });
        if makes {
            let mark = Mark::new(self.identity, None);
            let (keys, text) = (self.own_keys(lane), String::new());
            self.lanes.insert(lane, Lane { keys, mark, text, is_stale: false });
        }
        makes
    }

    fn seal(&mut self, id: u64, call: Filling, at: Place, is_stale: bool) -> (usize, Cmd) {
        let index = self.nodes.index(id);
        let lane = self.lanes.get_mut(&id).unwrap_or_else(|| unreachable!("a call has a lane"));
        let writes = self.projection.finish(call.change, &lane.keys.known);
        self.scrub.touched(id, &writes);
        let is_stale = is_stale && !call.ends_lane;
        let mark = Mark::new(self.identity, Some(at));
        let to = if call.ends_lane { String::new() } else { mark.to_string() };
        let command = library::apply(&lane.keys, &lane.text, &to, is_stale, &writes);
        (lane.mark, lane.text, lane.is_stale) = (mark, to, is_stale);
        if call.ends_lane {
            self.lanes.remove(&id);
        }
        (index, command)
    }
}

/// The place of the record `lsn`, in the frame that ends with `end` and follows `before`.
fn place(before: Place, end: &FrameEnd, lsn: Lsn) -> Place {
    if lsn == end.lsn {
        Place::frame_end(end.lsn, end.chain)
    } else {
        Place { within: lsn.0 - before.lsn.0, ..before }
    }
}
