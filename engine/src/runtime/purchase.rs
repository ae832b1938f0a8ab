//! Purchases through the engine: one at a time, or many under one lock.

use std::cell::Cell;

use wal::{AbortOnPanic, Batch, Busy, Class};

use super::engine::{Engine, PURCHASE_ROOM};
use super::pending::Pending;
use super::views::ReservationView;
use crate::core::codec;
use crate::core::command::{Refusal, Reserve};
use crate::core::decide::{self, reserve};
use crate::core::event::Front;
use crate::core::ids::{ActivityId, ReservationId, UserId};
use crate::core::request::RequestHasher;
use crate::core::shard::Shard;
use crate::core::till::{Sold, Till};
use crate::core::validate;
use crate::planted::Bug;

/// A purchase that was accepted, now or before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purchase {
    /// Whether the same request had made it before.
    pub replayed: bool,
    /// The reservation.
    pub reservation: ReservationView,
}

/// A purchase that was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Units the activity has left.
    pub remaining: u32,
}

/// One purchase of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchRequest<'a> {
    /// The buyer.
    pub user: UserId,
    /// The client's id for this purchase, 1..=64 bytes.
    pub request_id: &'a str,
    /// Units wanted.
    pub quantity: u32,
}

/// What came of one purchase of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchAnswer {
    /// It was accepted.
    Reserved(ReservationId),
    /// The same request had been accepted before.
    Replayed(ReservationId),
    /// It was not accepted.
    Refused(Refusal),
}

/// What came of one purchase of a batch, with what was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountedAnswer {
    /// What came of it.
    pub answer: BatchAnswer,
    /// Units the activity had left behind it.
    pub remaining: u32,
}

/// Users of a batch that are fetched from memory together: more than the processor reads at once,
/// few enough to stay in its fastest memory until their turn.
const FETCHED: usize = 128;

