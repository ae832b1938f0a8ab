//! The state of one activity.
//!
//! The hot path touches four places: this struct, one bucket of the user table, the user's last
//! reservation where there is one, and the end of the dense array. Everything that few
//! reservations have (payment numbers, refunds, dead letters, adopted ids) lies aside.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::command::{ActivityFigures, Reservation};
use super::event::{Definition, Figures, RefundScope, Status};
use super::ids::{ActivityId, Ordinal, Position, ReservationId, UserId, attempt_of};
use super::limits::{EXPIRY_GRACE_MS_MAX, ID_MAX};
use super::publication::Publication;
use super::reservation::Slot;
use super::side::{
    Adopted, DeadLetter, DeadLetterState, Operation, Payment, PaymentStatus, Refund, RefundStatus,
    Refunds,
};
use super::slots::Slots;
use super::table::{Table, Tables};
use super::terms::Terms;
use super::user::Users;
use crate::planted::{self, Bug};

/// One flash sale.
#[derive(Debug)]
pub struct Activity {
    pub(super) ordinal: Ordinal,
    pub(super) version: u32,
    pub(super) terms: Arc<Terms>,
    pub(super) figures: Figures,
    /// Kept apart from the figures, so that their sum can be held against something (W17).
    pub(super) total: u32,
    /// Units that were sold before this log began: no reservation here stands for them.
    pub(super) sold_before: u32,
    pub(super) flags: Flags,
    /// It was published, or an operator took it off its schedule: it does not publish itself.
    pub(super) schedule_over: bool,

    /// Reservations accepted here, by position.
    pub(super) slots: Slots,
    /// Index of the first slot that is unpaid; none before it is. The whole timer.
    pub(super) unpaid_from: usize,
    pub(super) users: Users,

    /// Payment numbers of reservations that are or were paid.
    pub(super) payments: Table<ReservationId, Box<str>>,
    /// Restocks and decreases by key, so that each happens once.
    pub(super) operations: Table<Box<str>, Operation>,
    /// Payments that were opened, by attempt.
    pub(super) openings: BTreeMap<ReservationId, Vec<Payment>>,
    /// Provider transactions, hashed, each with the reservation whose callback brought it.
    pub(super) receipts: Table<u128, ReservationId>,
    /// Refunds, asked for, settled or refused.
    pub(super) refunds: Refunds,
    /// Reservations that no order could hold, and what became of them.
    pub(super) dead_letters: BTreeMap<ReservationId, DeadLetter>,
    /// Reservations whose ids came from elsewhere.
    pub(super) adopted: BTreeMap<ReservationId, Adopted>,
    /// Those of them that are unpaid, by acceptance.
    pub(super) adopted_unpaid: BTreeSet<(u64, ReservationId)>,

    /// Not state: what lists show. In no digest.
    pub(super) published: Publication<View>,
    pub(super) published_terms: Publication<Arc<Terms>>,
}

/// What an operator switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Published.
    pub on_sale: bool,
    /// New purchases are stopped.
    pub paused: bool,
    /// New purchases are stopped for good.
    pub drained: bool,
}

/// What lists show of an activity, beside its [`Terms`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Version of the definition.
    pub version: u32,
    /// Its units.
    pub figures: Figures,
    /// Its switches.
    pub flags: Flags,
    /// It does not publish itself (any more).
    pub schedule_over: bool,
}

impl Activity {
    pub(super) fn new(
        ordinal: Ordinal,
        version: u32,
        figures: Figures,
        flags: Flags,
        definition: &Definition<'_>,
        shard_seq: u64,
        tables: Tables,
    ) -> Self {
        let terms = Arc::new(Terms::new(definition));
        let view = View { version, figures, flags, schedule_over: flags.on_sale };
        let total = u32::try_from(figures.total())
            .unwrap_or_else(|_| unreachable!("the codec bounds the sum of figures"));
        Self {
            ordinal,
            version,
            terms: Arc::clone(&terms),
            figures,
            total,
            sold_before: figures.sold,
            flags,
            schedule_over: flags.on_sale,
            slots: Slots::default(),
            unpaid_from: 0,
            users: Users::new(tables),
            payments: tables.make(),
            operations: tables.make(),
            openings: BTreeMap::new(),
            receipts: tables.make(),
            refunds: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            adopted: BTreeMap::new(),
            adopted_unpaid: BTreeSet::new(),
            published: Publication::new(shard_seq, view),
            published_terms: Publication::new(shard_seq, terms),
        }
    }

    /// The record of its shard that changed it last.
    pub const fn changed_seq(&self) -> u64 {
        self.published.live_seq()
    }

