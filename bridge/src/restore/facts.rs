//! What SQL knows, page by page, in one state of the database.

use std::collections::HashMap;

use engine::core::event::{DeadLetterPolicy, LatePayment, PaymentVerdict, RestoreReason, Status};
use engine::core::ids::ReservationId;

use crate::sql::placeholders;
use crate::sql::readers::Snapshot;
use crate::sql::store::{Record, StoreError, Value};

/// Rows of a page.
pub(super) const PAGE_ROWS: usize = 500;

/// An activity.
#[derive(Debug)]
pub(super) struct ActivityRow {
    pub(super) id: u64,
    pub(super) ordinal: u64,
    pub(super) sku: u64,
    pub(super) title: String,
    pub(super) price: u64,
    pub(super) stock: u64,
    pub(super) locked: u64,
    pub(super) sold: u64,
    pub(super) per_user_limit: u64,
    pub(super) on_sale: bool,
    pub(super) paused: bool,
    pub(super) drained: bool,
    pub(super) version: u64,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) publish_at_ms: u64,
    pub(super) payment_ttl_ms: u64,
    pub(super) late_payment: LatePayment,
    pub(super) dead_letter: DeadLetterPolicy,
    pub(super) is_archived: bool,
}

/// The next page of activities behind `after`.
pub(super) async fn activities(
    snapshot: &mut Snapshot,
    after: u64,
) -> Result<Vec<ActivityRow>, StoreError> {
    let text = format!(
        "SELECT id, ordinal, sku_id, title, price, stock, locked_stock, sold_stock, \
         per_user_limit, status, paused, drained, version, start_at, end_at, publish_at, \
         payment_ttl_ms, late_payment, dead_letter, archived_at \
         FROM flashsale_activities WHERE id > ? ORDER BY id LIMIT {PAGE_ROWS}"
    );
    let rows = snapshot.rows(text, &[Value::integer(after)]).await?;
    rows.iter().map(activity).collect()
}

fn activity(row: &Record) -> Result<ActivityRow, StoreError> {
    let flag = |index| Ok::<_, StoreError>(row.number(index)? != 0);
    Ok(ActivityRow {
        id: row.number(0)?,
        ordinal: row.number(1)?,
        sku: row.number(2)?,
        title: row.text(3)?.to_owned(),
        price: row.number(4)?,
        stock: row.number(5)?,
        locked: row.number(6)?,
        sold: row.number(7)?,
        per_user_limit: row.number(8)?,
        on_sale: row.text(9)? == "on_sale",
        paused: flag(10)?,
        drained: flag(11)?,
        version: row.number(12)?,
        start_ms: row.number(13)?,
        end_ms: row.number(14)?,
        publish_at_ms: row.number_or_null(15)?.unwrap_or_default(),
        payment_ttl_ms: row.number(16)?,
        late_payment: match row.text(17)? {
            "refund" => LatePayment::Refund,
            _ => LatePayment::ReinstateOrRefund,
        },
        dead_letter: match row.text(18)? {
            "hold" => DeadLetterPolicy::Hold,
            _ => DeadLetterPolicy::Rollback,
        },
        is_archived: row.number_or_null(19)?.is_some(),
    })
}

/// A reservation with its order, or what its order would be.
#[derive(Debug)]
pub(super) struct ReservationRow {
    pub(super) id: ReservationId,
    pub(super) user: u64,
    pub(super) activity: u64,
    pub(super) request_id: Option<String>,
    pub(super) request_hash: u128,
    pub(super) quantity: u64,
    pub(super) order_no: String,
    pub(super) status: Status,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
    pub(super) payment_no: String,
    /// Its dead letter: where it is, and why.
    pub(super) letter: Option<(String, String, u64)>,
    /// Its row and its order contradict each other.
    pub(super) is_doubtful: bool,
}

const RESERVATIONS: &str = "SELECT p.id, p.user_id, p.activity_id, p.client_request_id, \
     p.request_hash, p.quantity, p.order_no, p.status, p.reason, p.created_at, p.updated_at, \
     COALESCE(o.status, d.order_status), COALESCE(o.payment_no, d.payment_no), \
     d.status, d.reason, d.created_at \
     FROM flashsale_pre_deductions p LEFT JOIN orders o ON o.order_no = p.order_no \
     LEFT JOIN dead_letters d ON d.id = p.id";

