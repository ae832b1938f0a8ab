//! The reference model: the same machine, plain instead of fast.
//!
//! It keeps what was asked and accepted, and derives everything else by adding up, each time anew:
//! no figure is stored that could drift from what it counts. It shares with the engine the words
//! of commands and answers, and the bounds of input, but no rule and no state.
//! `tests/model_based.rs` runs the same histories through both.

mod lives;
mod orders;
mod sale;

use std::collections::{BTreeMap, BTreeSet};

use self::sale::{Purchase, Sale};
use super::command::{ActivityFigures, Command, Refusal, Reservation, Reserve, Status};
use super::event::{Actor, Definition, Figures, PaymentVerdict};
use super::ids::{ActivityId, Ordinal};
use super::side::{Payment, Refund, RefundStatus};
use super::terms::Terms;
use super::validate;

/// What a command is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To a purchase, a payment, a give-back.
    Reservation {
        /// It happened now, and not before.
        fresh: bool,
        /// The reservation afterwards.
        reservation: Reservation,
    },
    /// To an operator.
    Activity {
        /// It happened now, and not before.
        fresh: bool,
        /// The activity afterwards, or after the first time.
        figures: ActivityFigures,
    },
    /// To a payment that is opened.
    Payment {
        /// It happened now, and not before.
        fresh: bool,
        /// The payment.
        payment: Payment,
    },
    /// To a callback.
    Recorded {
        /// What was made of it.
        verdict: PaymentVerdict,
        /// Its money goes back.
        refunds: bool,
        /// The reservation afterwards.
        reservation: Reservation,
    },
    /// To whoever asks for a refund, settles or refuses it.
    Refund {
        /// It happened now, and not before.
        fresh: bool,
        /// The refund afterwards.
        refund: Refund,
    },
    /// The activity is archived.
    Archived,
    /// Nothing happened.
    Refused(Refusal),
    /// Nothing is overdue; when the next reservation is.
    NothingDue(Option<u64>),
}

type Answered = Result<Reply, Refusal>;

/// All activities, in one shard.
#[derive(Clone, Debug, Default)]
pub struct Model {
    sales: BTreeMap<ActivityId, Sale>,
    archived: BTreeSet<ActivityId>,
    /// Records that the log would hold.
    records: u64,
}

impl Model {
    /// Does `command` for `activity` at `at_ms`, and says what it is answered.
    pub fn execute(&mut self, activity: ActivityId, command: &Command<'_>, at_ms: u64) -> Reply {
        let answered = match *command {
            Command::Create { actor, ordinal, total, definition } => {
                self.create(activity, actor, ordinal, total, &definition)
            }
            Command::Edit { actor, version, total, definition } => {
                self.edit(activity, actor, version, total, &definition, at_ms)
            }
            Command::Publish { actor } => self.switch(activity, actor, |sale| {
                sale.schedule_over = true;
                !std::mem::replace(&mut sale.on_sale, true)
            }),
            Command::Unpublish { actor } => self.switch(activity, actor, |sale| {
                let stops = sale.on_sale || sale.publish_due_ms().is_some();
                sale.schedule_over |= stops;
                sale.on_sale = false;
                stops
            }),
            Command::Pause { actor } => {
                self.switch(activity, actor, |sale| !std::mem::replace(&mut sale.paused, true))
            }
            Command::Drain { actor } => {
                self.switch(activity, actor, |sale| !std::mem::replace(&mut sale.drained, true))
            }
            Command::Resume { actor } => self.switch(activity, actor, |sale| {
                std::mem::take(&mut sale.paused) | std::mem::take(&mut sale.drained)
            }),
            Command::Restock { actor, op, quantity } => {
                self.operate(activity, actor, op, true, quantity)
            }
            Command::Decrease { actor, op, quantity } => {
                self.operate(activity, actor, op, false, quantity)
            }
            Command::Reserve(reserve) => self.reserve(activity, &reserve, at_ms),
            Command::Confirm { reservation, payment_no } => {
                self.confirm(activity, reservation, payment_no, at_ms)
            }
            Command::Restore { reservation, owner, reason, actor } => {
                self.restore(activity, reservation, owner, (reason, actor), at_ms)
            }
            Command::Archive { covered_seq } => self.archive(activity, covered_seq, at_ms),
            Command::OpenPayment(ref command) => self.open_payment(activity, command, at_ms),
            Command::RecordPayment(ref command) => self.record_payment(activity, command, at_ms),
            Command::RequestRefund(ref command) => self.request_refund(activity, command),
            Command::SettleRefund { reservation, refund_no } => {
                self.end_refund(activity, reservation, refund_no, None)
            }
            Command::FailRefund { reservation, refund_no, note } => {
                self.end_refund(activity, reservation, refund_no, Some(note))
            }
            Command::DeadLetter { reservation, failed_seq, note } => {
                self.dead_letter(activity, reservation, failed_seq, note, at_ms)
            }
            Command::RetryDeadLetter { reservation, actor } => {
                self.retry_dead_letter(activity, reservation, actor)
            }
            Command::RollBackDeadLetter { reservation, refund_no, actor } => {
                self.roll_back_dead_letter(activity, reservation, refund_no, actor, at_ms)
            }
            Command::Expire { serving_since_ms } => self.expire(activity, serving_since_ms, at_ms),
        };
        answered.unwrap_or_else(Reply::Refused)
    }

