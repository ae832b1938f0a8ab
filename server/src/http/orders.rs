//! Orders as their owner sees them. They come from SQL; those that are not there yet, or while SQL
//! does not answer, come from the engine, which knows everything but the address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts::Address;
use bridge::sql::queries::{Order, OrderStatus};
use engine::core::event::{Actor, RestoreReason, Status};
use engine::core::ids::ReservationId;
use engine::core::side::RefundStatus;
use engine::{PublicStatus, ReservationView};
use schemars::JsonSchema;
use serde::Serialize;

use super::archived;
use super::input::Segment;
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use super::purchases::owned;
use super::views::PurchaseJson;
use crate::app::{App, Shared};
use crate::identity::Caller;
use crate::time::Instant;

/// An order, from SQL or about to be there.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Order")]
pub(super) struct OrderJson<'a> {
    order_no: &'a str,
    pre_deduction_id: u64,
    activity_id: u64,
    #[schemars(extend("enum" = order_statuses()))]
    status: &'static str,
    total_amount: u64,
    pay_amount: u64,
    items: Vec<ItemJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// As it was when the order was made.
    address: Option<AddressJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_no: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_at: Option<Instant>,
    /// Unpaid, it is given back then.
    expire_at: Instant,
    created_at: Instant,
    updated_at: Instant,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OrderItem")]
struct ItemJson<'a> {
    sku_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    price: u64,
    quantity: u64,
    amount: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OrderAddress")]
struct AddressJson<'a> {
    receiver: &'a str,
    phone: &'a str,
    province: &'a str,
    city: &'a str,
    district: &'a str,
    detail: &'a str,
}

impl<'a> From<&'a Address> for AddressJson<'a> {
    fn from(address: &'a Address) -> Self {
        let Address { receiver, phone, province, city, district, detail } = address;
        Self { receiver, phone, province, city, district, detail }
    }
}

impl<'a> From<&'a Order> for OrderJson<'a> {
    fn from(order: &'a Order) -> Self {
        Self {
            order_no: &order.order_no,
            pre_deduction_id: order.reservation_id,
            activity_id: order.activity_id,
            status: order.status.name(),
            total_amount: order.total_amount,
            pay_amount: order.pay_amount,
            items: order
                .items
                .iter()
                .map(|item| ItemJson {
                    sku_id: item.sku_id,
                    title: Some(&item.title),
                    price: item.price,
                    quantity: item.quantity,
                    amount: item.amount,
                })
                .collect(),
            address: order.address.as_ref().map(AddressJson::from),
            payment_no: order.payment_no.as_deref(),
            paid_at: order.paid_ms.map(Instant),
            cancelled_at: order.cancelled_ms.map(Instant),
            expire_at: Instant(order.expire_ms),
            created_at: Instant(order.created_ms),
            updated_at: Instant(order.updated_ms),
        }
    }
}

impl<'a> OrderJson<'a> {
    /// The order that `view` is about to become.
    pub(super) fn pending(view: &'a ReservationView, title: Option<&'a str>) -> Self {
        let reservation = &view.reservation;
        let amount = reservation.price.saturating_mul(u64::from(reservation.quantity));
        let status = pending_status(view);
        let gone = matches!(reservation.status, Status::RolledBack(_));
        Self {
            order_no: &view.order_no,
            pre_deduction_id: reservation.id.get(),
            activity_id: reservation.activity.get(),
            status: status.name(),
            total_amount: amount,
            pay_amount: amount,
            items: vec![ItemJson {
                sku_id: reservation.sku.get(),
                title,
                price: reservation.price,
                quantity: u64::from(reservation.quantity),
                amount,
            }],
            address: None,
            payment_no: Some(reservation.payment_no.as_str()).filter(|no| !no.is_empty()),
            paid_at: None,
            cancelled_at: gone.then_some(Instant(reservation.updated_ms)),
            expire_at: Instant(reservation.pay_before_ms),
            created_at: Instant(reservation.created_ms),
            updated_at: Instant(reservation.updated_ms),
        }
    }
}

/// The names of all statuses.
pub(super) fn order_statuses() -> [&'static str; 8] {
    OrderStatus::ALL.map(OrderStatus::name)
}

