//! The keys of a Redis in memory: types, ends, and what its append-only file has not synced yet.
//!
//! A change is undone call by call, as a crash undoes it that loses the unsynced end of the file: a
//! function's writes stand there as one transaction, so that a call is lost as a whole or not at
//! all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a key holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A string.
    Text(String),
    /// A hash.
    Hash(BTreeMap<String, String>),
    /// A set.
    Set(BTreeSet<String>),
}

impl Content {
    /// Its type, as TYPE names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
        }
    }
}

/// A key's value, and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it holds.
    pub content: Content,
    /// Unix milliseconds; `None` where it lives until it is deleted.
    pub ends_ms: Option<u64>,
}

impl Entry {
    /// A string.
    pub fn text(value: impl ToString, ends_ms: Option<u64>) -> Self {
        Self { content: Content::Text(value.to_string()), ends_ms }
    }
}

/// A key as it is, or as somebody left it who has no business there.
#[derive(Clone, Debug, Default)]
struct Slot {
    entry: Option<Arc<Entry>>,
    /// Evicted or changed by somebody else, and not written since.
    is_strange: bool,
}

/// What undoes a change.
#[derive(Debug)]
enum Undo {
    Slot(Arc<str>, Option<Slot>),
    Everything(BTreeMap<Arc<str>, Slot>),
    Library(bool),
    /// Where a call ends, from the last one back.
    CallEnd,
}

/// All keys.
#[derive(Debug, Default)]
pub struct Keyspace {
    slots: BTreeMap<Arc<str>, Slot>,
    /// Whether the mirror's functions are loaded.
    has_library: bool,
    undo: Vec<Undo>,
}

/// The keys as they were at an instant, to come back to.
#[derive(Clone, Debug, Default)]
pub(super) struct Copy {
    slots: BTreeMap<Arc<str>, Slot>,
    has_library: bool,
}

impl Keyspace {
    /// The value of a key that has not ended by `now_ms`.
    pub fn get(&self, key: &str, now_ms: u64) -> Option<&Entry> {
        let entry = self.slots.get(key)?.entry.as_deref()?;
        entry.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms).then_some(entry)
    }

    /// Whether somebody evicted or changed `key`, and nobody has written it since.
    pub(in crate::whole) fn is_strange(&self, key: &str) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.is_strange)
    }

    /// The keys that have not ended by `now_ms`, in order, behind `after`.
    pub fn keys<'k>(
        &'k self,
        after: &str,
        now_ms: u64,
    ) -> impl Iterator<Item = (&'k str, &'k Entry)> + use<'k> {
        use std::ops::Bound::{Excluded, Unbounded};
        let slots = self.slots.range::<str, _>((Excluded(after), Unbounded));
        slots.filter_map(move |(key, slot)| {
            let entry = slot.entry.as_deref()?;
            entry.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms).then_some((&**key, entry))
        })
    }

    /// Sets a key, or deletes it.
    pub(super) fn put(&mut self, key: &str, entry: Option<Entry>) {
        self.set(key, Slot { entry: entry.map(Arc::new), is_strange: false });
    }

    /// As [`Keyspace::put`], by somebody who has no business there.
    pub(super) fn tamper(&mut self, key: &str, entry: Option<Entry>) {
        self.set(key, Slot { entry: entry.map(Arc::new), is_strange: true });
    }

    fn set(&mut self, key: &str, slot: Slot) {
        let key: Arc<str> = key.into();
        let is_nothing = slot.entry.is_none() && !slot.is_strange;
        let before = match is_nothing {
            true => self.slots.remove(&key),
            false => self.slots.insert(Arc::clone(&key), slot),
        };
        self.undo.push(Undo::Slot(key, before));
    }

    pub(super) const fn has_library(&self) -> bool {
        self.has_library
    }

    /// FUNCTION LOAD or FUNCTION FLUSH.
    pub(super) fn set_library(&mut self, has_library: bool) {
        let before = std::mem::replace(&mut self.has_library, has_library);
        self.undo.push(Undo::Library(before));
        self.end_call();
    }

    /// FLUSHALL, which leaves the functions.
    pub(super) fn flush(&mut self) {
        let before = std::mem::take(&mut self.slots);
        self.undo.push(Undo::Everything(before));
        self.end_call();
    }

    pub(super) fn end_call(&mut self) {
        if !matches!(self.undo.last(), None | Some(Undo::CallEnd)) {
            self.undo.push(Undo::CallEnd);
        }
    }

    /// The append-only file is synced: nothing up to here is lost in a crash.
    pub(super) fn sync(&mut self) {
        self.undo.clear();
    }

    /// Calls that a crash could take back.
    pub(super) fn unsynced_calls(&self) -> usize {
        self.undo.iter().filter(|undo| matches!(undo, Undo::CallEnd)).count()
    }

    /// A crash takes the last `calls` back; what is left is on the disk.
    pub(super) fn lose(&mut self, calls: usize) {
        let mut ends = 0;
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::CallEnd if ends == calls => break,
                Undo::CallEnd => ends += 1,
                Undo::Slot(key, None) => _ = self.slots.remove(&key),
                Undo::Slot(key, Some(slot)) => _ = self.slots.insert(key, slot),
                Undo::Everything(slots) => self.slots = slots,
                Undo::Library(has_library) => self.has_library = has_library,
            }
        }
        self.sync();
    }

    /// What a snapshot file or a replica holds.
    pub(super) fn copy(&self) -> Copy {
        Copy { slots: self.slots.clone(), has_library: self.has_library }
    }

    /// Begins again with what a snapshot file or a replica held.
    pub(super) fn come_back(&mut self, copy: Copy) {
        *self = Self { slots: copy.slots, has_library: copy.has_library, undo: Vec::new() };
    }
}
