//! Rows of what is archived, and what the engine takes of them.

use engine::core::command::{ArchivedOrder, ArchivedPayment};
use engine::core::ids::{ActivityId, ReservationId, UserId};

use crate::sql::store::{Record, StoreError};

/// A reservation's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservationRow {
    /// The reservation.
    pub id: u64,
    /// Its buyer.
    pub user_id: u64,
    /// Its activity.
    pub activity_id: u64,
    /// Its SKU.
    pub sku_id: u64,
    /// Price of a unit.
    pub price: u64,
    /// Units.
    pub quantity: u64,
    /// Its order number.
    pub order_no: String,
    /// `ordered`, `rolled_back` or `dead_letter`.
    pub status: String,
    /// Why it was given back.
    pub reason: Option<String>,
    /// Accepted at, Unix milliseconds.
    pub created_ms: u64,
    /// Last changed at, Unix milliseconds.
    pub updated_ms: u64,
    /// Unpaid, it was given back after this instant, Unix milliseconds.
    pub pay_before_ms: u64,
}

impl ReservationRow {
    /// Its activity.
    ///
    /// # Errors
    /// Where the row holds no id.
    pub fn activity(&self) -> Result<ActivityId, StoreError> {
        ActivityId::new(self.activity_id).ok_or(StoreError::Unreadable { column: 2 })
    }

    /// Its id.
    ///
    /// # Errors
    /// Where the row holds none.
    pub fn reservation(&self) -> Result<ReservationId, StoreError> {
        ReservationId::new(self.id).ok_or(StoreError::Unreadable { column: 0 })
    }

    /// Its buyer.
    ///
    /// # Errors
    /// Where the row holds no id.
    pub fn user(&self) -> Result<UserId, StoreError> {
        UserId::new(self.user_id).ok_or(StoreError::Unreadable { column: 1 })
    }
}

/// An activity's row.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the columns of `flashsale_activities`, by their names")]
pub struct ActivityRow {
    pub id: u64,
    pub sku_id: u64,
    pub title: String,
    pub price: u64,
    pub available: u64,
    pub total: u64,
    pub locked: u64,
    pub sold: u64,
    pub per_user_limit: u64,
    pub is_on_sale: bool,
    pub is_paused: bool,
    pub is_drained: bool,
    pub version: u64,
    pub start_ms: u64,
    pub end_ms: u64,
    pub payment_ttl_ms: u64,
    pub late_payment: String,
    pub dead_letter: String,
}

/// A payment's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaymentRow {
    /// Its number.
    pub payment_no: String,
    /// The order that it pays.
    pub order_no: String,
    /// The buyer.
    pub user_id: u64,
    /// The way it is paid.
    pub channel: String,
    /// What is to be paid.
    pub amount: u64,
    /// `pending`, `paid` or `failed`.
    pub status: String,
    /// Until when the provider takes it, Unix milliseconds.
    pub expires_ms: u64,
}

/// A refund's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefundRow {
    /// Its number.
    pub refund_no: String,
    /// `order` or `payment`.
    pub scope: String,
    /// `PENDING`, `SENT`, `SETTLED` or `FAILED`.
    pub status: String,
    /// Its units go back on sale.
    pub restock: bool,
    /// Its units no longer count against the user's limit.
    pub free_limit: bool,
}

/// What is known of a payment that a callback speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaymentFacts {
    pub(super) activity: ActivityId,
    pub(super) reservation: ReservationId,
    pub(super) user: UserId,
    pub(super) channel: String,
    pub(super) amount: u64,
    pub(super) order_paid: bool,
    pub(super) transaction_known: bool,
}

impl PaymentFacts {
    /// As the engine takes them.
    pub fn as_command(&self) -> ArchivedPayment<'_> {
        let &Self { activity, reservation, user, amount, order_paid, transaction_known, .. } = self;
        let channel = &self.channel;
        ArchivedPayment {
            activity,
            reservation,
            user,
            channel,
            amount,
            order_paid,
            transaction_known,
        }
    }
}

/// What is known of an order that a payment has paid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderFacts {
    pub(super) activity: ActivityId,
    pub(super) user: UserId,
    pub(super) channel: String,
    pub(super) payment_no: String,
    pub(super) transaction: String,
    pub(super) amount: u64,
}

impl OrderFacts {
    /// As the engine takes them.
    pub fn as_command(&self) -> ArchivedOrder<'_> {
        let &Self { activity, user, ref channel, ref payment_no, ref transaction, amount } = self;
        ArchivedOrder { activity, user, channel, payment_no, transaction, amount }
    }
}

pub(super) fn reservation(record: &Record) -> Result<ReservationRow, StoreError> {
    Ok(ReservationRow {
        id: record.number(0)?,
        user_id: record.number(1)?,
        activity_id: record.number(2)?,
        sku_id: record.number(3)?,
        price: record.number(4)?,
        quantity: record.number(5)?,
        order_no: record.text(6)?.to_owned(),
        status: record.text(7)?.to_owned(),
        reason: record.text_or_null(8)?.map(str::to_owned),
        created_ms: record.number(9)?,
        updated_ms: record.number(10)?,
        pay_before_ms: record.number(11)?,
    })
}

pub(super) fn activity(record: &Record) -> Result<ActivityRow, StoreError> {
    Ok(ActivityRow {
        id: record.number(0)?,
        sku_id: record.number(1)?,
        title: record.text(2)?.to_owned(),
        price: record.number(3)?,
        available: record.number(4)?,
        total: record.number(5)?,
        locked: record.number(6)?,
        sold: record.number(7)?,
        per_user_limit: record.number(8)?,
        is_on_sale: record.text(9)? == "on_sale",
        is_paused: record.number(10)? != 0,
        is_drained: record.number(11)? != 0,
        version: record.number(12)?,
        start_ms: record.number(13)?,
        end_ms: record.number(14)?,
        payment_ttl_ms: record.number(15)?,
        late_payment: record.text(16)?.to_owned(),
        dead_letter: record.text(17)?.to_owned(),
    })
}

pub(super) fn payment(record: &Record) -> Result<PaymentRow, StoreError> {
    Ok(PaymentRow {
        payment_no: record.text(0)?.to_owned(),
        order_no: record.text(1)?.to_owned(),
        user_id: record.number(2)?,
        channel: record.text(3)?.to_owned(),
        amount: record.number(4)?,
        status: record.text(5)?.to_owned(),
        expires_ms: record.number(6)?,
    })
}
