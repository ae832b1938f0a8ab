//! Liveness, readiness, metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;

use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use crate::app::Shared;

/// `/healthz` and `/readyz`.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/healthz",
            alive,
            Operation::new(Tag::Server, "isAlive", "Liveness").answers::<Health>(200, "It answers"),
        )
        .get(
            "/readyz",
            ready,
            Operation::new(Tag::Server, "isReady", "Readiness")
                .about("Whether to send shoppers here: 503 until recovery is done.")
                .answers::<Health>(200, "Purchases are decided")
                .refuses(&[Code::Recovering, Code::Draining, Code::LogUnavailable]),
        )
}

/// `/metrics`
pub(super) fn metrics_routes() -> Api {
    Api::new().get(
        "/metrics",
        metrics,
        Operation::new(Tag::Server, "metrics", "Everything that is counted")
            .about("May be on an address of its own, by configuration.")
            .answers_text("text/plain", "Prometheus' text format."),
    )
}

/// How the server is.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "the shape of the answer, for the document")]
struct Health {
    #[schemars(extend("enum" = ["alive", "ready"]))]
    status: &'static str,
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
async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let text = crate::metrics::render(&shared).map_err(|_| Code::Internal)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response())
}
