//! Which activity is where: the shard of an activity, the activity of an ordinal.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::ids::{ActivityId, Ordinal, ReservationId};
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

/// Ordinals and ids given out, here or elsewhere.
#[derive(Debug)]
pub(crate) struct Directory {
    by_ordinal: BTreeMap<Ordinal, ActivityId>,
    last_id: u64,
    /// Ordinals below are used elsewhere.
    ordinal_min: u32,
    /// Reservations whose ids came from elsewhere: their ordinals lead nowhere.
    adopted: BTreeMap<ReservationId, ActivityId>,
    /// Those of them that brought an order number.
    adopted_orders: BTreeMap<Box<str>, ReservationId>,
    /// Those of them that had a number in the older system, by it.
    adopted_olds: BTreeMap<u64, ReservationId>,
    /// Those of them whose number there is not the id that they have here.
    renumbered: BTreeSet<ReservationId>,
    /// Ids under ordinal 0 that were given here, to what had none that could be kept: all above.
    /// They are given from 2^32 - 1 downwards, away from the older system's own.
    fresh_above: u32,
    /// Whether an activity was ever archived.
    has_archived: bool,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            by_ordinal: BTreeMap::new(),
            last_id: 0,
            ordinal_min: 0,
            adopted: BTreeMap::new(),
            adopted_orders: BTreeMap::new(),
            adopted_olds: BTreeMap::new(),
            renumbered: BTreeSet::new(),
            fresh_above: u32::MAX,
            has_archived: false,
        }
    }
}

impl Directory {
    /// Notes that `activity` has `ordinal`; whether no other one has it.
    pub(crate) fn insert(&mut self, ordinal: Ordinal, activity: ActivityId) -> bool {
        self.last_id = self.last_id.max(activity.get());
        self.by_ordinal.insert(ordinal, activity).is_none_or(|before| before == activity)
    }

    /// Notes that `activity` adopted `reservation`, with the numbers that it brought. An id with an
    /// ordinal is one of a lost log: the ordinal leads to the activity from then on, and is used.
    /// Returns the activity that the id led to before, else this one.
    pub(crate) fn adopt(
        &mut self,
        reservation: ReservationId,
        activity: ActivityId,
        (old_id, order_no): (u64, &str),
    ) -> ActivityId {
        let ordinal = reservation.ordinal();
        let leads_to = if ordinal == Ordinal::ADOPTED {
            self.adopted.insert(reservation, activity).unwrap_or(activity)
        } else {
            *self.by_ordinal.entry(ordinal).or_insert(activity)
        };
        if !order_no.is_empty() {
            self.adopted_orders.insert(order_no.into(), reservation);
        }
        if old_id != 0 {
            self.adopted_olds.insert(old_id, reservation);
            if old_id != reservation.get() {
                self.renumbered.insert(reservation);
            }
        }
        if ordinal == Ordinal::ADOPTED && reservation.get() != old_id {
            let given = u32::try_from(reservation.get()).unwrap_or(u32::MAX);
            self.fresh_above = self.fresh_above.min(given.saturating_sub(1));
        }
        leads_to
    }

    /// Notes that `activity`, with `ordinal`, is archived; whether no other one has its ordinal.
    pub(crate) fn insert_archived(&mut self, ordinal: Ordinal, activity: ActivityId) -> bool {
        self.has_archived = true;
        self.insert(ordinal, activity)
    }

    /// Whether an activity was ever archived: numbers that lead nowhere may be those of what it had
    /// adopted.
    pub(crate) const fn has_archived(&self) -> bool {
        self.has_archived
    }

    /// Forgets what `activity` adopted: it is archived.
    pub(crate) fn forget_adopted(&mut self, activity: ActivityId) {
        self.has_archived = true;
        let (by_ordinal, adopted) = (&self.by_ordinal, &self.adopted);
        let is_its = |id: &ReservationId| {
            adopted.get(id).or_else(|| by_ordinal.get(&id.ordinal())) == Some(&activity)
        };
        self.adopted_orders.retain(|_, id| !is_its(id));
        self.adopted_olds.retain(|_, id| !is_its(id));
        self.renumbered.retain(|id| !is_its(id));
        self.adopted.retain(|_, it| *it != activity);
        let is_there = |id: &ReservationId| self.activity_of(*id).is_some();
        debug_assert!(self.adopted_olds.values().all(is_there), "a number of nothing is kept");
        debug_assert!(self.adopted_orders.values().all(is_there), "an order number of nothing");
    }

