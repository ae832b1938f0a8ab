//! Callbacks and refunds as operators see them: money that may need a hand.

use super::queries::{Queries, Window};
use super::store::{Record, StoreError, Value};

/// Verdicts of money that fits no order: nothing gives it back but an operator.
const FLAGGED: [&str; 2] = ["unknown", "wrong_amount"];

/// Statuses of refunds that are not at their end.
const OPEN: [&str; 2] = ["PENDING", "SENT"];

/// What a provider said, and what was made of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallbackRow {
    /// Where it is in the log.
    pub callback_no: String,
    /// The payment that it names.
    pub payment_no: String,
    /// The provider's transaction.
    pub transaction_no: String,
    /// The activity, where it fits one.
    pub activity_id: Option<u64>,
    /// How much.
    pub amount: u64,
    /// What was made of it.
    pub verdict: String,
    /// As it came.
    pub body: Vec<u8>,
    /// When, Unix milliseconds.
    pub received_ms: u64,
}

impl CallbackRow {
    /// Whether an operator has to decide.
    pub fn is_flagged(&self) -> bool {
        FLAGGED.contains(&self.verdict.as_str())
    }
}

/// Which callbacks are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallbackFilter {
    /// Those that are flagged, or those that are not.
    pub flagged: Option<bool>,
    /// Those of one payment.
    pub payment_no: Option<String>,
}

/// A refund.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefundRow {
    /// Its order.
    pub order_no: String,
    /// Its number.
    pub refund_no: String,
    /// The order's activity.
    pub activity_id: u64,
    /// `order`, or `payment` where a payment goes back that paid nothing.
    pub scope: String,
    /// The payment.
    pub payment_no: String,
    /// How much.
    pub amount: u64,
    /// Its units go back on sale.
    pub restock: bool,
    /// Its buyer may buy as many again.
    pub free_limit: bool,
    /// `PENDING`, `SENT`, `SETTLED` or `FAILED`.
    pub status: String,
    /// Why it was asked for.
    pub reason: String,
    /// Why the provider refused it.
    pub last_error: Option<String>,
    /// The operator who asked for it; empty where nobody did.
    pub requested_by: String,
    /// Asked for at, Unix milliseconds.
    pub created_ms: u64,
    /// Changed at, Unix milliseconds.
    pub updated_ms: u64,
}

/// Which refunds are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefundFilter {
    /// All.
    Any,
    /// Those that are not at their end.
    Open,
    /// Those of one status.
    Status(&'static str),
}

impl RefundFilter {
    /// The filter of that name: `open`, or a status.
    pub fn from_name(name: &str) -> Option<Self> {
        let statuses = ["PENDING", "SENT", "SETTLED", "FAILED"];
        let status = statuses.into_iter().find(|status| status.eq_ignore_ascii_case(name));
        status.map(Self::Status).or((name == "open").then_some(Self::Open))
    }
}

/// Some of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoneyPage<R> {
    /// Those of the window.
    pub rows: Vec<R>,
    /// How many there are in all.
    pub total: u64,
}

impl Queries {
    /// Callbacks with a good signature, the newest first.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn callbacks(
        &self,
        filter: &CallbackFilter,
        window: Window,
    ) -> Result<MoneyPage<CallbackRow>, StoreError> {
        let mut wanted = String::from("1 = 1");
        let mut values = Vec::new();
        if let Some(flagged) = filter.flagged {
            let is = if flagged { "IN" } else { "NOT IN" };
            wanted.push_str(&format!(" AND verdict {is} (?, ?)"));
            values.extend(FLAGGED.map(Value::text));
        }
        if let Some(payment_no) = &filter.payment_no {
            wanted.push_str(" AND payment_no = ?");
            values.push(Value::text(payment_no.as_str()));
        }
        let columns = "callback_no, payment_no, transaction_no, activity_id, amount, verdict, \
                       body, received_at";
        let order = "received_at DESC, callback_no DESC";
        self.money(columns, ("payment_callbacks", &wanted, order), values, window, callback).await
    }

    /// Refunds, those that have waited longest first.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn refunds(
        &self,
        filter: RefundFilter,
        window: Window,
    ) -> Result<MoneyPage<RefundRow>, StoreError> {
        let (wanted, values) = match filter {
            RefundFilter::Any => ("1 = 1", Vec::new()),
            RefundFilter::Open => ("status IN (?, ?)", OPEN.map(Value::text).into()),
            RefundFilter::Status(status) => ("status = ?", vec![Value::text(status)]),
        };
        let columns = "order_no, refund_no, activity_id, scope, payment_no, amount, restock, \
                       free_limit, status, reason, last_error, requested_by, created_at, \
                       updated_at";
        let order = "created_at, order_no, refund_no";
        self.money(columns, ("refunds", wanted, order), values, window, refund).await
    }

    async fn money<R>(
        &self,
        columns: &str,
        (table, wanted, order): (&str, &str, &str),
        mut values: Vec<Value<'_>>,
        window: Window,
        row: impl Fn(&Record) -> Result<R, StoreError>,
    ) -> Result<MoneyPage<R>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let count = format!("SELECT COUNT(*) FROM {table} WHERE {wanted}");
        let count = snapshot.rows(count, &values).await?;
        let total = count.first().map_or(Ok(0), |record| record.number(0))?;
        let text = format!(
            "SELECT {columns} FROM {table} WHERE {wanted} ORDER BY {order} LIMIT ? OFFSET ?"
        );
        values.push(Value::integer(window.count));
        values.push(Value::integer(window.offset));
        let records = snapshot.rows(text, &values).await?;
        Ok(MoneyPage { rows: records.iter().map(row).collect::<Result<_, _>>()?, total })
    }
}

fn callback(record: &Record) -> Result<CallbackRow, StoreError> {
    Ok(CallbackRow {
        callback_no: record.text(0)?.to_owned(),
        payment_no: record.text(1)?.to_owned(),
        transaction_no: record.text(2)?.to_owned(),
        activity_id: record.number_or_null(3)?,
        amount: record.number(4)?,
        verdict: record.text(5)?.to_owned(),
        body: record.bytes(6)?.to_vec(),
        received_ms: record.number(7)?,
    })
}

fn refund(record: &Record) -> Result<RefundRow, StoreError> {
    Ok(RefundRow {
        order_no: record.text(0)?.to_owned(),
        refund_no: record.text(1)?.to_owned(),
        activity_id: record.number(2)?,
        scope: record.text(3)?.to_owned(),
        payment_no: record.text(4)?.to_owned(),
        amount: record.number(5)?,
        restock: record.number(6)? != 0,
        free_limit: record.number(7)? != 0,
        status: record.text(8)?.to_owned(),
        reason: record.text(9)?.to_owned(),
        last_error: record.text_or_null(10)?.map(str::to_owned),
        requested_by: record.text(11)?.to_owned(),
        created_ms: record.number(12)?,
        updated_ms: record.number(13)?,
    })
}
