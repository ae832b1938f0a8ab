//! `/api/payments`: opened by buyers, looked at, refunded by operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::PaymentView;
use engine::core::command::{Refusal, RequestRefund};
use engine::core::event::Actor;
use engine::core::ids::ReservationId;
use engine::core::limits::{NAME_BYTES_MAX, NOTE_BYTES_MAX, REFUND_NO_BYTES_MAX};
use engine::core::side::{PaymentStatus, RefundStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::archived;
use super::input::{Admin, Json, Segment, present};
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use super::request_id::RequestId;
use crate::app::{App, Shared};
use crate::identity::{Caller, Role};
use crate::payments::channels::MOCK;
use crate::time::Instant;

/// Paying and giving back.
pub(super) fn routes() -> Api {
    Api::new()
        .post(
            "/api/payments",
            open,
            Operation::new(Tag::Payments, "openPayment", "Open a payment of an order")
                .about(
                    "The amount comes from the reservation. An order has one live payment: asked \
                     again, it is the one that is open.",
                )
                .answers::<PaymentJson<'_>>(201, "The payment, to be made with its channel")
                .refuses(&[
                    Code::OrderNotFound,
                    Code::AlreadyPaid,
                    Code::AlreadyRolledBack,
                    Code::PaymentInProgress,
                    Code::TooManyPayments,
                ])
                .writes()
                .asks_sql(),
        )
        .get(
            "/api/payments/{payment_no}",
            show,
            Operation::new(Tag::Payments, "getPayment", "A payment")
                .answers::<PaymentJson<'_>>(200, "The caller's; an operator may look at any")
                .refuses(&[Code::PaymentNotFound])
                .reads()
                .asks_sql(),
        )
        .post(
            "/api/payments/{payment_no}/refund",
            refund,
            Operation::new(Tag::Payments, "refundPayment", "Operators: give the money back")
                .answers::<RefundJson<'_>>(200, "The refund was asked for before, and is over")
                .answers::<RefundJson<'_>>(202, "The provider is being asked")
                .refuses(&[
                    Code::PaymentNotFound,
                    Code::NotPaid,
                    Code::RefundInProgress,
                    Code::AlreadyRefunded,
                    Code::RefundNotOpen,
                    Code::RequestIdReused,
                ])
                .writes()
                .asks_sql(),
        )
}

/// Which order to pay, and how.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "PaymentRequest")]
pub(super) struct OpenBody {
    order_no: String,
    /// `mock` where it is left out.
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = 1, max = NAME_BYTES_MAX), example = &"mock")]
    channel: Option<String>,
}

/// A payment as its buyer sees it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Payment")]
pub(super) struct PaymentJson<'a> {
    pub(super) payment_no: &'a str,
    pub(super) order_no: &'a str,
    pub(super) amount: u64,
    pub(super) channel: &'a str,
    #[schemars(extend("enum" = ["pending", "paid", "failed"]))]
    pub(super) status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["requested", "settled", "failed"]))]
    pub(super) refund: Option<&'static str>,
    pub(super) expires_at: Instant,
}

impl<'a> From<&'a PaymentView> for PaymentJson<'a> {
    fn from(view: &'a PaymentView) -> Self {
        Self {
            payment_no: &view.payment_no,
            order_no: &view.order_no,
            amount: view.amount,
            channel: &view.channel,
            status: payment_status(view.status),
            refund: view.refund.map(refund_status),
            expires_at: Instant(view.expires_ms),
        }
    }
}

const fn payment_status(status: PaymentStatus) -> &'static str {
    match status {
        PaymentStatus::Pending => "pending",
        PaymentStatus::Paid => "paid",
        PaymentStatus::Failed => "failed",
    }
}

/// A refund's status as callers know it.
pub(super) const fn refund_status(status: RefundStatus) -> &'static str {
    match status {
        RefundStatus::Requested => "requested",
        RefundStatus::Settled => "settled",
        RefundStatus::Failed => "failed",
    }
}

/// `POST /api/payments`: opens a payment of the caller's order, or finds the one that is open.
pub(super) async fn open(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Json(body): Json<OpenBody>,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let channel = body.channel.as_deref().unwrap_or(MOCK);
    if !app.payments.channels.has(channel) {
        return Err(Problem::invalid("channel is no way to pay here"));
    }
    let order_no = &body.order_no;
    if let Some(row) = archived::purchase_of_order(app, order_no).await? {
        return Err(archived::order_over(caller, &row));
    }
    let id = app.engine.reservation_of_order(order_no).ok_or(Code::OrderNotFound)?;
    let ttl_ms = u64::try_from(app.payments.ttl.as_millis()).unwrap_or(u64::MAX);
    let opened = app.engine.open_payment(id, caller.user, channel, ttl_ms)?;
    let view = opened.durable().await?.map_err(|refusal| match refusal {
        Refusal::UnknownReservation => Code::OrderNotFound.into(),
        refusal => Problem::from(refusal),
    })?;
    Ok((StatusCode::CREATED, json(&PaymentJson::from(&view))?).into_response())
}