    /// Its ordinal, the high part of its reservations' ids.
    pub const fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// The version of its definition, from 1.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Its definition.
    pub const fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// Its units.
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// All its units.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Its switches.
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// What lists show once the last event is durable.
    pub const fn view(&self) -> View {
        View {
            version: self.version,
            figures: self.figures,
            flags: self.flags,
            schedule_over: self.schedule_over,
        }
    }

    /// What lists show while the shard is durable up to `durable_seq`: the newest durable view
    /// and definition. `None` while its creation is not durable.
    pub fn published(&self, durable_seq: u64) -> Option<(View, &Arc<Terms>)> {
        Some((*self.published.read(durable_seq)?, self.published_terms.read(durable_seq)?))
    }

    /// What an operator's command is answered.
    pub const fn answer(&self, activity: ActivityId) -> ActivityFigures {
        ActivityFigures { activity, version: self.version, figures: self.figures }
    }

    /// Units that `user` holds.
    pub fn held(&self, user: UserId) -> u32 {
        self.users.held(user)
    }

    /// Every user ever seen here with the units that each holds, in no order.
    pub fn holders(&self) -> impl Iterator<Item = (UserId, u32)> {
        self.users.iter().map(|user| (user.id, user.held))
    }

    /// The reservation that `user`'s request made here, if one did.
    pub fn find_request(&self, user: UserId, request_hash: u128) -> Option<ReservationId> {
        self.users.look_up(user, request_hash, &self.slots, self.ordinal).1.found
    }

    /// The reservations that `user` made here, the adopted ones too, in no order that anything may
    /// rest on.
    pub fn reservations_of(&self, user: UserId) -> Vec<ReservationId> {
        self.users.reservations(user, &self.slots, self.ordinal)
    }

    /// Whether a reservation exists or ever existed, here or before this log.
    pub fn was_reserved(&self) -> bool {
        !self.slots.is_empty()
            || !self.adopted.is_empty()
            || self.figures.locked > 0
            || self.figures.sold > 0
    }

    /// Reservations accepted here, by position.
    pub const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// A reservation in memory.
    pub fn slot(&self, id: ReservationId) -> Option<&Slot> {
        match self.own_position(id) {
            Some(position) => self.slots.get(position.index()),
            None => self.adopted.get(&id).map(|adopted| &adopted.slot),
        }
    }

    /// The adopted reservations, by id.
    pub fn adopted(&self) -> impl Iterator<Item = (ReservationId, &Adopted)> {
        self.adopted.iter().map(|(id, adopted)| (*id, adopted))
    }

    /// An adopted reservation.
    pub fn adopted_reservation(&self, id: ReservationId) -> Option<&Adopted> {
        self.adopted.get(&id)
    }

    /// The refund of an order: the one that is open or settled, else one that was refused.
    pub fn refund(&self, id: ReservationId) -> Option<(&str, &Refund)> {
        if self.refunds.is_empty() {
            return None;
        }
        let of_order = || self.refunds_of(id).filter(|(_, it)| it.scope == RefundScope::Order);
        let in_force = of_order().find(|(_, it)| it.status != RefundStatus::Failed);
        in_force.or_else(|| of_order().last())
    }

    /// The refunds of a reservation, by number.
    pub fn refunds_of(&self, id: ReservationId) -> impl Iterator<Item = (&str, &Refund)> {
        let range = self.refunds.range((Bound::Included((id, Box::default())), Bound::Unbounded));
        let of_it = range.take_while(move |((reservation, _), _)| *reservation == id);
        of_it.map(|((_, refund_no), refund)| (refund_no.as_ref(), refund))
    }

