//! `payments` and `payment_callbacks`.
//!
//! A payment that Sluice opened has a row; one that an outside caller confirmed (the Redis
//! protocol brings its own payment numbers) has none, so a change may hit no row. Every callback
//! with a good signature is kept, whatever was made of it.

use std::collections::BTreeMap;

use engine::core::event::PaymentVerdict;
use engine::core::ids::ActivityId;

use super::fault::SinkError;
use super::store::{Rows, Table, Transaction, Value};

pub(super) static PAYMENTS: Table = Table {
    name: "payments",
    columns: &[
        "payment_no",
        "order_no",
        "user_id",
        "channel",
        "amount",
        "status",
        "expires_at",
        "paid_at",
        "created_at",
        "updated_at",
    ],
    key_columns: 1,
};

pub(super) static PAYMENT_CHANGES: Table = Table {
    name: "payments",
    columns: &["payment_no", "status", "paid_at", "updated_at"],
    key_columns: 1,
};

pub(super) static CALLBACKS: Table = Table {
    name: "payment_callbacks",
    columns: &[
        "callback_no",
        "payment_no",
        "transaction_no",
        "activity_id",
        "amount",
        "verdict",
        "body",
        "received_at",
    ],
    key_columns: 1,
};

/// A payment just opened.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) order_no: String,
    pub(super) user: u64,
    pub(super) channel: &'a str,
    pub(super) amount: u64,
    pub(super) expires_ms: u64,
    pub(super) at_ms: u64,
}

/// A callback just received.
#[derive(Debug)]
pub(super) struct Callback<'a> {
    pub(super) callback_no: String,
    pub(super) activity: Option<ActivityId>,
    pub(super) payment_no: &'a str,
    pub(super) transaction: &'a str,
    pub(super) amount: u64,
    pub(super) verdict: PaymentVerdict,
    pub(super) body: &'a [u8],
    pub(super) at_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    status: &'static str,
    paid_ms: Option<u64>,
    at_ms: u64,
}

/// What a batch does to payments.
#[derive(Debug)]
pub(super) struct Payments<'a> {
    opened: BTreeMap<String, Opened<'a>>,
    outcomes: BTreeMap<&'a str, Outcome>,
    callbacks: Rows<'a>,
}

impl<'a> Payments<'a> {
    pub(super) fn new() -> Self {
        Self {
            opened: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            callbacks: Rows::new(&CALLBACKS),
        }
    }

    pub(super) fn open(&mut self, payment_no: String, payment: Opened<'a>) {
        self.opened.insert(payment_no, payment);
    }

    pub(super) fn paid(&mut self, payment_no: &'a str, at_ms: u64) {
        let outcome = Outcome { status: "paid", paid_ms: Some(at_ms), at_ms };
        self.outcomes.insert(payment_no, outcome);
    }

    pub(super) fn failed(&mut self, payment_no: &'a str, at_ms: u64) {
        self.outcomes.insert(payment_no, Outcome { status: "failed", paid_ms: None, at_ms });
    }

    pub(super) fn record(&mut self, callback: Callback<'a>) {
        self.callbacks.push([
            Value::text(callback.callback_no),
            Value::text(callback.payment_no),
            Value::text(callback.transaction),
            Value::integer_or_null(callback.activity.map(ActivityId::get)),
            Value::integer(callback.amount),
            Value::text(verdict_name(callback.verdict)),
            Value::bytes(callback.body),
            Value::integer(callback.at_ms),
        ]);
    }

    pub(super) async fn write(
        mut self,
        transaction: &mut impl Transaction,
    ) -> Result<(), SinkError> {
        let mut opened = Rows::new(&PAYMENTS);
        for (payment_no, payment) in self.opened {
            let outcome = self.outcomes.remove(payment_no.as_str());
            opened.push([
                Value::text(payment_no),
                Value::text(payment.order_no),
                Value::integer(payment.user),
                Value::text(payment.channel),
                Value::integer(payment.amount),
                Value::text(outcome.map_or("pending", |outcome| outcome.status)),
                Value::integer(payment.expires_ms),
                Value::integer_or_null(outcome.and_then(|outcome| outcome.paid_ms)),
                Value::integer(payment.at_ms),
                Value::integer(outcome.map_or(payment.at_ms, |outcome| outcome.at_ms)),
            ]);
        }
        let mut changes = Rows::new(&PAYMENT_CHANGES);
        for (payment_no, outcome) in self.outcomes {
            changes.push([
                Value::text(payment_no),
                Value::text(outcome.status),
                Value::integer_or_null(outcome.paid_ms),
                Value::integer(outcome.at_ms),
            ]);
        }
        transaction.insert(&opened).await?;
        transaction.update(&changes).await?;
        transaction.insert(&self.callbacks).await?;
        Ok(())
    }
}

pub(super) fn verdict_name(verdict: PaymentVerdict) -> &'static str {
    match verdict {
        PaymentVerdict::Accepted => "accepted",
        PaymentVerdict::Repeated => "repeated",
        PaymentVerdict::WrongAmount => "wrong_amount",
        PaymentVerdict::Unknown => "unknown",
        PaymentVerdict::SecondPayment => "second_payment",
        PaymentVerdict::Late => "late",
        PaymentVerdict::Failed => "failed",
    }
}
