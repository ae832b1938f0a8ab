//! What only SQL knows of activities that have left the engine's memory: their reservations,
//! payments and refunds.

use engine::core::command::{ArchivedOrder, ArchivedPayment};
use engine::core::ids::{ActivityId, ReservationId, UserId};

use super::fill::GONE_SKU;
use super::queries::{OrderStatus, Queries};
use super::store::{Record, StoreError, Value};

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
    user: UserId,
    channel: String,
    amount: u64,
    order_paid: bool,
    transaction_known: bool,
}

impl PaymentFacts {
    /// As the engine takes them.
    pub fn as_command(&self) -> ArchivedPayment<'_> {
        let &Self { user, ref channel, amount, order_paid, transaction_known } = self;
        ArchivedPayment { user, channel, amount, order_paid, transaction_known }
    }
}

/// What is known of an order that a payment has paid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderFacts {
    user: UserId,
    channel: String,
    payment_no: String,
    transaction: String,
    amount: u64,
}

impl OrderFacts {
    /// As the engine takes them.
    pub fn as_command(&self) -> ArchivedOrder<'_> {
        let &Self { user, ref channel, ref payment_no, ref transaction, amount } = self;
        ArchivedOrder { user, channel, payment_no, transaction, amount }
    }
}

const RESERVATION: &str = "SELECT p.id, p.user_id, p.activity_id, p.sku_id, p.price, p.quantity, \
     p.order_no, p.status, p.reason, p.created_at, p.updated_at, \
     p.created_at + a.payment_ttl_ms FROM flashsale_pre_deductions p \
     JOIN flashsale_activities a ON a.id = p.activity_id";

impl Queries {
    /// The reservation `id`.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn reservation(
        &self,
        id: ReservationId,
    ) -> Result<Option<ReservationRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = format!("{RESERVATION} WHERE p.id = ?");
        let records = snapshot.rows(text, &[Value::integer(id.get())]).await?;
        records.first().map(reservation).transpose()
    }

    /// The activity `id`, as its last event left it; `None` as well where only that it was is known
    /// any more.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn activity(&self, id: ActivityId) -> Result<Option<ActivityRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT id, sku_id, title, price, stock, total_stock, locked_stock, \
                    sold_stock, per_user_limit, status, paused, drained, version, start_at, \
                    end_at, payment_ttl_ms, late_payment, dead_letter \
                    FROM flashsale_activities WHERE id = ? AND sku_id <> ?";
        let values = [Value::integer(id.get()), Value::integer(GONE_SKU)];
        let records = snapshot.rows(text, &values).await?;
        records.first().map(activity).transpose()
    }

    /// Units of `activity` that `user` has bought and not given back.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn held(&self, activity: ActivityId, user: UserId) -> Result<u64, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT quantity FROM flashsale_pre_deductions \
                    WHERE user_id = ? AND activity_id = ? AND status = 'ordered'";
        let values = [Value::integer(user.get()), Value::integer(activity.get())];
        let records = snapshot.rows(text, &values).await?;
        records.iter().map(|record| record.number(0)).sum()
    }

    /// The reservation that `user`'s request made. A database that outlived its log knows only
    /// `request_hash`.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn reservation_of_request(
        &self,
        activity: ActivityId,
        user: UserId,
        request_id: &str,
        request_hash: u128,
    ) -> Result<Option<ReservationRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = format!(
            "{RESERVATION} WHERE p.user_id = ? AND p.activity_id = ? AND (p.client_request_id = ? \
             OR (p.client_request_id IS NULL AND p.request_hash = ?))"
        );
        let values = [
            Value::integer(user.get()),
            Value::integer(activity.get()),
            Value::bytes(request_id.as_bytes()),
            Value::bytes(request_hash.to_le_bytes().to_vec()),
        ];
        let records = snapshot.rows(text, &values).await?;
        records.first().map(reservation).transpose()
    }

    /// The payment of that number.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn payment(&self, payment_no: &str) -> Result<Option<PaymentRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT payment_no, order_no, user_id, channel, amount, status, expires_at \
                    FROM payments WHERE payment_no = ?";
        let records = snapshot.rows(text, &[Value::text(payment_no)]).await?;
        records.first().map(payment).transpose()
    }

    /// The refunds of an order, and of payments that were to pay it.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn refunds_of(&self, order_no: &str) -> Result<Vec<RefundRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT refund_no, scope, status, restock, free_limit FROM refunds \
                    WHERE order_no = ? ORDER BY created_at, refund_no";
        let records = snapshot.rows(text, &[Value::text(order_no)]).await?;
        let refund = |record: &Record| {
            Ok(RefundRow {
                refund_no: record.text(0)?.to_owned(),
                scope: record.text(1)?.to_owned(),
                status: record.text(2)?.to_owned(),
                restock: record.number(3)? != 0,
                free_limit: record.number(4)? != 0,
            })
        };
        records.iter().map(refund).collect()
    }

    /// What a callback about `payment_no`, of the reservation `id`, rests on; `None` where there is
    /// no such reservation.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn payment_facts(
        &self,
        id: ReservationId,
        payment_no: &str,
        transaction: &str,
    ) -> Result<Option<PaymentFacts>, StoreError> {
        let Some(row) = self.reservation(id).await? else { return Ok(None) };
        let unreadable = StoreError::Unreadable { column: 1 };
        let user = UserId::new(row.user_id).ok_or(unreadable)?;
        let order_paid = self.order(user, &row.order_no).await?.is_some_and(|order| {
            use OrderStatus::{Completed, Paid, Refunded, Refunding, Shipped};
            [Paid, Shipped, Completed, Refunding, Refunded].contains(&order.status)
        });
        let opened = self.payment(payment_no).await?;
        let mut snapshot = self.snapshot().await?;
        // A failure is no receipt: the same transaction may yet be paid.
        let text = "SELECT COUNT(*) FROM payment_callbacks WHERE payment_no = ? \
                    AND transaction_no = ? AND verdict <> 'failed'";
        let values = [Value::text(payment_no), Value::text(transaction)];
        let known = snapshot.rows(text, &values).await?;
        let known = known.first().map_or(Ok(0), |record| record.number(0))?;
        let amount = row.price.saturating_mul(row.quantity);
        Ok(Some(PaymentFacts {
            user,
            amount: opened.as_ref().map_or(amount, |payment| payment.amount),
            channel: opened.map(|payment| payment.channel).unwrap_or_default(),
            order_paid,
            transaction_known: known > 0,
        }))
    }

    /// What a refund of the order that `payment_no` paid rests on; `None` where it paid none.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order_facts(&self, payment_no: &str) -> Result<Option<OrderFacts>, StoreError> {
        let Some(row) = self.payment(payment_no).await? else { return Ok(None) };
        if row.status != "paid" {
            return Ok(None);
        }
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT transaction_no FROM payment_callbacks \
                    WHERE payment_no = ? AND verdict = 'accepted'";
        let records = snapshot.rows(text, &[Value::text(payment_no)]).await?;
        let transaction = records.first().map_or(Ok(""), |record| record.text(0))?.to_owned();
        let user = UserId::new(row.user_id).ok_or(StoreError::Unreadable { column: 2 })?;
        let (channel, amount) = (row.channel, row.amount);
        Ok(Some(OrderFacts { user, channel, payment_no: row.payment_no, transaction, amount }))
    }
}

fn reservation(record: &Record) -> Result<ReservationRow, StoreError> {
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

fn activity(record: &Record) -> Result<ActivityRow, StoreError> {
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

fn payment(record: &Record) -> Result<PaymentRow, StoreError> {
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
