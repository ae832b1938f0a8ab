//! What the model says of a purchase's life: paid by a back end's word, given back.

use super::super::command::{Refusal, Status};
use super::super::event::{Actor, RestoreReason};
use super::super::ids::{ActivityId, ReservationId, UserId};
use super::super::side::RefundStatus;
use super::super::validate;
use super::sale::{Letter, Purchase};
use super::{Answered, Model, Reply};

impl Model {
    pub(super) fn confirm(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        payment_no: &str,
        at_ms: u64,
    ) -> Answered {
        validate::payment_no(payment_no)?;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let index = sale.index(reservation)?;
        let purchase = sale.purchases.get_mut(index).ok_or(Refusal::UnknownReservation)?;
        match purchase.status {
            Status::Confirmed if purchase.payment_no == payment_no => {
                return sale.told(id, index, false);
            }
            Status::Confirmed => return Err(Refusal::PaidByAnother),
            Status::RolledBack(_) => return Err(Refusal::RolledBack),
            Status::Reserved => payment_no.clone_into(&mut purchase.payment_no),
        }
        sale.set(index, Status::Confirmed, at_ms);
        let reply = sale.told(id, index, true);
        self.records += 1;
        reply
    }

    pub(super) fn restore(
        &mut self,
        id: ActivityId,
        reservation: ReservationId,
        owner: Option<UserId>,
        (reason, actor): (RestoreReason, Actor<'_>),
        at_ms: u64,
    ) -> Answered {
        validate::restorer(&actor, reason)?;
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        let index = sale.index(reservation)?;
        let purchase = sale.purchases.get(index).ok_or(Refusal::UnknownReservation)?;
        if owner.unwrap_or(purchase.user) != purchase.user {
            return Err(Refusal::UnknownReservation);
        }
        match purchase.status {
            Status::RolledBack(_) => return sale.told(id, index, false),
            Status::Confirmed => return Err(Refusal::AlreadyPaid),
            Status::Reserved => {}
        }
        self.give_back(id, index, reason, at_ms)
    }

    pub(super) fn expire(&mut self, id: ActivityId, serving_since_ms: u64, at_ms: u64) -> Answered {
        let Some(sale) = self.sales.get_mut(&id) else { return Ok(Reply::NothingDue(None)) };
        let unpaid = |it: &Purchase| it.status == Status::Reserved;
        let Some(index) = sale.purchases.iter().position(unpaid) else {
            return Ok(Reply::NothingDue(None));
        };
        let created_ms = sale.purchases.get(index).map_or(0, |it| it.created_ms);
        let payment_ttl_ms = sale.terms.payment_ttl_ms;
        let grace_ends_ms = serving_since_ms.saturating_add(payment_ttl_ms.min(2 * 60 * 1000));
        let due_ms = grace_ends_ms.max(created_ms + payment_ttl_ms);
        if at_ms < due_ms {
            return Ok(Reply::NothingDue(Some(due_ms)));
        }
        self.give_back(id, index, RestoreReason::Timeout, at_ms)
    }

    fn give_back(
        &mut self,
        id: ActivityId,
        index: usize,
        reason: RestoreReason,
        at_ms: u64,
    ) -> Answered {
        let sale = self.sale(id, Refusal::UnknownReservation)?;
        sale.set(index, Status::RolledBack(reason), at_ms);
        let letter = sale.purchases.get_mut(index).and_then(|it| it.letter.as_mut());
        let closed = letter.filter(|letter| **letter == Letter::Open);
        let records = 1 + u64::from(closed.is_some());
        if let Some(letter) = closed {
            *letter = Letter::RolledBack;
        }
        let reply = sale.told(id, index, true);
        self.records += records;
        reply
    }

    pub(super) fn archive(&mut self, id: ActivityId, covered_seq: u64, at_ms: u64) -> Answered {
        let Some(sale) = self.sales.get(&id) else { return Ok(Reply::NothingDue(None)) };
        let due_ms = sale.terms.end_ms + 24 * 60 * 60 * 1000;
        if at_ms < due_ms {
            return Ok(Reply::NothingDue(Some(due_ms)));
        }
        let open = |it: &Purchase| {
            let mut refunds = it.refunds.values();
            it.status == Status::Reserved
                || it.letter == Some(Letter::Open)
                || refunds.any(|refund| refund.status == RefundStatus::Requested)
        };
        // What every sink covers is the harness's to say: all records or none.
        if covered_seq < self.records || sale.purchases.iter().any(open) {
            return Ok(Reply::NothingDue(None));
        }
        self.sales.remove(&id);
        self.archived.insert(id);
        self.records += 1;
        Ok(Reply::Archived)
    }
}
