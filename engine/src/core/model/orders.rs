//! What the model says of payments, refunds and dead letters.

use super::super::command::{OpenPayment, RecordPayment, Refusal, RequestRefund, Status};
use super::super::event::{
    Actor, DeadLetterPolicy, LatePayment, PaymentVerdict, RefundScope, RestoreReason,
};
use super::super::ids::{ActivityId, ReservationId};
use super::super::side::{Payment, PaymentStatus, Refund, RefundStatus};
use super::super::validate;
use super::sale::{Letter, Purchase, Sale};
use super::{Answered, Model, Reply};

impl Purchase {
    /// The refund of the order that counts: none that was refused.
    fn refund(&self) -> Option<RefundStatus> {
        let of_order = self.refunds.values().filter(|it| it.scope == RefundScope::Order);
        of_order.map(|it| it.status).find(|status| *status != RefundStatus::Failed)
    }

    fn payment(&mut self, payment_no: &str, channel: &str) -> Option<&mut Payment> {
        let digits = payment_no.get(payment_no.len().checked_sub(2)?..)?;
        let mut payments = self.payments.iter_mut();
        payments.find(|it| format!("{:02}", it.attempt) == digits && *it.channel == *channel)
    }
}

impl Sale {
    fn purchase(&mut self, id: ReservationId) -> Result<&mut Purchase, Refusal> {
        let index = self.index(id)?;
        self.purchases.get_mut(index).ok_or(Refusal::UnknownReservation)
    }

    /// Whether late money for the purchase at `index` may be honoured.
    fn reinstates(&self, index: usize) -> bool {
        let Some(it) = self.purchases.get(index) else { return false };
        let dead = it.status == Status::RolledBack(RestoreReason::DeadLetter)
            || matches!(it.letter, Some(Letter::Open | Letter::RolledBack));
        self.terms.late_payment == LatePayment::ReinstateOrRefund
            && !self.paused
            && !dead
            && self.figures().available >= it.quantity
            && self.held(it.user) + it.quantity <= self.terms.per_user_limit
    }
}

impl Model {
    pub(super) fn open_payment(
        &mut self,
        id: ActivityId,
        command: &OpenPayment<'_>,
        at_ms: u64,
    ) -> Answered {
        let &OpenPayment { reservation, owner, channel, ttl_ms } = command;
        validate::channel(channel)?;
        validate::payment_ttl(ttl_ms)?;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let (price, payment_ttl_ms) = (sale.terms.price, sale.terms.payment_ttl_ms);
        let purchase = sale.purchase(reservation)?;
        if purchase.user != owner {
            return Err(Refusal::UnknownReservation);
        }
        match purchase.status {
            Status::Reserved => {}
            Status::Confirmed => return Err(Refusal::AlreadyPaid),
            Status::RolledBack(_) => return Err(Refusal::RolledBack),
        }
        if let Some(last) = purchase.payments.last()
            && last.status == PaymentStatus::Pending
            && at_ms < last.expires_ms
        {
            let (fresh, payment) = (false, last.clone());
            return match *last.channel == *channel {
                true => Ok(Reply::Payment { fresh, payment }),
                false => Err(Refusal::PaymentInProgress),
            };
        }
        if purchase.payments.len() == 99 {
            return Err(Refusal::TooManyPayments);
        }
        let pay_before_ms = purchase.created_ms + payment_ttl_ms;
        let payment = Payment {
            attempt: u8::try_from(purchase.payments.len() + 1).unwrap_or(u8::MAX),
            channel: channel.into(),
            amount: price * u64::from(purchase.quantity),
            expires_ms: match at_ms < pay_before_ms {
                true => (at_ms + ttl_ms).min(pay_before_ms),
                false => at_ms + ttl_ms,
            },
            status: PaymentStatus::Pending,
            transaction: Box::default(),
        };
        purchase.payments.push(payment.clone());
        self.records += 1;
        Ok(Reply::Payment { fresh: true, payment })
    }

