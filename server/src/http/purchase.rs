//! `POST /api/flashsales/{id}/purchase`: the one request that a sale is made of.
//!
//! The order of checks is the contract's: who is calling, is it a purchase at all, is it one we
//! know (a replay), and then, in one decision under the activity's lock, everything about the
//! activity and its stock. The look-up of a known request id and the decision are the same call
//! here, since nothing stands between them yet; limits will, and then ask `find_request` first.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::core::event::Front;
use engine::core::limits::REQUEST_ID_BYTES_MAX;
use serde::Deserialize;

use super::input::{
    BODY_BYTES_MAX, IdempotencyKey, Segment, Units, parse_object, present, read_body, require_json,
};
use super::problem::Problem;
use super::views::AcceptedJson;
use crate::app::Shared;
use crate::identity::Caller;
use crate::metrics::PurchaseOutcome;

const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What a shopper sends. Anything else in it, client-sent times above all, is ignored.
#[derive(Default, Deserialize)]
struct PurchaseBody {
    #[serde(default, deserialize_with = "present")]
    client_request_id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    quantity: Option<Units>,
}

/// Reserves units for the caller. The answer is sent once the reservation is on disk.
pub(super) async fn purchase(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    segment: Segment,
    key: IdempotencyKey,
    request: Request,
) -> Response {
    let outcome = reserve(&shared, caller, &segment, key, request).await;
    let (kind, response) = match outcome {
        Ok((PurchaseOutcome::Replayed, mut response)) => {
            response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
            (PurchaseOutcome::Replayed, response)
        }
        Ok(accepted) => accepted,
        Err(problem) => (PurchaseOutcome::Refused(problem.code), problem.into_response()),
    };
    shared.metrics.purchase(kind);
    response
}

async fn reserve(
    shared: &Shared,
    caller: Caller,
    segment: &Segment,
    key: IdempotencyKey,
    request: Request,
) -> Result<(PurchaseOutcome, Response), Problem> {
    let (request_id, quantity) = read(shared, key, request).await?;
    let app = shared.app()?;
    let pending =
        app.engine.reserve(segment.activity()?, caller.user, &request_id, quantity, Front::Http)?;
    let purchase = pending.durable().await?.map_err(|refused| Problem::from(refused.refusal))?;
    let body = serde_json::to_vec(&AcceptedJson::from(&purchase.reservation));
    let body = body.map_err(|_| super::problem::Code::Internal)?;
    let kind =
        if purchase.replayed { PurchaseOutcome::Replayed } else { PurchaseOutcome::Accepted };
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((kind, (StatusCode::ACCEPTED, json, body).into_response()))
}

/// The shape of a purchase: its request id, from body or header, and its quantity.
async fn read(
    shared: &Shared,
    IdempotencyKey(key): IdempotencyKey,
    request: Request,
) -> Result<(String, u32), Problem> {
    require_json(request.headers())?;
    let bytes = read_body(request, shared, BODY_BYTES_MAX).await?;
    // With the id in the header and one unit wanted there is nothing left to say in a body.
    let body: PurchaseBody =
        if bytes.is_empty() { PurchaseBody::default() } else { parse_object(&bytes)? };
    let request_id = body.client_request_id.or(key).ok_or_else(|| {
        Problem::invalid("client_request_id (or the Idempotency-Key header) is required")
    })?;
    if !(1..=REQUEST_ID_BYTES_MAX).contains(&request_id.len()) {
        return Err(Problem::invalid("client_request_id must have 1 to 64 bytes"));
    }
    Ok((request_id, body.quantity.map_or(1, |units| units.0)))
}
