//! What is taken over from elsewhere: an older system's reservations, or SQL's once the log is
//! lost. Each is taken over once, however often it is brought: the directory knows the numbers and
//! order numbers that reservations came with.

use wal::{AbortOnPanic, Batch, Busy, Class};

use super::directory::Directory;
use super::engine::{COMMAND_ROOM, Engine, record};
use super::pending::Pending;
use crate::core::apply::{ApplyError, apply};
use crate::core::codec::{self, CodecError};
use crate::core::command::Refusal;
use crate::core::decide::{
    AdoptActivity, AdoptReservation, Adoption, adopt_activity, adopt_reservation,
};
use crate::core::event::{Body, Event};
use crate::core::ids::{ActivityId, Ordinal, ReservationId};
use crate::core::shard::Shard;

/// What a reservation is called where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OldId {
    /// An id that Sluice gave, in a log that is lost: kept.
    Sluice(ReservationId),
    /// A number of an older system. Kept below 2^32; above, where ids are Sluice's own, a new id is
    /// given, from 2^32 - 1 downwards, and the number stands beside it.
    Older(u64),
    /// None: known by its order number alone. A new id is given, as above.
    None,
}

/// What came of an adoption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adopted<Id> {
    /// Its id here.
    pub id: Id,
    /// It was here already, and nothing changed.
    pub known: bool,
}

