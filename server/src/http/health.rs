//! Liveness, readiness, metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::problem::{Code, Problem};
use crate::app::Shared;

/// `/healthz` and `/readyz`.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The process answers. It says nothing of the log: a process that is recovering must not be
/// killed for it.
async fn alive() -> Response {
    ([(header::CONTENT_TYPE, JSON)], "{\"status\":\"alive\"}").into_response()
}

/// Whether to send shoppers here.
async fn ready(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    shared.ready()?;
    Ok(([(header::CONTENT_TYPE, JSON)], "{\"status\":\"ready\"}").into_response())
}

const PROMETHEUS_TEXT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Everything that is counted, in Prometheus' text format.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let text = crate::metrics::render(&shared).map_err(|_| Code::Internal)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response())
}