    /// Restocks and decreases that were done, by key, in no order.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &Operation)> {
        self.operations.iter().map(|(op, operation)| (op.as_ref(), operation))
    }

    /// The payments that were opened for a reservation, by attempt.
    pub fn payments_of(&self, id: ReservationId) -> &[Payment] {
        self.openings.get(&id).map_or(&[], Vec::as_slice)
    }

    /// By what a reservation was paid: channel, payment, transaction. Empty as far as a back end
    /// brought a payment of its own.
    pub(super) fn paid_by(&self, id: ReservationId) -> (&str, &str, &str) {
        let payment_no = self.payment_no(id).unwrap_or_default();
        let attempt = attempt_of(payment_no);
        let is_it = |it: &&Payment| Some(it.attempt) == attempt && it.status == PaymentStatus::Paid;
        let payment = self.payments_of(id).iter().find(is_it);
        payment.map_or(("", payment_no, ""), |it| (&it.channel, payment_no, &it.transaction))
    }

    /// What a reservation costs.
    ///
    /// # Panics
    /// Where that is more than a JSON parser reads exactly: no such reservation is accepted, and
    /// the price stays what it was then.
    pub(super) fn amount(&self, slot: &Slot) -> u64 {
        let amount = self.terms.price.saturating_mul(u64::from(slot.quantity()));
        assert!(amount <= ID_MAX, "a reservation that costs {amount} was accepted");
        amount
    }

    /// What is known of a reservation that no order could hold.
    pub fn dead_letter(&self, id: ReservationId) -> Option<&DeadLetter> {
        self.dead_letters.get(&id)
    }

    /// Reservations that no order could hold, with what became of each.
    pub fn dead_letters(&self) -> impl Iterator<Item = (ReservationId, &DeadLetter)> {
        self.dead_letters.iter().map(|(id, letter)| (*id, letter))
    }

    /// Sequence in the shard of the record with which a sink makes the reservation's order: that
    /// of its acceptance, or of its delivery after it was a dead letter. `None` while it is one.
    pub fn order_seq(&self, id: ReservationId) -> Option<u64> {
        match self.dead_letters.get(&id).map(|letter| letter.state) {
            Some(DeadLetterState::Open | DeadLetterState::RolledBack) => None,
            Some(DeadLetterState::Delivered { shard_seq }) => Some(shard_seq),
            None => self.slot(id).map(Slot::shard_seq),
        }
    }

    /// The payment that paid a reservation.
    pub fn payment_no(&self, id: ReservationId) -> Option<&str> {
        self.payments.get(&id).map(AsRef::as_ref)
    }

    /// A reservation, as it is told to callers.
    pub fn reservation(&self, activity: ActivityId, id: ReservationId) -> Option<Reservation> {
        let slot = self.slot(id)?;
        Some(Reservation {
            id,
            activity,
            user: slot.user(),
            sku: self.terms.sku,
            price: self.terms.price,
            quantity: slot.quantity(),
            status: slot.status(),
            created_ms: slot.created_ms(),
            updated_ms: slot.updated_ms(),
            pay_before_ms: slot.created_ms().saturating_add(self.terms.payment_ttl_ms),
            payment_no: self.payment_no(id).unwrap_or_default().to_owned(),
            remaining: self.figures.available,
            shard_seq: slot.shard_seq(),
        })
    }

    /// The unpaid reservation that was accepted first.
    pub fn oldest_unpaid(&self) -> Option<(u64, ReservationId)> {
        let own = self.slots.get(self.unpaid_from).map(|slot| {
            let position = Position::after(self.unpaid_from)
                .unwrap_or_else(|| unreachable!("every slot has a position"));
            (slot.created_ms(), ReservationId::compose(self.ordinal, position))
        });
        let adopted = self.adopted_unpaid.first().copied();
        own.into_iter().chain(adopted).min()
    }

    /// When the oldest unpaid reservation falls due, if there is one. Shoppers could not pay while
    /// the server was down: after `serving_since_ms` each has some time yet.
    pub fn next_due_ms(&self, serving_since_ms: u64) -> Option<u64> {
        let (created_ms, _) = self.oldest_unpaid()?;
        let halves = u64::from(planted::has(Bug::TimedOutEarly));
        let payment_ttl_ms = self.terms.payment_ttl_ms >> halves;
        let grace_ms = payment_ttl_ms.min(EXPIRY_GRACE_MS_MAX);
        let due_ms = created_ms.saturating_add(payment_ttl_ms);
        Some(due_ms.max(serving_since_ms.saturating_add(grace_ms)))
    }

    /// Whether nothing of it is left to move or to decide.
    pub fn is_settled(&self) -> bool {
        let refund_open = self.refunds.values().any(|it| it.status == RefundStatus::Requested);
        let letter_open = self.dead_letters.values().any(DeadLetter::is_open);
        self.figures.locked == 0 && !refund_open && !letter_open
    }

    /// When it wants to be published, if it still does.
    pub fn publish_due_ms(&self) -> Option<u64> {
        (self.terms.publish_at_ms != 0 && !self.schedule_over).then_some(self.terms.publish_at_ms)
    }

    /// The position in `id` where it names a reservation accepted here.
    pub(super) fn own_position(&self, id: ReservationId) -> Option<Position> {
        if id.ordinal() == self.ordinal { id.position() } else { None }
    }

    pub(super) fn slot_mut(&mut self, id: ReservationId) -> Option<&mut Slot> {
        match self.own_position(id) {
            Some(position) => self.slots.get_mut(position.index()),
            None => self.adopted.get_mut(&id).map(|adopted| &mut adopted.slot),
        }
    }

    /// Moves the cursor to the first unpaid slot. Each slot is passed once in its life.
    pub(super) fn advance_unpaid(&mut self) {
        let settled = |slot: &Slot| slot.status() != Status::Reserved;
        while self.slots.get(self.unpaid_from).is_some_and(settled) {
            self.unpaid_from += 1;
        }
    }
}
