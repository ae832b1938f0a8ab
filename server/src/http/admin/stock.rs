//! Moving units: restock, decrease, give-back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::core::event::{Actor, RestoreReason};
use engine::core::limits::REQUEST_ID_BYTES_MAX;
use schemars::JsonSchema;
use serde::Deserialize;

use super::activities::{name, shown, told};
use crate::app::Shared;
use crate::http::archived;
use crate::http::input::{Admin, IdempotencyKey, Json, Segment, Units};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag, text_schema};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::http::views::{AdminActivityJson, PurchaseJson};

/// Units that come, go, and come back.
pub(super) fn routes() -> Api {
    let moved = |id, summary| {
        Operation::new(Tag::Activities, id, summary)
            .header(
                "Idempotency-Key",
                true,
                text_schema::<REQUEST_ID_BYTES_MAX>,
                "Required: the same key again changes nothing.",
            )
            .answers::<AdminActivityJson<'_>>(200, "The activity with its new figures")
            .with_header("ETag", true, "The version, for `If-Match`.")
            .refuses(&[
                Code::ActivityNotFound,
                Code::Ended,
                Code::TooManyOperations,
                Code::RequestIdReused,
            ])
            .writes()
    };
    Api::new()
        .post(
            "/api/admin/flashsales/{id}/restock",
            restock,
            moved("restock", "Add units").about("A sold-out sale sells again at once."),
        )
        .post(
            "/api/admin/flashsales/{id}/decrease",
            decrease,
            moved("decrease", "Take free units away").refuses(&[Code::StockBelowReserved]),
        )
        .post(
            "/api/admin/reservations/{id}/release",
            release,
            Operation::new(Tag::Operations, "releaseReservation", "Give an unpaid purchase back")
                .answers::<PurchaseJson<'_>>(200, "It is given back; asked again, the same")
                .refuses(&[Code::PurchaseNotFound, Code::AlreadyPaid, Code::PaidByAnother])
                .writes()
                .asks_sql(),
        )
}

/// How many.
#[derive(JsonSchema, Deserialize)]
pub(super) struct Quantity {
    quantity: Units,
}

/// `POST /api/admin/flashsales/{id}/restock`, once per key.
pub(super) async fn restock(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
    key: IdempotencyKey,
    Json(body): Json<Quantity>,
) -> Result<Response, Problem> {
    let key = key.required()?;
    let app = shared.app()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let answered = app.engine.restock(segment.activity()?, actor, &key, body.quantity.0);
    shown(app, StatusCode::OK, &told(answered).await?)
}

/// `POST /api/admin/flashsales/{id}/decrease`, once per key.
pub(super) async fn decrease(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
    key: IdempotencyKey,
    Json(body): Json<Quantity>,
) -> Result<Response, Problem> {
    let key = key.required()?;
    let app = shared.app()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let answered = app.engine.decrease(segment.activity()?, actor, &key, body.quantity.0);
    shown(app, StatusCode::OK, &told(answered).await?)
}

/// `POST /api/admin/reservations/{id}/release`: gives an unpaid reservation back.
pub(super) async fn release(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let id = segment.reservation()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let restored = app.engine.restore(id, None, RestoreReason::Admin, actor);
    match restored?.durable().await?.map_err(Problem::from) {
        Ok(view) => json(&PurchaseJson::from(&view)).map(IntoResponse::into_response),
        Err(problem) if problem.code == Code::PurchaseNotFound => {
            let row = archived::reservation(app, id).await?;
            // Nothing unpaid is archived.
            if row.status != "rolled_back" {
                return Err(Code::AlreadyPaid.into());
            }
            json(&PurchaseJson::from(&row)).map(IntoResponse::into_response)
        }
        Err(problem) => Err(problem),
    }
}
