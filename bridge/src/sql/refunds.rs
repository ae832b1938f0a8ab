//! `refunds`: asked for, then settled or refused by the provider.

use std::collections::BTreeMap;

use super::fault::SinkError;
use super::sink::update_all;
use super::store::{Lookup, Rows, StoreError, Table, Transaction, Value};

static REFUNDS: Table = Table {
    name: "refunds",
    columns: &[
        "order_no",
        "refund_no",
        "activity_id",
        "scope",
        "payment_no",
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
    columns: &[
        "order_no",
        "refund_no",
        "restock",
        "free_limit",
        "status",
        "last_error",
        "updated_at",
    ],
    key_columns: 2,
};

static REFUNDS_BY_ORDER: Lookup = Lookup {
    columns: &["order_no", "refund_no", "restock", "free_limit", "scope", "status"],
    from: "refunds",
    key: "order_no",
    part: None,
};

/// The scopes, as they are written.
const ORDER: &str = "order";
const PAYMENT: &str = "payment";

/// A refund's key: order and refund number.
pub(super) type Names<'n> = (&'n str, &'n str);

/// What a refund moves beside money once it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Effects {
    /// It is the order's; else a payment's that paid nothing, and the order is not touched.
    pub(super) of_order: bool,
    /// Its units go back on sale.
    pub(super) restock: bool,
    /// The user may buy as many again.
    pub(super) free_limit: bool,
}

/// The frozen fields of a new row.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) activity: u64,
    pub(super) payment_no: &'a str,
    pub(super) amount: u64,
    pub(super) reason: &'a str,
    pub(super) requested_by: &'a str,
}

#[derive(Debug)]
struct Refund<'a> {
    /// With the time of it, where the row is new.
    request: Option<(Request<'a>, u64)>,
    effects: Effects,
    /// As its row says before this batch.
    stored_status: Option<String>,
    /// Status, error, time: where this batch changes them.
    step: Option<(&'static str, Option<&'a str>, u64)>,
}

/// What a batch does to refunds.
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
            let (restock, free_limit) = (record.number(2)? != 0, record.number(3)? != 0);
            let of_order = record.text(4)? == ORDER;
            let effects = Effects { of_order, restock, free_limit };
            let stored_status = Some(record.text(5)?.to_owned());
            self.known.insert(key, Refund { request: None, effects, stored_status, step: None });
        }
        Ok(())
    }

    /// It was asked for: for the first time, or again after the provider refused it.
    pub(super) fn request(
        &mut self,
        names: Names<'_>,
        request: Request<'a>,
        effects: Effects,
        at_ms: u64,
    ) {
        let step = Some(("PENDING", None, at_ms));
        self.known
            .entry(key(names))
            .and_modify(|refund| (refund.effects, refund.step) = (effects, step))
            .or_insert(Refund {
                request: Some((request, at_ms)),
                effects,
                stored_status: None,
                step,
            });
    }

    /// Where a refund is, `None` before it was asked for.
    pub(super) fn status(&self, names: Names<'_>) -> Option<&str> {
        let refund = self.known.get(&key(names))?;
        refund.step.map(|(status, ..)| status).or(refund.stored_status.as_deref())
    }

    /// The provider settled it (`error` is `None`) or refused it for good; what it moves.
    ///
    /// # Errors
    /// Where nobody asked for it.
    pub(super) fn end(
        &mut self,
        names: Names<'_>,
        error: Option<&'a str>,
        at_ms: u64,
    ) -> Result<Effects, SinkError> {
        let missing = SinkError::RowsMissing { table: REFUNDS.name, hit: 0, expected: 1 };
        let refund = self.known.get_mut(&key(names)).ok_or(missing)?;
        let status = if error.is_none() { "SETTLED" } else { "FAILED" };
        refund.step = Some((status, error, at_ms));
        Ok(refund.effects)
    }

    pub(super) async fn write(self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        let mut new = Rows::new(&REFUNDS);
        let mut changes = Rows::new(&REFUND_CHANGES);
        for ((order_no, refund_no), refund) in self.known {
            let Some((status, error, changed_ms)) = refund.step else { continue };
            let (order_no, refund_no) = (Value::text(order_no), Value::text(refund_no));
            let restock = Value::integer(refund.effects.restock);
            let free_limit = Value::integer(refund.effects.free_limit);
            let (status, error) = (Value::text(status), Value::text_or_null(error));
            let changed_ms = Value::integer(changed_ms);
            match refund.request {
                Some((request, at_ms)) => new.push([
                    order_no,
                    refund_no,
                    Value::integer(request.activity),
                    Value::text(if refund.effects.of_order { ORDER } else { PAYMENT }),
                    Value::text(request.payment_no),
                    Value::integer(request.amount),
                    restock,
                    free_limit,
                    status,
                    Value::text(request.reason),
                    error,
                    Value::text(request.requested_by),
                    Value::integer(at_ms),
                    changed_ms,
                ]),
                None => changes
                    .push([order_no, refund_no, restock, free_limit, status, error, changed_ms]),
            }
        }
        transaction.insert(&new).await?;
        update_all(transaction, &changes).await
    }
}

fn key((order_no, refund_no): Names<'_>) -> (String, String) {
    (order_no.to_owned(), refund_no.to_owned())
}
