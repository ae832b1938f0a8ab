//! Reservations change: paid, given back, reinstated, refunded, dead-lettered.
//!
//! | event         | status before -> after   | units                       | held               |
//! |---------------|--------------------------|-----------------------------|--------------------|
//! | Confirmed     | reserved -> confirmed    | locked -> sold              | same               |
//! | Restored      | reserved -> rolled back  | locked -> available         | less               |
//! | Reinstated    | rolled back -> confirmed | available -> sold           | more, to the limit |
//! | RefundSettled | confirmed -> confirmed   | sold -> available, if asked | less, if asked     |
//!
//! A refund that does not restock leaves its units in sold: they were sold, and are no one's.

use super::super::activity::Activity;
use super::super::event::{Body, DeadLetterResolution, Pool, RestoreReason, Status};
use super::super::ids::ReservationId;
use super::super::side::{Refund, RefundStatus};
use super::{ApplyError, Now};

/// Which way a reservation's units went.
struct Move<'a> {
    from: Pool,
    to: Pool,
    status: Status,
    payment_no: Option<&'a str>,
}

impl<'a> Move<'a> {
    fn of(body: &Body<'a>) -> Self {
        let (from, to, status, payment_no) = match *body {
            Body::Confirmed { payment_no, .. } => {
                (Pool::Locked, Pool::Sold, Status::Confirmed, Some(payment_no))
            }
            Body::Reinstated { payment_no, .. } => {
                (Pool::Available, Pool::Sold, Status::Confirmed, Some(payment_no))
            }
            Body::Restored { reason, .. } => {
                (Pool::Locked, Pool::Available, Status::RolledBack(reason), None)
            }
            _ => unreachable!("`change` sends none of the others here"),
        };
        Self { from, to, status, payment_no }
    }
}

/// A reservation's units moved with its status.
pub(super) fn moved(activity: &mut Activity, body: &Body<'_>, now: &Now) -> Result<(), ApplyError> {
    #[rustfmt::skip]
    let (
        Body::Confirmed { reservation, user, quantity, held, version, figures, .. }
        | Body::Reinstated { reservation, user, quantity, held, version, figures, .. }
        | Body::Restored { reservation, user, quantity, held, version, figures, .. }
    ) = *body else {
        unreachable!("`change` sends none of the others here");
    };
    let it = Move::of(body);
    activity.check_version(now, version)?;
    let slot = *activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
    if slot.user() != user || slot.quantity() != quantity {
        return Err(ApplyError::Mismatch(reservation));
    }
    if let Body::Restored { reason, actor, .. } = body
        && !actor.may_restore(*reason)
    {
        return Err(ApplyError::Actor(reservation));
    }
    let status = slot.status();
    let allowed = match body {
        // A dead letter that was rolled back has no order to come back to.
        Body::Reinstated { .. } => {
            matches!(status, Status::RolledBack(reason) if reason != RestoreReason::DeadLetter)
        }
        _ => status == Status::Reserved,
    };
    if !allowed {
        return Err(ApplyError::Status { reservation, status });
    }
    activity.check_figures(now, activity.figures.moved(it.from, it.to, quantity), figures)?;
    let limit = activity.terms.per_user_limit;
    let following = |held: u32| match body {
        Body::Confirmed { .. } => Some(held),
        Body::Restored { .. } => held.checked_sub(quantity),
        _ => held.checked_add(quantity).filter(|held| *held <= limit),
    };
    activity.check_held(now, user, following, held)?;

    activity.figures = figures;
    activity.users.set_held(user, held);
    if let Some(payment_no) = it.payment_no {
        activity.payments.insert(reservation, payment_no.into());
    }
    activity.adopted_unpaid.remove(&(slot.created_ms(), reservation));
    if let Some(slot) = activity.slot_mut(reservation) {
        slot.set_status(it.status, now.at_ms);
    }
    activity.advance_unpaid();
    Ok(())
}

