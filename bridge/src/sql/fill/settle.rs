//! A reservation's image laid over the rows that are there.

use engine::core::event::RefundScope;
use engine::core::side::{DeadLetterState, RefundStatus};

use super::portion::{Change, What};
use crate::sql::dead_letters::{DeadLetter, State};
use crate::sql::fault::SinkError;
use crate::sql::reservations::{Order, Reservation, Status, terms};
use crate::sql::store::Value;

/// What became of the goods: no business of the log, and no image undoes it.
const SENT: [&str; 2] = ["shipped", "completed"];

/// `image`, where `there` is what its rows say now: they are updated, what they lack is inserted.
///
/// # Errors
/// Where the rows are another purchase's.
pub(super) fn over(
    mut image: Reservation<'static>,
    there: Reservation<'static>,
) -> Result<Reservation<'static>, SinkError> {
    let owner = |it: &Reservation<'_>| (it.user, it.activity, it.quantity, it.order_no.clone());
    if owner(&image) != owner(&there) {
        let table = "flashsale_pre_deductions";
        return Err(SinkError::RowForeign { table, id: image.id.get() });
    }
    let hash = image.birth.take().map(|birth| birth.request_hash);
    image.lone_hash = hash.filter(|_| !there.has_row);
    image.has_row = there.has_row;
    image.attempts = there.attempts;
    image.needs_address = there.needs_address;
    image.payment_no = there.payment_no;
    let is_sent = matches!(&there.order_status, Value::Text(it) if SENT.contains(&it.as_ref()));
    if is_sent && image.order_status == Value::text("paid") {
        image.order_status = there.order_status;
    }
    let is_dead = there.dead_letter.as_ref().is_some_and(|it| it.state != State::Delivered);
    if there.order == Order::Present {
        image.order = Order::Present;
    } else if is_dead {
        image.order = Order::Missing;
        image.last_error = there.last_error;
    }
    image.dead_letter = there.dead_letter;
    match image.status {
        Status::RolledBack => image.close_dead_letter(State::RolledBack, image.updated_ms),
        _ if is_dead => image.status = Status::DeadLetter,
        _ => {}
    }
    Ok(image)
}

/// Makes `reservation` as the change says, as far as its own rows are concerned.
pub(super) fn change(reservation: &mut Reservation<'static>, change: &Change, needs_address: bool) {
    match &change.what {
        What::Paid(payment_no) => reservation.payment_no = Value::text(payment_no.clone()),
        What::Refund(refund) if refund.scope == RefundScope::Order => {
            let at_ms = reservation.updated_ms;
            match refund.status {
                RefundStatus::Requested => reservation.set_order_status("refunding", at_ms),
                RefundStatus::Settled => reservation.refunded(refund.free_limit, at_ms),
                // It is as it was, but for another one that may be in force.
                RefundStatus::Failed => {}
            }
        }
        What::Letter { state, opened_ms, note } => {
            letter(reservation, change, (*state, *opened_ms, note));
            let is_new = reservation.dead_letter.as_ref().is_some_and(|it| !it.is_stored);
            // Which front it came from is gone: an operator sees what it lacks, and tries again.
            reservation.needs_address |= is_new && needs_address;
        }
        What::Refund(_) | What::RefundDetails(_) | What::Opening(_) => {}
    }
}

/// It is, or was, one that no order could hold.
fn letter(
    reservation: &mut Reservation<'static>,
    change: &Change,
    (state, opened_ms, note): (DeadLetterState, u64, &str),
) {
    let before = reservation.dead_letter.take();
    let is_stored = before.as_ref().is_some_and(|letter| letter.is_stored);
    let known = before.as_ref().map(|letter| letter.reason.clone());
    let resolved_ms = before.as_ref().and_then(|letter| letter.resolved_ms);
    // A closed one no longer says why it was opened.
    let reason = match note {
        "" => known.unwrap_or(Value::text("")),
        note => Value::text(note.to_owned()),
    };
    let letter = |state, resolved_ms| {
        let reason = reason.clone();
        Some(DeadLetter { is_stored, state, reason, opened_ms, resolved_ms })
    };
    let closed_ms = Some(resolved_ms.unwrap_or(reservation.updated_ms));
    if let DeadLetterState::Delivered { .. } = state {
        reservation.dead_letter = letter(State::Delivered, closed_ms);
        reservation.attempts = reservation.attempts.max(2);
        reservation.last_error = Value::Null;
        reservation.give_row();
        if reservation.status == Status::DeadLetter {
            reservation.status = Status::Ordered;
        }
        if let (Order::Missing, Some(activity)) = (&reservation.order, &change.activity) {
            reservation.order = Order::Due(terms(activity, reservation.created_ms));
            if reservation.is_alive() {
                reservation.user_activity_key = reservation.taken_slot();
            }
        }
        return;
    }
    let updated_ms = reservation.updated_ms;
    reservation.dead_letter(note.to_owned(), opened_ms);
    reservation.updated_ms = updated_ms;
    let is_closed = state == DeadLetterState::RolledBack || !reservation.is_alive();
    reservation.dead_letter = match is_closed {
        true => letter(State::RolledBack, closed_ms),
        false => letter(State::Open, None),
    };
}