/// Dead letters that stand alone: the database refused the reservation's own row, too. One that is
/// closed gave its units back, or its money: of the latter the reservation stays paid.
const LETTERS: &str = "SELECT d.id, d.user_id, d.activity_id, NULL, d.request_hash, d.quantity, \
     d.order_no, CASE d.order_status WHEN 'refunded' THEN 'dead_letter' ELSE d.status END, \
     CASE d.order_status WHEN 'timeout' THEN 'timeout' ELSE 'dead_letter' END, \
     d.accepted_at, COALESCE(d.resolved_at, d.created_at), \
     d.order_status, d.payment_no, d.status, d.reason, d.created_at \
     FROM dead_letters d LEFT JOIN flashsale_pre_deductions p ON p.id = d.id";

/// Which reservations are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// Those with a row.
    WithRow,
    /// Those that are a dead letter alone.
    LettersAlone,
    /// Those of [`WithRow`](Self::WithRow) whose units went back on sale with their money.
    WithRowRestocked,
    /// The same of [`LettersAlone`](Self::LettersAlone).
    LettersAloneRestocked,
}

impl Which {
    /// Each once.
    pub(super) const ALL: [Self; 2] = [Self::WithRow, Self::LettersAlone];

    /// Those of [`ALL`](Self::ALL) whose units went back on sale with their money.
    pub(super) const RESTOCKED: [Self; 2] = [Self::WithRowRestocked, Self::LettersAloneRestocked];

    pub(super) fn is_restocked(self) -> bool {
        Self::RESTOCKED.contains(&self)
    }
}

/// The next page of reservations behind `after`.
pub(super) async fn reservations(
    snapshot: &mut Snapshot,
    after: u64,
    which: Which,
) -> Result<Vec<ReservationRow>, StoreError> {
    let (rows, id, order_no, wanted) = match which {
        Which::WithRow | Which::WithRowRestocked => (RESERVATIONS, "p.id", "p.order_no", "1 = 1"),
        Which::LettersAlone | Which::LettersAloneRestocked => {
            (LETTERS, "d.id", "d.order_no", "p.id IS NULL")
        }
    };
    let restocked = match which.is_restocked() {
        true => format!(
            "AND {order_no} IN (SELECT r.order_no FROM refunds r \
             WHERE r.scope = 'order' AND r.status = 'SETTLED' AND r.restock = 1)"
        ),
        false => String::new(),
    };
    let text =
        format!("{rows} WHERE {id} > ? AND {wanted} {restocked} ORDER BY {id} LIMIT {PAGE_ROWS}");
    let rows = snapshot.rows(text, &[Value::integer(after)]).await?;
    rows.iter().map(reservation).collect()
}

fn reservation(row: &Record) -> Result<ReservationRow, StoreError> {
    let unreadable = |column| StoreError::Unreadable { column };
    let id = ReservationId::new(row.number(0)?).ok_or(unreadable(0))?;
    let request_hash = match row.0.get(4) {
        // No request has such a hash.
        Some(Value::Null) => id.get().into(),
        _ => u128::from_le_bytes(row.bytes(4)?.try_into().map_err(|_| unreadable(4))?),
    };
    let reason = row.text_or_null(8)?;
    let order_status = row.text_or_null(11)?.unwrap_or_default();
    let rolled_back = |reason: Option<&str>| {
        Status::RolledBack(match reason {
            Some("cancelled") => RestoreReason::Cancelled,
            Some("timeout") => RestoreReason::Timeout,
            Some("dead_letter") => RestoreReason::DeadLetter,
            Some("api") => RestoreReason::Api,
            _ => RestoreReason::Admin,
        })
    };
    let is_gone = matches!(order_status, "cancelled" | "timeout");
    let (status, is_doubtful) = match (row.text(7)?, order_status) {
        ("rolled_back", _) => (rolled_back(reason), !is_gone),
        (_, "pending_payment") => (Status::Reserved, false),
        (_, "paid" | "shipped" | "completed" | "refunding" | "refunded") => {
            (Status::Confirmed, false)
        }
        _ => (rolled_back(Some(order_status)), true),
    };
    let letter = match row.text_or_null(13)? {
        None => None,
        Some(state) => {
            let why = row.text_or_null(14)?.unwrap_or_default();
            let at_ms = row.number_or_null(15)?.unwrap_or_default();
            Some((state.to_owned(), why.to_owned(), at_ms))
        }
    };
    let paid = status == Status::Confirmed;
    Ok(ReservationRow {
        id,
        user: row.number(1)?,
        activity: row.number(2)?,
        request_id: row.text_or_null(3)?.map(str::to_owned),
        request_hash,
        quantity: row.number(5)?,
        order_no: row.text(6)?.to_owned(),
        status,
        created_ms: row.number(9)?,
        updated_ms: row.number(10)?,
        payment_no: row.text_or_null(12)?.filter(|_| paid).unwrap_or_default().to_owned(),
        letter,
        is_doubtful,
    })
}

