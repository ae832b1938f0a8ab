//! Reservations come into being: accepted here, or adopted.

use super::super::activity::Activity;
use super::super::decide::purchase::Accepted;
use super::super::event::{Body, Figures, Pool, Status};
use super::super::ids::{Ordinal, Position, ReservationId, UserId};
use super::super::limits::{RESERVATIONS_BEYOND_LIMIT_MAX, UNITS_MAX};
use super::super::reservation::Slot;
use super::super::side::Adopted;
use super::{ApplyError, Now};

/// A purchase was accepted.
pub(super) fn reserved(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    let Body::Reserved { reservation, user, quantity, held, version, figures, .. } = *body else {
        unreachable!("`change` sends nothing else here");
    };
    bought(activity, &Bought { reservation, user, quantity, held, version, figures }, now)
}

/// What a purchase's event says that its effect rests on.
pub(in super::super) struct Bought {
    pub(in super::super) reservation: ReservationId,
    pub(in super::super) user: UserId,
    pub(in super::super) quantity: u32,
    pub(in super::super) held: u32,
    pub(in super::super) version: u32,
    pub(in super::super) figures: Figures,
}

/// Holds a purchase against the state before it, and makes it so.
#[inline]
pub(in super::super) fn bought(
    activity: &mut Activity,
    it: &Bought,
    now: &Now,
) -> Result<(), ApplyError> {
    let &Bought { reservation, user, quantity, held, version, figures } = it;
    activity.check_version(now, version)?;
    let position = activity.own_position(reservation);
    let position = position
        .filter(|position| Position::after(activity.slots.len()) == Some(*position))
        .ok_or(ApplyError::Misplaced(reservation))?;
    let following = activity.figures.moved(Pool::Available, Pool::Locked, quantity);
    activity.check_figures(now, following, figures)?;
    let (place, known) =
        activity.users.look_up(user, now.request_hash, &activity.slots, activity.ordinal);
    if known.found.is_some() {
        return Err(ApplyError::RequestRepeated(reservation));
    }
    if known.held.checked_add(quantity) != Some(held) {
        let (activity, present) = (now.id, known.held);
        return Err(ApplyError::Held { activity, user, present, carried: held });
    }
    let limit = activity.terms.per_user_limit;
    let reservations_max = limit.saturating_add(RESERVATIONS_BEYOND_LIMIT_MAX);
    if held > limit || known.count >= reservations_max as usize {
        return Err(ApplyError::AboveLimit { activity: now.id, user });
    }

    let slot = Slot::new(user, quantity, now.request_hash, now.at_ms, now.shard_seq);
    accept(activity, &Accepted { reservation, position, figures, held, place }, slot);
    Ok(())
}

/// Makes a purchase so that the rules accepted of this very state: `slot` takes its position.
#[inline(always)]
pub(in super::super) fn accept(activity: &mut Activity, accepted: &Accepted, slot: Slot) {
    let &Accepted { position, figures, held, place, .. } = accepted;
    // W17: held is at most the limit in force at this acceptance.
    assert!(held <= activity.terms.per_user_limit, "W17: a user holds more than the limit");
    activity.figures = figures;
    let slots = &activity.slots;
    let slot = activity.users.accept(place, slot, held, position, slots, activity.ordinal);
    activity.slots.push(slot);
}

/// A reservation was taken over. Its units leave `available`, where its activity brought them.
pub(super) fn adopted(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    let Body::ReservationAdopted {
        reservation,
        old_id,
        order_no,
        status,
        user,
        quantity,
        created_ms,
        updated_ms,
        held,
        figures,
        payment_no,
        ..
    } = *body
    else {
        unreachable!("`change` sends nothing else here");
    };
    let foreign =
        reservation.ordinal() != activity.ordinal || reservation.ordinal() == Ordinal::ADOPTED;
    if !foreign || activity.adopted.contains_key(&reservation) {
        return Err(ApplyError::Misplaced(reservation));
    }
    if activity.find_request(user, now.request_hash).is_some() {
        return Err(ApplyError::RequestRepeated(reservation));
    }
    let (to, units) = match status {
        Status::Reserved => (Pool::Locked, quantity),
        Status::Confirmed => (Pool::Sold, quantity),
        Status::RolledBack(_) => (Pool::Locked, 0),
    };
    let following = activity.figures.moved(Pool::Available, to, units);
    activity.check_figures(now, following, figures)?;
    let more = |held: u32| held.checked_add(units).filter(|held| *held <= UNITS_MAX);
    activity.check_held(now, user, more, held)?;

    activity.figures = figures;
    let mut slot = Slot::new(user, quantity, now.request_hash, created_ms, now.shard_seq);
    slot.set_status(status, updated_ms);
    activity.users.adopt(&slot, held, reservation, &activity.slots, activity.ordinal);
    activity.adopted.insert(reservation, Adopted { slot, old_id, order_no: order_no.into() });
    if status == Status::Reserved {
        activity.adopted_unpaid.insert((created_ms, reservation));
    }
    if !payment_no.is_empty() {
        activity.payments.insert(reservation, payment_no.into());
    }
    let found = activity.find_request(user, now.request_hash);
    assert!(found == Some(reservation), "a repeat of the request of {reservation} buys anew");
    Ok(())
}
