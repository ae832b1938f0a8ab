//! Records decoded as far as no state is needed: the half of a replay that can be done ahead.

use wal::{Lsn, Record};

use crate::core::apply::replayed_hash;
use crate::core::codec::Purchase;
use crate::core::event::{Figures, Front};
use crate::core::ids::{ActivityId, ReservationId, UserId};
use crate::core::packed::Packed;
use crate::core::request::RequestHasher;
use crate::planted::{self, Bug};

/// Records of a batch at most: a hand-over, for which a thread that waits on an idle core is woken,
/// costs little beside them, and a few batches fit the cache that two cores share.
const BATCH_RECORDS: usize = 4_096;

/// Bytes of a batch's records that are no purchases at most, but for one record.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The next records of a log.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) runs: Vec<Run>,
    pub(super) purchases: Vec<Bought>,
    others: Packed<Other>,
}

/// Records that follow one another.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// The next purchases: `count` of one activity.
    Purchases { shard: u16, activity: ActivityId, count: usize },
    /// The record at this place among the others.
    Other(usize),
}

/// A purchase, its request's text hashed.
#[derive(Clone, Copy)]
pub(super) struct Bought {
    pub(super) lsn: Lsn,
    pub(super) shard_seq: u64,
    pub(super) request_hash: u128,
    pub(super) at_ms: u64,
    pub(super) reservation: ReservationId,
    pub(super) user: UserId,
    pub(super) quantity: u32,
    pub(super) held: u32,
    pub(super) version: u32,
    pub(super) figures: Figures,
}

impl Bought {
    /// The purchase of `activity`, as far as its effect goes: the door and the text of the request
    /// have none.
    #[inline]
    pub(super) fn purchase(&self, activity: ActivityId) -> Purchase<'static> {
        let &Self { at_ms, reservation, user, quantity, held, version, figures, .. } = self;
        let (front, request_id) = (Front::Api, &[][..]);
        Purchase {
            at_ms,
            activity,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            front,
            request_id,
        }
    }
}

/// Any other record, but for its bytes.
struct Other {
    lsn: Lsn,
    kind: u8,
    kind_version: u8,
    shard: u16,
    shard_seq: u64,
}

impl Batch {
    /// Adds a record.
    pub(crate) fn push(&mut self, record: &Record<'_>, requests: &RequestHasher) {
        match Purchase::read(record.kind, record.kind_version, record.body) {
            Some(purchase) => self.push_purchase(record, &purchase, requests),
            // One that is not in order, too: `decode` can say what is wrong with it.
            None => self.push_other(record),
        }
    }

    fn push_purchase(
        &mut self,
        record: &Record<'_>,
        purchase: &Purchase<'_>,
        requests: &RequestHasher,
    ) {
        let Record { lsn, shard, shard_seq, .. } = *record;
        let &Purchase { activity, reservation, user, quantity, held, version, figures, .. } =
            purchase;
        let request_hash = replayed_hash(requests, purchase.request_id);
        let at_ms = purchase.at_ms + u64::from(planted::has(Bug::ReplayedAtAnotherTime));
        match self.runs.last_mut() {
            Some(Run::Purchases { shard: one, activity: it, count })
                if (*one, *it) == (shard, activity) =>
            {
                *count += 1;
            }
            _ => self.runs.push(Run::Purchases { shard, activity, count: 1 }),
        }
        self.purchases.push(Bought {
            lsn,
            shard_seq,
            request_hash,
            at_ms,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
        });
    }

    fn push_other(&mut self, record: &Record<'_>) {
        let Record { lsn, kind, kind_version, shard, shard_seq, body } = *record;
        let other = Other { lsn, kind, kind_version, shard, shard_seq };
        self.runs.push(Run::Other(self.others.push(other, body)));
    }

    /// The record at `index` among those that are no purchases.
    ///
    /// # Panics
    /// Where there is none: a record would be left out of the state (W14).
    pub(super) fn other(&self, index: usize) -> Record<'_> {
        let Some((other, body)) = self.others.get(index) else {
            panic!("W14: record {index} of a batch is gone")
        };
        let &Other { lsn, kind, kind_version, shard, shard_seq } = other;
        Record { lsn, kind, kind_version, shard, shard_seq, body }
    }

    /// Whether it is to be taken before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.purchases.len() + self.others.len() >= BATCH_RECORDS
            || self.others.bytes() >= BATCH_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Empties it; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.purchases.clear();
        self.others.clear();
    }
}
