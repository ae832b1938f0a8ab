//! The keys that readers of Redis must find, at every place in the log, worked out from its events
//! by other means than the mirror's.
//!
//! A mirror is behind, never wrong: whatever stands in Redis is compared with what stood in the log
//! where the mirror's cursor is.

use std::collections::BTreeMap;

use bridge::redis::layouts::Layout;
use engine::core::codec;
use engine::core::event::{Event, Figures};
use engine::core::ids::ActivityId;
use wal::Lsn;

use super::readers::Readers;
use super::redis::keyspace::{Content, Entry, Keyspace};

/// The mirror's cursor where there is one.
pub(super) const CURSOR: &str = "sluice:cursor";

/// The lane of all activities where keys need no tag; on a cluster each activity is one.
const ONLY_LANE: u64 = 0;

/// Above this the mirror says that it is behind.
const BEHIND_US: u64 = 1_000_000;

/// The mirror's own keys of a lane.
struct OwnKeys {
    cursor: String,
    stale: String,
    known: String,
}

impl OwnKeys {
    fn of(lane: u64) -> Self {
        let tag = if lane == ONLY_LANE { String::new() } else { format!(":{{{lane}}}") };
        let own = |name: &str| format!("{name}{tag}");
        Self { cursor: own(CURSOR), stale: own("sluice:stale"), known: own("sluice:mirror") }
    }
}

/// What is said of.
enum Of {
    Key(String),
    /// The mirror's note of an activity.
    Note(ActivityId),
}

/// What a key, or a note, is from an LSN on.
struct Change {
    lsn: Lsn,
    of: Of,
    entry: Option<Entry>,
}

/// Where the mirror says that it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// The end of a frame, and the last record that is in Redis.
    At { frame_end: Lsn, reached: Lsn },
    /// The keys are being written anew.
    Resync,
}

/// The keys behind one cursor, at every LSN.
#[derive(Default)]
struct Lane {
    /// Its records.
    records: Vec<Lsn>,
    changes: Vec<Change>,
    /// The keys and the notes as they were behind the first `done` changes.
    keys: BTreeMap<String, Entry>,
    notes: BTreeMap<ActivityId, Entry>,
    done: usize,
}

impl Lane {
    /// Makes the keys what they were at `lsn`.
    fn go_to(&mut self, lsn: Lsn) {
        if self.done > 0 && self.changes[self.done - 1].lsn > lsn {
            self.done = 0;
            self.keys.clear();
            self.notes.clear();
        }
        while let Some(change) = self.changes.get(self.done).filter(|it| it.lsn <= lsn) {
            match (&change.of, change.entry.clone()) {
                (Of::Key(key), Some(entry)) => _ = self.keys.insert(key.clone(), entry),
                (Of::Key(key), None) => _ = self.keys.remove(key),
                (Of::Note(id), Some(entry)) => _ = self.notes.insert(*id, entry),
                (Of::Note(id), None) => _ = self.notes.remove(id),
            }
            self.done += 1;
        }
    }
}

/// What the keys were, at every LSN.
#[derive(Default)]
pub(super) struct KeyHistory {
    layout: Layout,
    lanes: BTreeMap<u64, Lane>,
    /// The last LSN of each frame, and when it was committed.
    frames: Vec<(Lsn, u64)>,
    readers: Readers,
}

/// What the mirror is asked for at one moment.
#[derive(Clone, Copy)]
struct Moment {
    now_ms: u64,
    /// When it last looked at what it lacked.
    folded_us: u64,
    /// Everything must have healed.
    healed: bool,
}

impl KeyHistory {
    /// Of the keys of a layout.
    pub(super) fn of(layout: Layout) -> Self {
        let readers = Readers::of(layout);
        let mut history = Self { layout, readers, ..Self::default() };
        if layout != Layout::Cluster {
            history.lanes.insert(ONLY_LANE, Lane::default());
        }
        history
    }

    pub(super) fn frame(&mut self, last: Lsn, commit_us: u64) {
        self.frames.push((last, commit_us));
    }

    /// Takes an event in.
    pub(super) fn take(&mut self, lsn: Lsn, event: &Event<'_>) {
        let lane = match self.layout {
            Layout::Cluster => codec::activity(&event.body).map(|id| id.get()),
            _ => Some(ONLY_LANE),
        };
        let Some(lane) = lane else { return };
        let (moved, told) = self.readers.take(lsn, event);
        let lane = self.lanes.entry(lane).or_default();
        lane.records.push(lsn);
        if let Some((activity, Figures { available, locked, sold })) = moved {
            let note = Entry::text(format_args!("{available} {locked} {sold}"), None);
            lane.changes.push(Change { lsn, of: Of::Note(activity), entry: Some(note) });
        }
        let change = |(key, entry)| Change { lsn, of: Of::Key(key), entry };
        lane.changes.extend(told.into_iter().map(change));
    }

    /// O7: nothing in Redis is above its value at the cursor, nor below it; and where the mirror is
    /// behind, it says so. What somebody else did to a key is passed over until it is written
    /// again, unless everything must have `healed`.
    ///
    /// `redis` is the server that `holds` some lanes; `folded_us` is when the mirror last looked at
    /// what it lacked.
    ///
    /// # Errors
    /// What does not agree.
    pub(super) fn check(
        &mut self,
        redis: &Keyspace,
        holds: impl Fn(u64) -> bool,
        (now_ms, folded_us): (u64, u64),
        healed: bool,
    ) -> Result<(), String> {
        let Self { lanes, frames, readers, .. } = self;
        let moment = Moment { now_ms, folded_us, healed };
        for (id, lane) in lanes.iter_mut().filter(|(id, _)| holds(**id)) {
            check_lane((*id, lane), frames, readers, redis, moment)?;
        }
        Ok(())
    }

