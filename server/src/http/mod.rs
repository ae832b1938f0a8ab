//! The HTTP surface: which path and method leads to which room, and what every answer carries.

mod addresses;
mod admin;
mod admission;
mod archived;
mod auth;
mod callback;
mod catalogue;
mod events;
mod health;
mod input;
pub(crate) mod on_sale;
pub(crate) mod openapi;
mod order_list;
mod orders;
mod payments;
pub(crate) mod plain;
pub(crate) mod problem;
mod purchase;
mod purchases;
mod request_id;
mod stream;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::Shared;
pub(crate) use events::render as render_event;
use input::require_tls;
use openapi::Api;
use problem::{Code, Problem};
pub(crate) use request_id::unique;
use request_id::{RequestId, TRACEPARENT, X_REQUEST_ID, continued};

/// The API, with health and, unless they have an address of their own, metrics.
pub(crate) fn router(shared: &Arc<Shared>, with_metrics: bool) -> Router {
    let api = if with_metrics { api() } else { api_without_metrics() };
    finished(api.into_router(), shared)
}

/// Every route, with what it is: see [`openapi`] for how to add one.
pub(crate) fn api() -> Api {
    api_without_metrics().merge(health::metrics_routes())
}

fn api_without_metrics() -> Api {
    auth::routes()
        .merge(catalogue::routes())
        .merge(purchase::routes())
        .merge(admission::routes())
        .merge(purchases::routes())
        .merge(events::routes())
        .merge(order_list::routes())
        .merge(orders::routes())
        .merge(payments::routes())
        .merge(callback::routes())
        .merge(addresses::routes())
        .merge(admin::routes())
        .merge(health::routes())
        .merge(openapi::routes())
}

/// Metrics and health alone, for an address of their own.
pub(crate) fn metrics_router(shared: &Arc<Shared>) -> Router {
    finished(health::routes().merge(health::metrics_routes()).into_router(), shared)
}

fn finished(router: Router<Arc<Shared>>, shared: &Arc<Shared>) -> Router {
    router
        .fallback(|| async { Problem::from(Code::NotFound) })
        .method_not_allowed_fallback(|| async { Problem::from(Code::MethodNotAllowed) })
        .layer(from_fn_with_state(Arc::clone(shared), envelope))
        .with_state(Arc::clone(shared))
}

/// What every answer carries, whoever made it: the request's id, the trace it belongs to, and a
/// place in the counts.
async fn envelope(
    State(shared): State<Arc<Shared>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    let trace = continued(request.headers());
    let id_header = id.header();
    request.extensions_mut().insert(id);
    let admitted = unambiguous(&request).and_then(|()| secure(&shared, path.as_ref(), &request));
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(code) => Problem::from(code).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(X_REQUEST_ID, id_header);
    if let Some(trace) = trace {
        headers.insert(TRACEPARENT, trace);
    }
    shared.metrics.request(path.as_ref().map(MatchedPath::as_str), response.status());
    response
}

/// Refuses a request that a proxy may have read in another way: one for two hosts, or with a body
/// in any coding but `chunked`, once.
fn unambiguous(request: &Request) -> Result<(), Code> {
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).iter().count();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_plain = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    };
    if hosts > 1 || !is_plain { Err(Code::InvalidRequest) } else { Ok(()) }
}

/// Refuses an API call that did not come over TLS, where that is asked for. Probes of the machine
/// itself do not.
fn secure(shared: &Shared, path: Option<&MatchedPath>, request: &Request) -> Result<(), Code> {
    if !path.is_some_and(|path| path.as_str().starts_with("/api/")) {
        return Ok(());
    }
    require_tls(shared, request.headers(), request.extensions().get())
}

/// `body` as JSON.
fn json<T: Serialize>(body: &T) -> Result<impl IntoResponse + use<T>, Problem> {
    let body = serde_json::to_vec(body).map_err(|_| Code::Internal)?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body))
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tower::ServiceExt as _;

    use super::*;
    use crate::config::{Flags, load};
    use crate::identity::Tokens;

    fn status_and_code(shared: &Arc<Shared>, path: &str) -> (u16, String) {
        let request = Request::get(path)
            .header(header::AUTHORIZATION, "Bearer x")
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = router(shared, true).oneshot(request);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(answer).unwrap();
        assert!(answer.headers().contains_key(X_REQUEST_ID));
        let code = answer.extensions().get::<Code>().map_or("", |code| code.as_str());
        (answer.status().as_u16(), code.to_owned())
    }

    pub(super) fn unready() -> Arc<Shared> {
        let settings = load(&Flags::default()).unwrap().settings;
        let (_sender, receiver) = watch::channel(Arc::new(settings.http.clone()));
        Arc::new(Shared::new(&settings, receiver).unwrap())
    }

    #[test]
    fn before_recovery_is_done_everything_but_liveness_and_metrics_says_so() {
        let shared = unready();
        let recovering = (503, "recovering".to_owned());
        assert_eq!(status_and_code(&shared, "/readyz"), recovering);
        assert_eq!(status_and_code(&shared, "/api/flashsales"), recovering);
        assert_eq!(status_and_code(&shared, "/healthz"), (200, String::new()));
        assert_eq!(status_and_code(&shared, "/metrics"), (200, String::new()));
        let secret = serde_json::from_value("k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE".into()).unwrap();
        shared.know(Tokens::new(&secret).unwrap());
        assert_eq!(status_and_code(&shared, "/api/flashsales").0, 401);
        shared.drain();
        assert_eq!(status_and_code(&shared, "/readyz"), (503, "draining".to_owned()));
    }
}