    /// The reservation that was adopted with this number of the older system.
    pub(crate) fn adopted_old(&self, old_id: u64) -> Option<ReservationId> {
        self.adopted_olds.get(&old_id).copied()
    }

    /// Whether `reservation` came with a number.
    pub(crate) fn has_old(&self, reservation: ReservationId) -> bool {
        self.renumbered.contains(&reservation)
            || self.adopted_olds.get(&reservation.get()) == Some(&reservation)
    }

    /// The id under which `old_id` of an older system is adopted: its own where that is free and
    /// below 2^32, else one that nobody has. `None` where all are used.
    pub(crate) fn adopted_id(&self, old_id: u64) -> Option<ReservationId> {
        let is_free = |id: &ReservationId| !self.adopted.contains_key(id);
        let own = u32::try_from(old_id).ok().and_then(|it| ReservationId::new(it.into()));
        if let Some(own) = own.filter(|own| is_free(own) && own.get() <= self.fresh_above.into()) {
            return Some(own);
        }
        let fresh = (1..=self.fresh_above).rev();
        fresh.filter_map(|it| ReservationId::new(it.into())).find(is_free)
    }

    /// The activity that `ordinal` leads to.
    pub(crate) fn of_ordinal(&self, ordinal: Ordinal) -> Option<ActivityId> {
        self.by_ordinal.get(&ordinal).copied()
    }

    /// Ordinals below `ordinal` are used elsewhere.
    pub(crate) fn raise_ordinals(&mut self, ordinal: Ordinal) {
        self.ordinal_min = self.ordinal_min.max(ordinal.get());
    }

    /// Ids below `id` are used elsewhere.
    pub(crate) fn raise_ids(&mut self, id: u64) {
        self.last_id = self.last_id.max(id.saturating_sub(1));
    }

    /// Ids under ordinal 0 above `id` are used elsewhere, or were once.
    pub(crate) fn lower_adopted(&mut self, id: u32) {
        self.fresh_above = self.fresh_above.min(id);
    }

    /// The highest id that may still be given to what is adopted, where `activity` may hold one
    /// that was: once its reservations are forgotten, nothing else says so.
    pub(crate) fn adopted_floor(&self, activity: ActivityId) -> Option<u32> {
        let may_hold = self.fresh_above < u32::MAX
            && self
                .adopted
                .iter()
                .any(|(id, of)| *of == activity && id.get() > u64::from(self.fresh_above));
        may_hold.then_some(self.fresh_above)
    }

    /// The activity whose reservation `id` is.
    pub(crate) fn activity_of(&self, id: ReservationId) -> Option<ActivityId> {
        let adopted = self.adopted.get(&id);
        adopted.or_else(|| self.by_ordinal.get(&id.ordinal())).copied()
    }

    /// Whether any reservation brought an order number along.
    pub(crate) fn has_adopted_orders(&self) -> bool {
        !self.adopted_orders.is_empty()
    }

    /// The reservation that was adopted with `order_no`.
    pub(crate) fn adopted_order(&self, order_no: &str) -> Option<ReservationId> {
        self.adopted_orders.get(order_no).copied()
    }

    /// The next ordinal, or `None` where all are used.
    pub(crate) fn next_ordinal(&self) -> Option<Ordinal> {
        let last = self.by_ordinal.last_key_value().map_or(0, |(ordinal, _)| ordinal.get());
        let next = Ordinal::new((last + 1).max(self.ordinal_min));
        assert!(next.is_none_or(|next| self.of_ordinal(next).is_none()), "it is nobody's yet");
        next
    }

    /// An id that no activity has: one more than the largest, so that ids tell the order of
    /// creation; where the largest possible is taken, the smallest that is free.
    pub(crate) fn next_activity(&self) -> Option<ActivityId> {
        if self.last_id < ID_MAX {
            return ActivityId::new(self.last_id + 1);
        }
        let mut taken: Vec<_> = self.by_ordinal.values().map(|id| id.get()).collect();
        // An activity with reservations of a lost log has several ordinals.
        taken.sort_unstable();
        taken.dedup();
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
        let second = ReservationId::new(2 << 32 | 1).unwrap();
        assert_eq!(directory.activity_of(second), Some(id(ID_MAX)));
        assert!(!directory.insert(Ordinal::new(2).unwrap(), id(7)), "it is another one's");
    }

