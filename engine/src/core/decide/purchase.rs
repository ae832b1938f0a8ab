//! The purchase: the hot path. It allocates nothing.
//!
//! [`judge`] is the one place that knows its rules. [`reserve`] asks it without changing anything,
//! as all commands do; a [`Till`](super::super::till::Till) asks it and makes it so.

use super::super::activity::Activity;
use super::super::command::{Answer, Refusal, Reserve};
use super::super::event::{Body, Event, Figures, Pool};
use super::super::ids::{ActivityId, Position, ReservationId};
use super::super::limits::RESERVATIONS_BEYOND_LIMIT_MAX;
use super::super::shard::Shard;
use super::super::user_table::Place;
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

impl Purchase<'_> {
    /// What it comes to while the global kill switch is thrown: as if its activity were paused. A
    /// request that was accepted before is known all the same.
    pub fn while_stopped(self) -> Self {
        match self {
            Self::Replayed(_) | Self::Refused(Refusal::Invalid(_) | Refusal::RequestIdReused) => {
                self
            }
            Self::Accepted(..) | Self::Refused(_) => Self::Refused(Refusal::Paused),
        }
    }
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
        Purchase::Accepted(_, first) => Outcome::Accepted { events: Events::one(first) },
        Purchase::Refused(refusal) => Outcome::Refused(refusal),
        Purchase::Replayed(id) => match shard.reservation(activity, id) {
            Some(reservation) => Outcome::Repeated(Answer::Reservation(Box::new(reservation))),
            None => Outcome::Refused(Refusal::UnknownReservation),
        },
    }
}

fn rules<'a>(
    shard: &Shard,
    id: ActivityId,
    command: &Reserve<'a>,
    at_ms: u64,
) -> Result<Purchase<'a>, Refusal> {
    bounds(command)?;
    let activity = shard.activity(id).ok_or_else(|| absent(shard.tombstone(id).is_some()))?;
    Ok(match judge(activity, command, gate(activity, at_ms))? {
        Verdict::Replayed(reservation) => Purchase::Replayed(reservation),
        Verdict::Accepted(it) => {
            Purchase::Accepted(it.reservation, it.event(activity, id, command, at_ms))
        }
    })
}

/// What a purchase must be, whatever the state.
pub(in super::super) fn bounds(command: &Reserve<'_>) -> Result<(), Refusal> {
    validate::quantity(command.quantity)?;
    validate::request_id(command.request_id)
}

/// Why nothing can be bought of an activity that is not live.
pub(in super::super) const fn absent(archived: bool) -> Refusal {
    if archived { Refusal::Ended } else { Refusal::UnknownActivity }
}

/// What the rules say of a purchase that they do not refuse.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Verdict {
    Replayed(ReservationId),
    Accepted(Accepted),
}

/// A purchase that shall be, with all that making it so needs.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Accepted {
    pub(in super::super) reservation: ReservationId,
    pub(in super::super) position: Position,
    /// The activity's units after it.
    pub(in super::super) figures: Figures,
    /// The user's units after it.
    pub(in super::super) held: u32,
    /// Where the user was looked for.
    pub(in super::super) place: Place,
}

impl Accepted {
    /// The event that says so.
    #[inline]
    pub(in super::super) fn event<'a>(
        &self,
        activity: &Activity,
        id: ActivityId,
        command: &Reserve<'a>,
        at_ms: u64,
    ) -> Event<'a> {
        let &Self { reservation, figures, held, .. } = self;
        let &Reserve { user, request_id, quantity, front, .. } = command;
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
        Event { at_ms, body }
    }
}

/// What every purchase at `at_ms` is refused for that is no repeat.
pub(in super::super) fn gate(activity: &Activity, at_ms: u64) -> Result<(), Refusal> {
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
    Ok(())
}

/// The order of checks is the contract's: the first that does not hold answers. `command` is
/// within its [`bounds`], `gate` is the activity's [`gate`](fn@gate) now.
#[inline(always)]
pub(in super::super) fn judge(
    activity: &Activity,
    command: &Reserve<'_>,
    gate: Result<(), Refusal>,
) -> Result<Verdict, Refusal> {
    let &Reserve { user, request_hash, quantity, .. } = command;
    validate::amount(activity.terms.price, quantity)?;

    // A known request is answered even while paused, after the end, or above the limit.
    let (place, known) =
        activity.users.look_up(user, request_hash, &activity.slots, activity.ordinal);
    if let Some(found) = known.found {
        let same = activity.slot(found).is_some_and(|slot| slot.quantity() == quantity);
        return if same { Ok(Verdict::Replayed(found)) } else { Err(Refusal::RequestIdReused) };
    }

    gate?;
    let terms = &activity.terms;
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
    Ok(Verdict::Accepted(Accepted { reservation, position, figures, held, place }))
}
