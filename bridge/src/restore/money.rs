//! What became of a reservation's money, and of its order: taken over as facts.

use engine::core::event::{Actor, Body, DeadLetterResolution, RefundScope};
use engine::core::ids::{ActivityId, ReservationId, UserId};

use super::RestoreError;
use super::facts::{PaymentRow, RefundRow, ReservationRow};
use super::rebuild::{Rebuild, retried};

impl Rebuild<'_> {
    pub(super) fn payments(
        &mut self,
        id: ReservationId,
        activity: ActivityId,
        payments: &[PaymentRow],
    ) -> Result<(), RestoreError> {
        for payment in payments {
            let digits = payment.payment_no.len().checked_sub(2);
            let attempt = digits.and_then(|at| payment.payment_no.get(at..)?.parse().ok());
            let opened = Body::PaymentOpened {
                activity,
                reservation: id,
                attempt: attempt.unwrap_or_default(),
                channel: &payment.channel,
                amount: payment.amount,
                expires_ms: payment.expires_ms,
            };
            self.fact(activity, payment.created_ms, opened)?;
            for callback in &payment.callbacks {
                let recorded = Body::PaymentRecorded {
                    activity: Some(activity),
                    reservation: Some(id),
                    channel: &payment.channel,
                    payment_no: &payment.payment_no,
                    transaction: &callback.transaction,
                    amount: callback.amount,
                    verdict: callback.verdict,
                    body: &callback.body,
                };
                self.fact(activity, callback.received_ms, recorded)?;
            }
        }
        Ok(())
    }

    pub(super) fn refund(
        &mut self,
        (id, activity, user): (ReservationId, ActivityId, UserId),
        payments: &[PaymentRow],
        refund: &RefundRow,
    ) -> Result<(), RestoreError> {
        let event = requested((id, activity, user), payments, refund);
        self.fact(activity, refund.created_ms, event)?;
        let refund_no = refund.refund_no.as_str();
        match refund.status.as_str() {
            "SETTLED" => {
                let told = retried(|| self.engine.refund_settled(activity, id, refund_no))?;
                self.wait(format!("refunds {refund_no}"), told);
            }
            "FAILED" => {
                let note = &refund.last_error;
                let told = retried(|| self.engine.refund_failed(activity, id, refund_no, note))?;
                self.wait(format!("refunds {refund_no}"), told);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn letter(
        &mut self,
        row: &ReservationRow,
        activity: ActivityId,
    ) -> Result<(), RestoreError> {
        let Some((state, why, at_ms)) = &row.letter else { return Ok(()) };
        let reservation = row.id;
        let note = &why[..why.floor_char_boundary(engine::core::limits::NOTE_BYTES_MAX)];
        self.fact(activity, *at_ms, Body::DeadLettered { activity, reservation, note })?;
        let resolution = match state.as_str() {
            "delivered" => DeadLetterResolution::Delivered,
            "rolled_back" => DeadLetterResolution::RolledBack,
            _ => return Ok(()),
        };
        let actor = Actor::NONE;
        let resolved = Body::DeadLetterResolved { activity, reservation, resolution, actor };
        self.fact(activity, *at_ms, resolved)
    }
}

/// A refund that was asked for. That of an order knows by itself what paid it.
pub(super) fn requested<'a>(
    (reservation, activity, user): (ReservationId, ActivityId, UserId),
    payments: &'a [PaymentRow],
    refund: &'a RefundRow,
) -> Body<'a> {
    let of = payments.iter().find(|it| it.payment_no == refund.payment_no);
    let transaction = of.and_then(|it| it.callbacks.last()).map_or("", |it| &it.transaction);
    let note = &refund.reason;
    Body::RefundRequested {
        activity,
        actor: Actor { name: &refund.requested_by, request_id: "" },
        reservation,
        user,
        refund_no: &refund.refund_no,
        scope: if refund.of_order { RefundScope::Order } else { RefundScope::Payment },
        restock: refund.restock,
        free_limit: refund.free_limit,
        channel: of.map_or("", |it| &it.channel),
        payment_no: &refund.payment_no,
        transaction,
        amount: refund.amount,
        note: &note[..note.floor_char_boundary(engine::core::limits::NOTE_BYTES_MAX)],
    }
}