/// One order of the caller's.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/api/orders/{order_no}",
            detail,
            Operation::new(Tag::Orders, "getOrder", "An order with its items and its address")
                .answers::<OrderJson<'_>>(200, "The caller's order")
                .refuses(&[Code::OrderNotFound])
                .reads()
                .asks_sql(),
        )
        .post(
            "/api/orders/{order_no}/cancel",
            cancel,
            Operation::new(Tag::Orders, "cancelOrder", "Give an unpaid order back")
                .answers::<PurchaseJson<'_>>(200, "It is given back; asked again, the same")
                .refuses(&[Code::OrderNotFound, Code::AlreadyPaid, Code::PaidByAnother])
                .writes()
                .asks_sql(),
        )
}

/// What SQL will call the order of `view`.
pub(super) fn pending_status(view: &ReservationView) -> OrderStatus {
    match view.reservation.status {
        Status::Reserved => OrderStatus::PendingPayment,
        Status::Confirmed => match view.refund {
            Some(RefundStatus::Requested) => OrderStatus::Refunding,
            Some(RefundStatus::Settled) => OrderStatus::Refunded,
            Some(RefundStatus::Failed) | None => OrderStatus::Paid,
        },
        Status::RolledBack(RestoreReason::Timeout) => OrderStatus::Timeout,
        Status::RolledBack(_) => OrderStatus::Cancelled,
    }
}

/// `GET /api/orders/{order_no}`
pub(super) async fn detail(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Segment(order_no): Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let row = app.orders.breaker.call(app.orders.queries.order(caller.user, &order_no));
    let view = match owned_order(app, &order_no, caller).await {
        Ok(view) => view,
        Err(problem) if problem.code == Code::OrderNotFound => {
            // Its activity may have left memory: SQL remembers.
            let row = row.await.map_err(|_| Code::DatabaseUnavailable)?;
            let row = row.ok_or(Code::OrderNotFound)?;
            return json(&OrderJson::from(&row)).map(IntoResponse::into_response);
        }
        Err(problem) => return Err(problem),
    };
    // SQL is behind the engine, never ahead: a row that does not show the latest change yet would
    // contradict what its owner was just told.
    let row = match (view.status, row.await) {
        (PublicStatus::Ordered, Ok(row)) => row,
        (PublicStatus::RolledBack(_), Ok(row)) => row,
        (PublicStatus::PendingOrder, _) | (_, Err(_)) => None,
    };
    let current = row.filter(|row| {
        let settled = [OrderStatus::Shipped, OrderStatus::Completed];
        row.status == pending_status(&view) || settled.contains(&row.status)
    });
    let activity = app.engine.activity(view.reservation.activity);
    let title = activity.as_ref().map(|it| &*it.terms.title);
    let body = match &current {
        Some(order) => OrderJson::from(order),
        None => OrderJson::pending(&view, title),
    };
    json(&body).map(IntoResponse::into_response)
}

/// `POST /api/orders/{order_no}/cancel`: gives an unpaid purchase back; again, it says the same.
pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Segment(order_no): Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    if let Some(row) = archived::purchase_of_order(app, &order_no).await? {
        let over = archived::order_over(caller, &row);
        if over.code != Code::AlreadyRolledBack {
            return Err(over);
        }
        return json(&PurchaseJson::from(&row)).map(IntoResponse::into_response);
    }
    let id = reservation(app, &order_no)?;
    let (owner, reason) = (Some(caller.user), RestoreReason::Cancelled);
    let restored = app.engine.restore(id, owner, reason, Actor::NONE)?;
    let view = restored.durable().await?.map_err(|refusal| by_order(refusal.into()))?;
    json(&PurchaseJson::from(&view)).map(IntoResponse::into_response)
}

/// The reservation behind `order_no`, where this site could have issued it.
fn reservation(app: &App, order_no: &str) -> Result<ReservationId, Problem> {
    app.engine.reservation_of_order(order_no).ok_or(Code::OrderNotFound.into())
}

async fn owned_order(
    app: &App,
    order_no: &str,
    caller: Caller,
) -> Result<ReservationView, Problem> {
    owned(app, reservation(app, order_no)?, caller).await.map_err(by_order)
}

/// The caller named an order, not a purchase.
fn by_order(problem: Problem) -> Problem {
    match problem.code {
        Code::PurchaseNotFound => Code::OrderNotFound.into(),
        _ => problem,
    }
}
