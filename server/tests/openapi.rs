//! No answer is outside the document: schemathesis makes requests out of docs/openapi.json, good
//! ones and bad ones, and holds every answer of the shipped binary against it.
//!
//! | caller | what is tried |
//! |---|---|
//! | a stranger | every operation without a token |
//! | a shopper | every operation with a user's token, over things that are the caller's |
//! | an operator | every operation with an operator's token: it changes and stops what it meets |
//!
//! Streams of events have no end that schemathesis would wait for: they are tried here, by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use common::python::{attempt, programs};
use common::{Answer, SECRET, Server, request, token};
use serde_json::{Value, json};

/// What is looked at in every answer. `negative_data_rejection` holds the other direction: what
/// the document does not allow is refused.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,\
    missing_required_header,unsupported_method,ignored_auth";

/// Requests made up for each operation, beside those at the bounds of each of its fields. The three
/// callers take a minute and a half with as many.
const EXAMPLES: &str = "15";

const PAYMENT_SECRET: &str = "Zk3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4c";

const ACTIVITY: u64 = 30_001;
const SHOPPER: u64 = 4242;
const OPERATOR: u64 = 10_001;

/// A demo in which the shopper has bought, and not paid yet; and what callers may know of it.
fn demo() -> (Server, Value) {
    let secrets = format!("mock:{PAYMENT_SECRET}");
    let server = Server::start_with(&["--demo"], &[("SLUICE_PAYMENTS__SECRETS", &secrets)]);
    let bought = server.buy(SHOPPER, ACTIVITY, "order-1", 1);
    assert_eq!(bought.status, 202, "{bought:?}");
    let mut known = bought.json();
    let body = json!({"order_no": known["order_no"]});
    let opened = server.as_user(SHOPPER, "POST", "/api/payments", Some(&body));
    assert_eq!(opened.status, 201, "{opened:?}");
    known["payment_no"] = opened.json()["payment_no"].clone();
    // Not the shopper: accounts that a path names may be disabled on the way.
    known["user_id"] = 7.into();
    known["channel"] = "mock".into();
    (server, known)
}

fn try_as(role: &str, caller: u64) {
    let (mut server, mut known) = demo();
    known["role"] = role.into();
    known["caller"] = caller.into();
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(programs("schemathesis").join("schemathesis"));
    command.arg("run").arg(format!("http://{}/openapi.json", server.address));
    command.args(["--phases", "examples,coverage,fuzzing", "--checks", CHECKS]);
    command.args(["--max-examples", EXAMPLES, "--seed", "1", "--continue-on-failure"]);
    command.args(["--suppress-health-check", "all", "--no-shrink", "--request-timeout", "30"]);
    command.args(["--exclude-path-regex", "/events$", "--warnings", "off", "--no-color"]);
    command.env("PYTHONPATH", clients).env("SCHEMATHESIS_HOOKS", "schemathesis_hooks");
    command.env("KNOWN", known.to_string());
    command.env("TOKEN_SECRET", SECRET).env("PAYMENT_SECRET", PAYMENT_SECRET);
    // Where it keeps what it has learned: the next run is to try the same.
    command.current_dir(scratch.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let (held, said) = attempt(&mut command, "python3-venv");
    assert!(held, "{said}");
    assert!(said.contains("Operations:") && said.contains("passed"), "nothing was tried: {said}");
    assert_eq!(server.call("GET", "/readyz", &[], "").status, 200, "after all that it serves");
    let panics: Vec<_> = server.said().into_iter().filter(|it| it.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:?}");
}

#[test]
fn a_stranger_gets_no_answer_outside_the_document() {
    try_as("nobody", 0);
}

#[test]
fn a_shopper_gets_no_answer_outside_the_document() {
    try_as("user", SHOPPER);
}

#[test]
fn an_operator_gets_no_answer_outside_the_document() {
    try_as("admin", OPERATOR);
}

/// What the document says of an answer's status.
fn documented<'a>(document: &'a Value, path: &str, method: &str, answer: &Answer) -> &'a Value {
    let operation = &document["paths"][path][method];
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{method} {path} tells of no {answer:?}");
    let reference = response["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    let response = reference.map_or(response, |pointer| document.pointer(pointer).unwrap());
    let kinds = response["content"].as_object();
    let is_told = match (answer.header("content-type"), kinds) {
        (None, None) => true,
        (Some(kind), Some(kinds)) => kinds.contains_key(kind.split(';').next().unwrap()),
        _ => false,
    };
    assert!(is_told, "{method} {path} tells of another content than {answer:?}");
    for (name, header) in response["headers"].as_object().unwrap() {
        let reference = header["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        let header = reference.map_or(header, |pointer| document.pointer(pointer).unwrap());
        let is_there = answer.header(&name.to_lowercase()).is_some();
        assert!(is_there || header["required"] == false, "{method} {path}: {name}: {answer:?}");
    }
    response
}

#[test]
fn streams_of_events_answer_as_the_document_says() {
    let (server, known) = demo();
    let document = server.call("GET", "/openapi.json", &[], "").json();
    let (user, other) = (token(SHOPPER, "user"), token(8, "user"));
    let ticket = server.authorized(&user, "POST", "/api/events/ticket", &[], None).json();
    let ticket = ticket["ticket"].as_str().unwrap();
    let bearer = |token: &str| format!("Bearer {token}");
    let id = &known["pre_deduction_id"];
    let (all, one) = ("/api/flashsales/events", "/api/flashsales/purchases/{id}/events".to_owned());
    let own = one.replace("{id}", &id.to_string());
    let with = |path: &str, ticket: &str| format!("{path}?ticket={ticket}");
    for (template, path, token, status) in [
        (all, all.to_owned(), "", 401),
        (all, all.to_owned(), user.as_str(), 200),
        (all, with(all, ticket), "", 200),
        (all, with(all, "forged"), "", 401),
        (&one, own.clone(), "", 401),
        (&one, own.clone(), &user, 200),
        (&one, with(&own, ticket), "", 200),
        (&one, own.clone(), &other, 404),
        (&one, one.replace("{id}", "0"), &user, 404),
    ] {
        let authorization = bearer(token);
        let headers = [("Authorization", authorization.as_str())];
        let headers = if token.is_empty() { &[][..] } else { &headers[..] };
        // The head alone: such a body ends when the sale does.
        let mut connection = server.connect();
        connection.send(request("GET", &path, headers, ""));
        let answer = connection.head().unwrap();
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        documented(&document, template, "get", &answer);
    }
}

#[test]
fn the_document_and_its_page_are_served_to_anyone_and_the_page_may_load_nothing() {
    let server = Server::start();
    let served = server.call("GET", "/openapi.json", &[], "");
    let committed: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    assert!(served.json() == committed, "docs/openapi.json is stale: run `cargo xtask docs`");
    let page = server.call("GET", "/docs", &[], "");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for (path, answer) in [("/openapi.json", &served), ("/docs", &page)] {
        documented(&committed, path, "get", answer);
    }
}

#[test]
fn a_callback_answers_as_the_document_says_whatever_its_signature() {
    let (server, known) = demo();
    let document = server.call("GET", "/openapi.json", &[], "").json();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
    let body = json!({"payment_no": known["payment_no"], "transaction_no": "t", "status": "paid"});
    let headers = [("X-Timestamp", now.as_str()), ("X-Signature", "00")];
    let path = "/api/payments/callback/{channel}";
    let forged =
        server.call("POST", &path.replace("{channel}", "mock"), &headers, &body.to_string());
    assert_eq!(forged.status, 401);
    documented(&document, path, "post", &forged);
}
