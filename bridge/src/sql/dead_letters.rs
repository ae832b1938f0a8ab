//! `dead_letters`: reservations that could not become an order. One row a reservation: tried again
//! and refused again, it is open again.
//!
//! The row is there from the batch in which the order was refused, in the transaction that lets the
//! rows behind it go on; the log says so before, in words that reach the sink after. The row also
//! keeps what the order would be by now.

use std::borrow::Cow;

use engine::core::event::DeadLetterResolution;

use super::activities::Activity;
use super::fault::SinkError;
use super::reservations::{Birth, Order, Reservation, Status, hash_bytes, terms};
use super::sink::update_all;
use super::store::{Rows, Table, Transaction, Value};

static DEAD_LETTERS: Table = Table {
    name: "dead_letters",
    columns: &[
        "id",
        "reason",
        "status",
        "created_at",
        "resolved_at",
        "order_status",
        "payment_no",
        "paid_at",
        "cancelled_at",
        "needs_address",
        "activity_id",
        "user_id",
        "order_no",
        "sku_id",
        "price",
        "quantity",
        "request_hash",
        "accepted_at",
    ],
    key_columns: 1,
};

static DEAD_LETTER_CHANGES: Table = Table {
    name: "dead_letters",
    columns: &[
        "id",
        "reason",
        "status",
        "created_at",
        "resolved_at",
        "order_status",
        "payment_no",
        "paid_at",
        "cancelled_at",
        "needs_address",
    ],
    key_columns: 1,
};

/// Where a dead letter is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Waits for an operator, or for the units to go back.
    Open,
    /// Tried again: its order is made.
    Delivered,
    /// Its units went back.
    RolledBack,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Open, Self::Delivered, Self::RolledBack];

    /// Its name in SQL and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Delivered => "delivered",
            Self::RolledBack => "rolled_back",
        }
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A reservation's dead letter, as the batch leaves it.
#[derive(Clone, Debug)]
pub(super) struct DeadLetter<'a> {
    /// Its row exists.
    pub(super) is_stored: bool,
    pub(super) state: State,
    pub(super) reason: Value<'a>,
    pub(super) opened_ms: u64,
    pub(super) resolved_ms: Option<u64>,
}

/// The rows of a batch's dead letters.
#[derive(Debug)]
pub(super) struct DeadLetterRows<'a> {
    new: Rows<'a>,
    changes: Rows<'a>,
}

impl<'a> DeadLetterRows<'a> {
    pub(super) fn new() -> Self {
        Self { new: Rows::new(&DEAD_LETTERS), changes: Rows::new(&DEAD_LETTER_CHANGES) }
    }

    /// Adds the row of `reservation`, if it has a dead letter.
    pub(super) fn push(&mut self, reservation: &Reservation<'a>) {
        let Some(letter) = &reservation.dead_letter else { return };
        let id = Value::integer(reservation.id.get());
        let reason = letter.reason.clone();
        let state = Value::text(letter.state.name());
        let opened = Value::integer(letter.opened_ms);
        let resolved = Value::integer_or_null(letter.resolved_ms);
        let order_status = reservation.order_status.clone();
        let payment_no = reservation.payment_no.clone();
        let (paid, cancelled) = (reservation.paid_at.clone(), reservation.cancelled_at.clone());
        let needs = Value::integer(reservation.needs_address);
        if letter.is_stored {
            self.changes.push([
                id,
                reason,
                state,
                opened,
                resolved,
                order_status,
                payment_no,
                paid,
                cancelled,
                needs,
            ]);
        } else {
            self.new.push([
                id,
                reason,
                state,
                opened,
                resolved,
                order_status,
                payment_no,
                paid,
                cancelled,
                needs,
                Value::integer(reservation.activity),
                Value::integer(reservation.user),
                Value::text(reservation.order_no.clone()),
                Value::integer(reservation.sku),
                Value::integer(reservation.price),
                Value::integer(reservation.quantity),
                reservation.lone_hash.map_or(Value::Null, hash_bytes),
                Value::integer(reservation.created_ms),
            ]);
        }
    }

    pub(super) async fn write(&self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        transaction.insert(&self.new).await?;
        update_all(transaction, &self.changes).await
    }
}

impl<'a> Reservation<'a> {
    /// No order can hold it.
    pub(super) fn dead_letter(&mut self, note: impl Into<Cow<'a, str>>, at_ms: u64) {
        let reason = Value::text(note);
        self.order = match self.order {
            Order::Present | Order::Withdrawn => Order::Withdrawn,
            Order::Due(_) | Order::Missing => Order::Missing,
        };
        self.last_error = reason.clone();
        let rolled_back = self.status == Status::RolledBack;
        if !rolled_back {
            self.status = Status::DeadLetter;
        }
        let is_stored = self.dead_letter.as_ref().is_some_and(|letter| letter.is_stored);
        let state = if rolled_back { State::RolledBack } else { State::Open };
        let resolved_ms = rolled_back.then_some(at_ms);
        let letter = DeadLetter { is_stored, state, reason, opened_ms: at_ms, resolved_ms };
        self.dead_letter = Some(letter);
        self.updated_ms = at_ms;
    }

    /// Its dead letter was closed. Where the units went back, [`Reservation::restore`] said so;
    /// where it is tried again, its order is made with what `activity` says now.
    pub(super) fn dead_letter_resolved(
        &mut self,
        resolution: DeadLetterResolution,
        activity: &Activity,
        at_ms: u64,
    ) {
        self.updated_ms = at_ms;
        if resolution == DeadLetterResolution::RolledBack {
            self.close_dead_letter(State::RolledBack, at_ms);
            return;
        }
        self.close_dead_letter(State::Delivered, at_ms);
        self.give_row();
        self.attempts += 1;
        self.last_error = Value::Null;
        if self.status == Status::DeadLetter {
            self.status = Status::Ordered;
        }
        match self.order {
            Order::Present | Order::Due(_) => {}
            Order::Withdrawn => self.order = Order::Present,
            Order::Missing => {
                self.order = Order::Due(terms(activity, self.created_ms));
                let is_free = self.status == Status::RolledBack;
                self.user_activity_key = if is_free { Value::Null } else { self.taken_slot() };
            }
        }
    }

    /// A row for one that stood alone as a dead letter: it is to have an order after all.
    pub(super) fn give_row(&mut self) {
        if !self.has_row {
            // Where the hash is unknown, one that no request has: the engine alone knows a repeat.
            let request_hash = self.lone_hash.take().unwrap_or(self.id.get().into());
            self.birth = Some(Birth { request_id: None, request_hash });
            self.has_row = true;
        }
    }

    pub(super) fn close_dead_letter(&mut self, state: State, at_ms: u64) {
        if let Some(letter) = &mut self.dead_letter
            && letter.state == State::Open
        {
            (letter.state, letter.resolved_ms) = (state, Some(at_ms));
        }
    }
}

/// Whether `reservation` leaves the batch with an order, or else with a dead letter: one of them,
/// always.
pub(super) fn has_one_outcome(reservation: &Reservation<'_>) -> bool {
    match reservation.order {
        Order::Present | Order::Due(_) => true,
        Order::Withdrawn | Order::Missing => reservation.dead_letter.is_some(),
    }
}
