//! All orders in pieces, for who carries them elsewhere.

use engine::core::ids::ActivityId;

use super::queries::{OrderStatus, Queries};
use super::store::{Part, Record, StoreError, Value, part_name};

/// Which orders are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderFilter {
    /// Of this activity alone.
    pub activity: Option<ActivityId>,
    /// In this status alone.
    pub status: Option<OrderStatus>,
}

/// A line of an order, with its order.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the columns of `orders` and `order_items`, by their names")]
pub struct ExportRow {
    pub order_no: String,
    pub user_id: u64,
    pub status: String,
    pub activity_id: u64,
    pub reservation_id: u64,
    pub sku_id: u64,
    pub title: String,
    pub price: u64,
    pub quantity: u64,
    pub pay_amount: u64,
    pub payment_no: Option<String>,
    pub receiver: Option<String>,
    pub phone: Option<String>,
    pub province: Option<String>,
    pub city: Option<String>,
    pub district: Option<String>,
    pub detail: Option<String>,
    pub paid_ms: Option<u64>,
    pub cancelled_ms: Option<u64>,
    pub created_ms: u64,
}

impl Queries {
    /// The tables that orders are spread over.
    pub fn parts(&self) -> Vec<Part> {
        self.split().parts().collect()
    }

    /// Orders of one table after the order number `after`, ascending, `count` at most. The number
    /// of the last is where to go on; each piece is as the database is by then.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn orders_after(
        &self,
        filter: OrderFilter,
        part: Part,
        after: &str,
        count: u32,
    ) -> Result<Vec<ExportRow>, StoreError> {
        let (orders, items) = (part_name("orders", part), part_name("order_items", part));
        let mut wanted = String::from("o.order_no > ?");
        let mut values = vec![Value::text(after)];
        if let Some(activity) = filter.activity {
            wanted.push_str(" AND o.activity_id = ?");
            values.push(Value::integer(activity.get()));
        }
        if let Some(status) = filter.status {
            wanted.push_str(" AND o.status = ?");
            values.push(Value::text(status.name()));
        }
        values.push(Value::integer(count));
        let text = format!(
            "SELECT o.order_no, o.user_id, o.status, o.activity_id, o.purchase_slot, i.sku_id, \
             i.title, i.price, i.quantity, o.pay_amount, o.payment_no, o.receiver, o.phone, \
             o.province, o.city, o.district, o.detail, o.paid_at, o.cancelled_at, o.created_at \
             FROM {orders} o JOIN {items} i ON i.order_no = o.order_no WHERE {wanted} \
             ORDER BY o.order_no LIMIT ?"
        );
        let mut snapshot = self.snapshot().await?;
        let records = snapshot.rows(text, &values).await?;
        records.iter().map(row).collect()
    }
}

fn row(record: &Record) -> Result<ExportRow, StoreError> {
    let text = |index| record.text_or_null(index).map(|text| text.map(str::to_owned));
    Ok(ExportRow {
        order_no: record.text(0)?.to_owned(),
        user_id: record.number(1)?,
        status: record.text(2)?.to_owned(),
        activity_id: record.number(3)?,
        reservation_id: record.number(4)?,
        sku_id: record.number(5)?,
        title: record.text(6)?.to_owned(),
        price: record.number(7)?,
        quantity: record.number(8)?,
        pay_amount: record.number(9)?,
        payment_no: text(10)?,
        receiver: text(11)?,
        phone: text(12)?,
        province: text(13)?,
        city: text(14)?,
        district: text(15)?,
        detail: text(16)?,
        paid_ms: record.number_or_null(17)?,
        cancelled_ms: record.number_or_null(18)?,
        created_ms: record.number(19)?,
    })
}
