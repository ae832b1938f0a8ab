//! What becomes of a reservation: paid, or given back.

use super::super::activity::Activity;
use super::super::command::{Answer, Refusal};
use super::super::event::{Actor, Body, Event, Figures, Pool, RestoreReason, Status};
use super::super::ids::{ActivityId, ReservationId, UserId};
use super::super::lifecycle::{Course, Stage, Step};
use super::super::reservation::Slot;
use super::super::shard::Shard;
use super::super::validate;
use super::dead_letter::closed_with;
use super::{Decision, Events, Outcome, one, with};
use crate::planted::{self, Bug};

/// Marks a reservation as paid. A pause or the end of the window stops no payment.
pub(super) fn confirm<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    payment_no: &'a str,
) -> Result<Decision<'a>, Refusal> {
    validate::payment_no(payment_no)?;
    let (activity, slot) = find(shard, id, reservation)?;
    let same_payment = activity.payment_no(reservation) == Some(payment_no);
    let stage = Stage::of(activity, reservation, slot.status());
    match stage.course(Step::Confirm { same_payment }) {
        Course::Happens => Ok(one(confirmed(activity, id, reservation, slot, payment_no))),
        Course::Repeats => done(activity, id, reservation),
        Course::Refused(refusal) => Err(refusal),
        Course::HappensIfAllowed | Course::SecondPayment | Course::Late => {
            unreachable!("only a provider's word about money leads there")
        }
    }
}

/// That locked units were sold.
pub(super) fn confirmed<'a>(
    activity: &Activity,
    id: ActivityId,
    reservation: ReservationId,
    slot: &Slot,
    payment_no: &'a str,
) -> Body<'a> {
    Body::Confirmed {
        activity: id,
        reservation,
        user: slot.user(),
        quantity: slot.quantity(),
        held: activity.held(slot.user()),
        version: activity.version,
        figures: moved(activity, slot, Pool::Sold),
        payment_no,
    }
}

/// Gives an unpaid reservation back.
pub(super) fn restore<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    owner: Option<UserId>,
    (reason, actor): (RestoreReason, Actor<'a>),
) -> Result<Decision<'a>, Refusal> {
    validate::restorer(&actor, reason)?;
    let (activity, slot) = find(shard, id, reservation)?;
    // Another user's reservation is as good as none: ids must not be a way to look around.
    if owner.is_some_and(|owner| owner != slot.user()) {
        return Err(Refusal::UnknownReservation);
    }
    match Stage::of(activity, reservation, slot.status()).course(Step::GiveBack) {
        Course::Repeats => return done(activity, id, reservation),
        Course::Refused(refusal) => return Err(refusal),
        _ => {}
    }
    let restored = restored(activity, id, reservation, slot, (reason, actor));
    Ok(with(restored, closed_with(activity.dead_letter(reservation), id, reservation)))
}

/// Gives the oldest unpaid reservation back if its time has run out.
pub(super) fn expire<'a>(
    shard: &Shard,
    id: ActivityId,
    serving_since_ms: u64,
    at_ms: u64,
) -> Outcome<'a> {
    let Some(activity) = shard.activity(id) else { return Outcome::NothingDue(None) };
    let due_ms = activity.next_due_ms(serving_since_ms);
    let overdue = due_ms.is_some_and(|due_ms| due_ms <= at_ms);
    let Some((_, reservation)) = activity.oldest_unpaid().filter(|_| overdue) else {
        return Outcome::NothingDue(due_ms);
    };
    let Some(slot) = activity.slot(reservation) else { return Outcome::NothingDue(None) };
    assert!(slot.status() == Status::Reserved, "only what is unpaid runs out of time");
    let timeout = (RestoreReason::Timeout, Actor::NONE);
    let event = |body| Event { at_ms, body };
    let first = event(restored(activity, id, reservation, slot, timeout));
    let closed = closed_with(activity.dead_letter(reservation), id, reservation);
    Outcome::Accepted { events: Events { first, others: [closed.map(event), None] } }
}

pub(super) fn find(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
) -> Result<(&Activity, &Slot), Refusal> {
    let activity = shard.activity(id).ok_or(Refusal::UnknownReservation)?;
    let slot = activity.slot(reservation).ok_or(Refusal::UnknownReservation)?;
    Ok((activity, slot))
}

pub(super) fn done<'a>(
    activity: &Activity,
    id: ActivityId,
    reservation: ReservationId,
) -> Result<Decision<'a>, Refusal> {
    let reservation = activity.reservation(id, reservation).ok_or(Refusal::UnknownReservation)?;
    Ok(Decision::Done(Answer::Reservation(Box::new(reservation))))
}

/// Units of a buyer's limit that are free once `quantity` units of his are given back.
pub(in super::super) fn freed(quantity: u32) -> u32 {
    if planted::has(Bug::LimitKeptOnRestore) { 0 } else { quantity }
}

pub(super) fn restored<'a>(
    activity: &Activity,
    id: ActivityId,
    reservation: ReservationId,
    slot: &Slot,
    (reason, actor): (RestoreReason, Actor<'a>),
) -> Body<'a> {
    let held = activity.held(slot.user()).checked_sub(freed(slot.quantity()));
    Body::Restored {
        activity: id,
        reservation,
        user: slot.user(),
        quantity: slot.quantity(),
        held: held.unwrap_or_else(|| unreachable!("W17: who reserved units holds them")),
        version: activity.version,
        figures: moved(activity, slot, Pool::Available),
        reason,
        actor,
    }
}

/// The figures once an unpaid reservation's units left `locked`.
fn moved(activity: &Activity, slot: &Slot, to: Pool) -> Figures {
    let figures = activity.figures.moved(Pool::Locked, to, slot.quantity());
    figures.unwrap_or_else(|| unreachable!("W17: what is reserved is locked"))
}
