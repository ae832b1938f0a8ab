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
//! | dead-lettered | `dead_letter`, last_error | | |
//! | dead letter delivered | `ordered` | | |

use std::sync::Arc;

use engine::core::event::{DeadLetterResolution, RestoreReason};
use engine::core::ids::{ReservationId, UserId};

use super::activities::Activity;
use super::store::{Lookup, Record, StoreError, Transaction, Value};

static RESERVATIONS_BY_ID: Lookup = Lookup {
    columns: &[
        "p.id",
        "p.order_no",
        "p.user_id",
        "p.activity_id",
        "p.price",
        "p.quantity",
        "p.status",
        "p.reason",
        "p.last_error",
        "p.rolled_back_at",
        "o.status",
        "o.user_activity_key",
        "o.payment_no",
        "o.paid_at",
        "o.cancelled_at",
        "p.updated_at",
    ],
    from: "flashsale_pre_deductions p JOIN orders o ON o.order_no = p.order_no",
    key: "p.id",
};

/// A reservation, as the batch leaves it.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    pub(super) id: ReservationId,
    pub(super) order_no: String,
    pub(super) user: u64,
    pub(super) activity: u64,
    pub(super) price: u64,
    pub(super) quantity: u64,
    /// `None` where its rows exist already.
    pub(super) birth: Option<Birth<'a>>,
    pub(super) status: Value<'a>,
    pub(super) reason: Value<'a>,
    pub(super) last_error: Value<'a>,
    pub(super) rolled_back_at: Value<'a>,
    pub(super) order_status: Value<'a>,
    pub(super) user_activity_key: Value<'a>,
    pub(super) payment_no: Value<'a>,
    pub(super) paid_at: Value<'a>,
    pub(super) cancelled_at: Value<'a>,
    pub(super) updated_ms: u64,
}

/// What only a new reservation's rows need.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    pub(super) request_id: &'a str,
    pub(super) request_hash: u128,
    pub(super) sku: u64,
    pub(super) title: Arc<str>,
    pub(super) expire_ms: u64,
    pub(super) created_ms: u64,
}

impl<'a> Reservation<'a> {
    /// A reservation just accepted, unpaid.
    pub(super) fn new(
        id: ReservationId,
        order_no: String,
        user: UserId,
        quantity: u32,
        activity: &Activity,
        request: (&'a str, u128),
        created_ms: u64,
    ) -> Self {
        let birth = Birth {
            request_id: request.0,
            request_hash: request.1,
            sku: activity.sku,
            title: Arc::clone(&activity.title),
            expire_ms: created_ms.saturating_add(activity.payment_ttl_ms),
            created_ms,
        };
        let mut new = Self {
            id,
            order_no,
            user: user.get(),
            activity: activity.id.get(),
            price: activity.price,
            quantity: quantity.into(),
            birth: Some(birth),
            status: Value::text("ordered"),
            reason: Value::Null,
            last_error: Value::Null,
            rolled_back_at: Value::Null,
            order_status: Value::text("pending_payment"),
            user_activity_key: Value::Null,
            payment_no: Value::Null,
            paid_at: Value::Null,
            cancelled_at: Value::Null,
            updated_ms: created_ms,
        };
        new.user_activity_key = new.taken_slot();
        new
    }

    fn taken_slot(&self) -> Value<'a> {
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

    /// Its units went back.
    pub(super) fn restore(&mut self, reason: RestoreReason, at_ms: u64) {
        let (reason, order_status) = match reason {
            RestoreReason::Cancelled => ("cancelled", "cancelled"),
            RestoreReason::Timeout => ("timeout", "timeout"),
            RestoreReason::DeadLetter => ("dead_letter", "cancelled"),
            RestoreReason::Admin => ("admin", "cancelled"),
            RestoreReason::Api => ("api", "cancelled"),
        };
        self.status = Value::text("rolled_back");
        self.reason = Value::text(reason);
        self.rolled_back_at = Value::integer(at_ms);
        self.order_status = Value::text(order_status);
        self.user_activity_key = Value::Null;
        self.cancelled_at = Value::integer(at_ms);
        self.updated_ms = at_ms;
    }

    /// A late payment was honoured.
    pub(super) fn reinstate(&mut self, payment_no: &'a str, at_ms: u64) {
        self.status = Value::text("ordered");
        self.reason = Value::Null;
        self.rolled_back_at = Value::Null;
        self.cancelled_at = Value::Null;
        self.user_activity_key = self.taken_slot();
        self.confirm(payment_no, at_ms);
    }

    /// Its order moved on without units being touched.
    pub(super) fn set_order_status(&mut self, status: &'static str, at_ms: u64) {
        self.order_status = Value::text(status);
        self.updated_ms = at_ms;
    }

    /// No order could hold it.
    pub(super) fn dead_letter(&mut self, note: &'a str, at_ms: u64) {
        self.status = Value::text("dead_letter");
        self.last_error = Value::text(note);
        self.updated_ms = at_ms;
    }

    /// Its dead letter was closed. Where the units went back, [`Reservation::restore`] said so.
    pub(super) fn dead_letter_resolved(&mut self, resolution: DeadLetterResolution, at_ms: u64) {
        if resolution == DeadLetterResolution::Delivered {
            self.status = Value::text("ordered");
            self.last_error = Value::Null;
        }
        self.updated_ms = at_ms;
    }

    /// Its money went back; the slot is free where the refund frees the user's limit.
    pub(super) fn refunded(&mut self, frees_limit: bool, at_ms: u64) {
        if frees_limit {
            self.user_activity_key = Value::Null;
        }
        self.set_order_status("refunded", at_ms);
    }

    fn read(mut record: Record) -> Result<Self, StoreError> {
        let id = record.number(0)?;
        Ok(Self {
            id: ReservationId::new(id).ok_or(StoreError::Unreadable { column: 0 })?,
            order_no: record.text(1)?.to_owned(),
            user: record.number(2)?,
            activity: record.number(3)?,
            price: record.number(4)?,
            quantity: record.number(5)?,
            birth: None,
            status: record.take(6)?,
            reason: record.take(7)?,
            last_error: record.take(8)?,
            rolled_back_at: record.take(9)?,
            order_status: record.take(10)?,
            user_activity_key: record.take(11)?,
            payment_no: record.take(12)?,
            paid_at: record.take(13)?,
            cancelled_at: record.take(14)?,
            updated_ms: record.number(15)?,
        })
    }
}

/// The reservations of `ids`, from their rows.
pub(super) async fn load(
    ids: &[ReservationId],
    transaction: &mut impl Transaction,
) -> Result<Vec<Reservation<'static>>, StoreError> {
    let keys: Vec<_> = ids.iter().map(|id| Value::integer(id.get())).collect();
    let records = transaction.select(&RESERVATIONS_BY_ID, &keys).await?;
    records.into_iter().map(Reservation::read).collect()
}
