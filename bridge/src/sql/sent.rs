//! That a provider was asked for a refund: the one thing about a refund that no event says, for it
//! changes nothing. Whoever reads `refunds` sees that it is under way.

use super::accounts::Accounts;
use super::store::{Lookup, Rows, Store as _, StoreError, Table, Transaction as _, Value};

static REFUND_TOUCHES: Table =
    Table { name: "refunds", columns: &["order_no", "refund_no", "updated_at"], key_columns: 2 };

static REFUND_STATUSES: Table =
    Table { name: "refunds", columns: &["order_no", "refund_no", "status"], key_columns: 2 };

static REFUNDS_BY_ORDER: Lookup = Lookup {
    columns: &["refund_no", "status"],
    from: "refunds",
    key: "order_no",
    part: None,
    only: None,
};

impl Accounts {
    /// Marks a refund that is `PENDING` as `SENT`; whether it was.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn refund_sent(
        &self,
        order_no: &str,
        refund_no: &str,
        at_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut store = self.store().await;
        let mut transaction = store.begin().await?;
        // The row is locked before it is looked at: the projection may be about to settle it.
        let mut touched = Rows::new(&REFUND_TOUCHES);
        touched.push([Value::text(order_no), Value::text(refund_no), Value::integer(at_ms)]);
        if transaction.update(&touched).await? == 0 {
            return Ok(false);
        }
        let rows = transaction.select(&REFUNDS_BY_ORDER, &[Value::text(order_no)]).await?;
        let mut pending = false;
        for row in &rows {
            pending |= row.text(0)? == refund_no && row.text(1)? == "PENDING";
        }
        if !pending {
            return Ok(false);
        }
        let mut sent = Rows::new(&REFUND_STATUSES);
        sent.push([Value::text(order_no), Value::text(refund_no), Value::text("SENT")]);
        transaction.update(&sent).await?;
        transaction.commit().await?;
        Ok(true)
    }
}
