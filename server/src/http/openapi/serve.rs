//! `/openapi.json` and `/docs`.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;

use super::api::Api;
use super::document::DOCUMENT;
use super::operation::{Operation, Tag};
use super::page;

/// An OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename = "OpenApi")]
#[expect(dead_code, reason = "the shape of the answer, for the document")]
struct OpenApi {
    openapi: String,
    info: serde_json::Map<String, serde_json::Value>,
    paths: serde_json::Map<String, serde_json::Value>,
}

/// This interface, described.
pub(in crate::http) fn routes() -> Api {
    Api::new()
        .get(
            "/openapi.json",
            document,
            Operation::new(Tag::Server, "getOpenApi", "This document")
                .answers::<OpenApi>(200, "OpenAPI 3.1"),
        )
        .get(
            "/docs",
            docs,
            Operation::new(Tag::Server, "getDocs", "This document as a page")
                .about("It needs no script and no network.")
                .answers_text("text/html", "A page.")
                .with_header("Content-Security-Policy", true, "Nothing but its own style."),
        )
}

static JSON: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(DOCUMENT.to_string()));

async fn document() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], JSON.clone()).into_response()
}

static PAGE: LazyLock<(Bytes, HeaderValue)> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        page::style_source()
    );
    // Base64 and ASCII words: it always is a header's value.
    let policy = HeaderValue::from_str(&policy);
    let nothing = HeaderValue::from_static("default-src 'none'");
    (Bytes::from(page::render(&DOCUMENT)), policy.unwrap_or(nothing))
});

const REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");

async fn docs() -> Response {
    let (page, policy) = &*PAGE;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy.clone()),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, page.clone()).into_response()
}
