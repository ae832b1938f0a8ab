//! The service's paths: a purchase, and what the client needs to make a sale and to look at it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::json;

use super::stores::{Bought, Kept};
use crate::trouble::Trouble;

struct Shop {
    store: Kept,
    key: DecodingKey,
    validation: Validation,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

#[derive(Deserialize)]
struct Wanted {
    client_request_id: String,
}

#[derive(Deserialize)]
struct Made {
    stock: u64,
    per_user_limit: u64,
}

/// The service over `store`, for tokens that are signed with `secret`.
#[expect(clippy::disallowed_methods, reason = "a peer's paths are not in our document")]
pub(super) fn router(store: Kept, secret: &[u8]) -> Router {
    #[expect(clippy::unwrap_used, reason = "any bytes are a key")]
    let key = DecodingKey::from_secret(secret).unwrap();
    let shop = Shop { store, key, validation: Validation::new(Algorithm::HS256) };
    Router::new()
        .route("/api/flashsales/{id}/purchase", post(purchase))
        .route("/api/admin/flashsales", post(create))
        .route("/api/admin/flashsales/{id}/publish", post(|| async { StatusCode::NO_CONTENT }))
        .route("/api/admin/flashsales/{id}", get(show))
        .with_state(Arc::new(shop))
}

/// Whom the token proves.
fn user(shop: &Shop, headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = text.strip_prefix("Bearer ")?;
    let token = jsonwebtoken::decode::<Claims>(token, &shop.key, &shop.validation).ok()?;
    token.claims.sub.parse().ok()
}

fn refused(status: StatusCode, code: &str) -> Response {
    (status, Json(json!({ "code": code }))).into_response()
}

fn failed(trouble: &Trouble) -> Response {
    eprintln!("service: {trouble}");
    refused(StatusCode::INTERNAL_SERVER_ERROR, "store")
}

async fn purchase(
    State(shop): State<Arc<Shop>>,
    Path(activity): Path<u64>,
    headers: HeaderMap,
    Json(wanted): Json<Wanted>,
) -> Response {
    let Some(user) = user(&shop, &headers) else {
        return refused(StatusCode::UNAUTHORIZED, "unauthenticated");
    };
    let (id, is_replay) = match shop.store.buy(user, &wanted.client_request_id).await {
        Ok(Bought::New(id)) => (id, false),
        Ok(Bought::Known(id)) => (id, true),
        Ok(Bought::Refused(code)) => return refused(StatusCode::CONFLICT, code),
        Err(trouble) => return failed(&trouble),
    };
    let body = json!({
        "pre_deduction_id": id, "order_no": format!("1{id:017}"), "status": "pending_order",
        "activity_id": activity, "quantity": 1, "price": 100,
    });
    let mut response = (StatusCode::ACCEPTED, Json(body)).into_response();
    if is_replay {
        let yes = HeaderValue::from_static("true");
        response.headers_mut().insert("idempotency-replayed", yes);
    }
    response
}

async fn create(State(shop): State<Arc<Shop>>, Json(made): Json<Made>) -> Response {
    match shop.store.create(made.stock, made.per_user_limit).await {
        Ok(id) => (StatusCode::CREATED, Json(json!({ "id": id }))).into_response(),
        Err(trouble) => failed(&trouble),
    }
}

async fn show(State(shop): State<Arc<Shop>>, Path(id): Path<u64>) -> Response {
    match shop.store.units().await {
        Ok(units) => Json(json!({
            "id": id, "total": units.total, "available": units.available,
            "locked": units.total - units.available, "sold": 0, "per_user_limit": 1,
        }))
        .into_response(),
        Err(trouble) => failed(&trouble),
    }
}
