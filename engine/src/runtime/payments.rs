//! Payments through the engine: opened by buyers, decided by the provider's callbacks.

use wal::{Busy, CONTROL_SHARD, Class, Ticket};

use super::engine::{COMMAND_ROOM, Engine, record};
use super::pending::Pending;
use super::views::ReservationView;
use crate::core::activity::Activity;
use crate::core::command::{ArchivedPayment, Command, OpenPayment, RecordPayment, Refusal};
use crate::core::decide::{Outcome, decide, unknown_payment};
use crate::core::event::{Body, Event, PaymentVerdict};
use crate::core::ids::{ActivityId, ReservationId, UserId, attempt_of};
use crate::core::limits::REFUND_NO_RESERVED_PREFIX;
use crate::core::side::{Payment, PaymentStatus, RefundStatus};

/// A payment that was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaymentView {
    /// Its number: the order's, and two digits.
    pub payment_no: String,
    /// The order that it pays.
    pub order_no: String,
    /// That order's reservation.
    pub reservation: ReservationId,
    /// The buyer.
    pub user: UserId,
    /// The way it is paid.
    pub channel: String,
    /// What is to be paid.
    pub amount: u64,
    /// Until when the provider takes it, Unix milliseconds.
    pub expires_ms: u64,
    /// Where it is.
    pub status: PaymentStatus,
    /// The order's refund, where this payment paid it.
    pub refund: Option<RefundStatus>,
}

/// A provider's callback, its signature checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Callback<'a> {
    /// The way it was paid.
    pub channel: &'a str,
    /// The payment.
    pub payment_no: &'a str,
    /// The provider's number of the transaction: the same one has one effect.
    pub transaction: &'a str,
    /// What was paid.
    pub amount: u64,
    /// Whether it was paid, or failed.
    pub paid: bool,
    /// The raw body.
    pub body: &'a [u8],
    /// What SQL knows of the payment, once [`Refusal::Archived`] was the answer without.
    pub archived: Option<ArchivedPayment<'a>>,
}

/// What was made of a callback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The verdict, as it is in the log.
    pub verdict: PaymentVerdict,
    /// The number of the refund that it led to.
    pub refund_no: Option<String>,
    /// The reservation afterwards, where it is in memory.
    pub reservation: Option<ReservationView>,
}

impl Engine {
    /// The reservation behind an order number, where this site ever gave or adopted it.
    pub fn reservation_of_order(&self, order_no: &str) -> Option<ReservationId> {
        let adopted = self.inner.directory.read().adopted_order(order_no);
        adopted.or_else(|| self.inner.owner.order_prefix.reservation_id(order_no))
    }

    /// The reservation and the attempt behind a payment number.
    fn reservation_of_payment(&self, payment_no: &str) -> Option<(ReservationId, u8)> {
        let attempt = attempt_of(payment_no)?;
        let order_no = payment_no.get(..payment_no.len().checked_sub(2)?)?;
        Some((self.reservation_of_order(order_no)?, attempt))
    }

