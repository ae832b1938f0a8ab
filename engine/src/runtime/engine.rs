//! The shards over a log, and the one way a command goes through them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLock};
use wal::limits::{BATCH_FRAME_DIVISOR, FRAME_BYTES_MAX, RECORD_BYTES_MAX};
use wal::{
    AbortOnPanic, Batch, Busy, Class, Log, LogIdentity, LogUnavailable, Lsn, RECORD_HEADER_BYTES,
    Ticket,
};

use super::clock::Clock;
use super::controls::Controls;
use super::directory::{Directory, shard_of};
use super::handle::Handle;
use super::owner::Owner;
use super::pending::Pending;
use super::provisions::{Provider, Provisions};
use super::sinks::Ordered;
use super::snapshots::{House, Housekeeper};
use super::supplies::Supplies;
use super::timer::Timer;
use super::views::{ActivityView, PublicStatus, ReservationView};
use crate::core::activity::Activity;
use crate::core::apply::apply_hashed;
use crate::core::codec;
use crate::core::command::{Answer, Command, Refusal, Reservation};
use crate::core::control::Control;
use crate::core::decide::{Outcome, decide};
use crate::core::digest::digest;
use crate::core::event::Event;
use crate::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};
use crate::core::limits::{EVENT_BYTES_MAX, REQUEST_ID_BYTES_MAX};
use crate::core::order_no::OrderNo;
use crate::core::request::RequestHasher;
use crate::core::shard::Shard;

/// Room for the events of any one command: one of the largest, one small one beside it.
pub(crate) const COMMAND_ROOM: usize = EVENT_BYTES_MAX + 4 * 1024;

/// Room for the event of a purchase: its fixed fields take less than what is added here.
pub(crate) const PURCHASE_ROOM: usize =
    wal::record_bytes(RECORD_HEADER_BYTES + REQUEST_ID_BYTES_MAX + 96);

/// Room for a give-back whose time ran out, which names no operator, and for the end of its dead
/// letter: their fixed fields take less than what is added here. An operator's release has
/// [`COMMAND_ROOM`].
pub(crate) const RESTORE_ROOM: usize =
    wal::record_bytes(RECORD_HEADER_BYTES + 96) + wal::record_bytes(RECORD_HEADER_BYTES + 32);

const _: () = assert!(COMMAND_ROOM <= FRAME_BYTES_MAX / BATCH_FRAME_DIVISOR, "it fits a frame");
const _: () = assert!(wal::record_bytes(EVENT_BYTES_MAX) <= RECORD_BYTES_MAX, "it is a record");

/// An engine; clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
    pub(crate) handle: Handle,
}

pub(crate) struct Inner {
    pub(crate) log: Log,
    pub(crate) threads: Mutex<Option<wal::Threads>>,
    pub(crate) timer: Mutex<Option<Timer>>,
    pub(crate) housekeeper: Mutex<Option<Housekeeper>>,
    /// Memory made ahead for large tables; none without threads.
    pub(crate) supplies: Mutex<Option<Supplies>>,
    /// Memory made before a sale.
    pub(crate) provisions: Arc<Provisions>,
    pub(crate) provider: Mutex<Option<Provider>>,
    pub(crate) shards: Box<[CachePadded<Mutex<Shard>>]>,
    pub(crate) control: Mutex<Control>,
    pub(crate) controls: Controls,
    /// Taken before a shard's lock, never while one is held.
    pub(crate) directory: RwLock<Directory>,
    pub(crate) clock: Clock,
    pub(crate) owner: Owner,
    pub(crate) requests: RequestHasher,
    pub(crate) ordered: Ordered,
    pub(crate) one_live_per_sku: AtomicBool,
    /// When the server became ready, engine time; `u64::MAX` before.
    pub(crate) serving_since_ms: AtomicU64,
    /// Whether the timer archives: see `archive_when_over`.
    pub(crate) archives: AtomicBool,
    pub(crate) house: House,
}

/// Applies `events` and appends them, in one piece.
///
/// # Panics
/// Never: what would panic here aborts the process.
pub(crate) fn record<'a>(
    shard: &mut Shard,
    batch: &mut Batch<'_>,
    room: usize,
    events: impl Iterator<Item = &'a Event<'a>>,
    request_hash: u128,
) {
    let _guard = AbortOnPanic;
    batch.command(room);
    for event in events {
        let kind = (codec::kind(&event.body), codec::FORMAT_VERSION);
        let seq = batch.append(kind, |out| codec::encode(event, out));
        let applied = apply_hashed(shard, event, seq, request_hash);
        assert_eq!(applied, Ok(()), "what was decided under this lock must apply under it");
    }
}

impl Engine {
    pub(crate) fn shard_index(&self, activity: ActivityId) -> u16 {
        shard_of(activity, self.inner.log.format().shard_count)
    }

