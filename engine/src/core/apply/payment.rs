//! Reservations change: paid, given back, reinstated.
//!
//! | event         | status before -> after   | units                       | held               |
//! |---------------|--------------------------|-----------------------------|--------------------|
//! | Confirmed     | reserved -> confirmed    | locked -> sold              | same               |
//! | Restored      | reserved -> rolled back  | locked -> available         | less               |
//! | Reinstated    | rolled back -> confirmed | available -> sold           | more, to the limit |
//! | RefundSettled | confirmed -> confirmed   | sold -> available, if asked | less, if asked     |
//!
//! A refund that does not restock leaves its units in sold: they were sold, and are no one's. See
//! [`refund`](super::refund).

use super::super::activity::Activity;
use super::super::decide::payment::freed;
use super::super::event::{Body, PaymentVerdict, Pool, RestoreReason, Status};
use super::super::ids::{ReservationId, attempt_of};
use super::super::side::{DeadLetterState, Payment, PaymentStatus};
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
        // A dead letter has no order to come back to.
        Body::Reinstated { .. } => may_be_reinstated(activity, reservation, status),
        _ => status == Status::Reserved,
    };
    if !allowed {
        return Err(ApplyError::Status { reservation, status });
    }
    activity.check_figures(now, activity.figures.moved(it.from, it.to, quantity), figures)?;
    let limit = activity.terms.per_user_limit;
    let following = |held: u32| match body {
        Body::Confirmed { .. } => Some(held),
        Body::Restored { .. } => held.checked_sub(freed(quantity)),
        _ => held.checked_add(quantity).filter(|held| *held <= limit),
    };
    activity.check_held(now, user, following, held)?;
    let timer = (slot.created_ms(), reservation);
    let waits = activity.adopted_unpaid.contains(&timer);
    let is_adopted = activity.own_position(reservation).is_none();
    if waits != (is_adopted && status == Status::Reserved) {
        return Err(ApplyError::Timer(reservation));
    }

    activity.figures = figures;
    activity.users.set_held(user, held);
    if let Some(payment_no) = it.payment_no {
        activity.payments.insert(reservation, payment_no.into());
    }
    if waits {
        activity.adopted_unpaid.remove(&timer);
    }
    if let Some(slot) = activity.slot_mut(reservation) {
        slot.set_status(it.status, now.at_ms);
    }
    activity.advance_unpaid();
    activity.assert_moved(reservation, it.status);
    Ok(())
}

/// Whether late money may bring a reservation back, as far as its own life goes.
pub(in super::super) fn may_be_reinstated(
    activity: &Activity,
    reservation: ReservationId,
    status: Status,
) -> bool {
    let delivered = |state| matches!(state, DeadLetterState::Delivered { .. });
    let letter = activity.dead_letter(reservation);
    matches!(status, Status::RolledBack(reason) if reason != RestoreReason::DeadLetter)
        && letter.is_none_or(|letter| delivered(letter.state))
}

/// A payment was opened, or a callback received.
pub(super) fn changed(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    match *body {
        Body::PaymentOpened { reservation, attempt, channel, amount, expires_ms, .. } => {
            let last = activity.openings.get(&reservation).and_then(|it| it.last());
            let last = last.map_or(0, |it| it.attempt);
            let slot = activity
                .slot_mut(reservation)
                .ok_or(ApplyError::UnknownReservation(reservation))?;
            if attempt <= slot.attempts().max(last) {
                return Err(ApplyError::Attempt { reservation, attempt });
            }
            slot.set_attempts(attempt);
            let (status, transaction) = (PaymentStatus::Pending, Box::default());
            let channel = channel.into();
            let payment = Payment { attempt, channel, amount, expires_ms, status, transaction };
            activity.openings.entry(reservation).or_default().push(payment);
            Ok(())
        }
        Body::PaymentRecorded { reservation, payment_no, transaction, verdict, .. } => {
            let nobody = ApplyError::PaymentOfNobody(now.id);
            let reservation = reservation.ok_or(nobody)?;
            if activity.slot(reservation).is_none() {
                return Err(ApplyError::UnknownReservation(reservation));
            }
            // A failure is no receipt: the same transaction may yet be paid.
            if verdict != PaymentVerdict::Failed {
                let known = activity.receipts.contains_key(&now.request_hash);
                if known != (verdict == PaymentVerdict::Repeated) {
                    return Err(ApplyError::Receipt(reservation));
                }
                activity.receipts.entry(now.request_hash).or_insert(reservation);
            }
            note_verdict(activity, reservation, payment_no, transaction, verdict);
            Ok(())
        }
        _ => unreachable!("`change` sends none of the others here"),
    }
}

/// What a callback says of the payment that it names. What it does to the reservation is an event
/// of its own.
fn note_verdict(
    activity: &mut Activity,
    reservation: ReservationId,
    payment_no: &str,
    transaction: &str,
    verdict: PaymentVerdict,
) {
    let attempt = attempt_of(payment_no);
    let payments = activity.openings.get_mut(&reservation).map_or(&mut [][..], Vec::as_mut_slice);
    let payment = payments.iter_mut().find(|payment| Some(payment.attempt) == attempt);
    let Some(payment) = payment.filter(|it| it.status != PaymentStatus::Paid) else { return };
    match verdict {
        PaymentVerdict::Accepted => {
            payment.status = PaymentStatus::Paid;
            payment.transaction = transaction.into();
        }
        PaymentVerdict::Failed => payment.status = PaymentStatus::Failed,
        _ => {}
    }
}
