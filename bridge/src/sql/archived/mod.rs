//! What only SQL knows of activities that have left the engine's memory: their reservations,
//! payments and refunds.

mod rows;

use engine::core::ids::{ActivityId, ReservationId, UserId};

use super::chunks::placeholders;
use super::fill::GONE_SKU;
use super::queries::{OrderStatus, Queries};
use super::store::{Record, StoreError, Value};

pub use rows::{ActivityRow, OrderFacts, PaymentFacts, PaymentRow, RefundRow, ReservationRow};
use rows::{activity, payment, reservation};

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

    /// The reservation whose order has that number: the way to one that memory has forgotten.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn reservation_of_order(
        &self,
        order_no: &str,
    ) -> Result<Option<ReservationRow>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = format!("{RESERVATION} WHERE p.order_no = ?");
        let records = snapshot.rows(text, &[Value::text(order_no)]).await?;
        records.first().map(reservation).transpose()
    }

    /// The activity `id`, as its last event left it; `None` as well where only that it was is known
    /// any more.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn activity(&self, id: ActivityId) -> Result<Option<ActivityRow>, StoreError> {
        Ok(self.activities(&[id]).await?.pop())
    }

    /// The payment that paid the reservation of `row`, as its order or its dead letter has it.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn payment_of(&self, row: &ReservationRow) -> Result<Option<String>, StoreError> {
        if let Some(order) = self.order(row.user()?, &row.order_no).await? {
            return Ok(order.payment_no);
        }
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT payment_no FROM dead_letters WHERE id = ?";
        let records = snapshot.rows(text, &[Value::integer(row.id)]).await?;
        let payment_no = records.first().map(|record| record.text_or_null(0)).transpose()?;
        Ok(payment_no.flatten().map(str::to_owned))
    }

    /// Those of `ids` that are there, by id, as their last events left them; they are read in one
    /// go, so that they should be few.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn activities(&self, ids: &[ActivityId]) -> Result<Vec<ActivityRow>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut snapshot = self.snapshot().await?;
        let text = format!(
            "SELECT id, sku_id, title, price, stock, total_stock, locked_stock, sold_stock, \
             per_user_limit, status, paused, drained, version, start_at, end_at, payment_ttl_ms, \
             late_payment, dead_letter FROM flashsale_activities WHERE id IN {} AND sku_id <> ? \
             ORDER BY id",
            placeholders(ids.len())
        );
        let mut values: Vec<_> = ids.iter().map(|id| Value::integer(id.get())).collect();
        values.push(Value::integer(GONE_SKU));
        let records = snapshot.rows(text, &values).await?;
        records.iter().map(activity).collect()
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

    /// What a callback about `payment_no`, of the reservation of `row`, rests on.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn payment_facts(
        &self,
        row: &ReservationRow,
        payment_no: &str,
        transaction: &str,
    ) -> Result<PaymentFacts, StoreError> {
        let user = row.user()?;
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
        Ok(PaymentFacts {
            activity: row.activity()?,
            reservation: row.reservation()?,
            user,
            amount: opened.as_ref().map_or(amount, |payment| payment.amount),
            channel: opened.map(|payment| payment.channel).unwrap_or_default(),
            order_paid,
            transaction_known: known > 0,
        })
    }

    /// What a refund of the order of `row`, which `payment_no` paid, rests on; `None` where it did
    /// not.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order_facts(
        &self,
        row: &ReservationRow,
        payment_no: &str,
    ) -> Result<Option<OrderFacts>, StoreError> {
        let (activity, user) = (row.activity()?, row.user()?);
        let Some(payment) = self.payment(payment_no).await? else {
            // What was taken over from elsewhere was paid by a payment that was not opened here.
            let order = self.order(user, &row.order_no).await?;
            let order = order.filter(|it| it.payment_no.as_deref() == Some(payment_no));
            return Ok(order.map(|order| OrderFacts {
                activity,
                user,
                channel: String::new(),
                payment_no: payment_no.to_owned(),
                transaction: String::new(),
                amount: order.pay_amount,
            }));
        };
        if payment.status != "paid" {
            return Ok(None);
        }
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT transaction_no FROM payment_callbacks \
                    WHERE payment_no = ? AND verdict = 'accepted'";
        let records = snapshot.rows(text, &[Value::text(payment_no)]).await?;
        let transaction = records.first().map_or(Ok(""), |record| record.text(0))?.to_owned();
        let PaymentRow { channel, payment_no, amount, .. } = payment;
        Ok(Some(OrderFacts { activity, user, channel, payment_no, transaction, amount }))
    }
}
