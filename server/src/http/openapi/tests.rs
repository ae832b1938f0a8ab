//! The document and the router are one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

use super::document::{DOCUMENT, text};
use super::operation::Operation;
use crate::http::problem::Code;
use crate::http::{api, router, tests::unready};

const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

fn methods() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut methods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for Operation { path, method, .. } in api().into_operations() {
        let is_new = methods.entry(path).or_default().insert(method.to_string());
        assert!(is_new, "{method} {path} is there twice");
    }
    methods
}

#[test]
fn the_committed_document_is_what_the_code_says() {
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(committed == text(), "docs/openapi.json is stale: run `cargo xtask docs`");
    assert!(!committed.contains(r#""description": null"#), "nothing is said where nothing is");
}

#[test]
fn a_path_takes_the_methods_that_the_document_names_and_no_other() {
    let shared = unready();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (path, documented) in methods() {
        for method in METHODS {
            let uri = path.replace(['{', '}'], "");
            let request = Request::builder().method(method.clone()).uri(uri);
            let request = request.body(Body::empty()).unwrap();
            let answer = router(&Arc::clone(&shared), true).oneshot(request);
            let answer = runtime.block_on(answer).unwrap();
            let is_served = answer.status() != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(is_served, documented.contains(method.as_str()), "{method} {path}");
            let code = answer.extensions().get::<Code>().copied();
            assert_ne!(code, Some(Code::NotFound), "{method} {path} leads nowhere");
        }
    }
    let in_document: BTreeSet<_> =
        DOCUMENT["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(in_document, methods().into_keys().collect());
}

#[test]
fn an_operation_has_a_name_of_its_own_a_summary_and_a_good_answer() {
    let mut names = BTreeSet::new();
    for operation in api().into_operations() {
        let (id, path) = (operation.id, operation.path);
        assert!(names.insert(id), "{id} is there twice");
        assert!(!operation.summary.is_empty() && !operation.answers.is_empty(), "{path}");
        assert!(!operation.summary.ends_with('.'), "{path}: a summary is a heading");
        let takes_body = !operation.bodies.is_empty();
        assert!(!takes_body || operation.method != Method::GET, "{path}: GET has no body");
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let mut references = BTreeSet::new();
    collect(&DOCUMENT, &mut references);
    for reference in &references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(DOCUMENT.pointer(pointer).is_some(), "{reference}");
    }
    for name in DOCUMENT["components"]["schemas"].as_object().unwrap().keys() {
        let reference = format!("#/components/schemas/{name}");
        assert!(references.contains(&reference), "nothing uses {name}");
        assert!(!name.ends_with("Json") && !name.ends_with(char::is_numeric), "name {name}");
    }
}

fn collect(value: &Value, references: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[test]
fn every_code_is_told_by_some_operation_but_those_that_none_has() {
    let operations = api().into_operations();
    let is_told =
        |code: &Code| operations.iter().any(|operation| operation.problems.contains(code));
    let untold: Vec<_> = Code::ALL.iter().copied().filter(|code| !is_told(code)).collect();
    // In front of all operations, a path's own, and what only calls inside the server meet.
    let expected = [
        Code::TlsRequired,
        Code::RefundNotFound,
        Code::MethodNotAllowed,
        Code::ActivityExists,
        Code::UriTooLong,
        Code::HeadersTooLarge,
        Code::Internal,
    ];
    assert_eq!(untold, expected);
}