/// A payment or a refund took a step.
pub(super) fn changed(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    match *body {
        Body::PaymentOpened { reservation, attempt, .. } => {
            let slot = activity
                .slot_mut(reservation)
                .ok_or(ApplyError::UnknownReservation(reservation))?;
            slot.set_attempts(attempt.saturating_add(1).max(slot.attempts()));
            Ok(())
        }
        // What a callback leads to is an event of its own; the log and SQL keep its text.
        Body::PaymentRecorded { .. } => Ok(()),
        Body::RefundRequested { reservation, refund_no, restock, free_limit, .. } => {
            refundable(activity, reservation)?;
            let status = RefundStatus::Requested;
            let refund = Refund { refund_no: refund_no.into(), restock, free_limit, status };
            activity.refunds.insert(reservation, refund);
            Ok(())
        }
        Body::RefundSettled { .. } => refund_settled(activity, body, now),
        Body::RefundFailed { reservation, refund_no, .. } => {
            open_refund(activity, reservation, refund_no)?;
            set_refund_status(activity, reservation, RefundStatus::Failed);
            Ok(())
        }
        _ => unreachable!("`change` sends none of the others here"),
    }
}

/// A refund is asked for a paid reservation that has none open and none settled.
fn refundable(activity: &Activity, reservation: ReservationId) -> Result<(), ApplyError> {
    let slot = activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
    if slot.status() != Status::Confirmed {
        return Err(ApplyError::Status { reservation, status: slot.status() });
    }
    match activity.refunds.get(&reservation) {
        None | Some(Refund { status: RefundStatus::Failed, .. }) => Ok(()),
        Some(_) => Err(ApplyError::Refund(reservation)),
    }
}

fn refund_settled(activity: &mut Activity, body: &Body<'_>, now: &Now) -> Result<(), ApplyError> {
    let Body::RefundSettled { reservation, user, held, version, figures, refund_no, .. } = *body
    else {
        unreachable!("`changed` sends nothing else here");
    };
    activity.check_version(now, version)?;
    let slot = *activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
    if slot.user() != user {
        return Err(ApplyError::Mismatch(reservation));
    }
    let (restock, free_limit) = open_refund(activity, reservation, refund_no)?;
    let back = |moves: bool| if moves { slot.quantity() } else { 0 };
    let following = activity.figures.moved(Pool::Sold, Pool::Available, back(restock));
    activity.check_figures(now, following, figures)?;
    activity.check_held(now, user, |held| held.checked_sub(back(free_limit)), held)?;

    activity.figures = figures;
    activity.users.set_held(user, held);
    set_refund_status(activity, reservation, RefundStatus::Settled);
    Ok(())
}

/// Whether the open refund restocks, and whether it frees the limit.
fn open_refund(
    activity: &Activity,
    reservation: ReservationId,
    refund_no: &str,
) -> Result<(bool, bool), ApplyError> {
    match activity.refunds.get(&reservation) {
        Some(refund)
            if refund.status == RefundStatus::Requested && *refund.refund_no == *refund_no =>
        {
            Ok((refund.restock, refund.free_limit))
        }
        _ => Err(ApplyError::Refund(reservation)),
    }
}

fn set_refund_status(activity: &mut Activity, reservation: ReservationId, status: RefundStatus) {
    if let Some(refund) = activity.refunds.get_mut(&reservation) {
        refund.status = status;
    }
}

/// A dead letter was opened or closed.
pub(super) fn dead_letter(activity: &mut Activity, body: &Body<'_>) -> Result<(), ApplyError> {
    let (reservation, opens) = match *body {
        Body::DeadLettered { reservation, .. } => (reservation, true),
        Body::DeadLetterResolved { reservation, resolution, .. } => {
            let slot =
                activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
            // Rolled back means that its units went back, by a `Restored` before this.
            let status = slot.status();
            if resolution == DeadLetterResolution::RolledBack && status == Status::Reserved {
                return Err(ApplyError::Status { reservation, status });
            }
            (reservation, false)
        }
        _ => unreachable!("`change` sends none of the others here"),
    };
    if activity.slot(reservation).is_none() {
        return Err(ApplyError::UnknownReservation(reservation));
    }
    let changes = if opens {
        activity.dead_letters.insert(reservation)
    } else {
        activity.dead_letters.remove(&reservation)
    };
    if changes { Ok(()) } else { Err(ApplyError::DeadLetter(reservation)) }
}
