//! The purchase: the hot path. It allocates nothing.

use super::super::command::{Answer, Refusal, Reserve};
use super::super::event::{Body, Event, Pool};
use super::super::ids::{ActivityId, Position, ReservationId};
use super::super::limits::RESERVATIONS_BEYOND_LIMIT_MAX;
use super::super::shard::Shard;
use super::super::validate;
use super::{Events, Outcome};

/// What a purchase comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purchase<'a> {
    /// It shall be: this reservation, by this event.
    Accepted(ReservationId, Event<'a>),
    /// The same request made this reservation before.
    Replayed(ReservationId),
    /// It cannot be.
    Refused(Refusal),
}

/// What comes of a purchase at `at_ms`. See [`decide`](super::decide).
///
/// `command.request_hash` must be the hash of `command.request_id` by the shard's hasher.
pub fn reserve<'a>(
    shard: &Shard,
    activity: ActivityId,
    command: &Reserve<'a>,
    at_ms: u64,
) -> Purchase<'a> {
    match rules(shard, activity, command, at_ms) {
        Ok(purchase) => purchase,
        Err(refusal) => Purchase::Refused(refusal),
    }
}

/// [`reserve`] as one of all commands.
pub(super) fn outcome<'a>(
    shard: &Shard,
    activity: ActivityId,
    command: &Reserve<'a>,
    at_ms: u64,
) -> Outcome<'a> {
    match reserve(shard, activity, command, at_ms) {
        Purchase::Accepted(_, first) => {
            Outcome::Accepted { events: Events { first, second: None } }
        }
        Purchase::Refused(refusal) => Outcome::Refused(refusal),
        Purchase::Replayed(id) => match shard.reservation(activity, id) {
            Some(reservation) => Outcome::Repeated(Answer::Reservation(Box::new(reservation))),
            None => Outcome::Refused(Refusal::UnknownReservation),
        },
    }
}

/// The order of checks is the contract's: the first that does not hold answers.
fn rules<'a>(
    shard: &Shard,
    id: ActivityId,
    command: &Reserve<'a>,
    at_ms: u64,
) -> Result<Purchase<'a>, Refusal> {
    let &Reserve { user, request_id, request_hash, quantity, front } = command;
    validate::quantity(quantity)?;
    validate::request_id(request_id)?;
    let Some(activity) = shard.activity(id) else {
        let archived = shard.tombstone(id).is_some();
        return Err(if archived { Refusal::Ended } else { Refusal::UnknownActivity });
    };
    validate::amount(activity.terms.price, quantity)?;

    // A known request is answered even while paused, after the end, or above the limit.
    let known = activity.users.look_up(user, request_hash, &activity.slots, activity.ordinal);
    if let Some(found) = known.found {
        let same = activity.slot(found).is_some_and(|slot| slot.quantity() == quantity);
        return if same { Ok(Purchase::Replayed(found)) } else { Err(Refusal::RequestIdReused) };
    }

    let (terms, flags) = (&activity.terms, activity.flags);
    if flags.paused || flags.drained {
        return Err(Refusal::Paused);
    }
    if !flags.on_sale {
        return Err(Refusal::OffSale);
    }
    if at_ms < terms.start_ms {
        return Err(Refusal::NotStarted);
    }
    if at_ms > terms.end_ms {
        return Err(Refusal::Ended);
    }
    let figures =
        activity.figures.moved(Pool::Available, Pool::Locked, quantity).ok_or(Refusal::SoldOut)?;
    let held = known
        .held
        .checked_add(quantity)
        .filter(|held| *held <= terms.per_user_limit)
        .ok_or(Refusal::LimitReached)?;
    let reservations_max = terms.per_user_limit.saturating_add(RESERVATIONS_BEYOND_LIMIT_MAX);
    if known.count >= reservations_max as usize {
        return Err(Refusal::LimitReached);
    }
    // Four thousand million reservations of one activity fill any memory before this.
    let position = Position::after(activity.slots.len()).ok_or(Refusal::LimitReached)?;

    let reservation = ReservationId::compose(activity.ordinal, position);
    let body = Body::Reserved {
        activity: id,
        front,
        reservation,
        user,
        quantity,
        held,
        version: activity.version,
        figures,
        request_id,
    };
    Ok(Purchase::Accepted(reservation, Event { at_ms, body }))
}
