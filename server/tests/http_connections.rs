//! Clients that are slow, silent, many or half gone: none of them holds the server up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::Shutdown;
use std::time::Duration;

use common::{Connection, Server, token};
use serde_json::json;

#[test]
fn a_header_that_never_ends_is_closed() {
    let server = Server::start_with(&[], &[("SLUICE_HTTP__HEADER_TIMEOUT", "300ms")]);
    let mut connection = server.connect();
    connection.send("GET /healthz HTTP/1.1\r\nHost: t\r\nX-Slow: ");
    assert!(connection.is_closed());
    // Bytes that trickle in win no time.
    let mut connection = server.connect();
    connection.send("GET /healthz HTTP/1.1\r\nHost: t\r\nX-Slow: ");
    let socket = connection.socket().try_clone().unwrap();
    std::thread::scope(|scope| {
        let trickle = scope.spawn(move || {
            let mut socket = socket;
            while std::io::Write::write_all(&mut socket, b"x").is_ok() {
                // Slow enough that the header is not refused for its size before its time is up.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(connection.is_closed());
        let _ = connection.socket().shutdown(Shutdown::Both);
        trickle.join().unwrap();
    });
    assert_eq!(server.call("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn a_header_that_is_too_large_or_broken_is_refused() {
    let server = Server::start();
    for request in [
        format!("GET /healthz HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024)),
        format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(64 * 1024)),
        format!("GET /healthz HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(100)),
        "GET /healthz HTTP/1.1\r\nHost : t\r\nX\0: y\r\n\r\n".to_owned(),
        "\r\n\r\nnonsense\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned() + &"\0".repeat(64) + "\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n".to_owned(),
        "POST /healthz HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
            .to_owned(),
    ] {
        let mut connection = server.connect();
        connection.send(&request);
        let status = connection.answer().map_or(0, |answer| answer.status);
        assert!((400..500).contains(&status), "{}: {status}", &request[..40.min(request.len())]);
    }
    assert_eq!(server.call("GET", "/healthz", &[], "").status, 200);
}

#[test]
fn a_body_that_does_not_arrive_is_given_up() {
    let server = Server::start_with(&[], &[("SLUICE_HTTP__BODY_TIMEOUT", "300ms")]);
    let activity = server.activity(&json!({}));
    let mut connection = server.connect();
    connection.send(format!(
        "POST /api/flashsales/{activity}/purchase HTTP/1.1\r\nHost: t\r\n\
         Authorization: Bearer {}\r\nContent-Length: 27\r\n\r\n{{\"client_request_id\"",
        token(7, "user"),
    ));
    let answer = connection.answer().unwrap();
    assert_eq!(answer.verdict(), (408, "request_timeout".to_owned()));
    assert!(connection.is_closed());
    assert_eq!(server.figures(activity), [10, 10, 0, 0]);
}

#[test]
fn a_socket_that_is_half_closed_in_the_middle_reserves_nothing() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let mut connection = server.connect();
    connection.send(format!(
        "POST /api/flashsales/{activity}/purchase HTTP/1.1\r\nHost: t\r\n\
         Authorization: Bearer {}\r\nContent-Length: 27\r\n\r\n{{\"client_request_id\":\"a\"",
        token(7, "user"),
    ));
    connection.socket().shutdown(Shutdown::Write).unwrap();
    // An error or nothing, but no acceptance.
    let answer = connection.answer();
    assert!(answer.is_none_or(|answer| answer.status == 400));
    assert_eq!(server.figures(activity), [10, 10, 0, 0]);
}

#[test]
fn a_socket_that_is_half_closed_behind_a_whole_request_gets_its_answer() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let mut connection = server.connect();
    connection.send(format!(
        "POST /api/flashsales/{activity}/purchase HTTP/1.1\r\nHost: t\r\n\
         Authorization: Bearer {}\r\nContent-Length: 25\r\n\r\n{{\"client_request_id\":\"a\"}}",
        token(7, "user"),
    ));
    connection.socket().shutdown(Shutdown::Write).unwrap();
    assert_eq!(connection.answer().unwrap().status, 202);
    assert!(connection.is_closed());
    assert_eq!(server.figures(activity), [10, 9, 1, 0]);
}

#[test]
fn an_idle_connection_is_closed_and_a_used_one_is_kept() {
    let server = Server::start_with(&[], &[("SLUICE_HTTP__IDLE_TIMEOUT", "300ms")]);
    let mut connection = server.connect();
    for _ in 0..3 {
        assert_eq!(connection.call("GET", "/healthz", &[], "").status, 200);
    }
    assert!(connection.is_closed());
    assert!(server.connect().is_closed());
}

#[test]
fn connections_beyond_the_bound_are_told_and_closed() {
    let server = Server::start_with(&[], &[("SLUICE_HTTP__CONNECTIONS_MAX", "2")]);
    // Connections of the start-up are gone once these two are served.
    let mut held: Vec<Connection> = Vec::new();
    while held.len() < 2 {
        let mut connection = server.connect();
        connection.send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
        if connection.answer().is_some_and(|answer| answer.status == 200) {
            held.push(connection);
        }
    }
    let mut third = server.connect();
    let answer = third.answer().unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.json()["code"], "overloaded");
    assert!(third.is_closed());
    // The two go on, and a place that becomes free is given away.
    assert_eq!(held[0].call("GET", "/healthz", &[], "").status, 200);
    drop(held.pop());
    loop {
        let mut connection = server.connect();
        connection.send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
        if connection.answer().is_some_and(|answer| answer.status == 200) {
            break;
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut connection = server.connect();
    let ids: Vec<String> = (0..20).map(|id| format!("r{id}")).collect();
    let requests: String = ids
        .iter()
        .map(|id| format!("GET /healthz HTTP/1.1\r\nHost: t\r\nX-Request-Id: {id}\r\n\r\n"))
        .collect();
    connection.send(requests);
    for id in &ids {
        let answer = connection.answer().unwrap();
        assert_eq!((answer.status, answer.header("x-request-id")), (200, Some(id.as_str())));
    }
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let server = Server::start();
    let mut connection = server.connect();
    connection.send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\nGET /hea");
    assert_eq!(connection.answer().unwrap().status, 200);
    connection.send("lthz HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(connection.answer().unwrap().status, 200);
}
