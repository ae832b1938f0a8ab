//! Orders that could not be made: listed, tried again, given up.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::archived::ReservationRow;
use bridge::sql::dead_letter_list::DeadLetterRow;
use bridge::sql::dead_letters::State as LetterState;
use engine::core::event::Actor;
use engine::core::ids::ReservationId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activities::name;
use super::page::Page;
use crate::app::{App, Shared};
use crate::http;
use crate::http::input::{Admin, Params, Segment};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag, nullable};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::http::views::PurchaseJson;
use crate::time::Instant;

/// `?status=&page=&page_size=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "DeadLetterQuery")]
pub(super) struct Wanted {
    #[schemars(extend("enum" = letter_states()))]
    status: Option<String>,
    /// From 1.
    #[schemars(range(min = 1, max = u32::MAX))]
    page: Option<u32>,
    /// Rows of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = 100))]
    page_size: Option<u32>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "DeadLetters")]
struct ListJson<'a> {
    total: u64,
    page: u32,
    page_size: u32,
    items: Vec<LetterJson<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "DeadLetter")]
struct LetterJson<'a> {
    id: u64,
    order_no: &'a str,
    activity_id: u64,
    user_id: u64,
    #[schemars(extend("enum" = letter_states()))]
    status: &'static str,
    reason: &'a str,
    attempts: u64,
    #[schemars(schema_with = "nullable::<&str>")]
    last_error: Option<&'a str>,
    quantity: u64,
    price: u64,
    created_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_at: Option<Instant>,
}

impl<'a> From<&'a DeadLetterRow> for LetterJson<'a> {
    fn from(row: &'a DeadLetterRow) -> Self {
        Self {
            id: row.reservation_id,
            order_no: &row.order_no,
            activity_id: row.activity_id,
            user_id: row.user_id,
            status: row.state.name(),
            reason: &row.reason,
            attempts: row.attempts,
            last_error: row.last_error.as_deref(),
            quantity: row.quantity,
            price: row.price,
            created_at: Instant(row.created_ms),
            resolved_at: row.resolved_ms.map(Instant),
        }
    }
}

fn letter_states() -> [&'static str; 3] {
    LetterState::ALL.map(LetterState::name)
}

/// What could not become an order.
pub(super) fn routes() -> Api {
    let mended = |id, summary, about| {
        Operation::new(Tag::Operations, id, summary)
            .about(about)
            .answers::<PurchaseJson<'_>>(200, "The purchase as it is now")
            .refuses(&[Code::DeadLetterNotFound, Code::AlreadyRolledBack, Code::Ended])
            .writes()
            .asks_sql()
    };
    Api::new()
        .get(
            "/api/admin/dead-letters",
            list,
            Operation::new(Tag::Operations, "listDeadLetters", "What could not become an order")
                .answers::<ListJson<'_>>(200, "A page, the newest first")
                .asks_sql(),
        )
        .post(
            "/api/admin/dead-letters/{id}/retry",
            retry,
            mended("retryDeadLetter", "Try its order again", "The purchase says what came of it."),
        )
        .post(
            "/api/admin/dead-letters/{id}/rollback",
            rollback,
            mended(
                "rollBackDeadLetter",
                "Give its units back",
                "A paid one's refund is asked for.",
            )
            .refuses(&[Code::RefundInProgress, Code::AlreadyRefunded]),
        )
}

/// `GET /api/admin/dead-letters`, the newest first.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let state = match &wanted.status {
        None => None,
        Some(name) => Some(
            LetterState::from_name(name)
                .ok_or_else(|| Problem::invalid("status must be open, delivered or rolled_back"))?,
        ),
    };
    let page = Page::of(wanted.page, wanted.page_size)?;
    let orders = &shared.app()?.orders;
    let found = orders.breaker.call(orders.queries.dead_letters(state, page.window())).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items = found.letters.iter().map(LetterJson::from).collect();
    json(&ListJson { total: found.total, page: page.number, page_size: page.size, items })
        .map(IntoResponse::into_response)
}

/// `POST /api/admin/dead-letters/{id}/retry`: its order is tried again. What came of it, the
/// purchase says.
pub(super) async fn retry(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let id = named(&segment)?;
    let retried = app.engine.dead_letter_retry(id, actor)?.durable().await?;
    match retried.map_err(by_letter) {
        Ok(view) => json(&PurchaseJson::from(&view)).map(IntoResponse::into_response),
        Err(problem) => match archived(app, id, &problem).await? {
            Some((LetterState::RolledBack, _)) => Err(Code::AlreadyRolledBack.into()),
            Some((LetterState::Delivered, row)) => {
                json(&PurchaseJson::from(&row)).map(IntoResponse::into_response)
            }
            // One that is open in an archived activity is paid: no order will be made of it.
            Some((LetterState::Open, _)) => Err(Code::Ended.into()),
            None => Err(problem),
        },
    }
}

/// `POST /api/admin/dead-letters/{id}/rollback`: its units go back; a paid one's refund is asked
/// for.
pub(super) async fn rollback(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let id = named(&segment)?;
    let rolled_back = app.engine.dead_letter_rollback(id, actor)?.durable().await?;
    match rolled_back.map_err(by_letter) {
        Ok(view) => json(&PurchaseJson::from(&view)).map(IntoResponse::into_response),
        Err(problem) => match archived(app, id, &problem).await? {
            Some((LetterState::RolledBack, row)) => {
                json(&PurchaseJson::from(&row)).map(IntoResponse::into_response)
            }
            // Its money goes back by a refund of its payment.
            Some((LetterState::Open, _)) => Err(Code::Ended.into()),
            Some((LetterState::Delivered, _)) | None => Err(problem),
        },
    }
}

/// Where the dead letter of an archived activity's reservation stands, with the reservation, where
/// that is what the engine's `refusal` is about.
async fn archived(
    app: &App,
    id: ReservationId,
    refusal: &Problem,
) -> Result<Option<(LetterState, ReservationRow)>, Problem> {
    if refusal.code != Code::DeadLetterNotFound {
        return Ok(None);
    }
    let row = match http::archived::reservation(app, id).await {
        Ok(row) => row,
        Err(problem) if problem.code == Code::PurchaseNotFound => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let state = app.orders.breaker.call(app.orders.queries.dead_letter_state(id)).await;
    let state = state.map_err(|_| Code::DatabaseUnavailable)?;
    Ok(state.map(|state| (state, row)))
}

/// The reservation whose dead letter the caller names.
fn named(segment: &Segment) -> Result<ReservationId, Problem> {
    segment.reservation().map_err(by_letter)
}

/// The caller named a dead letter, not a purchase.
fn by_letter(problem: impl Into<Problem>) -> Problem {
    let problem = problem.into();
    match problem.code {
        Code::PurchaseNotFound => Code::DeadLetterNotFound.into(),
        _ => problem,
    }
}
