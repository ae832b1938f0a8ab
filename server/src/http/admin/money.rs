//! Money that may need a hand: what providers said, and refunds on their way.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::money_list::{CallbackFilter, CallbackRow, RefundFilter, RefundRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::page::Page;
use crate::app::Shared;
use crate::http::input::{Admin, Params};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag};
use crate::http::problem::{Code, Problem};
use crate::time::Instant;

/// `?flagged=&payment_no=&page=&page_size=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "CallbackQuery")]
struct WantedCallbacks {
    /// Money that fits no order, or all the rest.
    flagged: Option<bool>,
    payment_no: Option<String>,
    /// From 1.
    #[schemars(range(min = 1, max = u32::MAX))]
    page: Option<u32>,
    /// Rows of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = 100))]
    page_size: Option<u32>,
}

/// `?status=&page=&page_size=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "RefundQuery")]
struct WantedRefunds {
    /// `open` is pending or sent.
    #[schemars(extend("enum" = ["open", "pending", "sent", "settled", "failed"]))]
    status: Option<String>,
    /// From 1.
    #[schemars(range(min = 1, max = u32::MAX))]
    page: Option<u32>,
    /// Rows of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = 100))]
    page_size: Option<u32>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Callbacks")]
struct CallbacksJson<'a> {
    total: u64,
    page: u32,
    page_size: u32,
    items: Vec<CallbackJson<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Refunds")]
struct RefundsJson<'a> {
    total: u64,
    page: u32,
    page_size: u32,
    items: Vec<RefundJson<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ListedCallback")]
struct CallbackJson<'a> {
    callback_no: &'a str,
    payment_no: &'a str,
    transaction_no: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_id: Option<u64>,
    amount: u64,
    verdict: &'a str,
    flagged: bool,
    body: String,
    received_at: Instant,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ListedRefund")]
struct RefundJson<'a> {
    order_no: &'a str,
    refund_no: &'a str,
    activity_id: u64,
    scope: &'a str,
    payment_no: &'a str,
    amount: u64,
    restock: bool,
    free_limit: bool,
    status: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    requested_by: &'a str,
    created_at: Instant,
    updated_at: Instant,
}

impl<'a> From<&'a CallbackRow> for CallbackJson<'a> {
    fn from(row: &'a CallbackRow) -> Self {
        Self {
            callback_no: &row.callback_no,
            payment_no: &row.payment_no,
            transaction_no: &row.transaction_no,
            activity_id: row.activity_id,
            amount: row.amount,
            verdict: &row.verdict,
            flagged: row.is_flagged(),
            body: String::from_utf8_lossy(&row.body).into_owned(),
            received_at: Instant(row.received_ms),
        }
    }
}

impl<'a> From<&'a RefundRow> for RefundJson<'a> {
    fn from(row: &'a RefundRow) -> Self {
        Self {
            order_no: &row.order_no,
            refund_no: &row.refund_no,
            activity_id: row.activity_id,
            scope: &row.scope,
            payment_no: &row.payment_no,
            amount: row.amount,
            restock: row.restock,
            free_limit: row.free_limit,
            status: &row.status,
            reason: &row.reason,
            last_error: row.last_error.as_deref(),
            requested_by: &row.requested_by,
            created_at: Instant(row.created_ms),
            updated_at: Instant(row.updated_ms),
        }
    }
}

/// Money that may need a hand.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/api/admin/callbacks",
            callbacks,
            Operation::new(Tag::Operations, "listCallbacks", "What providers said")
                .about("Flagged is money that fits no order: an operator has to give it back.")
                .answers::<CallbacksJson<'_>>(200, "A page, the newest first")
                .asks_sql(),
        )
        .get(
            "/api/admin/refunds",
            refunds,
            Operation::new(Tag::Operations, "listRefunds", "Refunds, and how far they are")
                .answers::<RefundsJson<'_>>(200, "A page, those that have waited longest first")
                .asks_sql(),
        )
}

/// `GET /api/admin/callbacks`, the newest first. Flagged is money that fits no order.
async fn callbacks(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<WantedCallbacks>,
) -> Result<Response, Problem> {
    let page = Page::of(wanted.page, wanted.page_size)?;
    let filter = CallbackFilter { flagged: wanted.flagged, payment_no: wanted.payment_no };
    let orders = &shared.app()?.orders;
    let found = orders.breaker.call(orders.queries.callbacks(&filter, page.window())).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items = found.rows.iter().map(CallbackJson::from).collect();
    json(&CallbacksJson { total: found.total, page: page.number, page_size: page.size, items })
        .map(IntoResponse::into_response)
}

/// `GET /api/admin/refunds`, those that have waited longest first.
async fn refunds(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<WantedRefunds>,
) -> Result<Response, Problem> {
    let page = Page::of(wanted.page, wanted.page_size)?;
    let filter = match wanted.status.as_deref() {
        None => RefundFilter::Any,
        Some(name) => RefundFilter::from_name(name)
            .ok_or(Problem::invalid("status must be open, pending, sent, settled or failed"))?,
    };
    let orders = &shared.app()?.orders;
    let found = orders.breaker.call(orders.queries.refunds(filter, page.window())).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items = found.rows.iter().map(RefundJson::from).collect();
    json(&RefundsJson { total: found.total, page: page.number, page_size: page.size, items })
        .map(IntoResponse::into_response)
}
