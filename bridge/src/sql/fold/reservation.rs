//! Events of a reservation: bought, paid, given back, refunded.

use engine::core::event::{Body, Front, Pool, RefundScope, Status};
use engine::core::ids::{ActivityId, ReservationId, UserId};

use super::Fold;
use crate::sql::fault::SinkError;
use crate::sql::flows::Change;
use crate::sql::payments::Opened;
use crate::sql::refunds::{Effects, Request};
use crate::sql::reservations::Reservation;

impl<'a> Fold<'a, '_> {
    /// Takes one in.
    pub(super) fn take_reservation(
        &mut self,
        id: ReservationId,
        body: Body<'a>,
    ) -> Result<(), SinkError> {
        let at_ms = self.at_ms;
        match body {
            Body::Reserved { activity, front, user, quantity, figures, request_id, .. } => {
                let order_no = self.site.order_prefix.order_no(id);
                let request = (Some(request_id), self.site.hasher.hash(request_id));
                self.bear(id, order_no, user, quantity, activity, request, at_ms)?;
                let had_order = self.had_orders();
                let reservation = self.reservation(id)?;
                reservation.needs_address = front == Front::Http;
                reservation.had_order = had_order;
                let pools = (Pool::Available, Pool::Locked, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "reservation", id)?;
            }
            Body::ReservationAdopted { .. } => self.adopt(id, body)?,
            Body::PaymentOpened { attempt, channel, amount, expires_ms, .. } => {
                let reservation = self.reservation(id)?;
                let (order_no, user) = (reservation.order_no.clone(), reservation.user);
                let opened = Opened { order_no, user, channel, amount, expires_ms, at_ms };
                self.payments.open(format!("{}{attempt:02}", opened.order_no), opened);
            }
            Body::Confirmed { activity, quantity, figures, payment_no, .. } => {
                self.reservation(id)?.confirm(payment_no, at_ms);
                self.payments.paid(payment_no, at_ms);
                let pools = (Pool::Locked, Pool::Sold, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "confirm", id)?;
            }
            Body::Reinstated { activity, quantity, figures, payment_no, .. } => {
                self.reservation(id)?.reinstate(payment_no, at_ms);
                self.payments.paid(payment_no, at_ms);
                let pools = (Pool::Available, Pool::Sold, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "reinstate", id)?;
            }
            Body::Restored { activity, quantity, figures, reason, .. } => {
                self.reservation(id)?.restore(reason, at_ms);
                let pools = (Pool::Locked, Pool::Available, quantity);
                self.shift(activity, figures, pools, Change::Recover, "restore", id)?;
            }
            Body::DeadLettered { note, .. } => self.reservation(id)?.dead_letter(note, at_ms),
            Body::DeadLetterResolved { activity, resolution, .. } => {
                let index = self.index(id)?;
                self.reservations[index].had_order = self.had_orders();
                let row = self.activities.get_mut(activity)?;
                self.reservations[index].dead_letter_resolved(resolution, row, at_ms);
            }
            body => self.take_refund(id, body)?,
        }
        Ok(())
    }

    fn take_refund(&mut self, id: ReservationId, body: Body<'a>) -> Result<(), SinkError> {
        let at_ms = self.at_ms;
        let index = self.index(id)?;
        let reservation = &mut self.reservations[index];
        match body {
            Body::RefundRequested {
                actor,
                refund_no,
                scope,
                restock,
                free_limit,
                payment_no,
                amount,
                note,
                ..
            } => {
                let request = Request {
                    activity: reservation.activity,
                    payment_no,
                    amount,
                    reason: note,
                    requested_by: actor.name,
                };
                let of_order = scope == RefundScope::Order;
                let effects = Effects { of_order, restock, free_limit };
                let names = (reservation.order_no.as_str(), refund_no);
                self.refunds.request(names, request, effects, at_ms);
                if of_order {
                    reservation.set_order_status("refunding", at_ms);
                }
                Ok(())
            }
            Body::RefundSettled { activity, figures, refund_no, .. } => {
                let names = (reservation.order_no.as_str(), refund_no);
                let effects = self.refunds.end(names, None, at_ms)?;
                let Effects { of_order, restock, free_limit } = effects;
                if of_order {
                    reservation.refunded(free_limit, at_ms);
                }
                let units = if restock { reservation.quantity } else { 0 };
                let row = self.touch(activity)?;
                if row.archived_ms.is_some() {
                    // Nothing is on sale any more: such a refund restocks nothing.
                    return Ok(());
                }
                let back = |units| row.figures.moved(Pool::Sold, Pool::Available, units);
                let expected = u32::try_from(units).ok().and_then(back);
                let biz = ("refund", format!("{id}:{refund_no}"));
                self.move_units(activity, figures, expected, Change::Recover, biz)
            }
            Body::RefundFailed { refund_no, note, .. } => {
                let names = (reservation.order_no.as_str(), refund_no);
                if self.refunds.end(names, Some(note), at_ms)?.of_order {
                    reservation.set_order_status("paid", at_ms);
                }
                Ok(())
            }
            other => unreachable!("{other:?} is no event of a refund"),
        }
    }

    fn adopt(&mut self, id: ReservationId, body: Body<'a>) -> Result<(), SinkError> {
        let Body::ReservationAdopted {
            activity,
            order_no,
            status,
            user,
            quantity,
            created_ms,
            updated_ms,
            figures,
            request_id,
            request_hash,
            payment_no,
            ..
        } = body
        else {
            unreachable!("adopt takes adopted reservations")
        };
        let order_no = match order_no {
            "" => self.site.order_prefix.order_no(id),
            order_no => order_no.to_owned(),
        };
        // Empty where only its hash is known any more.
        let request = ((!request_id.is_empty()).then_some(request_id), request_hash);
        self.bear(id, order_no, user, quantity, activity, request, created_ms)?;
        let row = self.touch(activity)?.figures;
        let reservation = self.reservation(id)?;
        let expected = match status {
            Status::Reserved => row.moved(Pool::Available, Pool::Locked, quantity),
            Status::Confirmed => {
                reservation.confirm(payment_no, updated_ms);
                row.moved(Pool::Available, Pool::Sold, quantity)
            }
            Status::RolledBack(reason) => {
                reservation.restore(reason, updated_ms);
                Some(row)
            }
        };
        let biz = ("reservation", id.to_string());
        self.move_units(activity, figures, expected, Change::Deduct, biz)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a new row")]
    fn bear(
        &mut self,
        id: ReservationId,
        order_no: String,
        user: UserId,
        quantity: u32,
        activity: ActivityId,
        request: (Option<&'a str>, u128),
        created_ms: u64,
    ) -> Result<(), SinkError> {
        let row = self.activities.get_mut(activity)?;
        let new = Reservation::new(id, order_no, user, quantity, row, request, created_ms);
        self.by_id.insert(id, self.reservations.len());
        self.reservations.push(new);
        Ok(())
    }
}
