//! One activity of the model: what was accepted, and what follows from it by adding up.

use std::collections::{BTreeMap, BTreeSet};

use super::super::command::{ActivityFigures, Refusal, Reservation, Status};
use super::super::event::Figures;
use super::super::ids::{ActivityId, Ordinal, Position, ReservationId, UserId};
use super::super::side::{Payment, Refund, RefundStatus};
use super::super::terms::Terms;
use super::{Answered, Reply};

/// One reservation, as it was accepted, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Purchase {
    pub(super) user: UserId,
    pub(super) request_id: String,
    pub(super) quantity: u32,
    pub(super) status: Status,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
    pub(super) payment_no: String,
    pub(super) record: u64,
    pub(super) payments: Vec<Payment>,
    pub(super) refunds: BTreeMap<String, Refund>,
    pub(super) letter: Option<Letter>,
}

/// What became of a purchase that no order could hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Letter {
    Open,
    /// By which record.
    Delivered(u64),
    RolledBack,
}

impl Purchase {
    /// Whether a settled refund moved what `moves` says.
    fn went_back(&self, moves: impl Fn(&Refund) -> bool) -> bool {
        self.refunds.values().any(|it| it.status == RefundStatus::Settled && moves(it))
    }
}

/// One activity.
#[derive(Clone, Debug)]
pub(super) struct Sale {
    pub(super) ordinal: Ordinal,
    pub(super) version: u32,
    pub(super) terms: Terms,
    pub(super) total: u32,
    pub(super) on_sale: bool,
    pub(super) paused: bool,
    pub(super) drained: bool,
    pub(super) schedule_over: bool,
    pub(super) purchases: Vec<Purchase>,
    /// By key: whether units were added, how many, and the answer.
    pub(super) operations: BTreeMap<String, (bool, u32, ActivityFigures)>,
    /// Channel and transaction of every callback that said more than that a payment failed.
    pub(super) transactions: BTreeSet<(String, String)>,
}

impl Sale {
    pub(super) fn units(&self, status: Status) -> u32 {
        let on_sale = |it: &&Purchase| it.went_back(|refund| refund.restock);
        let units = self.purchases.iter().filter(|it| it.status == status && !on_sale(it));
        units.map(|it| it.quantity).sum()
    }

    pub(super) fn figures(&self) -> Figures {
        let (locked, sold) = (self.units(Status::Reserved), self.units(Status::Confirmed));
        Figures { available: self.total - locked - sold, locked, sold }
    }

    pub(super) fn held(&self, user: UserId) -> u32 {
        let holds = |it: &&Purchase| {
            !matches!(it.status, Status::RolledBack(_)) && !it.went_back(|refund| refund.free_limit)
        };
        self.purchases.iter().filter(|it| it.user == user).filter(holds).map(|it| it.quantity).sum()
    }

    pub(super) fn publish_due_ms(&self) -> Option<u64> {
        Some(self.terms.publish_at_ms).filter(|at_ms| *at_ms > 0 && !self.schedule_over)
    }

    pub(super) fn answer(&self, activity: ActivityId) -> ActivityFigures {
        ActivityFigures { activity, version: self.version, figures: self.figures() }
    }

    pub(super) fn index(&self, id: ReservationId) -> Result<usize, Refusal> {
        let position = id.position().filter(|_| id.ordinal() == self.ordinal);
        let index = position.map(|position| position.get() as usize - 1);
        index.filter(|at| *at < self.purchases.len()).ok_or(Refusal::UnknownReservation)
    }

    pub(super) fn reservation(&self, activity: ActivityId, index: usize) -> Option<Reservation> {
        let purchase = self.purchases.get(index)?.clone();
        Some(Reservation {
            id: ReservationId::compose(
                self.ordinal,
                Position::new(u32::try_from(index).ok()? + 1)?,
            ),
            activity,
            user: purchase.user,
            sku: self.terms.sku,
            price: self.terms.price,
            quantity: purchase.quantity,
            status: purchase.status,
            created_ms: purchase.created_ms,
            updated_ms: purchase.updated_ms,
            pay_before_ms: purchase.created_ms + self.terms.payment_ttl_ms,
            payment_no: purchase.payment_no,
            remaining: self.figures().available,
            shard_seq: purchase.record,
        })
    }

    pub(super) fn told(&self, activity: ActivityId, index: usize, fresh: bool) -> Answered {
        let reservation = self.reservation(activity, index).ok_or(Refusal::UnknownReservation)?;
        Ok(Reply::Reservation { fresh, reservation })
    }

    pub(super) fn set(&mut self, index: usize, status: Status, at_ms: u64) {
        if let Some(purchase) = self.purchases.get_mut(index) {
            purchase.status = status;
            purchase.updated_ms = at_ms;
        }
    }
}
