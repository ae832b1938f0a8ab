//! Payments and refunds of a portion's reservations: what is there is brought to what the images
//! say, what is missing is inserted.

use std::collections::{BTreeMap, BTreeSet};

use engine::core::event::{PaymentVerdict, RefundScope};
use engine::core::side::{PaymentStatus, RefundStatus};

use super::portion::{Opening, Refund, RefundDetails, What};
use crate::sql::fault::SinkError;
use crate::sql::payments::{CALLBACKS, PAYMENT_CHANGES, PAYMENTS, verdict_name};
use crate::sql::refunds::{ORDER, PAYMENT, REFUND_CHANGES, REFUNDS};
use crate::sql::reservations::Reservation;
use crate::sql::sink::update_all;
use crate::sql::store::{Lookup, Rows, Table, Transaction, Value};

static PAYMENTS_BY_NO: Lookup = Lookup {
    columns: &["payment_no"],
    from: "payments",
    key: "payment_no",
    part: None,
    only: None,
};

static CALLBACKS_BY_PAYMENT: Lookup = Lookup {
    columns: &["payment_no", "transaction_no"],
    from: "payment_callbacks",
    key: "payment_no",
    part: None,
    only: None,
};

static REFUNDS_BY_ORDER: Lookup = Lookup {
    columns: &["order_no", "refund_no", "status"],
    from: "refunds",
    key: "order_no",
    part: None,
    only: None,
};

static REFUND_DETAILS: Table = Table {
    name: "refunds",
    columns: &["order_no", "refund_no", "payment_no", "amount", "created_at"],
    key_columns: 2,
};

/// What a payment's row takes from its reservation.
#[derive(Debug)]
struct Payment<'p> {
    order_no: String,
    user: u64,
    activity: u64,
    created_ms: u64,
    paid_ms: u64,
    opening: &'p Opening,
}

/// What a refund's row takes from its reservation.
#[derive(Debug)]
struct RefundRow<'p> {
    activity: u64,
    payment_no: Value<'static>,
    amount: u64,
    at_ms: u64,
    refund: &'p Refund,
}

/// A refund's key.
type Names<'p> = (String, &'p str);

/// The money of a portion.
#[derive(Debug, Default)]
pub(super) struct Money<'p> {
    payments: BTreeMap<String, Payment<'p>>,
    refunds: BTreeMap<Names<'p>, RefundRow<'p>>,
    details: BTreeMap<Names<'p>, &'p RefundDetails>,
}

impl<'p> Money<'p> {
    /// Takes in what is said of `reservation`, if it is about money.
    pub(super) fn take(&mut self, reservation: &Reservation<'static>, what: &'p What) {
        let order_no = reservation.order_no.clone();
        let paid_ms = match reservation.paid_at {
            Value::Integer(paid_ms) => u64::try_from(paid_ms).unwrap_or(reservation.updated_ms),
            _ => reservation.updated_ms,
        };
        match what {
            What::Opening(opening) => {
                let payment_no = format!("{order_no}{:02}", opening.attempt);
                let payment = Payment {
                    order_no,
                    user: reservation.user,
                    activity: reservation.activity,
                    created_ms: reservation.created_ms,
                    paid_ms,
                    opening,
                };
                self.payments.insert(payment_no, payment);
            }
            What::Refund(refund) => {
                let of_order = refund.scope == RefundScope::Order;
                let payment_no = match &reservation.payment_no {
                    Value::Null => Value::text(""),
                    // Whose money the refund of a second payment gives back is gone.
                    _ if !of_order => Value::text(""),
                    payment_no => payment_no.clone(),
                };
                let row = RefundRow {
                    activity: reservation.activity,
                    payment_no,
                    amount: reservation.amount(),
                    at_ms: reservation.updated_ms,
                    refund,
                };
                self.refunds.insert((order_no, &refund.refund_no), row);
            }
            What::RefundDetails(details) => {
                self.details.insert((order_no, &details.refund_no), details);
            }
            What::Paid(_) | What::Letter { .. } => {}
        }
    }

    /// Writes it; `numbers` begins the numbers of callbacks that have none any more.
    pub(super) async fn write(
        self,
        transaction: &mut impl Transaction,
        numbers: &str,
    ) -> Result<(), SinkError> {
        self.write_payments(transaction, numbers).await?;
        self.write_refunds(transaction).await
    }

