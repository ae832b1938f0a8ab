//! What a reservation is in SQL, and what becomes of it.
//!
//! A reservation met in a batch is folded in memory: a new one from its event, an older one from
//! its rows. At the batch's end it is one insert or one update a table, so a batch that reserves,
//! pays and gives back comes out as its last state, and every update must hit its row.
//!
//! | event | pre-deduction | order | `user_activity_key` |
//! |---|---|---|---|
//! | reserved | `ordered` | `pending_payment` | set |
//! | confirmed | | `paid` | |
//! | restored | `rolled_back`, reason | `timeout`, else `cancelled` | NULL |
//! | reinstated | `ordered` | `paid` | set |
//! | refund requested | | `refunding` | |
//! | refund settled | | `refunded` | NULL where it frees the limit |
//! | refund failed | | `paid` | |
//! | dead-lettered | `dead_letter`, last_error | none any more | |
//! | dead letter retried | `ordered`, attempts + 1 | made, as it would be by now | |
//!
//! A dead letter has no order. What its order would be by now stands in `dead_letters`, so that a
//! retry, however late, makes it as if nothing had been wrong. Where the pre-deduction itself was
//! refused, that is all there is of it: a retry makes its row too, without the request's id.

use std::sync::Arc;

use engine::core::event::RestoreReason;
use engine::core::ids::{ReservationId, UserId};

use super::activities::Activity;
use super::dead_letters::{DeadLetter, State};
use super::store::Value;

/// A reservation, as the batch leaves it.
#[derive(Clone, Debug)]
pub(super) struct Reservation<'a> {
    pub(super) id: ReservationId,
    pub(super) order_no: String,
    pub(super) user: u64,
    pub(super) activity: u64,
    pub(super) sku: u64,
    pub(super) price: u64,
    pub(super) quantity: u64,
    /// `None` where its row exists already.
    pub(super) birth: Option<Birth<'a>>,
    /// Whether it has a row at all, or will have.
    pub(super) has_row: bool,
    /// The hash of its request, where it has no row that keeps it.
    pub(super) lone_hash: Option<u128>,
    pub(super) order: Order,
    /// Where no order could hold it, once.
    pub(super) dead_letter: Option<DeadLetter<'a>>,
    /// No order without an address, where the shop says so.
    pub(super) needs_address: bool,
    /// The log says that SQL had its order once: the database came back older, or empty. What it
    /// lacks is lost, and no reason to take the order back.
    pub(super) had_order: bool,
    pub(super) status: Status,
    pub(super) reason: Value<'a>,
    pub(super) attempts: u64,
    pub(super) last_error: Value<'a>,
    pub(super) rolled_back_at: Value<'a>,
    pub(super) order_status: Value<'a>,
    pub(super) user_activity_key: Value<'a>,
    pub(super) payment_no: Value<'a>,
    pub(super) paid_at: Value<'a>,
    pub(super) cancelled_at: Value<'a>,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
}

/// Where a pre-deduction is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Ordered,
    RolledBack,
    DeadLetter,
}

impl Status {
    const ALL: [Self; 3] = [Self::Ordered, Self::RolledBack, Self::DeadLetter];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::RolledBack => "rolled_back",
            Self::DeadLetter => "dead_letter",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// What only a new reservation's row needs.
#[derive(Clone, Debug)]
pub(super) struct Birth<'a> {
    /// `None` where only its hash is known any more.
    pub(super) request_id: Option<&'a str>,
    pub(super) request_hash: u128,
}

/// What a new order takes from its activity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub(super) title: Arc<str>,
    pub(super) expire_ms: u64,
}

/// Where a reservation's order is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// In SQL.
    Present,
    /// In SQL, until this batch takes it out.
    Withdrawn,
    /// Made by this batch.
    Due(Terms),
    /// Nowhere: there is a dead letter instead.
    Missing,
}

