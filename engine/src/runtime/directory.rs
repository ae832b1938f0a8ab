//! Which activity is where: the shard of an activity, the activity of an ordinal.

use std::collections::BTreeMap;

use crate::core::ids::{ActivityId, Ordinal};
use crate::core::limits::ID_MAX;

/// The shard of `activity` among `shard_count`. Part of the format: a record's shard must be the
/// one that its activity hashes to, on every machine. SplitMix64's finaliser (S. Vigna), since
/// ids are often consecutive.
pub(crate) fn shard_of(activity: ActivityId, shard_count: u16) -> u16 {
    let mut hash = activity.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^= hash >> 31;
    u16::try_from(hash % u64::from(shard_count)).unwrap_or_default()
}

/// Ordinals and ids given out.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    by_ordinal: BTreeMap<Ordinal, ActivityId>,
    last_id: u64,
}

impl Directory {
    /// Notes that `activity` has `ordinal`.
    pub(crate) fn insert(&mut self, ordinal: Ordinal, activity: ActivityId) {
        self.by_ordinal.insert(ordinal, activity);
        self.last_id = self.last_id.max(activity.get());
    }

    /// The activity that has `ordinal`.
    pub(crate) fn activity(&self, ordinal: Ordinal) -> Option<ActivityId> {
        self.by_ordinal.get(&ordinal).copied()
    }

    /// The next ordinal, or `None` where all are used.
    pub(crate) fn next_ordinal(&self) -> Option<Ordinal> {
        let last = self.by_ordinal.last_key_value().map_or(0, |(ordinal, _)| ordinal.get());
        Ordinal::new(last + 1)
    }

    /// An id that no activity has: one more than the largest, so that ids tell the order of
    /// creation; where the largest possible is taken, the smallest that is free.
    pub(crate) fn next_activity(&self) -> Option<ActivityId> {
        if self.last_id < ID_MAX {
            return ActivityId::new(self.last_id + 1);
        }
        let mut taken: Vec<_> = self.by_ordinal.values().map(|id| id.get()).collect();
        taken.sort_unstable();
        let free = taken.iter().zip(1..).find(|(id, wanted)| **id != *wanted);
        ActivityId::new(free.map_or(taken.len() as u64 + 1, |(_, wanted)| wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u64) -> ActivityId {
        ActivityId::new(value).unwrap()
    }

    #[test]
    fn the_shard_of_an_activity_is_part_of_the_format() {
        let shards = [1, 2, 30_001, ID_MAX].map(|value| shard_of(id(value), 64));
        assert_eq!(shards, [1, 14, 16, 31]);
        assert!((1..1_000).all(|value| shard_of(id(value), 1) == 0));
    }

    #[test]
    fn an_id_and_an_ordinal_are_given_once() {
        let mut directory = Directory::default();
        assert_eq!(directory.next_ordinal(), Ordinal::new(1));
        assert_eq!(directory.next_activity(), Some(id(1)));
        directory.insert(Ordinal::new(1).unwrap(), id(30_001));
        assert_eq!(directory.next_activity(), Some(id(30_002)));
        directory.insert(Ordinal::new(2).unwrap(), id(ID_MAX));
        assert_eq!(directory.next_activity(), Some(id(1)), "the largest id leaves the smallest");
        assert_eq!(directory.next_ordinal(), Ordinal::new(3));
        assert_eq!(directory.activity(Ordinal::new(2).unwrap()), Some(id(ID_MAX)));
    }

    #[test]
    fn ordinals_end_where_their_bits_end() {
        let mut directory = Directory::default();
        directory.insert(Ordinal::new((1 << 21) - 1).unwrap(), id(1));
        assert_eq!(directory.next_ordinal(), None);
    }
}
