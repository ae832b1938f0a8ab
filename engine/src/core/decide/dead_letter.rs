//! Dead letters: what becomes of a reservation that no order could hold.
//!
//! | reservation        | a sink reports it          | retry               | roll back            |
//! |--------------------|----------------------------|---------------------|----------------------|
//! | unpaid, `rollback` | opened, given back, closed | already rolled back | repeat               |
//! | unpaid, `hold`     | opened                     | delivered again     | given back, closed   |
//! | paid               | opened, by either policy   | delivered again     | refund requested     |
//! | refunded           | opened                     | delivered again     | closed               |
//! | given back         | opened and closed          | already rolled back | repeat               |
//!
//! A paid one is closed once its refund is settled. A sink that died may report the same failure
//! again: it says which record it failed at, so that a report from before a retry opens nothing.

use super::super::command::Refusal;
use super::super::event::{
    Actor, Body, DeadLetterPolicy, DeadLetterResolution, RestoreReason, Status,
};
use super::super::ids::{ActivityId, ReservationId};
use super::super::lifecycle::Stage;
use super::super::shard::Shard;
use super::super::side::{DeadLetter, DeadLetterState};
use super::super::validate;
use super::payment::{done, find, restored};
use super::refund::{OrderRefund, of_order};
use super::{Decision, one, three, two};

/// A sink failed to make an order of a reservation, at the record `failed_seq` of its shard.
pub(super) fn report<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    failed_seq: u64,
    note: &'a str,
) -> Result<Decision<'a>, Refusal> {
    validate::note(note)?;
    let (activity, slot) = find(shard, id, reservation)?;
    match activity.dead_letter(reservation).map(|letter| letter.state) {
        Some(DeadLetterState::Open | DeadLetterState::RolledBack) => {
            return done(activity, id, reservation);
        }
        Some(DeadLetterState::Delivered { shard_seq }) if failed_seq < shard_seq => {
            return done(activity, id, reservation);
        }
        _ => {}
    }
    let opened = Body::DeadLettered { activity: id, reservation, note };
    let closed = rolled_back(id, reservation, Actor::NONE);
    let gives_back = activity.terms.dead_letter == DeadLetterPolicy::Rollback;
    Ok(match slot.status() {
        Status::Reserved if gives_back => {
            let reason = (RestoreReason::DeadLetter, Actor::NONE);
            three(opened, restored(activity, id, reservation, slot, reason), closed)
        }
        Status::RolledBack(_) => two(opened, closed),
        Status::Reserved | Status::Confirmed => one(opened),
    })
}

/// An operator wants it delivered again.
pub(super) fn retry<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    actor: Actor<'a>,
) -> Result<Decision<'a>, Refusal> {
    validate::operator(&actor)?;
    let (activity, _) = find(shard, id, reservation)?;
    match activity.dead_letter(reservation).map(|letter| letter.state) {
        None => Err(Refusal::NoDeadLetter),
        Some(DeadLetterState::RolledBack) => Err(Refusal::RolledBack),
        Some(DeadLetterState::Delivered { .. }) => done(activity, id, reservation),
        Some(DeadLetterState::Open) => {
            let resolution = DeadLetterResolution::Delivered;
            Ok(one(Body::DeadLetterResolved { activity: id, reservation, resolution, actor }))
        }
    }
}

/// An operator gives it up. `refund_no` numbers the refund of a paid one.
pub(super) fn roll_back<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    refund_no: &'a str,
    actor: Actor<'a>,
) -> Result<Decision<'a>, Refusal> {
    validate::operator(&actor)?;
    let (activity, slot) = find(shard, id, reservation)?;
    match activity.dead_letter(reservation).map(|letter| letter.state) {
        None | Some(DeadLetterState::Delivered { .. }) => return Err(Refusal::NoDeadLetter),
        Some(DeadLetterState::RolledBack) => return done(activity, id, reservation),
        Some(DeadLetterState::Open) => {}
    }
    let closed = rolled_back(id, reservation, actor);
    Ok(match Stage::of(activity, reservation, slot.status()) {
        Stage::Reserved => {
            let reason = (RestoreReason::DeadLetter, Actor::NONE);
            two(restored(activity, id, reservation, slot, reason), closed)
        }
        Stage::Paid => {
            let note = "no order could hold it";
            let (restock, free_limit) = (true, true);
            let refund = OrderRefund { refund_no, restock, free_limit, note, actor };
            return of_order(activity, id, reservation, slot, &refund);
        }
        Stage::Refunding => return done(activity, id, reservation),
        Stage::Refunded | Stage::RolledBack | Stage::Dead => one(closed),
    })
}

/// That the dead letter of a reservation is closed, where it is open: its units or its money have
/// gone back, so nothing is left to decide.
pub(super) fn closed_with<'a>(
    letter: Option<&DeadLetter>,
    id: ActivityId,
    reservation: ReservationId,
) -> Option<Body<'a>> {
    let is_open = letter.is_some_and(DeadLetter::is_open);
    is_open.then(|| rolled_back(id, reservation, Actor::NONE))
}

const fn rolled_back<'a>(
    activity: ActivityId,
    reservation: ReservationId,
    actor: Actor<'a>,
) -> Body<'a> {
    let resolution = DeadLetterResolution::RolledBack;
    Body::DeadLetterResolved { activity, reservation, resolution, actor }
}
