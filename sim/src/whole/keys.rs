//! The keys that readers of Redis must find, at every place in the log, worked out from its events
//! by other means than the mirror's.
//!
//! A mirror is behind, never wrong: whatever stands in Redis is compared with what stood in the log
//! where the mirror's cursor is.

use std::collections::BTreeMap;

use bridge::redis::layouts::Layout;
use engine::core::event::{Event, Figures};
use wal::Lsn;

use super::readers::Readers;
use super::redis::keyspace::{Content, Entry, Keyspace};

/// The mirror's own keys.
pub(super) const CURSOR: &str = "sluice:cursor";
const STALE: &str = "sluice:stale";
const KNOWN: &str = "sluice:mirror";

/// Above this the mirror says that it is behind.
const BEHIND_US: u64 = 1_000_000;

/// A key, or the mirror's note of an activity, from an LSN on.
struct Change {
    lsn: Lsn,
    key: String,
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

/// What the keys were, at every LSN.
#[derive(Default)]
pub(super) struct KeyHistory {
    changes: Vec<Change>,
    /// The last LSN of each frame, and when it was committed.
    frames: Vec<(Lsn, u64)>,
    readers: Readers,
    /// The keys as they were behind the first `done` changes.
    keys: BTreeMap<String, Entry>,
    done: usize,
}

impl KeyHistory {
    /// Of the keys of a layout.
    pub(super) fn of(layout: Layout) -> Self {
        Self { readers: Readers::of(layout), ..Self::default() }
    }

    pub(super) fn frame(&mut self, last: Lsn, commit_us: u64) {
        self.frames.push((last, commit_us));
    }

    /// Takes an event in.
    pub(super) fn take(&mut self, lsn: Lsn, event: &Event<'_>) {
        let (moved, told) = self.readers.take(lsn, event);
        if let Some((activity, Figures { available, locked, sold })) = moved {
            let note = Entry::text(format_args!("{available} {locked} {sold}"), None);
            self.changes.push(Change {
                lsn,
                key: format!("{KNOWN} {activity}"),
                entry: Some(note),
            });
        }
        self.changes.extend(told.into_iter().map(|(key, entry)| Change { lsn, key, entry }));
    }

    /// Makes the keys what they were at `lsn`.
    fn go_to(&mut self, lsn: Lsn) {
        if self.done > 0 && self.changes[self.done - 1].lsn > lsn {
            (self.done, self.keys) = (0, BTreeMap::new());
        }
        while let Some(change) = self.changes.get(self.done).filter(|it| it.lsn <= lsn) {
            match &change.entry {
                Some(entry) => _ = self.keys.insert(change.key.clone(), entry.clone()),
                None => _ = self.keys.remove(&change.key),
            }
            self.done += 1;
        }
    }

    /// When the record behind `lsn` was committed; `None` where there is none.
    fn committed_us_behind(&self, lsn: Lsn) -> Option<u64> {
        let at = self.frames.partition_point(|(last, _)| *last <= lsn);
        self.frames.get(at).map(|(_, commit_us)| *commit_us)
    }

    /// O7: nothing in Redis is above its value at the cursor, nor below it; and where the mirror is
    /// behind, it says so. What somebody else did to a key is passed over until it is written
    /// again, unless everything must have `healed`.
    ///
    /// `folded_us` is when the mirror last looked at what it lacked.
    ///
    /// # Errors
    /// What does not agree.
    pub(super) fn check(
        &mut self,
        redis: &Keyspace,
        now_ms: u64,
        folded_us: u64,
        healed: bool,
    ) -> Result<(), String> {
        let excused = |key: &str| !healed && redis.is_strange(key);
        let Some(mark) = mark(redis, now_ms).filter(|_| !excused(CURSOR)) else {
            return match healed {
                true => Err("O7: there is no cursor".to_owned()),
                false => Ok(()),
            };
        };
        let is_stale = redis.get(STALE, now_ms).is_some() || excused(STALE);
        let Mark::At { reached, .. } = mark else {
            return match is_stale && !healed {
                true => Ok(()),
                false => Err("O7: keys are written anew, and nobody is told".to_owned()),
            };
        };
        let lacks_us = self.committed_us_behind(reached);
        if !is_stale && lacks_us.is_some_and(|us| folded_us > us + BEHIND_US) {
            return Err(format!("O7: Redis is behind at LSN {reached}, and nobody is told"));
        }
        self.go_to(reached);
        let (expected, readers) = (&self.keys, &self.readers);
        for (key, entry) in expected {
            if let Some(activity) = key.strip_prefix(KNOWN) {
                let known = redis.get(KNOWN, now_ms).map(|it| &it.content);
                if !notes(known, activity.trim_start(), &entry.content) && !excused(KNOWN) {
                    return Err(format!("O7: at LSN {reached} the mirror notes {known:?}"));
                }
                continue;
            }
            let entry = Some(entry).filter(|it| it.ends_ms.is_none_or(|ends| ends > now_ms));
            let found = redis.get(key, now_ms);
            let is_as_good = !healed && readers.is_as_good(key, reached, found, entry);
            if found != entry && !is_as_good && !excused(key) {
                return Err(format!("O7: at LSN {reached} {key} is {found:?}, not {entry:?}"));
            }
        }
        let prefix = readers.prefix();
        let ours = redis.keys(prefix, now_ms).take_while(|(key, _)| key.starts_with(prefix));
        for (key, entry) in ours {
            if !expected.contains_key(key) && !excused(key) {
                return Err(format!("O7: at LSN {reached} there is {key}, {entry:?}"));
            }
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
        now_ms: u64,
        durable: Lsn,
    ) -> Result<(), String> {
        self.check(redis, now_ms, now_ms * 1_000, true)?;
        match mark(redis, now_ms) {
            Some(Mark::At { reached, .. }) if reached == durable => {}
            found => return Err(format!("O7: the cursor is {found:?}, the log ends at {durable}")),
        }
        match redis.get(STALE, now_ms) {
            None => Ok(()),
            Some(_) => Err("O11: Redis is called behind though it is not".to_owned()),
        }
    }
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

/// The cursor in Redis, where somebody's text is one.
pub(super) fn mark(redis: &Keyspace, now_ms: u64) -> Option<Mark> {
    let Content::Text(text) = &redis.get(CURSOR, now_ms)?.content else { return None };
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