    /// The units of an activity.
    pub fn figures(&self, activity: ActivityId) -> Option<Figures> {
        self.sales.get(&activity).map(Sale::figures)
    }

    /// When an activity wants to be published, if it still does.
    pub fn publish_due_ms(&self, activity: ActivityId) -> Option<u64> {
        self.sales.get(&activity)?.publish_due_ms()
    }

    /// Refunds that the provider has yet to settle.
    pub fn open_refunds(&self) -> usize {
        let purchases = self.sales.values().flat_map(|sale| &sale.purchases);
        let refunds = purchases.flat_map(|purchase| purchase.refunds.values());
        refunds.filter(|refund| refund.status == RefundStatus::Requested).count()
    }

    /// Records that the log would hold by now.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// What is said of an activity that is not there.
    fn absent(&self, id: ActivityId, archived: Refusal, unknown: Refusal) -> Refusal {
        if self.archived.contains(&id) { archived } else { unknown }
    }

    fn sale(&mut self, id: ActivityId, absent: Refusal) -> Result<&mut Sale, Refusal> {
        self.sales.get_mut(&id).ok_or(absent)
    }

    fn create(
        &mut self,
        id: ActivityId,
        actor: Actor<'_>,
        ordinal: Ordinal,
        total: u32,
        definition: &Definition<'_>,
    ) -> Answered {
        validate::actor(&actor)?;
        validate::total_at_creation(total)?;
        validate::definition(definition)?;
        if self.sales.contains_key(&id) || self.archived.contains(&id) {
            return Err(Refusal::ActivityExists);
        }
        if ordinal.get() == 0 {
            return Err(Refusal::OrdinalsExhausted);
        }
        let sale = Sale {
            ordinal,
            version: 1,
            terms: Terms::new(definition),
            total,
            on_sale: false,
            paused: false,
            drained: false,
            schedule_over: false,
            purchases: Vec::new(),
            operations: BTreeMap::new(),
            transactions: BTreeSet::new(),
        };
        let figures = sale.answer(id);
        self.sales.insert(id, sale);
        self.records += 1;
        Ok(Reply::Activity { fresh: true, figures })
    }

    fn edit(
        &mut self,
        id: ActivityId,
        actor: Actor<'_>,
        version: Option<u32>,
        total: u32,
        definition: &Definition<'_>,
        at_ms: u64,
    ) -> Answered {
        validate::actor(&actor)?;
        validate::total(total)?;
        validate::definition(definition)?;
        let absent = self.absent(id, Refusal::Ended, Refusal::UnknownActivity);
        let sale = self.sale(id, absent)?;
        if version.unwrap_or(sale.version) != sale.version {
            return Err(Refusal::VersionMismatch { current: sale.version });
        }
        let new = Terms::new(definition);
        if new == sale.terms && total == sale.total {
            return Ok(Reply::Activity { fresh: false, figures: sale.answer(id) });
        }
        let started = sale.on_sale && sale.terms.start_ms <= at_ms;
        let mut records = 1;
        if started || !sale.purchases.is_empty() {
            let title_alone =
                Terms { title: sale.terms.title.clone(), ..new.clone() } == sale.terms;
            if !title_alone || total > sale.total {
                return Err(Refusal::LockedWhileInProgress);
            }
            let Figures { locked, sold, .. } = sale.figures();
            if total < locked + sold {
                return Err(Refusal::StockBelowReserved);
            }
            // The definition is one record, the units another.
            records += u64::from(total < sale.total);
        }
        let is_new = new.publish_at_ms != sale.terms.publish_at_ms;
        if is_new && new.publish_at_ms > at_ms && !sale.on_sale {
            sale.schedule_over = false;
        }
        sale.terms = new;
        sale.total = total;
        sale.version += 1;
        let figures = sale.answer(id);
        self.records += records;
        Ok(Reply::Activity { fresh: true, figures })
    }