    /// The shard of `activity`, locked and told how far it is durable.
    pub(crate) fn lock(&self, index: u16) -> MutexGuard<'_, Shard> {
        let mut shard = self.inner.shards[usize::from(index)].lock();
        shard.note_durable(self.inner.log.durable_seq(index));
        shard
    }

    /// Runs `command`. `answer` makes what the caller is told, from the state after it and, where
    /// the command was done before, what that was answered then; under the lock, for what it sees
    /// must be covered by the ticket (W1).
    pub(crate) fn run<T>(
        &self,
        activity: ActivityId,
        command: &Command<'_>,
        answer: impl FnOnce(&Shard, Option<Answer>) -> T,
    ) -> Result<Pending<Result<T, Refusal>>, Busy> {
        let index = self.shard_index(activity);
        let mut shard = self.lock(index);
        let room = self.begin(index, COMMAND_ROOM, Class::Reserved);
        let at_ms = self.decision_ms();
        let told = match (decide(&shard, activity, command, at_ms), room) {
            (Outcome::Accepted { events }, Ok(mut batch)) => {
                record(&mut shard, &mut batch, COMMAND_ROOM, events.iter(), 0);
                Ok(answer(&shard, None))
            }
            (Outcome::Accepted { .. }, Err(busy)) => return Err(busy),
            (_, Err(Busy::LogUnavailable)) => return Err(Busy::LogUnavailable),
            (Outcome::Repeated(before), _) => Ok(answer(&shard, Some(before))),
            (Outcome::Refused(refusal), _) => Err(refusal),
            (Outcome::NothingDue(_), _) => unreachable!("only the timer expires"),
        };
        Ok(self.pending(index, &shard, told))
    }

    /// `value`, held until everything its shard has appended is durable: it may rest on any of it
    /// (W1).
    pub(crate) fn pending<T>(&self, index: u16, shard: &Shard, value: T) -> Pending<T> {
        let ticket = Ticket { shard: index, shard_seq: shard.applied_seq() };
        Pending::new(value, &self.inner.log, ticket)
    }

    /// A refusal that rests on what shard `index` shows.
    pub(crate) fn refused<T>(
        &self,
        index: u16,
        refusal: Refusal,
    ) -> Result<Pending<Result<T, Refusal>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let shard = self.lock(index);
        Ok(self.pending(index, &shard, Err(refusal)))
    }

    /// A reservation as the outside knows it.
    pub(crate) fn view(&self, index: u16, shard: &Shard, it: Reservation) -> ReservationView {
        let activity = shard.activity(it.activity);
        let order_seq = activity.and_then(|activity| activity.order_seq(it.id));
        let status = PublicStatus::of(it.status, order_seq, self.inner.ordered.seq(index));
        let order_no = match activity {
            Some(activity) => self.order_no(activity, it.id),
            None => self.inner.owner.order_prefix.number(it.id),
        };
        let refund = activity.and_then(|activity| activity.refund(it.id));
        let refund = refund.map(|(_, refund)| refund.status);
        ReservationView { reservation: it, order_no, status, refund }
    }

    /// The order number of a reservation: the one that it was adopted with, else that of its id.
    pub(crate) fn order_no(&self, activity: &Activity, id: ReservationId) -> OrderNo {
        match activity.adopted_reservation(id) {
            Some(adopted) if !adopted.order_no.is_empty() => OrderNo::from(&*adopted.order_no),
            _ => self.inner.owner.order_prefix.number(id),
        }
    }

    /// The activity whose reservation `id` is.
    pub fn activity_of(&self, id: ReservationId) -> Option<ActivityId> {
        self.inner.directory.read().activity_of(id)
    }

    /// A reservation. Waits where its state is newer than the durable mark.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn reservation(&self, id: ReservationId) -> Result<Pending<Option<ReservationView>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let activity = self.activity_of(id);
        let index = activity.map_or(0, |activity| self.shard_index(activity));
        let shard = self.lock(index);
        let found = activity.and_then(|activity| shard.reservation(activity, id));
        let view = found.map(|reservation| self.view(index, &shard, reservation));
        Ok(self.pending(index, &shard, view))
    }

    /// The reservations that `user` has in memory, shard by shard, each waiting where its state is
    /// newer than the durable mark. Asks every activity: for when SQL, which has an index, is away.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn reservations_of(
        &self,
        user: UserId,
    ) -> Result<Vec<Pending<Vec<ReservationView>>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let mut found = Vec::new();
        for index in 0..self.inner.log.format().shard_count {
            let shard = self.lock(index);
            let activities = shard.activities();
            let ids = activities.flat_map(|(id, activity)| {
                activity.reservations_of(user).into_iter().map(move |it| (id, it))
            });
            let own = ids.filter_map(|(id, reservation)| shard.reservation(id, reservation));
            let views: Vec<_> = own.map(|it| self.view(index, &shard, it)).collect();
            if !views.is_empty() {
                found.push(self.pending(index, &shard, views));
            }
        }
        Ok(found)
    }

    /// An activity, as its newest durable record left it; never waits.
    pub fn activity(&self, id: ActivityId) -> Option<ActivityView> {
        let index = self.shard_index(id);
        let durable_seq = self.inner.log.durable_seq(index);
        let shard = self.inner.shards[usize::from(index)].lock();
        let activity = shard.activity(id)?;
        let (view, terms) = activity.published(durable_seq)?;
        Some(ActivityView::of(id, activity, view, terms))
    }

    /// All activities by id, each as its newest durable record left it; never waits.
    pub fn activities(&self) -> Vec<ActivityView> {
        let mut views = Vec::new();
        for (index, shard) in (0..).zip(&self.inner.shards) {
            let durable_seq = self.inner.log.durable_seq(index);
            let shard = shard.lock();
            views.extend(shard.activities().filter_map(|(id, activity)| {
                let (view, terms) = activity.published(durable_seq)?;
                Some(ActivityView::of(id, activity, view, terms))
            }));
        }
        views.sort_by_key(|view| view.id);
        views
    }

    /// Units that `user` holds of `activity`; 0 where either is unknown. Waits where its shard's
    /// state is newer than the durable mark.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn held(&self, activity: ActivityId, user: UserId) -> Result<Pending<u32>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let index = self.shard_index(activity);
        let shard = self.lock(index);
        let held = shard.activity(activity).map_or(0, |activity| activity.held(user));
        Ok(self.pending(index, &shard, held))
    }

    /// Lets time-outs run, from now: the server is ready. Saying it again changes nothing.
    pub fn serving(&self) {
        let (now_ms, serving) = (self.inner.clock.now_ms(), &self.inner.serving_since_ms);
        let _ = serving.compare_exchange(u64::MAX, now_ms, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the log has failed: the process is about to end, and nothing may be answered.
    pub fn is_poisoned(&self) -> bool {
        self.inner.log.is_poisoned()
    }

    /// Engine time, Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.inner.clock.now_ms()
    }

    /// The site's prefix of order numbers.
    pub fn order_prefix(&self) -> OrderPrefix {
        self.inner.owner.order_prefix
    }

    /// The key under which request ids are hashed.
    pub fn request_hash_key(&self) -> [u8; 16] {
        self.inner.owner.request_hash_key
    }

    /// Which log this is, in which incarnation.
    pub fn identity(&self) -> LogIdentity {
        self.inner.log.identity()
    }

    /// A reader of the durable log.
    pub fn reader(&self) -> wal::Reader {
        self.inner.log.reader()
    }

    /// The last durable record.
    pub fn durable_lsn(&self) -> Lsn {
        self.inner.log.durable_lsn()
    }

    /// Makes what was decided durable now, as far as one frame holds it: for an engine without
    /// threads, and for an event loop that would rather commit than wait.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log has failed.
    pub fn commit(&self) -> Result<wal::Committed, LogUnavailable> {
        self.inner.log.commit()
    }

    /// Makes a segment ahead if one is missing: as [`Engine::commit`], for an engine without
    /// threads.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log has failed.
    pub fn make_spare(&self) -> Result<wal::SpareMade, LogUnavailable> {
        self.inner.log.make_spare()
    }

    /// The digest of all state: equal states, however they came about, have equal digests.
    pub fn digest(&self) -> u128 {
        let control = self.inner.control.lock().digest();
        let shards = self.inner.shards.iter().zip(1u32..);
        shards.fold(control, |sum, (shard, index)| {
            sum.wrapping_add(digest(&shard.lock()).rotate_left(index % 128))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::{Actor, Body, DeadLetterResolution, Figures, Front, RestoreReason};
    use crate::core::ids::{Ordinal, Position};

    fn record_bytes(body: Body<'_>) -> usize {
        let mut bytes = Vec::new();
        codec::encode(&Event { at_ms: 1, body }, &mut bytes);
        wal::record_bytes(RECORD_HEADER_BYTES + bytes.len())
    }

    #[test]
    fn the_longest_purchase_and_the_timers_give_back_fit_their_rooms() {
        let request_id = "x".repeat(REQUEST_ID_BYTES_MAX);
        let (quantity, held, version) = (1, 1, 1);
        let figures = Figures::default();
        let number = (ActivityId::new(1), UserId::new(1), Ordinal::new(1), Position::new(1));
        let (Some(activity), Some(user), Some(ordinal), Some(position)) = number else {
            unreachable!("1 is a number of each sort");
        };
        let reservation = ReservationId::compose(ordinal, position);
        let reserved = Body::Reserved {
            activity,
            front: Front::Http,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            request_id: &request_id,
        };
        let restored = Body::Restored {
            activity,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            reason: RestoreReason::Timeout,
            actor: Actor::NONE,
        };
        assert!(record_bytes(reserved) <= PURCHASE_ROOM);
        let resolution = DeadLetterResolution::RolledBack;
        let actor = Actor::NONE;
        let closed = Body::DeadLetterResolved { activity, reservation, resolution, actor };
        assert!(record_bytes(restored) + record_bytes(closed) <= RESTORE_ROOM);
    }
}
