//! From records to state: the same `apply` that made them.

use wal::{CONTROL_SHARD, Lsn, Record, Rejection, Replaying};

use super::controls::note_floor;
use super::directory::{Directory, shard_of};
use super::error::{ReplayError, Witness};
use super::owner::Owner;
use crate::core::apply::{apply, replayed_hash};
use crate::core::codec::{self, Purchase};
use crate::core::control::Control;
use crate::core::event::Body;
use crate::core::request::RequestHasher;
use crate::core::shard::{Shard, ShardSeed};
use crate::planted::{self, Bug};

impl<W: Witness> Replaying for Replayed<W> {
    fn take(&mut self, records: &[Record<'_>]) -> Result<(), Rejection> {
        self.take_all(records).map_err(|(lsn, why)| Rejection { lsn, why: why.into() })
    }
}

/// The state behind a log, as far as it was read.
pub(crate) struct Replayed<W> {
    pub(crate) shards: Vec<Shard>,
    pub(crate) control: Control,
    pub(crate) directory: Directory,
    /// The last decision's time, Unix milliseconds.
    pub(crate) last_ms: u64,
    pub(crate) records: u64,
    pub(crate) witness: W,
    pub(crate) seed: ShardSeed,
}

impl<W: Witness> Replayed<W> {
    /// The state before the first record. `table_seed` only scatters hash tables.
    pub(crate) fn new(shard_count: u16, owner: &Owner, table_seed: u64, witness: W) -> Self {
        let requests = RequestHasher::new(&owner.request_hash_key);
        let seed = ShardSeed { table_seed, requests };
        Self {
            shards: (0..shard_count).map(|_| Shard::new(seed)).collect(),
            control: Control::default(),
            directory: Directory::default(),
            last_ms: 0,
            records: 0,
            witness,
            seed,
        }
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self, record: &Record<'_>) -> Result<(), ReplayError> {
        let mut event = codec::decode(record.kind, record.kind_version, record.body)?;
        event.at_ms += u64::from(planted::has(Bug::ReplayedAtAnotherTime));
        let expected = match codec::activity(&event.body) {
            Some(activity) => shard_of(activity, self.shard_count()),
            None => CONTROL_SHARD,
        };
        let found = record.shard;
        if found != expected {
            return Err(ReplayError::Shard { found, expected });
        }
        match self.shards.get_mut(usize::from(found)) {
            Some(shard) => apply(shard, &event, record.shard_seq)?,
            None => self.control.apply(&event, record.shard_seq)?,
        }
        self.note(&event.body)?;
        self.last_ms = self.last_ms.max(event.at_ms);
        self.records += 1;
        self.witness.saw(&event);
        Ok(())
    }

    /// Takes the next records: purchases of one activity, in a rush nearly all of them, together.
    pub(crate) fn take_all(&mut self, records: &[Record<'_>]) -> Result<(), (Lsn, ReplayError)> {
        let mut left = records;
        while let Some((first, others)) = left.split_first() {
            let rejected = |why| (first.lsn, why);
            left = match self.take_purchases(left)? {
                0 => {
                    self.take(first).map_err(rejected)?;
                    others
                }
                taken => left.get(taken..).unwrap_or_default(),
            };
        }
        Ok(())
    }

    /// Takes those records at the front that are purchases of one activity and in order by
    /// themselves. Tells how many.
    fn take_purchases(&mut self, records: &[Record<'_>]) -> Result<usize, (Lsn, ReplayError)> {
        if W::LOOKS {
            return Ok(0);
        }
        let Some((first, one)) = records.first().and_then(|record| Some((record, read(record)?)))
        else {
            return Ok(0);
        };
        let activity = one.activity;
        if first.shard != shard_of(activity, self.shard_count()) {
            return Ok(0);
        }
        let Some(shard) = self.shards.get_mut(usize::from(first.shard)) else { return Ok(0) };
        let requests = *shard.requests();
        let mut till = shard.till(activity, one.at_ms);
        if !till.is_open() {
            return Ok(0);
        }
        let purchases = records.iter().map_while(|record| {
            let mut purchase = read(record)?;
            purchase.at_ms += u64::from(planted::has(Bug::ReplayedAtAnotherTime));
            (record.shard == first.shard && purchase.activity == activity).then_some(purchase)
        });
        let purchases: Vec<_> = purchases.collect();
        till.fetch(purchases.iter().map(|purchase| purchase.user));
        for (record, purchase) in records.iter().zip(&purchases) {
            let request_hash = replayed_hash(&requests, purchase.request_id);
            let taken = till.replay(purchase, record.shard_seq, request_hash);
            taken.map_err(|why| (record.lsn, why.into()))?;
            self.last_ms = self.last_ms.max(purchase.at_ms);
        }
        self.records += purchases.len() as u64;
        Ok(purchases.len())
    }

    /// What activities cannot know of each other.
    fn note(&mut self, body: &Body<'_>) -> Result<(), ReplayError> {
        match *body {
            Body::ActivityCreated { activity, ordinal, .. }
            | Body::ActivityAdopted { activity, ordinal, .. } => {
                let is_its_own = self.directory.insert(ordinal, activity);
                return if is_its_own { Ok(()) } else { Err(ReplayError::Ordinal { activity }) };
            }
            Body::ReservationAdopted { activity, reservation, old_id, order_no, .. } => {
                self.directory.adopt(reservation, activity, (old_id, order_no));
            }
            Body::Archived { activity } => self.directory.forget_adopted(activity),
            Body::ControlSet { key, .. } => note_floor(&mut self.directory, key),
            _ => {}
        }
        Ok(())
    }

    /// Notes only when a record of a shard that is not wanted here was decided.
    pub(crate) fn pass(&mut self, record: &Record<'_>) -> Result<(), ReplayError> {
        let event = codec::decode(record.kind, record.kind_version, record.body)?;
        self.last_ms = self.last_ms.max(event.at_ms);
        Ok(())
    }

    /// Puts a shard that was loaded from a snapshot into its place.
    pub(crate) fn put(&mut self, index: u16, shard: Shard) {
        for (id, activity) in shard.activities() {
            self.directory.insert(activity.ordinal(), id);
            for (reservation, adopted) in activity.adopted() {
                let brought = (adopted.old_id, adopted.order_no.as_ref());
                self.directory.adopt(reservation, id, brought);
            }
        }
        for (id, tombstone) in shard.tombstones() {
            self.directory.insert_archived(tombstone.ordinal, id);
        }
        if let Some(place) = self.shards.get_mut(usize::from(index)) {
            *place = shard;
        }
    }

    /// Takes over the control state that was loaded from a snapshot.
    pub(crate) fn put_control(&mut self, control: Control, last_ms: u64) {
        for (key, _) in control.table().iter() {
            note_floor(&mut self.directory, key);
        }
        self.control = control;
        self.last_ms = last_ms;
    }

    fn shard_count(&self) -> u16 {
        u16::try_from(self.shards.len()).unwrap_or(CONTROL_SHARD)
    }
}

/// A record's purchase, where it is one and in order by itself.
fn read<'a>(record: &Record<'a>) -> Option<Purchase<'a>> {
    Purchase::read(record.kind, record.kind_version, record.body)
}