    /// `throw` says whether it changed anything.
    fn switch(
        &mut self,
        id: ActivityId,
        actor: Actor<'_>,
        throw: impl FnOnce(&mut Sale) -> bool,
    ) -> Answered {
        validate::actor(&actor)?;
        let absent = self.absent(id, Refusal::Ended, Refusal::UnknownActivity);
        let sale = self.sale(id, absent)?;
        let fresh = throw(sale);
        let figures = sale.answer(id);
        self.records += u64::from(fresh);
        Ok(Reply::Activity { fresh, figures })
    }

    fn operate(
        &mut self,
        id: ActivityId,
        actor: Actor<'_>,
        op: &str,
        adds: bool,
        quantity: u32,
    ) -> Answered {
        validate::actor(&actor)?;
        validate::quantity(quantity)?;
        validate::operation_key(op)?;
        let absent = self.absent(id, Refusal::Ended, Refusal::UnknownActivity);
        let sale = self.sale(id, absent)?;
        if let Some((added, before, figures)) = sale.operations.get(op) {
            let same = *added == adds && *before == quantity;
            let figures = *figures;
            return if same {
                Ok(Reply::Activity { fresh: false, figures })
            } else {
                Err(Refusal::RequestIdReused)
            };
        }
        if sale.operations.len() == super::limits::OPERATIONS_PER_ACTIVITY_MAX {
            return Err(Refusal::TooManyOperations);
        }
        if adds {
            if u64::from(sale.total) + u64::from(quantity) > u64::from(super::limits::UNITS_MAX) {
                let text = "quantity would raise the stock above 2147483647";
                return Err(Refusal::Invalid(text));
            }
            sale.total += quantity;
        } else {
            if sale.figures().available < quantity {
                return Err(Refusal::StockBelowReserved);
            }
            sale.total -= quantity;
        }
        let figures = sale.answer(id);
        sale.operations.insert(op.to_owned(), (adds, quantity, figures));
        self.records += 1;
        Ok(Reply::Activity { fresh: true, figures })
    }

    fn reserve(&mut self, id: ActivityId, reserve: &Reserve<'_>, at_ms: u64) -> Answered {
        let &Reserve { user, request_id, quantity, .. } = reserve;
        validate::quantity(quantity)?;
        validate::request_id(request_id)?;
        let record = self.records + 1;
        let absent = self.absent(id, Refusal::Ended, Refusal::UnknownActivity);
        let sale = self.sale(id, absent)?;
        validate::amount(sale.terms.price, quantity)?;
        let same = |it: &Purchase| it.user == user && it.request_id == request_id;
        if let Some(index) = sale.purchases.iter().position(same) {
            return match sale.purchases.get(index) {
                Some(purchase) if purchase.quantity != quantity => Err(Refusal::RequestIdReused),
                _ => sale.told(id, index, false),
            };
        }
        let made = sale.purchases.iter().filter(|it| it.user == user).count() as u64;
        let limit = u64::from(sale.terms.per_user_limit);
        let checks = [
            (sale.paused || sale.drained, Refusal::Paused),
            (!sale.on_sale, Refusal::OffSale),
            (at_ms < sale.terms.start_ms, Refusal::NotStarted),
            (at_ms > sale.terms.end_ms, Refusal::Ended),
            (sale.figures().available < quantity, Refusal::SoldOut),
            (u64::from(sale.held(user)) + u64::from(quantity) > limit, Refusal::LimitReached),
            (made >= limit + 16, Refusal::LimitReached),
        ];
        if let Some((_, refusal)) = checks.into_iter().find(|(fails, _)| *fails) {
            return Err(refusal);
        }
        sale.purchases.push(Purchase {
            user,
            request_id: request_id.to_owned(),
            quantity,
            status: Status::Reserved,
            created_ms: at_ms,
            updated_ms: at_ms,
            payment_no: String::new(),
            record,
            payments: Vec::new(),
            refunds: BTreeMap::new(),
            letter: None,
        });
        let reply = sale.told(id, sale.purchases.len() - 1, true);
        self.records += 1;
        reply
    }
}