    /// Everything durable up to `durable` is in Redis, and it says so.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn check_end(
        &mut self,
        redis: &Keyspace,
        holds: impl Fn(u64) -> bool,
        now_ms: u64,
        durable: Lsn,
    ) -> Result<(), String> {
        self.check(redis, &holds, (now_ms, now_ms * 1_000), true)?;
        for lane in self.lanes.keys().filter(|lane| holds(**lane)) {
            let own = OwnKeys::of(*lane);
            match mark(redis, &own.cursor, now_ms) {
                Some(Mark::At { reached, .. }) if reached == durable => {}
                found => {
                    let cursor = own.cursor;
                    return Err(format!("O7: {cursor} is {found:?}, the log ends at {durable}"));
                }
            }
            if redis.get(&own.stale, now_ms).is_some() {
                return Err("O11: Redis is called behind though it is not".to_owned());
            }
        }
        let prefix = self.readers.prefix();
        let ours = redis.keys(prefix, now_ms).take_while(|(key, _)| key.starts_with(prefix));
        for (key, entry) in ours {
            if lane_of(key).is_some_and(|lane| !self.lanes.contains_key(&lane)) {
                return Err(format!("O7: there is {key}, {entry:?}, of no activity"));
            }
        }
        Ok(())
    }
}

/// The activity in the braces of a key.
fn lane_of(key: &str) -> Option<u64> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}')?.0.parse().ok()
}

/// As [`KeyHistory::check`], for what is behind one cursor.
fn check_lane(
    (id, lane): (u64, &mut Lane),
    frames: &[(Lsn, u64)],
    readers: &Readers,
    redis: &Keyspace,
    Moment { now_ms, folded_us, healed }: Moment,
) -> Result<(), String> {
    let own = OwnKeys::of(id);
    let excused = |key: &str| !healed && redis.is_strange(key);
    let Some(mark) = mark(redis, &own.cursor, now_ms).filter(|_| !excused(&own.cursor)) else {
        return match healed {
            true => Err(format!("O7: there is no {}", own.cursor)),
            false => Ok(()),
        };
    };
    let is_stale = redis.get(&own.stale, now_ms).is_some() || excused(&own.stale);
    let Mark::At { reached, .. } = mark else {
        return match is_stale && !healed {
            true => Ok(()),
            false => Err("O7: keys are written anew, and nobody is told".to_owned()),
        };
    };
    // When the record was committed that is lacked first.
    let lacked = lane.records.get(lane.records.partition_point(|lsn| *lsn <= reached));
    let commit_us = |lsn: &Lsn| frames.get(frames.partition_point(|(last, _)| last < lsn));
    let lacks_us = lacked.and_then(commit_us).map(|(_, commit_us)| *commit_us);
    if !is_stale && lacks_us.is_some_and(|us| folded_us > us + BEHIND_US) {
        return Err(format!("O7: {} is behind at LSN {reached}, and nobody is told", own.cursor));
    }
    lane.go_to(reached);
    for (activity, figures) in &lane.notes {
        let known = redis.get(&own.known, now_ms).map(|it| &it.content);
        if !notes(known, &activity.to_string(), &figures.content) && !excused(&own.known) {
            return Err(format!("O7: at LSN {reached} the mirror notes {known:?}"));
        }
    }
    for (key, entry) in &lane.keys {
        let entry = Some(entry).filter(|it| it.ends_ms.is_none_or(|ends| ends > now_ms));
        let found = redis.get(key, now_ms);
        let is_as_good = !healed && readers.is_as_good(key, reached, found, entry);
        if found != entry && !is_as_good && !excused(key) {
            return Err(format!("O7: at LSN {reached} {key} is {found:?}, not {entry:?}"));
        }
    }
    let prefix = readers.prefix();
    let ours = redis.keys(prefix, now_ms).take_while(|(key, _)| key.starts_with(prefix));
    for (key, entry) in ours.filter(|(key, _)| id == ONLY_LANE || lane_of(key) == Some(id)) {
        if !lane.keys.contains_key(key) && !excused(key) {
            return Err(format!("O7: at LSN {reached} there is {key}, {entry:?}"));
        }
    }
    Ok(())
}

/// Whether the mirror's hash has an activity with these figures.
fn notes(known: Option<&Content>, activity: &str, figures: &Content) -> bool {
    match (known, figures) {
        (Some(Content::Hash(fields)), Content::Text(figures)) => {
            fields.get(activity).is_some_and(|it| it.ends_with(figures))
        }
        _ => false,
    }
}

/// The mark under the key `cursor`, where somebody's text is one.
pub(super) fn mark(redis: &Keyspace, cursor: &str, now_ms: u64) -> Option<Mark> {
    let Content::Text(text) = &redis.get(cursor, now_ms)?.content else { return None };
    let words: Vec<&str> = text.split(' ').collect();
    match *words.as_slice() {
        [_, _, "resync"] => Some(Mark::Resync),
        [_, _, lsn, _, within] => {
            let (lsn, within): (u64, u64) = (lsn.parse().ok()?, within.parse().ok()?);
            Some(Mark::At { frame_end: Lsn(lsn), reached: Lsn(lsn + within) })
        }
        _ => None,
    }
}