    #[test]
    fn what_is_used_elsewhere_is_not_given() {
        let mut directory = Directory::default();
        directory.raise_ordinals(Ordinal::new(40).unwrap());
        directory.raise_ids(70);
        assert_eq!(directory.next_ordinal(), Ordinal::new(40));
        assert_eq!(directory.next_activity(), Some(id(70)));
        directory.raise_ordinals(Ordinal::new(3).unwrap());
        assert_eq!(directory.next_ordinal(), Ordinal::new(40));
    }

    #[test]
    fn an_adopted_reservation_is_found_until_its_activity_is_archived() {
        let mut directory = Directory::default();
        let reservation = ReservationId::new(77).unwrap();
        directory.adopt(reservation, id(5), (77, "OLD-1"));
        directory.adopt(ReservationId::new(78).unwrap(), id(6), (78, ""));
        assert_eq!(directory.activity_of(reservation), Some(id(5)));
        assert_eq!(directory.adopted_order("OLD-1"), Some(reservation));
        directory.forget_adopted(id(5));
        assert_eq!(directory.activity_of(reservation), None);
        assert_eq!(directory.adopted_order("OLD-1"), None);
        assert_eq!(directory.activity_of(ReservationId::new(78).unwrap()), Some(id(6)));
    }

    #[test]
    fn what_has_no_id_that_can_be_kept_gets_one_that_was_never_given() {
        let mut directory = Directory::default();
        let top = u64::from(u32::MAX);
        let mut adopt = |old_id: u64, order_no: &str| {
            let id = directory.adopted_id(old_id).unwrap();
            directory.adopt(id, id_of_activity(), (old_id, order_no));
            id.get()
        };
        assert_eq!(adopt(7, ""), 7);
        assert_eq!(adopt(top, ""), top, "an older system may have counted that far");
        assert_eq!(adopt(1 << 40, ""), top - 1);
        assert_eq!(adopt(0, "OLD-2"), top - 2);
        assert_eq!(adopt(top - 1, ""), top - 3, "that one is taken");
        directory.forget_adopted(id_of_activity());
        assert_eq!(directory.adopted_id(0).map(ReservationId::get), Some(top - 4), "nor later");
    }

    #[test]
    fn a_floor_that_is_known_from_elsewhere_is_kept() {
        let mut directory = Directory::default();
        let top = u64::from(u32::MAX);
        assert_eq!(directory.adopted_floor(id_of_activity()), None);
        let given = directory.adopted_id(0).unwrap();
        directory.adopt(given, id_of_activity(), (0, "OLD-1"));
        assert_eq!(directory.adopted_floor(id_of_activity()), Some(u32::MAX - 1));
        assert_eq!(directory.adopted_floor(id(6)), None, "it adopted none");
        let mut reopened = Directory::default();
        reopened.lower_adopted(u32::MAX - 1);
        assert_eq!(reopened.adopted_id(0).map(ReservationId::get), Some(top - 1));
        assert_eq!(reopened.adopted_id(top).map(ReservationId::get), Some(top - 1), "used once");
    }

    fn id_of_activity() -> ActivityId {
        id(5)
    }

    #[test]
    fn an_ordinal_of_a_lost_log_leads_on_and_is_used() {
        let mut directory = Directory::default();
        directory.insert(Ordinal::new(9).unwrap(), id(5));
        let lost = ReservationId::new(12 << 32 | 3).unwrap();
        directory.adopt(lost, id(5), (0, ""));
        assert_eq!(directory.activity_of(lost), Some(id(5)));
        assert_eq!(directory.next_ordinal(), Ordinal::new(13));
        directory.forget_adopted(id(5));
        assert_eq!(directory.activity_of(lost), Some(id(5)), "SQL answers for it");
    }

    #[test]
    fn ordinals_end_where_their_bits_end() {
        let mut directory = Directory::default();
        directory.insert(Ordinal::new((1 << 21) - 1).unwrap(), id(1));
        assert_eq!(directory.next_ordinal(), None);
    }
}
