//! The controls that are set, within their bounds, each until it expires.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::super::digest::Hash;
use super::super::limits::{CONTROL_LISTED_BYTES_MAX, CONTROL_LISTED_MAX, CONTROL_SETTINGS_MAX};
use super::keys;

/// A control that is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its value. Shared: whoever shows it holds no lock.
    pub value: Arc<[u8]>,
    /// When it ends by itself, Unix milliseconds; 0 for never.
    pub expires_ms: u64,
}

impl Setting {
    /// Whether it holds at `now_ms`.
    pub const fn holds(&self, now_ms: u64) -> bool {
        self.expires_ms == 0 || now_ms < self.expires_ms
    }
}

/// Controls by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControlTable {
    settings: BTreeMap<Arc<str>, Setting>,
    /// Those that end by themselves, by when.
    expiring: BTreeSet<(u64, Arc<str>)>,
    listed: usize,
    listed_bytes: usize,
}

impl ControlTable {
    /// The control of that key, expired or not.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.get(key)
    }

    /// All controls, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Setting)> {
        self.settings.iter()
    }

    /// The controls whose keys begin with `prefix`, by key.
    pub fn under<'t>(
        &'t self,
        prefix: &'t str,
    ) -> impl Iterator<Item = (&'t Arc<str>, &'t Setting)> {
        let range = self.settings.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        range.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Controls that are set.
    pub fn len(&self) -> usize {
        self.settings.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Whether `key` may have a value of so many bytes without breaking a bound.
    pub fn has_room(&self, key: &str, value_bytes: usize) -> bool {
        let present = self.settings.get(key);
        let more = usize::from(present.is_none());
        if !keys::is_listed(key) {
            return self.settings.len() - self.listed + more <= CONTROL_SETTINGS_MAX;
        }
        let less_bytes = present.map_or(0, |setting| bytes(key, &setting.value));
        let bytes = self.listed_bytes - less_bytes + key.len() + value_bytes;
        self.listed + more <= CONTROL_LISTED_MAX && bytes <= CONTROL_LISTED_BYTES_MAX
    }

    /// Sets `key`.
    pub fn set(&mut self, key: &str, value: &[u8], expires_ms: u64) {
        self.clear(key);
        let key: Arc<str> = key.into();
        if keys::is_listed(&key) {
            self.listed += 1;
            self.listed_bytes += bytes(&key, value);
        }
        if expires_ms != 0 {
            self.expiring.insert((expires_ms, Arc::clone(&key)));
        }
        self.settings.insert(key, Setting { value: value.into(), expires_ms });
        self.assert_counted();
    }

    /// Clears `key`, if it is set.
    pub fn clear(&mut self, key: &str) {
        let Some((key, setting)) = self.settings.remove_entry(key) else { return };
        self.forget(&key, &setting);
        self.expiring.remove(&(setting.expires_ms, key));
    }

    /// Drops what has expired at `now_ms`; how many there were.
    pub fn drop_expired(&mut self, now_ms: u64) -> usize {
        let before = self.settings.len();
        while self.expiring.first().is_some_and(|(expires_ms, _)| *expires_ms <= now_ms) {
            let Some((_, key)) = self.expiring.pop_first() else { break };
            if let Some(setting) = self.settings.remove(&key) {
                self.forget(&key, &setting);
            }
        }
        self.assert_counted();
        before - self.settings.len()
    }

    /// The counts that bound the table fit what is in it: too low, and callers could fill the
    /// memory; too high, and the kill switch would find no room.
    ///
    /// # Panics
    /// Where they don't.
    fn assert_counted(&self) {
        assert!(self.listed <= self.settings.len(), "more controls are listed than there are");
        assert!(self.expiring.len() <= self.settings.len(), "a control ends twice");
        assert!(self.listed > 0 || self.listed_bytes == 0, "no control takes bytes");
    }

    fn forget(&mut self, key: &str, setting: &Setting) {
        if keys::is_listed(key) {
            assert!(self.listed > 0, "a control is forgotten once");
            self.listed -= 1;
            self.listed_bytes -= bytes(key, &setting.value);
        }
    }

    pub(super) fn hash(&self, hash: &mut Hash) {
        hash.numbers(&[self.settings.len() as u64]);
        for (key, setting) in &self.settings {
            hash.text(key);
            hash.bytes(&setting.value);
            hash.numbers(&[setting.expires_ms]);
        }
    }
}

fn bytes(key: &str, value: &[u8]) -> usize {
    key.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_counted_through_sets_clears_and_ends() {
        let mut table = ControlTable::default();
        table.set("token/a", b"1", 10);
        table.set("token/a", b"22", 20);
        table.set("blacklist/user/1", b"", 0);
        table.set("stop", b"x", 0);
        assert_eq!((table.listed, table.listed_bytes), (2, 9 + 16));
        assert_eq!(table.drop_expired(10), 0, "it was set again, for longer");
        assert_eq!(table.drop_expired(20), 1);
        table.clear("blacklist/user/1");
        table.clear("blacklist/user/1");
        assert_eq!((table.listed, table.listed_bytes, table.len()), (0, 0, 1));
        assert!(table.expiring.is_empty());
    }

    #[test]
    fn a_full_list_leaves_room_for_the_kill_switch() {
        let mut table = ControlTable::default();
        for number in 0..CONTROL_LISTED_MAX {
            table.set(&format!("token/{number}"), b"", 0);
        }
        assert!(!table.has_room("token/one-more", 0));
        assert!(table.has_room("token/1", 1), "it is there already");
        assert!(table.has_room(keys::STOP, 1));
        let huge = CONTROL_LISTED_BYTES_MAX;
        assert!(!table.has_room("token/1", huge));
    }

    #[test]
    fn a_prefix_finds_its_keys_alone() {
        let mut table = ControlTable::default();
        for key in ["limits", "limits/a", "limits/b", "limitt"] {
            table.set(key, b"", 0);
        }
        let found: Vec<_> = table.under("limits/").map(|(key, _)| key.as_ref()).collect();
        assert_eq!(found, ["limits/a", "limits/b"]);
    }
}