    pub(super) fn record_payment(
        &mut self,
        id: ActivityId,
        command: &RecordPayment<'_>,
        at_ms: u64,
    ) -> Answered {
        let &RecordPayment { channel, payment_no, transaction, amount, body, .. } = command;
        validate::callback(channel, payment_no, transaction, amount, body)?;
        let absent = self.absent(id, Refusal::Archived, Refusal::UnknownReservation);
        let sale = self.sale(id, absent)?;
        let index = sale.index(command.reservation)?;
        let seen = (channel.to_owned(), transaction.to_owned());
        let (known, reinstates) = (sale.transactions.contains(&seen), sale.reinstates(index));
        let purchase = sale.purchase(command.reservation)?;
        let status = purchase.status;
        let mut payment = purchase.payment(payment_no, channel);
        let mut refund = false;
        let verdict = match &mut payment {
            Some(payment) if !command.paid => {
                if payment.status != PaymentStatus::Paid {
                    payment.status = PaymentStatus::Failed;
                }
                PaymentVerdict::Failed
            }
            _ if known => PaymentVerdict::Repeated,
            None => PaymentVerdict::Unknown,
            Some(payment) if payment.amount != amount => PaymentVerdict::WrongAmount,
            Some(_) if status == Status::Confirmed => {
                refund = true;
                PaymentVerdict::SecondPayment
            }
            Some(payment) if status == Status::Reserved || reinstates => {
                payment.status = PaymentStatus::Paid;
                payment.transaction = transaction.into();
                payment_no.clone_into(&mut purchase.payment_no);
                purchase.status = Status::Confirmed;
                purchase.updated_ms = at_ms;
                PaymentVerdict::Accepted
            }
            Some(_) => {
                refund = true;
                PaymentVerdict::Late
            }
        };
        if refund {
            let (scope, status) = (RefundScope::Payment, RefundStatus::Requested);
            let it = Refund { scope, restock: false, free_limit: false, status };
            purchase.refunds.insert(command.refund_no.to_owned(), it);
        }
        if verdict != PaymentVerdict::Failed {
            sale.transactions.insert(seen);
        }
        let reservation = sale.reservation(id, index).ok_or(Refusal::UnknownReservation)?;
        self.records += if refund || verdict == PaymentVerdict::Accepted { 2 } else { 1 };
        Ok(Reply::Recorded { verdict, refunds: refund, reservation })
    }

    pub(super) fn request_refund(
        &mut self,
        id: ActivityId,
        command: &RequestRefund<'_>,
    ) -> Answered {
        validate::operator(&command.actor)?;
        validate::refund_no(command.refund_no)?;
        validate::note(command.note)?;
        let absent = self.absent(id, Refusal::Archived, Refusal::UnknownReservation);
        let purchase = self.sale(id, absent)?.purchase(command.reservation)?;
        let (number, moves) = (command.refund_no, (command.restock, command.free_limit));
        let (fresh, refund) = request(purchase, number, moves)?;
        self.records += u64::from(fresh);
        Ok(Reply::Refund { fresh, refund })
    }

    pub(super) fn end_refund(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
        failed: Option<&str>,
    ) -> Answered {
        validate::note(failed.unwrap_or_default())?;
        let sale = self.sale(id, Refusal::UnknownRefund)?;
        let purchase = sale.purchase(reservation).map_err(|_| Refusal::UnknownRefund)?;
        let refund = purchase.refunds.get_mut(refund_no).ok_or(Refusal::UnknownRefund)?;
        let (fresh, status) = match (refund.status, failed) {
            (RefundStatus::Requested, None) => (true, RefundStatus::Settled),
            (RefundStatus::Requested, Some(_)) => (true, RefundStatus::Failed),
            (RefundStatus::Settled, None) => (false, RefundStatus::Settled),
            (RefundStatus::Failed, Some(_)) => (false, RefundStatus::Failed),
            (RefundStatus::Settled, Some(_)) => return Err(Refusal::AlreadyRefunded),
            (RefundStatus::Failed, None) => return Err(Refusal::RefundNotOpen),
        };
        refund.status = status;
        let refund = *refund;
        let money_back = fresh && failed.is_none() && refund.scope == RefundScope::Order;
        let closes = money_back && purchase.letter == Some(Letter::Open);
        if closes {
            purchase.letter = Some(Letter::RolledBack);
        }
        self.records += u64::from(fresh) + u64::from(closes);
        Ok(Reply::Refund { fresh, refund })
    }