    async fn write_payments(
        &self,
        transaction: &mut impl Transaction,
        numbers: &str,
    ) -> Result<(), SinkError> {
        let keys: Vec<_> = self.payments.keys().map(|it| Value::text(it.clone())).collect();
        let mut there = BTreeSet::new();
        for record in transaction.select(&PAYMENTS_BY_NO, &keys).await? {
            there.insert(record.text(0)?.to_owned());
        }
        let mut received = BTreeSet::new();
        for record in transaction.select(&CALLBACKS_BY_PAYMENT, &keys).await? {
            received.insert((record.text(0)?.to_owned(), record.text(1)?.to_owned()));
        }
        let (mut new, mut changes) = (Rows::new(&PAYMENTS), Rows::new(&PAYMENT_CHANGES));
        let mut callbacks = Rows::new(&CALLBACKS);
        for (payment_no, payment) in &self.payments {
            let opening = payment.opening;
            let paid_ms = (opening.status == PaymentStatus::Paid).then_some(payment.paid_ms);
            let status = match opening.status {
                PaymentStatus::Pending => "pending",
                PaymentStatus::Paid => "paid",
                PaymentStatus::Failed => "failed",
            };
            let number = Value::text(payment_no.clone());
            let (status, paid_at) = (Value::text(status), Value::integer_or_null(paid_ms));
            let updated_at = Value::integer(paid_ms.unwrap_or(payment.created_ms));
            if there.contains(payment_no) {
                changes.push([number.clone(), status, paid_at, updated_at]);
            } else {
                new.push([
                    number.clone(),
                    Value::text(payment.order_no.clone()),
                    Value::integer(payment.user),
                    Value::text(opening.channel.as_str()),
                    Value::integer(opening.amount),
                    status,
                    Value::integer(opening.expires_ms),
                    paid_at,
                    Value::integer(payment.created_ms),
                    updated_at,
                ]);
            }
            // Refunds name the transaction to the provider: whoever rebuilds a log needs it.
            let key = (payment_no.clone(), opening.transaction.clone());
            if let Some(paid_ms) = paid_ms
                && !opening.transaction.is_empty()
                && !received.contains(&key)
            {
                callbacks.push([
                    Value::text(format!("{numbers}{payment_no}")),
                    number,
                    Value::text(opening.transaction.as_str()),
                    Value::integer(payment.activity),
                    Value::integer(opening.amount),
                    Value::text(verdict_name(PaymentVerdict::Accepted)),
                    Value::bytes(Vec::new()),
                    Value::integer(paid_ms),
                ]);
            }
        }
        transaction.insert(&new).await?;
        update_all(transaction, &changes).await?;
        transaction.insert(&callbacks).await?;
        Ok(())
    }

    async fn write_refunds(mut self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        let orders: BTreeSet<&str> =
            self.refunds.keys().map(|(order_no, _)| order_no.as_str()).collect();
        let keys: Vec<_> = orders.into_iter().map(Value::text).collect();
        let mut there = BTreeMap::new();
        for record in transaction.select(&REFUNDS_BY_ORDER, &keys).await? {
            let names = (record.text(0)?.to_owned(), record.text(1)?.to_owned());
            there.insert(names, record.text(2)?.to_owned());
        }
        let (mut new, mut changes) = (Rows::new(&REFUNDS), Rows::new(&REFUND_CHANGES));
        let mut details = Rows::new(&REFUND_DETAILS);
        for ((order_no, refund_no), row) in &self.refunds {
            let status = there.get(&(order_no.clone(), (*refund_no).to_owned()));
            let refund = row.refund;
            let restock = Value::integer(refund.restock);
            let free_limit = Value::integer(refund.free_limit);
            let is_sent = status.is_some_and(|status| status == "SENT");
            let word = Value::text(match refund.status {
                RefundStatus::Requested if is_sent => "SENT",
                RefundStatus::Requested => "PENDING",
                RefundStatus::Settled => "SETTLED",
                RefundStatus::Failed => "FAILED",
            });
            let names = [Value::text(order_no.clone()), Value::text(*refund_no)];
            let [order, number] = names;
            let at_ms = Value::integer(row.at_ms);
            if status.is_some() {
                changes.push([order, number, restock, free_limit, word, Value::Null, at_ms]);
                continue;
            }
            let asked = self.details.remove(&(order_no.clone(), *refund_no));
            let payment_no = asked.map_or_else(
                || row.payment_no.clone(),
                |asked| Value::text(asked.payment_no.clone()),
            );
            let asked_ms = asked.map_or(row.at_ms, |asked| asked.requested_ms);
            new.push([
                order,
                number,
                Value::integer(row.activity),
                Value::text(if refund.scope == RefundScope::Order { ORDER } else { PAYMENT }),
                payment_no,
                Value::integer(asked.map_or(row.amount, |asked| asked.amount)),
                restock,
                free_limit,
                word,
                Value::text(""),
                Value::Null,
                Value::text(""),
                Value::integer(asked_ms),
                at_ms,
            ]);
        }
        for ((order_no, refund_no), asked) in &self.details {
            details.push([
                Value::text(order_no.clone()),
                Value::text(*refund_no),
                Value::text(asked.payment_no.clone()),
                Value::integer(asked.amount),
                Value::integer(asked.requested_ms),
            ]);
        }
        transaction.insert(&new).await?;
        update_all(transaction, &changes).await?;
        transaction.update(&details).await?;
        Ok(())
    }
}