impl Engine {
    /// Buys. The same `request_id` of the same user is the same purchase.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn reserve(
        &self,
        activity: ActivityId,
        user: UserId,
        request_id: &str,
        quantity: u32,
        front: Front,
    ) -> Result<Pending<Result<Purchase, Refused>>, Busy> {
        let request_hash = self.inner.requests.hash(request_id);
        let command = Reserve { user, request_id, request_hash, quantity, front };
        let index = self.shard_index(activity);
        let mut shard = self.lock(index);
        let room = self.begin(index, PURCHASE_ROOM, Class::New);
        let at_ms = self.decision_ms();
        let stopped = self.is_stopped();
        let purchase = match room {
            Err(Busy::LogUnavailable) => return Err(Busy::LogUnavailable),
            Ok(mut batch) if !stopped => {
                let guard = AbortOnPanic;
                let mut till = shard.till(activity, at_ms);
                self.supply(&mut till);
                let answer = buy(&guard, &mut till, &mut batch, &command);
                drop(till);
                guard.over();
                answer
            }
            // Too much in flight stops new purchases alone, as the kill switch does: the others
            // need no room.
            _ => look(&shard, activity, &command, at_ms, stopped).ok_or(Busy::Overloaded)?,
        };
        let told = match purchase {
            BatchAnswer::Reserved(id) => self.told(index, &shard, activity, id, false),
            BatchAnswer::Replayed(id) => self.told(index, &shard, activity, id, true),
            BatchAnswer::Refused(refusal) => Err(refused(&shard, activity, refusal)),
        };
        let is_refused = told.is_err();
        let pending = self.pending(index, &shard, told);
        Ok(if is_refused { pending.held_unless(Bug::RefusedBeforeDurable) } else { pending })
    }

    /// Whether no purchase of `quantity` units of `activity` can be: its price is beyond what an
    /// amount may be. Of an activity that is not live nothing is known.
    pub fn is_beyond_amounts(&self, activity: ActivityId, quantity: u32) -> bool {
        let shard = self.lock(self.shard_index(activity));
        let price = shard.activity(activity).map(|it| it.terms().price);
        price.is_some_and(|price| validate::amount(price, quantity).is_err())
    }

    /// The purchase that `request_id` made, if it made one: what a server asks before it asks its
    /// limits.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn find_request(
        &self,
        activity: ActivityId,
        user: UserId,
        request_id: &str,
        quantity: u32,
    ) -> Result<Option<Pending<Result<Purchase, Refused>>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let request_hash = self.inner.requests.hash(request_id);
        let index = self.shard_index(activity);
        let shard = self.lock(index);
        let Some(it) = shard.activity(activity) else { return Ok(None) };
        let Some(found) = it.find_request(user, request_hash) else { return Ok(None) };
        let same = it.slot(found).is_some_and(|slot| slot.quantity() == quantity);
        let told = match same {
            true => self.told(index, &shard, activity, found, true),
            false => Err(refused(&shard, activity, Refusal::RequestIdReused)),
        };
        Ok(Some(self.pending(index, &shard, told)))
    }

    /// Buys many times over, in order, under one lock and with one hold of the log. All answers
    /// become known together.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided. A batch whose events exceed what may be in flight is always
    /// refused; a thousand purchases are well below.
    pub fn reserve_batch(
        &self,
        activity: ActivityId,
        requests: &[BatchRequest<'_>],
        front: Front,
    ) -> Result<Pending<Vec<BatchAnswer>>, Busy> {
        self.reserve_batch_into(activity, requests, front, Vec::new())
    }

    /// [`Engine::reserve_batch`], whose answers come in `answers`, which is emptied first: for who
    /// calls again and again, and hands back what came before.
    ///
    /// # Errors
    /// As there; `answers` is gone then.
    pub fn reserve_batch_into(
        &self,
        activity: ActivityId,
        requests: &[BatchRequest<'_>],
        front: Front,
        answers: Vec<BatchAnswer>,
    ) -> Result<Pending<Vec<BatchAnswer>>, Busy> {
        self.batch(activity, requests, front, answers, |answer, _| answer)
    }

    /// [`Engine::reserve_batch`], whose answers tell what was left behind each purchase.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_batch_counted(
        &self,
        activity: ActivityId,
        requests: &[BatchRequest<'_>],
        front: Front,
    ) -> Result<Pending<Vec<CountedAnswer>>, Busy> {
        self.batch(activity, requests, front, Vec::new(), |answer, till| {
            let remaining = till.available();
            CountedAnswer { answer, remaining }
        })
    }

    #[inline]
    fn batch<T>(
        &self,
        activity: ActivityId,
        requests: &[BatchRequest<'_>],
        front: Front,
        answers: Vec<T>,
        tell: impl Fn(BatchAnswer, &Till<'_>) -> T,
    ) -> Result<Pending<Vec<T>>, Busy> {
        // Before the lock is taken: it is a good part of the work.
        let texts = requests.iter().map(|request| request.request_id);
        with_hashes(&self.inner.requests, texts, |hashes| {
            self.batch_hashed(activity, requests, hashes, front, answers, tell)
        })
    }

    #[inline(always)]
    fn batch_hashed<T>(
        &self,
        activity: ActivityId,
        requests: &[BatchRequest<'_>],
        hashes: &[u128],
        front: Front,
        mut answers: Vec<T>,
        tell: impl Fn(BatchAnswer, &Till<'_>) -> T,
    ) -> Result<Pending<Vec<T>>, Busy> {
        answers.clear();
        answers.reserve(requests.len());
        let index = self.shard_index(activity);
        let mut shard = self.lock(index);
        let room = requests.len() * PURCHASE_ROOM;
        let mut batch = self.begin(index, room, Class::New)?;
        let at_ms = self.decision_ms();
        if self.is_stopped() {
            let commands = requests.iter().zip(hashes).map(|(request, &request_hash)| {
                let &BatchRequest { user, request_id, quantity } = request;
                Reserve { user, request_id, request_hash, quantity, front }
            });
            let looked: Vec<BatchAnswer> =
                commands.filter_map(|it| look(&shard, activity, &it, at_ms, true)).collect();
            let till = shard.till(activity, at_ms);
            answers.extend(looked.into_iter().map(|answer| tell(answer, &till)));
            drop(till);
            return Ok(self.pending(index, &shard, answers));
        }
        let guard = AbortOnPanic;
        let mut till = shard.till(activity, at_ms);
        for (requests, hashes) in requests.chunks(FETCHED).zip(hashes.chunks(FETCHED)) {
            self.supply(&mut till);
            till.fetch(requests.iter().map(|request| request.user));
            for (request, request_hash) in requests.iter().zip(hashes.iter().copied()) {
                let &BatchRequest { user, request_id, quantity } = request;
                let command = Reserve { user, request_id, request_hash, quantity, front };
                let answer = buy(&guard, &mut till, &mut batch, &command);
                answers.push(tell(answer, &till));
            }
        }
        drop(till);
        guard.over();
        drop(batch);
        Ok(self.pending(index, &shard, answers))
    }

    /// Gives an activity that grows by very much memory that was made ahead.
    #[inline]
    fn supply(&self, till: &mut Till<'_>) {
        if till.is_short()
            && let Some(supplies) = &mut *self.inner.supplies.lock()
        {
            till.stock_up(supplies);
        }
    }

    fn told(
        &self,
        index: u16,
        shard: &Shard,
        activity: ActivityId,
        id: ReservationId,
        replayed: bool,
    ) -> Result<Purchase, Refused> {
        match shard.reservation(activity, id) {
            Some(it) => Ok(Purchase { replayed, reservation: self.view(index, shard, it) }),
            None => Err(refused(shard, activity, Refusal::UnknownReservation)),
        }
    }
}

thread_local! {
    /// Room for a batch's hashes, kept from one batch to the next.
    static HASHES: Cell<Vec<u128>> = const { Cell::new(Vec::new()) };
}

/// Hashes that a thread keeps room for: a quarter of a megabyte.
const HASHES_KEPT_MAX: usize = 1 << 14;

/// Does something with the hashes of `request_ids`.
#[inline(always)]
fn with_hashes<'a, T>(
    hasher: &RequestHasher,
    request_ids: impl Iterator<Item = &'a str>,
    act: impl FnOnce(&[u128]) -> T,
) -> T {
    let mut hashes = HASHES.take();
    hashes.clear();
    hashes.extend(request_ids.map(|request_id| hasher.hash(request_id)));
    let done = act(&hashes);
    if hashes.capacity() <= HASHES_KEPT_MAX {
        HASHES.set(hashes);
    }
    done
}

/// Decides a purchase; makes an accepted one so and appends its event, in one piece. The caller
/// holds a guard that ends the process on a panic.
#[inline]
fn buy(
    _guard: &AbortOnPanic,
    till: &mut Till<'_>,
    batch: &mut Batch<'_>,
    command: &Reserve<'_>,
) -> BatchAnswer {
    let sold = till.sell(command, |purchase| {
        batch.command(PURCHASE_ROOM);
        batch.append_parts(codec::PURCHASE_KIND, &purchase.head(), purchase.request_id)
    });
    match sold {
        Ok(Sold::Now(id)) => BatchAnswer::Reserved(id),
        Ok(Sold::Before(id)) => BatchAnswer::Replayed(id),
        Err(refusal) => BatchAnswer::Refused(refusal),
    }
}

/// What a purchase comes to that cannot be made now; `None` where it would be made. While the kill
/// switch is thrown none is.
fn look(
    shard: &Shard,
    activity: ActivityId,
    command: &Reserve<'_>,
    at_ms: u64,
    stopped: bool,
) -> Option<BatchAnswer> {
    let purchase = reserve(shard, activity, command, at_ms);
    match if stopped { purchase.while_stopped() } else { purchase } {
        decide::Purchase::Accepted(..) => None,
        decide::Purchase::Replayed(id) => Some(BatchAnswer::Replayed(id)),
        decide::Purchase::Refused(refusal) => Some(BatchAnswer::Refused(refusal)),
    }
}

fn refused(shard: &Shard, activity: ActivityId, refusal: Refusal) -> Refused {
    let remaining = shard.activity(activity).map_or(0, |it| it.figures().available);
    Refused { refusal, remaining }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use wal::device::sim::{Image, SimDevice};

    use super::*;
    use crate::EngineOptions;
    use crate::core::event::{Actor, DeadLetterPolicy, Definition, LatePayment};
    use crate::core::ids::SkuId;
    use crate::core::limits::TIME_MS_MAX;
    use crate::core::user_table::LOOKS;

    const DEFINITION: Definition<'static> = Definition {
        sku: SkuId::new(1).unwrap(),
        title: "phone",
        price: 100,
        per_user_limit: 2,
        start_ms: 1,
        end_ms: TIME_MS_MAX,
        payment_ttl_ms: 60_000,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: 0,
    };

    fn on_sale() -> (Engine, ActivityId) {
        let device = SimDevice::new(Image::empty(1));
        let mut options = EngineOptions::new("sim");
        options.threads = false;
        let (engine, _) = Engine::open_on(Arc::new(device), options).unwrap();
        let actor = Actor { name: "admin", request_id: "r" };
        let created = engine.create(None, actor, 1_000, DEFINITION).unwrap().wait();
        let id = created.unwrap().unwrap().id;
        engine.publish(id, actor).unwrap().wait().unwrap().unwrap();
        (engine, id)
    }

    #[test]
    fn a_purchase_looks_its_user_up_once_whatever_it_comes_to() {
        let (engine, id) = on_sale();
        let user = |number| UserId::new(number).unwrap();
        // The first user makes the table; the others here find room in it.
        drop(engine.reserve(id, user(1), "first", 1, Front::Api).unwrap());
        let looks = |act: &dyn Fn()| {
            let before = LOOKS.get();
            act();
            LOOKS.get() - before
        };
        let buy = |number, request_id, quantity| {
            drop(engine.reserve(id, user(number), request_id, quantity, Front::Api).unwrap());
        };
        assert_eq!(looks(&|| buy(2, "accepted", 1)), 1);
        assert_eq!(looks(&|| buy(2, "accepted once more", 1)), 1);
        assert_eq!(looks(&|| buy(2, "accepted", 1)), 1, "repeated");
        assert_eq!(looks(&|| buy(2, "above the limit", 1)), 1);
        assert_eq!(looks(&|| buy(3, "more than there is", 1_000)), 1);
        let request = |number| BatchRequest { user: user(number), request_id: "b", quantity: 1 };
        let batch = [2, 3, 4, 3].map(request);
        let all = || drop(engine.reserve_batch(id, &batch, Front::Api).unwrap());
        assert_eq!(looks(&all), 4, "accepted, repeated and refused");
    }
}