/// `GET /api/payments/{payment_no}`: the caller's; an operator may look at any.
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Segment(payment_no): Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let may_see = |user: u64| user == caller.user.get() || caller.role == Role::Admin;
    if let Some(view) = app.engine.payment(&payment_no)?.durable().await? {
        let view = Some(view).filter(|view| may_see(view.user.get()));
        let view = view.ok_or(Code::PaymentNotFound)?;
        return json(&PaymentJson::from(&view)).map(IntoResponse::into_response);
    }
    archived::purchase_of_payment(app, &payment_no).await?.ok_or(Code::PaymentNotFound)?;
    archived::show_payment(app, &payment_no, may_see).await
}

/// How to give the money back.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "RefundRequest")]
pub(super) struct RefundBody {
    /// The refund's own number, 1 to 64 bytes: asked for once per number.
    #[schemars(length(min = 1, max = REFUND_NO_BYTES_MAX))]
    refund_no: String,
    #[serde(default, deserialize_with = "present")]
    /// The units can be sold again.
    restock: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    /// The buyer's limit is given back.
    free_limit: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(max = NOTE_BYTES_MAX))]
    reason: Option<String>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Refund")]
struct RefundJson<'a> {
    refund_no: &'a str,
    payment_no: &'a str,
    #[schemars(extend("enum" = ["requested", "settled", "failed"]))]
    status: &'static str,
    restock: bool,
    free_limit: bool,
}

/// `POST /api/payments/{payment_no}/refund`: asked for once per number. 202 until it is settled or
/// refused, then 200.
pub(super) async fn refund(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Segment(payment_no): Segment,
    Json(body): Json<RefundBody>,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let name = admin.0.user.to_string();
    let actor = Actor { name: &name, request_id: request_id.as_str() };
    let wanted = |reservation| RequestRefund {
        reservation,
        refund_no: &body.refund_no,
        restock: body.restock.unwrap_or(false),
        free_limit: body.free_limit.unwrap_or(false),
        note: body.reason.as_deref().unwrap_or_default(),
        actor,
        archived: None,
    };
    let refunded = match paid_by(app, &payment_no).await? {
        Some(id) => app.engine.refund_request(&wanted(id))?.durable().await?,
        None => {
            let row = archived::purchase_of_payment(app, &payment_no).await?;
            let row = row.ok_or(Code::PaymentNotFound)?;
            let id = ReservationId::new(row.id).ok_or(Code::PaymentNotFound)?;
            archived::refund(app, &row, &payment_no, &wanted(id)).await?
        }
    };
    let refund = refunded.map_err(by_payment)?;
    app.payments.refunds.notify_one();
    let open = refund.status == RefundStatus::Requested;
    let status = if open { StatusCode::ACCEPTED } else { StatusCode::OK };
    let told = RefundJson {
        refund_no: &body.refund_no,
        payment_no: &payment_no,
        status: refund_status(refund.status),
        restock: refund.restock,
        free_limit: refund.free_limit,
    };
    Ok((status, json(&told)?).into_response())
}

/// The reservation that `payment_no` paid; `None` where the engine knows no such payment.
async fn paid_by(app: &App, payment_no: &str) -> Result<Option<ReservationId>, Problem> {
    if let Some(view) = app.engine.payment(payment_no)?.durable().await? {
        return match view.status {
            PaymentStatus::Paid => Ok(Some(view.reservation)),
            PaymentStatus::Pending | PaymentStatus::Failed => Err(Code::NotPaid.into()),
        };
    }
    // What was taken over from elsewhere was paid by a payment that was not opened here.
    let end = payment_no.len().saturating_sub(2);
    let order_no = payment_no.get(..end).unwrap_or_default();
    let Some(id) = app.engine.reservation_of_order(order_no) else { return Ok(None) };
    let view = app.engine.reservation(id)?.durable().await?;
    Ok(view.filter(|view| view.reservation.payment_no == payment_no).map(|_| id))
}

/// The caller named a payment, not a purchase.
fn by_payment(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::UnknownReservation => Code::PaymentNotFound.into(),
        refusal => refusal.into(),
    }
}
