//! A shard: the activities that share one lock and one tail of the log.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry;

use super::activity::Activity;
use super::command::Reservation;
use super::ids::{ActivityId, Ordinal, ReservationId};
use super::request::RequestHasher;
use super::side::{OpenRefund, Refund, Refunds};
use super::table::{Table, Tables};

/// What a shard is told at birth, for it has no randomness and no files of its own.
#[derive(Clone, Copy, Debug)]
pub struct ShardSeed {
    /// Secret, and random per directory: ids are the callers' choice, and must not be able to pick
    /// one bucket. No answer and no digest depends on it, but a start is faster where it is that
    /// of the process that wrote the snapshot: users come in the order of the table.
    pub table_seed: u64,
    /// The directory's hasher of request ids.
    pub requests: RequestHasher,
}

impl ShardSeed {
    pub(super) fn tables(&self) -> Tables {
        Tables(self.table_seed)
    }
}

/// What is left of an archived activity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// Its ordinal, which is never given again.
    pub ordinal: Ordinal,
    /// The end of its window, Unix milliseconds.
    pub end_ms: u64,
    /// Refunds asked for since.
    pub refunds: Refunds,
}

/// An activity in a shard.
#[derive(Debug)]
pub(super) enum Place {
    /// Boxed: the table moves its entries when it grows.
    Live(Box<Activity>),
    Archived(Tombstone),
}

/// The state of one shard. Only [`apply`](super::apply::apply) changes what answers depend on.
#[derive(Debug)]
pub struct Shard {
    pub(super) seed: ShardSeed,
    pub(super) places: Table<ActivityId, Place>,
    pub(super) applied_seq: u64,
    /// Refunds that the provider has yet to settle, archived activities' among them.
    pub(super) open_refunds: BTreeMap<(ReservationId, Box<str>), OpenRefund>,
    /// As last told; publications judge by it. Not state: in no digest.
    pub(super) durable_seq: u64,
    /// No reservation falls due before. Not state: in no digest.
    pub(super) due_ms_min: u64,
}

impl Shard {
    /// An empty shard.
    pub fn new(seed: ShardSeed) -> Self {
        Self {
            places: seed.tables().make(),
            seed,
            applied_seq: 0,
            open_refunds: BTreeMap::new(),
            durable_seq: 0,
            due_ms_min: u64::MAX,
        }
    }

    /// The sequence of the last event applied, 0 for none.
    pub const fn applied_seq(&self) -> u64 {
        self.applied_seq
    }

    /// Tells the shard how far its log is durable; called with the lock held, before deciding.
    pub fn note_durable(&mut self, durable_seq: u64) {
        assert!(durable_seq <= self.applied_seq, "what is durable was applied before");
        self.durable_seq = self.durable_seq.max(durable_seq);
    }

    /// The hasher of request ids, for [`Reserve::request_hash`](super::command::Reserve).
    pub const fn requests(&self) -> &RequestHasher {
        &self.seed.requests
    }

    /// A live activity.
    pub fn activity(&self, id: ActivityId) -> Option<&Activity> {
        match self.places.get(&id) {
            Some(Place::Live(activity)) => Some(activity),
            _ => None,
        }
    }

    /// What is left of an archived activity.
    pub fn tombstone(&self, id: ActivityId) -> Option<&Tombstone> {
        match self.places.get(&id) {
            Some(Place::Archived(tombstone)) => Some(tombstone),
            _ => None,
        }
    }

    /// The live activities, in no order that anything may rest on.
    pub fn activities(&self) -> impl Iterator<Item = (ActivityId, &Activity)> {
        self.places.iter().filter_map(|(id, place)| match place {
            Place::Live(activity) => Some((*id, activity.as_ref())),
            Place::Archived(_) => None,
        })
    }

    /// The archived activities, in no order that anything may rest on.
    pub fn tombstones(&self) -> impl Iterator<Item = (ActivityId, &Tombstone)> {
        self.places.iter().filter_map(|(id, place)| match place {
            Place::Live(_) => None,
            Place::Archived(tombstone) => Some((*id, tombstone)),
        })
    }

    /// A refund, of a live activity or asked for since it was archived.
    pub fn refund(
        &self,
        activity: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
    ) -> Option<Refund> {
        let refunds = match self.places.get(&activity)? {
            Place::Live(activity) => &activity.refunds,
            Place::Archived(tombstone) => &tombstone.refunds,
        };
        refunds.get(&(reservation, refund_no.into())).copied()
    }

    /// A refund that the provider has yet to settle.
    pub fn open_refund(&self, reservation: ReservationId, refund_no: &str) -> Option<&OpenRefund> {
        self.open_refunds.get(&(reservation, refund_no.into()))
    }

    /// Refunds that the provider has yet to settle, by reservation and number.
    pub fn open_refunds(&self) -> impl Iterator<Item = (ReservationId, &str, &OpenRefund)> {
        let refunds = self.open_refunds.iter();
        refunds.map(|((reservation, refund_no), it)| (*reservation, refund_no.as_ref(), it))
    }

    /// A reservation, as it is told to callers.
    pub fn reservation(&self, activity: ActivityId, id: ReservationId) -> Option<Reservation> {
        self.activity(activity)?.reservation(activity, id)
    }

    /// How many reservations were accepted of an activity in memory.
    pub fn reservations(&self, activity: ActivityId) -> usize {
        self.activity(activity).map_or(0, |it| it.slots().len())
    }

    /// A lower bound of the next instant at which an unpaid reservation falls due; `u64::MAX` for
    /// never. A timer skips the shard until then without taking its lock apart.
    pub const fn due_ms_min(&self) -> u64 {
        self.due_ms_min
    }

    /// The live activity with the earliest deadline, with that deadline; sharpens
    /// [`due_ms_min`](Self::due_ms_min). Looks at every activity.
    pub fn next_due(&mut self, serving_since_ms: u64) -> Option<(u64, ActivityId)> {
        let next = |since| {
            let due = self.activities().filter_map(|(id, it)| Some((it.next_due_ms(since)?, id)));
            due.min()
        };
        let due_ms_min = next(0).map_or(u64::MAX, |(due_ms, _)| due_ms);
        let due = next(serving_since_ms);
        self.due_ms_min = due_ms_min;
        assert!(due.is_none_or(|(due_ms, _)| due_ms >= due_ms_min), "a timer would sleep past it");
        due
    }

    pub(super) fn activity_mut(&mut self, id: ActivityId) -> Option<&mut Activity> {
        match self.places.get_mut(&id) {
            Some(Place::Live(activity)) => Some(activity),
            _ => None,
        }
    }

    pub(super) fn place_mut(&mut self, id: ActivityId) -> Entry<'_, ActivityId, Place, FixedState> {
        self.places.entry(id)
    }
}
