//! Sets that every request asks and few change: parts with a lock each, and a count that spares
//! the locks while nothing is in them.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Parts: more than cores, so that readers rarely meet at one lock's word.
const PARTS: usize = 64;

/// A map in parts.
pub(super) struct Shards<K, V> {
    parts: [RwLock<HashMap<K, V>>; PARTS],
    hasher: RandomState,
    len: AtomicUsize,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| RwLock::new(HashMap::new())),
            hasher: RandomState::new(),
            len: AtomicUsize::new(0),
        }
    }
}

impl<K: Hash + Eq, V> Shards<K, V> {
    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> &RwLock<HashMap<K, V>> {
        let hash = self.hasher.hash_one(key);
        &self.parts[(hash >> 58) as usize % PARTS]
    }

    /// What `read` makes of the value of `key`, if it is there.
    pub(super) fn get<Q: Hash + Eq + ?Sized, T>(
        &self,
        key: &Q,
        read: impl FnOnce(&V) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
    {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        reading(self.part(key)).get(key).map(read)
    }

    /// Puts `value` in.
    pub(super) fn insert(&self, key: K, value: V) {
        let mut part = writing(self.part(&key));
        // Before it can be seen: a reader that finds it must have been let to look.
        self.len.fetch_add(1, Ordering::Release);
        if part.insert(key, value).is_some() {
            self.len.fetch_sub(1, Ordering::Release);
        }
    }

    /// Takes `key` out.
    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let mut part = writing(self.part(key));
        if part.remove(key).is_some() {
            self.len.fetch_sub(1, Ordering::Release);
        }
    }

    /// Keeps what `keep` says.
    pub(super) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for part in &self.parts {
            let mut part = writing(part);
            let before = part.len();
            part.retain(|key, value| keep(key, value));
            self.len.fetch_sub(before - part.len(), Ordering::Release);
        }
    }

    /// Shows each to `see`, part by part.
    pub(super) fn each(&self, mut see: impl FnMut(&K, &V)) {
        for part in &self.parts {
            reading(part).iter().for_each(|(key, value)| see(key, value));
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }
}

// No work under these locks can panic halfway through a change.
fn reading<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn writing<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        let shards: Shards<u64, u64> = Shards::default();
        assert_eq!(shards.get(&1, |value| *value), None);
        for key in 0..1000 {
            shards.insert(key, key);
            shards.insert(key, key + 1);
        }
        assert_eq!((shards.len(), shards.get(&7, |value| *value)), (1000, Some(8)));
        shards.remove(&7);
        shards.remove(&7);
        shards.retain(|key, _| key.is_multiple_of(2));
        assert_eq!(shards.len(), 500);
        assert_eq!(shards.get(&7, |value| *value), None);
        let mut sum = 0;
        shards.each(|_, _| sum += 1);
        assert_eq!(sum, 500);
    }
}