impl<'a> Reservation<'a> {
    /// A reservation just accepted, unpaid.
    pub(super) fn new(
        id: ReservationId,
        order_no: String,
        user: UserId,
        quantity: u32,
        activity: &Activity,
        request: (Option<&'a str>, u128),
        created_ms: u64,
    ) -> Self {
        let birth = Birth { request_id: request.0, request_hash: request.1 };
        let mut new = Self {
            id,
            order_no,
            user: user.get(),
            activity: activity.id.get(),
            sku: activity.sku,
            price: activity.price,
            quantity: quantity.into(),
            birth: Some(birth),
            has_row: true,
            lone_hash: None,
            order: Order::Due(terms(activity, created_ms)),
            dead_letter: None,
            needs_address: false,
            had_order: false,
            status: Status::Ordered,
            reason: Value::Null,
            attempts: 1,
            last_error: Value::Null,
            rolled_back_at: Value::Null,
            order_status: Value::text("pending_payment"),
            user_activity_key: Value::Null,
            payment_no: Value::Null,
            paid_at: Value::Null,
            cancelled_at: Value::Null,
            created_ms,
            updated_ms: created_ms,
        };
        new.user_activity_key = new.taken_slot();
        new
    }

    pub(super) fn taken_slot(&self) -> Value<'a> {
        Value::text(format!("{}:{}:{}", self.user, self.activity, self.id))
    }

    /// What is to be paid. Price and quantity were accepted only where this stays below 2^53.
    pub(super) fn amount(&self) -> u64 {
        self.price.saturating_mul(self.quantity)
    }

    /// It was paid.
    pub(super) fn confirm(&mut self, payment_no: &'a str, at_ms: u64) {
        self.order_status = Value::text("paid");
        self.payment_no = Value::text(payment_no);
        self.paid_at = Value::integer(at_ms);
        self.updated_ms = at_ms;
    }

    /// Its units went back, and with them what was left of a dead letter.
    pub(super) fn restore(&mut self, reason: RestoreReason, at_ms: u64) {
        self.close_dead_letter(State::RolledBack, at_ms);
        let (reason, order_status) = match reason {
            RestoreReason::Cancelled => ("cancelled", "cancelled"),
            RestoreReason::Timeout => ("timeout", "timeout"),
            RestoreReason::DeadLetter => ("dead_letter", "cancelled"),
            RestoreReason::Admin => ("admin", "cancelled"),
            RestoreReason::Api => ("api", "cancelled"),
        };
        self.status = Status::RolledBack;
        self.reason = Value::text(reason);
        self.rolled_back_at = Value::integer(at_ms);
        self.order_status = Value::text(order_status);
        self.user_activity_key = Value::Null;
        self.cancelled_at = Value::integer(at_ms);
        self.updated_ms = at_ms;
    }

    /// A late payment was honoured.
    pub(super) fn reinstate(&mut self, payment_no: &'a str, at_ms: u64) {
        self.status = Status::Ordered;
        self.reason = Value::Null;
        self.rolled_back_at = Value::Null;
        self.cancelled_at = Value::Null;
        self.user_activity_key = self.taken_slot();
        self.confirm(payment_no, at_ms);
        if matches!(self.order, Order::Withdrawn | Order::Missing) {
            // Paid and without an order: an operator's, whatever became of it before.
            self.status = Status::DeadLetter;
            if let Some(letter) = &mut self.dead_letter {
                (letter.state, letter.resolved_ms) = (State::Open, None);
            }
        }
    }

    /// Its order moved on without units being touched.
    pub(super) fn set_order_status(&mut self, status: &'static str, at_ms: u64) {
        self.order_status = Value::text(status);
        self.updated_ms = at_ms;
    }

    /// Whether its order, which is due, is for units that the buyer still has.
    pub(super) fn is_alive(&self) -> bool {
        self.status != Status::RolledBack
    }

    /// Its money went back; the slot is free where the refund frees the user's limit.
    pub(super) fn refunded(&mut self, frees_limit: bool, at_ms: u64) {
        if frees_limit {
            self.user_activity_key = Value::Null;
        }
        self.set_order_status("refunded", at_ms);
    }

    /// Its row is refused: its dead letter stands for it.
    pub(super) fn leave_row_out(&mut self) {
        self.lone_hash = self.birth.take().map(|birth| birth.request_hash).or(self.lone_hash);
        self.has_row = false;
    }
}

/// A request's hash as SQL keeps it.
pub(super) fn hash_bytes(hash: u128) -> Value<'static> {
    Value::bytes(hash.to_le_bytes().to_vec())
}

/// What the order of a reservation accepted at `created_ms` takes from `activity`.
pub(super) fn terms(activity: &Activity, created_ms: u64) -> Terms {
    let expire_ms = created_ms.saturating_add(activity.payment_ttl_ms);
    Terms { title: Arc::clone(&activity.title), expire_ms }
}