    pub(super) fn dead_letter(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        failed_seq: u64,
        note: &str,
        at_ms: u64,
    ) -> Answered {
        validate::note(note)?;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let index = sale.index(reservation)?;
        let policy = sale.terms.dead_letter;
        let purchase = sale.purchase(reservation)?;
        match purchase.letter {
            Some(Letter::Open | Letter::RolledBack) => return sale.told(id, index, false),
            Some(Letter::Delivered(record)) if failed_seq < record => {
                return sale.told(id, index, false);
            }
            _ => {}
        }
        let records = match (purchase.status, policy) {
            (Status::RolledBack(_), _) => {
                purchase.letter = Some(Letter::RolledBack);
                2
            }
            (Status::Reserved, DeadLetterPolicy::Rollback) => {
                purchase.letter = Some(Letter::RolledBack);
                purchase.status = Status::RolledBack(RestoreReason::DeadLetter);
                purchase.updated_ms = at_ms;
                3
            }
            (Status::Reserved, DeadLetterPolicy::Hold) | (Status::Confirmed, _) => {
                purchase.letter = Some(Letter::Open);
                1
            }
        };
        let told = sale.told(id, index, true);
        self.records += records;
        told
    }

    pub(super) fn retry_dead_letter(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        actor: Actor<'_>,
    ) -> Answered {
        validate::operator(&actor)?;
        let record = self.records + 1;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let index = sale.index(reservation)?;
        let purchase = sale.purchase(reservation)?;
        let fresh = match purchase.letter {
            None => return Err(Refusal::NoDeadLetter),
            Some(Letter::RolledBack) => return Err(Refusal::RolledBack),
            Some(Letter::Delivered(_)) => false,
            Some(Letter::Open) => {
                purchase.letter = Some(Letter::Delivered(record));
                true
            }
        };
        let told = sale.told(id, index, fresh);
        self.records += u64::from(fresh);
        told
    }

    pub(super) fn roll_back_dead_letter(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
        actor: Actor<'_>,
        at_ms: u64,
    ) -> Answered {
        validate::operator(&actor)?;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let index = sale.index(reservation)?;
        let purchase = sale.purchase(reservation)?;
        match purchase.letter {
            None | Some(Letter::Delivered(_)) => return Err(Refusal::NoDeadLetter),
            Some(Letter::RolledBack) => return sale.told(id, index, false),
            Some(Letter::Open) => {}
        }
        let records = match (purchase.status, purchase.refund()) {
            (Status::Confirmed, Some(RefundStatus::Requested)) => 0,
            (Status::Confirmed, None) => u64::from(request(purchase, refund_no, (true, true))?.0),
            (Status::Confirmed, Some(_)) | (Status::RolledBack(_), _) => {
                purchase.letter = Some(Letter::RolledBack);
                1
            }
            (Status::Reserved, _) => {
                purchase.letter = Some(Letter::RolledBack);
                purchase.status = Status::RolledBack(RestoreReason::DeadLetter);
                purchase.updated_ms = at_ms;
                2
            }
        };
        let told = sale.told(id, index, records > 0);
        self.records += records;
        told
    }
}

/// Whether the refund is new, and the refund.
fn request(
    purchase: &mut Purchase,
    refund_no: &str,
    (restock, free_limit): (bool, bool),
) -> Result<(bool, Refund), Refusal> {
    let (scope, status) = (RefundScope::Order, RefundStatus::Requested);
    let wanted = Refund { scope, restock, free_limit, status };
    if let Some(known) = purchase.refunds.get(refund_no)
        && known.status != RefundStatus::Failed
    {
        let same = Refund { status, ..*known } == wanted;
        return if same { Ok((false, *known)) } else { Err(Refusal::RequestIdReused) };
    }
    match (purchase.status, purchase.refund()) {
        (Status::Confirmed, None) => {}
        (Status::Confirmed, Some(RefundStatus::Requested)) => {
            return Err(Refusal::RefundInProgress);
        }
        (Status::Confirmed, Some(_)) => return Err(Refusal::AlreadyRefunded),
        _ => return Err(Refusal::NotPaid),
    }
    if purchase.refunds.len() >= 128 {
        return Err(Refusal::TooManyOperations);
    }
    purchase.refunds.insert(refund_no.to_owned(), wanted);
    Ok((true, wanted))
}
