//! `refunds`: asked for, then settled or refused by the provider.

use std::collections::BTreeMap;

use super::fault::SinkError;
use super::store::{Lookup, Rows, StoreError, Table, Transaction, Value};

static REFUNDS: Table = Table {
    name: "refunds",
    columns: &[
        "order_no",
        "refund_no",
        "activity_id",
        "amount",
        "restock",
        "free_limit",
        "status",
        "reason",
        "last_error",
        "requested_by",
        "created_at",
        "updated_at",
    ],
    key_columns: 2,
};

static REFUND_CHANGES: Table = Table {
    name: "refunds",
    columns: &["order_no", "refund_no", "status", "last_error", "updated_at"],
    key_columns: 2,
};

static REFUNDS_BY_ORDER: Lookup =
    Lookup { columns: &["order_no", "refund_no", "free_limit"], from: "refunds", key: "order_no" };

/// A refund asked for in this batch.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) activity: u64,
    pub(super) amount: u64,
    pub(super) restock: bool,
    pub(super) reason: &'a str,
    pub(super) requested_by: &'a str,
}

#[derive(Debug)]
struct Refund<'a> {
    request: Option<(Request<'a>, u64)>,
    free_limit: bool,
    /// How it ended, in this batch.
    end: Option<(&'static str, Option<&'a str>, u64)>,
}

/// What a batch does to refunds, by order and refund number.
#[derive(Debug, Default)]
pub(super) struct Refunds<'a> {
    known: BTreeMap<(String, String), Refund<'a>>,
}

impl<'a> Refunds<'a> {
    /// Reads the refunds of `orders`.
    pub(super) async fn load(
        &mut self,
        orders: &[String],
        transaction: &mut impl Transaction,
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = orders.iter().map(|order| Value::text(order.as_str())).collect();
        for record in transaction.select(&REFUNDS_BY_ORDER, &keys).await? {
            let key = (record.text(0)?.to_owned(), record.text(1)?.to_owned());
            let refund = Refund { request: None, free_limit: record.number(2)? != 0, end: None };
            self.known.insert(key, refund);
        }
        Ok(())
    }

    pub(super) fn request(
        &mut self,
        (order_no, refund_no): (&str, &str),
        request: Request<'a>,
        free_limit: bool,
        at_ms: u64,
    ) {
        let refund = Refund { request: Some((request, at_ms)), free_limit, end: None };
        self.known.insert((order_no.to_owned(), refund_no.to_owned()), refund);
    }

    /// It was settled (`note` is `None`) or refused for good; whether it frees the user's limit.
    ///
    /// # Errors
    /// Where nobody asked for it.
    pub(super) fn end(
        &mut self,
        (order_no, refund_no): (&str, &str),
        note: Option<&'a str>,
        at_ms: u64,
    ) -> Result<bool, SinkError> {
        let key = (order_no.to_owned(), refund_no.to_owned());
        let missing = SinkError::RowsMissing { table: REFUNDS.name, hit: 0, expected: 1 };
        let refund = self.known.get_mut(&key).ok_or(missing)?;
        let status = if note.is_none() { "SETTLED" } else { "FAILED" };
        refund.end = Some((status, note, at_ms));
        Ok(refund.free_limit)
    }

    pub(super) async fn write(self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        let mut requested = Rows::new(&REFUNDS);
        let mut changes = Rows::new(&REFUND_CHANGES);
        for ((order_no, refund_no), refund) in self.known {
            let (order_no, refund_no) = (Value::text(order_no), Value::text(refund_no));
            match (refund.request, refund.end) {
                (Some((request, at_ms)), end) => {
                    let (status, error, ended_ms) = end.unwrap_or(("PENDING", None, at_ms));
                    requested.push([
                        order_no,
                        refund_no,
                        Value::integer(request.activity),
                        Value::integer(request.amount),
                        Value::integer(request.restock),
                        Value::integer(refund.free_limit),
                        Value::text(status),
                        Value::text(request.reason),
                        Value::text_or_null(error),
                        Value::text(request.requested_by),
                        Value::integer(at_ms),
                        Value::integer(ended_ms),
                    ]);
                }
                (None, Some((status, error, ended_ms))) => changes.push([
                    order_no,
                    refund_no,
                    Value::text(status),
                    Value::text_or_null(error),
                    Value::integer(ended_ms),
                ]),
                (None, None) => {}
            }
        }
        transaction.insert(&requested).await?;
        transaction.update(&changes).await?;
        Ok(())
    }
}
