//! What the tables hold of one activity, in figures: for whoever checks a sale from outside.

use engine::core::ids::{ActivityId, ReservationId};

use super::queries::Queries;
use super::store::{StoreError, Value};

/// Orders of the activity, those that were given back among them.
const ORDERS: &str = "SELECT COUNT(*) FROM orders WHERE activity_id = ?";

/// Those of them that are whole: an item, and the reservation that they were made of.
const WHOLE: &str = "SELECT COUNT(*) FROM orders o \
     JOIN order_items i ON i.order_no = o.order_no \
     JOIN flashsale_pre_deductions p ON p.id = o.purchase_slot AND p.order_no = o.order_no \
     AND p.user_id = o.user_id AND p.activity_id = o.activity_id WHERE o.activity_id = ?";

const UNITS: &str = "SELECT total_stock, stock, locked_stock, sold_stock \
     FROM flashsale_activities WHERE id = ?";

const MADE: &str = "SELECT COUNT(*) FROM flashsale_pre_deductions WHERE id = ?";

/// An activity in figures, all of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Orders that were made.
    pub orders: u64,
    /// Those that have their item and their reservation.
    pub whole: u64,
    /// All units; like the other three, 0 where SQL does not know the activity yet.
    pub total: u64,
    /// Units free to buy.
    pub available: u64,
    /// Units reserved, unpaid.
    pub locked: u64,
    /// Units paid.
    pub sold: u64,
}

impl Queries {
    /// Whether the reservation has become an order or a dead letter.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn shows(&self, id: ReservationId) -> Result<bool, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let records = snapshot.rows(MADE, &[Value::integer(id.get())]).await?;
        let count: u64 = records.first().map_or(Ok(0), |record| record.number(0))?;
        Ok(count > 0)
    }

    /// What SQL holds of `activity`.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn tally(&self, activity: ActivityId) -> Result<Tally, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let id = [Value::integer(activity.get())];
        let mut counts = [0; 2];
        for (count, text) in counts.iter_mut().zip([ORDERS, WHOLE]) {
            let records = snapshot.rows(text, &id).await?;
            *count = records.first().map_or(Ok(0), |record| record.number(0))?;
        }
        let [orders, whole] = counts;
        let records = snapshot.rows(UNITS, &id).await?;
        let Some(record) = records.first() else {
            return Ok(Tally { orders, whole, ..Tally::default() });
        };
        Ok(Tally {
            orders,
            whole,
            total: record.number(0)?,
            available: record.number(1)?,
            locked: record.number(2)?,
            sold: record.number(3)?,
        })
    }
}
