//! From records to state: the same `apply` that made them.

mod batch;

use wal::{CONTROL_SHARD, Lsn, Record, Rejection, Replaying};

pub(crate) use self::batch::Batch;
use self::batch::{Bought, Run};
use super::ahead::{Feed, Stage, Stopped, beside};
use super::controls::note_floor;
use super::directory::{Directory, shard_of};
use super::error::{ReplayError, Witness};
use super::owner::Owner;
use super::supplies::Supplies;
use crate::core::apply::apply;
use crate::core::codec;
use crate::core::control::Control;
use crate::core::event::Body;
use crate::core::ids::ActivityId;
use crate::core::request::RequestHasher;
use crate::core::shard::{Shard, ShardSeed};
use crate::planted::{self, Bug};

/// Purchases whose users are fetched together: more than the processor fetches from memory side by
/// side, few enough that what was fetched is at hand still when its turn comes.
const FETCHED_TOGETHER: usize = 64;

/// Batches that are applied by the thread that reads them: a log that holds no more is replayed
/// before another thread has come to help.
const BATCHES_ALONE: usize = 8;

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
    /// Memory made ahead, for a start: nobody is served before it is over, so all cores help.
    /// Whoever does this beside a sale takes no more than a thread of its time.
    pub(crate) supplies: Option<Supplies>,
}

impl<W: Witness> Replayed<W> {
    /// The state before the first record.
    pub(crate) fn new(shard_count: u16, owner: &Owner, witness: W) -> Self {
        let seed = owner.shard_seed();
        Self {
            shards: (0..shard_count).map(|_| Shard::new(seed)).collect(),
            control: Control::default(),
            directory: Directory::default(),
            last_ms: 0,
            records: 0,
            witness,
            seed,
            supplies: None,
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
    ///
    /// # Panics
    /// Where there is none, or records were taken before (W14).
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
        let place = self.shards.get_mut(usize::from(index));
        let Some(place) = place else { panic!("W14: the log has no shard {index}") };
        assert!(place.applied_seq() == 0, "W14: shard {index} is loaded over what is there");
        *place = shard;
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

impl Stage for Replayed<()> {
    type Batch = Batch;
    type Error = (Lsn, ReplayError);

    fn apply(&mut self, batch: &Batch) -> Result<(), (Lsn, ReplayError)> {
        let mut purchases = batch.purchases.as_slice();
        for run in &batch.runs {
            match *run {
                Run::Purchases { shard, activity, count } => {
                    let (these, others) = purchases.split_at_checked(count).unwrap_or_default();
                    self.take_purchases(shard, activity, these)?;
                    purchases = others;
                }
                Run::Other(index) => {
                    let record = batch.other(index);
                    self.take(&record).map_err(|why| (record.lsn, why))?;
                }
            }
        }
        assert!(purchases.is_empty(), "W14: {} purchases are in no run", purchases.len());
        Ok(())
    }
}

impl Replayed<()> {
    /// Takes the next records, which are purchases of one activity: in a rush nearly all are, and
    /// what they need is fetched from memory side by side.
    fn take_purchases(
        &mut self,
        found: u16,
        activity: ActivityId,
        purchases: &[Bought],
    ) -> Result<(), (Lsn, ReplayError)> {
        let Some(first) = purchases.first() else { return Ok(()) };
        let expected = shard_of(activity, self.shard_count());
        let shard = self.shards.get_mut(usize::from(found)).filter(|_| found == expected);
        let Some(shard) = shard else {
            return Err((first.lsn, ReplayError::Shard { found, expected }));
        };
        let mut till = shard.till(activity, first.at_ms);
        for together in purchases.chunks(FETCHED_TOGETHER) {
            if let Some(supplies) = &mut self.supplies {
                till.stock_up(supplies);
            }
            till.fetch(together.iter().map(|it| it.user));
            for it in together {
                let (purchase, hash) = (it.purchase(activity), it.request_hash);
                till.replay(&purchase, it.shard_seq, hash).map_err(|why| (it.lsn, why.into()))?;
                self.last_ms = self.last_ms.max(it.at_ms);
            }
        }
        self.records += purchases.len() as u64;
        Ok(())
    }

    /// The hasher of the directory's request ids, for [`Batch::push`].
    pub(crate) fn requests(&self) -> RequestHasher {
        self.seed.requests
    }
}

/// Replays what `read` hands over. A long log is read and decoded on this thread and applied on
/// another. Returns what `read` did, and what became of its records: a record that cannot have
/// happened comes before whatever was found behind it.
pub(crate) fn replay<R>(
    state: &mut Replayed<()>,
    read: impl FnOnce(&mut dyn Replaying) -> R,
) -> (R, Result<(), Rejection>) {
    let requests = state.requests();
    let (read, outcome) = beside(state, BATCHES_ALONE, |feed| {
        let mut records = Records { feed, requests, batch: Batch::default() };
        let read = read(&mut records);
        // What waits yet is older than what ended the reading.
        let _ = records.give();
        read
    });
    (read, outcome.map_err(|(lsn, why)| Rejection { lsn, why: why.into() }))
}

/// Records on their way into batches.
struct Records<'a, 'scope, 'env> {
    feed: &'a mut Feed<'scope, 'env, Replayed<()>>,
    requests: RequestHasher,
    batch: Batch,
}

impl Records<'_, '_, '_> {
    fn give(&mut self) -> Result<(), Stopped> {
        if !self.batch.is_empty() {
            self.batch = self.feed.give(std::mem::take(&mut self.batch))?;
            self.batch.clear();
        }
        Ok(())
    }
}

impl Replaying for Records<'_, '_, '_> {
    fn take(&mut self, records: &[Record<'_>]) -> Result<(), Rejection> {
        for record in records {
            self.batch.push(record, &self.requests);
            if self.batch.is_full() {
                // Which record it was, and why, is told in the end.
                self.give().map_err(|why| Rejection { lsn: record.lsn, why: why.into() })?;
            }
        }
        Ok(())
    }
}