/// Why something that is said of a reservation was not taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FactError {
    /// It would move a reservation's units, or is none of this activity's.
    #[error("only what moves no reservation's units is taken over as a fact")]
    Kind,
    /// A field is outside its bounds.
    #[error(transparent)]
    Bounds(#[from] CodecError),
    /// It can't have happened to what was taken over before.
    #[error(transparent)]
    Unfit(#[from] ApplyError),
}

type Answered<Id> = Result<Pending<Result<Adopted<Id>, Refusal>>, Busy>;

impl Engine {
    /// Takes an activity over, with `ordinal` where that is given and free, else with the next.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn adopt_activity(
        &self,
        id: ActivityId,
        ordinal: Option<Ordinal>,
        activity: &AdoptActivity<'_>,
    ) -> Answered<ActivityId> {
        // Held over the decision: an ordinal is given once, and none is burned by a refusal.
        let mut directory = self.inner.directory.write();
        let free = ordinal.filter(|it| directory.of_ordinal(*it).is_none());
        let Some(ordinal) = free.or_else(|| directory.next_ordinal()) else {
            return self.refused(0, Refusal::OrdinalsExhausted);
        };
        let index = self.shard_index(id);
        let mut shard = self.lock(index);
        let mut batch = self.begin(index, COMMAND_ROOM, Class::Reserved)?;
        let told = match adopt_activity(&shard, id, ordinal, activity) {
            Err(refusal) => Err(refusal),
            Ok(Adoption::Known) => Ok(Adopted { id, known: true }),
            Ok(Adoption::New(body)) => {
                let event = Event { at_ms: self.decision_ms(), body };
                record(&mut shard, &mut batch, COMMAND_ROOM, std::iter::once(&event), 0);
                assert!(directory.insert(ordinal, id), "ordinal {} is given twice", ordinal.get());
                let for_sale = shard.for_sale(id, self.inner.clock.now_ms());
                self.inner.provisions.expect(id, for_sale);
                Ok(Adopted { id, known: false })
            }
        };
        Ok(self.pending(index, &shard, told))
    }

    /// Takes a reservation of `activity` over, with its units.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn adopt_reservation(
        &self,
        activity: ActivityId,
        old_id: OldId,
        reservation: &AdoptReservation<'_>,
    ) -> Answered<ReservationId> {
        // Held over the decision: what was brought once is not taken twice.
        let mut directory = self.inner.directory.write();
        let index = self.shard_index(activity);
        let id = match self.adopted_as(&directory, activity, old_id, reservation.order_no) {
            Ok(id) => id,
            Err(refusal) => return self.refused(index, refusal),
        };
        let mut shard = self.lock(index);
        let mut batch = self.begin(index, COMMAND_ROOM, Class::Reserved)?;
        let told = match adopt_reservation(&shard, activity, id, reservation) {
            Err(refusal) => Err(refusal),
            Ok(Adoption::Known) => Ok(Adopted { id, known: true }),
            Ok(Adoption::New(body)) => {
                let event = Event { at_ms: self.decision_ms(), body };
                record(&mut shard, &mut batch, COMMAND_ROOM, std::iter::once(&event), 0);
                let brought = (reservation.old_id, reservation.order_no);
                let leads_to = directory.adopt(id, activity, brought);
                assert!(leads_to == activity, "{id} of {activity} leads to {leads_to}");
                Ok(Adopted { id, known: false })
            }
        };
        Ok(self.pending(index, &shard, told))
    }

    /// The reservation that was adopted with the number `old_id` of an older system.
    pub fn adopted_as_number(&self, old_id: u64) -> Option<ReservationId> {
        self.inner.directory.read().adopted_old(old_id)
    }

    /// The id under which a reservation is adopted, or was.
    fn adopted_as(
        &self,
        directory: &Directory,
        activity: ActivityId,
        old_id: OldId,
        order_no: &str,
    ) -> Result<ReservationId, Refusal> {
        let older = match old_id {
            OldId::Sluice(id) => {
                let is_its = directory.of_ordinal(id.ordinal()).is_none_or(|it| it == activity);
                let refused = Refusal::Invalid("the id is one that another activity gives");
                return if is_its { Ok(id) } else { Err(refused) };
            }
            OldId::Older(0) | OldId::None => 0,
            OldId::Older(older) => older,
        };
        if older == 0 && order_no.is_empty() {
            return Err(Refusal::Invalid("a reservation has a number or an order number"));
        }
        let by_number = (older != 0).then(|| directory.adopted_old(older)).flatten();
        let by_order = directory.adopted_order(order_no);
        if let Some(known) = by_number.or(by_order) {
            // Else it would be taken over again, under an id that is taken.
            let is_its = directory.activity_of(known) == Some(activity);
            let is_same = by_number.is_some() || older == 0 || !directory.has_old(known);
            let refused = Refusal::Invalid("the number or order number is another reservation's");
            return if is_its && is_same { Ok(known) } else { Err(refused) };
        }
        if self.order_prefix().reservation_id(order_no).is_some() {
            return Err(Refusal::Invalid("the order number is one that this site gives itself"));
        }
        directory.adopted_id(older).ok_or(Refusal::OrdinalsExhausted)
    }

    /// The order number that a reservation brought along, where its id does not tell it. It never
    /// changes: nothing is waited for.
    pub fn brought_order_no(&self, id: ReservationId) -> Option<String> {
        let activity = {
            let directory = self.inner.directory.read();
            let may_have_one = directory.has_adopted_orders();
            may_have_one.then(|| directory.activity_of(id)).flatten()?
        };
        let shard = self.lock(self.shard_index(activity));
        let adopted = shard.activity(activity)?.adopted_reservation(id)?;
        Some(&*adopted.order_no).filter(|brought| !brought.is_empty()).map(str::to_owned)
    }

    /// Takes over what else is known of an adopted activity or reservation: that a payment was
    /// opened, a callback received, a refund asked for, that no order could hold it; in none of
    /// these anything moves. And that units were restocked or decreased: so their keys stay used.
    /// The event's time is its own.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn adopt_fact(
        &self,
        activity: ActivityId,
        event: &Event<'_>,
    ) -> Result<Pending<Result<(), FactError>>, Busy> {
        let index = self.shard_index(activity);
        let mut shard = self.lock(index);
        let mut batch = self.begin(index, COMMAND_ROOM, Class::Reserved)?;
        let told = take_fact(activity, &mut shard, &mut batch, event);
        Ok(self.pending(index, &shard, told))
    }

    /// Takes over that an activity was archived: SQL answers for it.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn adopt_archived(&self, id: ActivityId) -> Result<Pending<bool>, Busy> {
        let index = self.shard_index(id);
        let mut shard = self.lock(index);
        let mut batch = self.begin(index, COMMAND_ROOM, Class::Reserved)?;
        let settled = shard.activity(id).is_some_and(|it| it.is_settled());
        if settled {
            let event = Event { at_ms: self.decision_ms(), body: Body::Archived { activity: id } };
            record(&mut shard, &mut batch, COMMAND_ROOM, std::iter::once(&event), 0);
            assert!(shard.tombstone(id).is_some(), "activity {id} left nothing behind");
        }
        Ok(self.pending(index, &shard, settled))
    }
}

/// Makes a fact so and appends it. `apply` is the judge: where it refuses, nothing has changed.
fn take_fact(
    activity: ActivityId,
    shard: &mut Shard,
    batch: &mut Batch<'_>,
    event: &Event<'_>,
) -> Result<(), FactError> {
    let is_fact = matches!(
        event.body,
        // These move free units alone, from figures that they must follow from.
        Body::Restocked { .. }
            | Body::Decreased { .. }
            | Body::PaymentOpened { .. }
            | Body::PaymentRecorded { .. }
            | Body::RefundRequested { .. }
            | Body::RefundFailed { .. }
            | Body::DeadLettered { .. }
            | Body::DeadLetterResolved { .. }
            | Body::Paused { .. }
            | Body::Drained { .. }
    );
    if !is_fact || codec::activity(&event.body) != Some(activity) {
        return Err(FactError::Kind);
    }
    codec::check(event)?;
    let expected = shard.applied_seq() + 1;
    apply(shard, event, expected)?;
    let _guard = AbortOnPanic;
    batch.command(COMMAND_ROOM);
    let kind = (codec::kind(&event.body), codec::FORMAT_VERSION);
    let seq = batch.append(kind, |out| codec::encode(event, out));
    assert_eq!(seq, expected, "log order is apply order");
    Ok(())
}