/// A payment that was opened.
#[derive(Debug)]
pub(super) struct PaymentRow {
    pub(super) payment_no: String,
    pub(super) channel: String,
    pub(super) amount: u64,
    pub(super) expires_ms: u64,
    pub(super) created_ms: u64,
    pub(super) callbacks: Vec<CallbackRow>,
}

/// A callback that was received for it.
#[derive(Debug)]
pub(super) struct CallbackRow {
    pub(super) transaction: String,
    pub(super) amount: u64,
    pub(super) verdict: PaymentVerdict,
    pub(super) body: Vec<u8>,
    pub(super) received_ms: u64,
}

/// A refund.
#[derive(Debug)]
pub(super) struct RefundRow {
    pub(super) refund_no: String,
    pub(super) of_order: bool,
    pub(super) payment_no: String,
    pub(super) amount: u64,
    pub(super) restock: bool,
    pub(super) free_limit: bool,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) last_error: String,
    pub(super) requested_by: String,
    pub(super) created_ms: u64,
}

/// Money of the orders of a page, by order number, in order of time.
#[derive(Debug, Default)]
pub(super) struct Money {
    pub(super) payments: HashMap<String, Vec<PaymentRow>>,
    pub(super) refunds: HashMap<String, Vec<RefundRow>>,
}

/// Reads the money of `order_nos`.
pub(super) async fn money(
    snapshot: &mut Snapshot,
    order_nos: &[String],
) -> Result<Money, StoreError> {
    let mut money = Money::default();
    if order_nos.is_empty() {
        return Ok(money);
    }
    let list = placeholders(order_nos.len());
    let keys: Vec<_> = order_nos.iter().map(|it| Value::text(it.clone())).collect();
    let text = format!(
        "SELECT order_no, payment_no, channel, amount, expires_at, created_at FROM payments \
         WHERE order_no IN {list} ORDER BY payment_no"
    );
    for row in snapshot.rows(text, &keys).await? {
        let payment = PaymentRow {
            payment_no: row.text(1)?.to_owned(),
            channel: row.text(2)?.to_owned(),
            amount: row.number(3)?,
            expires_ms: row.number(4)?,
            created_ms: row.number(5)?,
            callbacks: Vec::new(),
        };
        money.payments.entry(row.text(0)?.to_owned()).or_default().push(payment);
    }
    let text = format!(
        "SELECT y.order_no, c.payment_no, c.transaction_no, c.amount, c.verdict, c.body, \
         c.received_at FROM payment_callbacks c JOIN payments y ON y.payment_no = c.payment_no \
         WHERE y.order_no IN {list} ORDER BY c.received_at, c.callback_no"
    );
    for row in snapshot.rows(text, &keys).await? {
        let payments = money.payments.entry(row.text(0)?.to_owned()).or_default();
        let payment_no = row.text(1)?;
        let callback = CallbackRow {
            transaction: row.text(2)?.to_owned(),
            amount: row.number(3)?,
            verdict: verdict(row.text(4)?),
            body: row.bytes(5)?.to_vec(),
            received_ms: row.number(6)?,
        };
        if let Some(payment) = payments.iter_mut().find(|it| it.payment_no == payment_no) {
            payment.callbacks.push(callback);
        }
    }
    let text = format!(
        "SELECT order_no, refund_no, scope, payment_no, amount, restock, free_limit, status, \
         reason, last_error, requested_by, created_at FROM refunds \
         WHERE order_no IN {list} ORDER BY created_at, refund_no"
    );
    for row in snapshot.rows(text, &keys).await? {
        let refund = RefundRow {
            refund_no: row.text(1)?.to_owned(),
            of_order: row.text(2)? == "order",
            payment_no: row.text(3)?.to_owned(),
            amount: row.number(4)?,
            restock: row.number(5)? != 0,
            free_limit: row.number(6)? != 0,
            status: row.text(7)?.to_owned(),
            reason: row.text(8)?.to_owned(),
            last_error: row.text_or_null(9)?.unwrap_or_default().to_owned(),
            requested_by: row.text(10)?.to_owned(),
            created_ms: row.number(11)?,
        };
        money.refunds.entry(row.text(0)?.to_owned()).or_default().push(refund);
    }
    Ok(money)
}

fn verdict(name: &str) -> PaymentVerdict {
    match name {
        "accepted" => PaymentVerdict::Accepted,
        "repeated" => PaymentVerdict::Repeated,
        "wrong_amount" => PaymentVerdict::WrongAmount,
        "second_payment" => PaymentVerdict::SecondPayment,
        "late" => PaymentVerdict::Late,
        "failed" => PaymentVerdict::Failed,
        _ => PaymentVerdict::Unknown,
    }
}