    /// Opens a payment of `reservation` for its buyer `owner`, or finds the one that is live: an
    /// order has at most one. The amount is the reservation's.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn open_payment(
        &self,
        reservation: ReservationId,
        owner: UserId,
        channel: &str,
        ttl_ms: u64,
    ) -> Result<Pending<Result<PaymentView, Refusal>>, Busy> {
        let Some(id) = self.activity_of(reservation) else {
            return self.refused(0, Refusal::UnknownReservation);
        };
        let command = Command::OpenPayment(OpenPayment { reservation, owner, channel, ttl_ms });
        let pending = self.run(id, &command, |shard, _| {
            let activity = shard.activity(id)?;
            let payment = activity.payments_of(reservation).last()?;
            self.payment_view(activity, reservation, payment)
        })?;
        Ok(pending.map(|told| told?.ok_or(Refusal::UnknownReservation)))
    }

    /// A payment that was opened here, by its number. Waits where its state is newer than the
    /// durable mark.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn payment(&self, payment_no: &str) -> Result<Pending<Option<PaymentView>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let found = self.reservation_of_payment(payment_no);
        let place = found.and_then(|(id, attempt)| Some((self.activity_of(id)?, id, attempt)));
        let index = place.map_or(0, |(activity, ..)| self.shard_index(activity));
        let shard = self.lock(index);
        let view = place.and_then(|(activity, id, attempt)| {
            let activity = shard.activity(activity)?;
            let mut payments = activity.payments_of(id).iter();
            let payment = payments.find(|payment| payment.attempt == attempt)?;
            self.payment_view(activity, id, payment)
        });
        Ok(self.pending(index, &shard, view))
    }

    fn payment_view(
        &self,
        activity: &Activity,
        id: ReservationId,
        payment: &Payment,
    ) -> Option<PaymentView> {
        let order_no = self.order_no(activity, id);
        let payment_no = format!("{order_no}{:02}", payment.attempt);
        let paid_it = activity.payment_no(id) == Some(payment_no.as_str());
        let refund = activity.refund(id).filter(|_| paid_it).map(|(_, refund)| refund.status);
        Some(PaymentView {
            payment_no,
            order_no: order_no.into(),
            reservation: id,
            user: activity.slot(id)?.user(),
            channel: payment.channel.to_string(),
            amount: payment.amount,
            expires_ms: payment.expires_ms,
            status: payment.status,
            refund,
        })
    }

    /// The number of the refund, should a payment's money have to go back: the same for the same
    /// transaction, so that the provider is never asked twice.
    fn refund_no(&self, channel: &str, transaction: &str) -> String {
        let receipt = self.inner.requests.receipt(channel, transaction);
        format!("{REFUND_NO_RESERVED_PREFIX}{receipt:032x}")
    }

    /// Records a callback, and does what it says where it may: pays its order, brings it back, or
    /// has its money refunded. See the table of verdicts in the core's `decide/callback`.
    ///
    /// # Errors
    /// [`Busy`]: nothing was recorded; the provider says it again.
    pub fn record_payment(
        &self,
        callback: &Callback<'_>,
    ) -> Result<Pending<Result<Recorded, Refusal>>, Busy> {
        let &Callback { channel, payment_no, transaction, amount, paid, body, archived } = callback;
        let found = self.reservation_of_payment(payment_no);
        let place = found.and_then(|(id, _)| Some((self.activity_of(id)?, id)));
        let of_archived = archived.map(|known| (known.activity, known.reservation));
        let Some((activity, reservation)) = place.or(of_archived) else {
            return self.record_unknown(callback);
        };
        let refund_no = self.refund_no(channel, transaction);
        let refund_no = refund_no.as_str();
        let command = RecordPayment {
            reservation,
            channel,
            payment_no,
            transaction,
            amount,
            paid,
            body,
            refund_no,
            archived,
        };
        match self.record_known(activity, &command)? {
            Some(pending) => Ok(pending),
            None => self.record_unknown(callback),
        }
    }

    /// Records a callback of a reservation that `activity` would hold; `None` where it does not.
    fn record_known(
        &self,
        activity: ActivityId,
        command: &RecordPayment<'_>,
    ) -> Result<Option<Pending<Result<Recorded, Refusal>>>, Busy> {
        let index = self.shard_index(activity);
        let mut shard = self.lock(index);
        let room = self.inner.log.begin(index, COMMAND_ROOM, Class::Reserved);
        let at_ms = self.inner.clock.now_ms();
        let outcome = decide(&shard, activity, &Command::RecordPayment(*command), at_ms);
        let told = match (outcome, room) {
            (Outcome::Accepted { events }, Ok(mut batch)) => {
                record(&mut shard, &mut batch, COMMAND_ROOM, events.iter(), 0);
                let mut recorded = recorded(events.iter());
                let found = shard.reservation(activity, command.reservation);
                recorded.reservation = found.map(|it| self.view(index, &shard, it));
                Ok(recorded)
            }
            (Outcome::Accepted { .. }, Err(busy)) => return Err(busy),
            (_, Err(Busy::LogUnavailable)) => return Err(Busy::LogUnavailable),
            (Outcome::Refused(Refusal::UnknownReservation), _) => return Ok(None),
            (Outcome::Refused(refusal), _) => Err(refusal),
            (Outcome::Repeated(_) | Outcome::NothingDue(_), _) => {
                unreachable!("a callback is recorded each time it comes")
            }
        };
        Ok(Some(self.pending(index, &shard, told)))
    }

    /// Records a callback that fits no reservation: for whoever asks where the money is.
    fn record_unknown(
        &self,
        callback: &Callback<'_>,
    ) -> Result<Pending<Result<Recorded, Refusal>>, Busy> {
        let &Callback { channel, payment_no, transaction, amount, body, .. } = callback;
        let mut control = self.inner.control.lock();
        let at_ms = self.inner.clock.now_ms();
        let told = match unknown_payment(channel, payment_no, transaction, amount, body) {
            Err(refusal) => Err(refusal),
            Ok(body) => {
                let event = Event { at_ms, body };
                self.record_control(&mut control, &event)?;
                Ok(recorded(std::iter::once(&event)))
            }
        };
        let ticket = Ticket { shard: CONTROL_SHARD, shard_seq: control.applied_seq() };
        Ok(Pending::new(told, &self.inner.log, ticket))
    }
}

/// What the events of a callback say was made of it.
fn recorded<'e, 'a: 'e>(events: impl Iterator<Item = &'e Event<'a>>) -> Recorded {
    let verdict = PaymentVerdict::Unknown;
    let mut recorded = Recorded { verdict, refund_no: None, reservation: None };
    for event in events {
        match event.body {
            Body::PaymentRecorded { verdict, .. } => recorded.verdict = verdict,
            Body::RefundRequested { refund_no, .. } => {
                recorded.refund_no = Some(refund_no.to_owned());
            }
            _ => {}
        }
    }
    recorded
}
