//! Purchases go a short way where nothing in them asks for more: what they are answered, and what
//! else may share their connection, must be what it is by the router.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;

use common::{Answer, Connection, Server, request, token};
use serde_json::json;

/// A header that no purchase needs, and with which it is no plain one: the router answers it.
const BY_ROUTER: (&str, &str) = ("Trailer", "x");

/// A purchase, by the short way or by the router.
fn purchase(path: &str, headers: &[(&str, &str)], body: &str, is_by_router: bool) -> String {
    let mut headers = headers.to_vec();
    headers.extend(is_by_router.then_some(BY_ROUTER));
    request("POST", path, &headers, body)
}

/// Everything of an answer that does not differ from one request to the next.
fn lasting(answer: &Answer, request_id: &str) -> (u16, BTreeSet<(String, String)>, String) {
    let passing = ["x-request-id", "date", "traceparent", "ratelimit"];
    let headers = answer.headers.iter().map(|(name, value)| {
        let value = if passing.contains(&name.as_str()) { "" } else { value };
        (name.clone(), value.to_owned())
    });
    (answer.status, headers.collect(), answer.body.replace(request_id, ""))
}

#[test]
fn both_ways_answer_alike() {
    let server = Server::start();
    let activity = |fields| server.activity(&fields);
    let (open, scarce) =
        (activity(json!({"stock": 9, "per_user_limit": 1})), activity(json!({"stock": 1})));
    let later = activity(json!({"start_at": "2098-01-01T00:00:00Z"}));
    assert_eq!(server.buy(1, scarce, "first", 1).status, 202);
    assert_eq!(server.buy(7, open, "known", 1).status, 202);
    let path = |id: u64| format!("/api/flashsales/{id}/purchase");
    let body = |id: &str| json!({"client_request_id": id, "quantity": 1}).to_string();
    let bearer = format!("Bearer {}", token(7, "user"));
    let plain: &[(&str, &str)] = &[("Authorization", &bearer)];
    let with = |more: (&'static str, &'static str)| [plain, &[more]].concat();
    let table = [
        (path(open), plain.to_vec(), body("known"), 202),
        (path(open), plain.to_vec(), body("limit"), 409),
        (path(open), with(("Idempotency-Key", "\"known\"")), String::new(), 202),
        (path(open), with(("traceparent", TRACE)), body("known"), 202),
        (path(open), with(("X-Request-Id", "mine")), body("known"), 202),
        (path(open), with(("X-Device-Id", "a b")), body("known"), 400),
        (path(open), with(("Content-Type", "text/plain")), body("known"), 415),
        (path(scarce), plain.to_vec(), body("sold-out"), 409),
        (path(later), plain.to_vec(), body("early"), 409),
        (path(9), plain.to_vec(), body("nowhere"), 404),
        (path(open), vec![("Authorization", "Bearer none")], body("nobody"), 401),
        (path(open), vec![], body("nobody"), 401),
        (path(open), plain.to_vec(), "{".to_owned(), 400),
        (path(open), plain.to_vec(), String::new(), 400),
    ];
    for (path, headers, body, status) in table {
        let [short, routed] = [false, true].map(|is_by_router| {
            let mut connection = server.connect();
            connection.send(purchase(&path, &headers, &body, is_by_router));
            connection.answer().unwrap()
        });
        assert_eq!(short.status, status, "{path} {headers:?} {body}: {short:?}");
        assert_eq!(lasting(&short, "mine"), lasting(&routed, "mine"), "{path} {headers:?} {body}");
        assert_eq!(short.header("x-request-id") == Some("mine"), headers.contains(&MINE));
    }
    let metrics = server.call("GET", "/metrics", &[], "").body;
    let counted = "sluice_http_requests_total{route=\"/api/flashsales/{id}/purchase\"";
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const MINE: (&str, &str) = ("X-Request-Id", "mine");

struct Rush {
    server: Server,
    activity: u64,
    sent: u64,
}

impl Rush {
    fn new() -> Self {
        let server = Server::start();
        let activity = server.activity(&json!({"stock": 1000, "per_user_limit": 1000}));
        Self { server, activity, sent: 0 }
    }

    /// The next purchase, whose body has this much more in it.
    fn next(&mut self, more: &str, is_by_router: bool) -> String {
        self.sent += 1;
        let path = format!("/api/flashsales/{}/purchase", self.activity);
        let bearer = format!("Bearer {}", token(7, "user"));
        let body = format!("{{\"client_request_id\":\"{}\",\"x\":\"{more}\"}}", self.sent);
        purchase(&path, &[("Authorization", &bearer)], &body, is_by_router)
    }
}

fn is_accepted(connection: &mut Connection) {
    assert_eq!(connection.answer().unwrap().status, 202);
}

#[test]
fn a_purchase_in_pieces_is_one_purchase() {
    let mut rush = Rush::new();
    let mut connection = rush.server.connect();
    for cut in [1, 4, 30, 60, 300, 380] {
        let text = rush.next("", false);
        let (one, other) = text.as_bytes().split_at(cut.min(text.len() - 1));
        connection.send(one);
        // So that the two do not arrive as one.
        assert_eq!(rush.server.call("GET", "/healthz", &[], "").status, 200);
        connection.send(other);
        is_accepted(&mut connection);
    }
    let large = rush.next(&"x".repeat(12_000), false);
    connection.send(large);
    is_accepted(&mut connection);
    assert_eq!(rush.server.figures(rush.activity)[2], rush.sent);
}

#[test]
fn whatever_else_comes_on_its_connection_is_answered_in_its_turn() {
    let mut rush = Rush::new();
    let mut connection = rush.server.connect();
    let (first, second) = (rush.next("", false), rush.next("", false));
    let get = request("GET", "/healthz", &[], "");
    let (third, fourth) = (rush.next("", true), rush.next("", false));
    let end = request("GET", "/nowhere", &[("Connection", "close")], "");
    connection.send([first, second, get, third, fourth, end].concat());
    for status in [202, 202, 200, 202, 202, 404] {
        assert_eq!(connection.answer().unwrap().status, status);
    }
    assert!(connection.is_closed());
    assert_eq!(rush.server.figures(rush.activity)[2], rush.sent);
}

#[test]
fn a_server_that_stops_answers_who_has_asked_and_closes_who_has_not() {
    let mut rush = Rush::new();
    let [mut idle, mut midway] = [(); 2].map(|()| rush.server.connect());
    for connection in [&mut idle, &mut midway] {
        connection.send(rush.next("", false));
        is_accepted(connection);
    }
    let text = rush.next("", false);
    let (one, other) = text.split_at(text.len() - 3);
    midway.send(one);
    rush.server.signal(rustix::process::Signal::TERM);
    assert!(idle.is_closed());
    midway.send(other);
    // Whether its beginning had arrived before the signal is chance; half an answer is none.
    if let Some(answer) = midway.answer() {
        assert_eq!((answer.status, answer.header("connection")), (202, Some("close")));
    }
    assert!(midway.is_closed());
}
