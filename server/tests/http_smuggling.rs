//! Requests that two readers could take for different ones: each is refused, or taken in the one
//! way after which nothing more is read from its connection.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Connection, Server, token};
use serde_json::json;

/// What stands where a request would be smuggled.
const SMUGGLED: &str = "POST /api/admin/stop HTTP/1.1\r\nHost: t\r\n";

struct Smuggler {
    server: Server,
    activity: u64,
}

impl Smuggler {
    fn new() -> Self {
        let server = Server::start();
        let activity = server.activity(&json!({"stock": 1000, "per_user_limit": 1000}));
        Self { server, activity }
    }

    /// A purchase with these headers beside the usual ones, then these bytes, then an admin's
    /// request that must never be seen as one.
    fn send(&self, request_id: &str, headers: &str, body: &str) -> Connection {
        let mut connection = self.server.connect();
        connection.send(format!(
            "POST /api/flashsales/{}/purchase HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {}\r\n\
             Idempotency-Key: {request_id}\r\n{headers}\r\n{body}{SMUGGLED}Authorization: Bearer \
             {}\r\n\r\n",
            self.activity,
            token(7, "user"),
            token(1, "admin"),
        ));
        connection
    }

    /// Nothing that was smuggled has acted.
    fn is_unharmed(&self, what: &str) {
        let limits = self.server.as_admin("GET", "/api/admin/limits", None).json();
        assert_eq!(limits["stopped"], false, "{what}");
    }

    fn sold(&self) -> u64 {
        self.server.figures(self.activity)[2]
    }
}

/// A refusal like all others, after which the connection ends.
fn is_refused(connection: &mut Connection, status: u16, what: &str) {
    let answer = connection.answer().unwrap_or_else(|| panic!("{what}: no answer"));
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    is_whole(&answer, what);
    assert!(connection.is_closed(), "{what}: the connection goes on");
}

fn is_whole(answer: &Answer, what: &str) {
    assert!(answer.header("x-request-id").is_some_and(|id| id.len() >= 16), "{what}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
    assert_eq!(answer.json()["status"], answer.status, "{what}");
    assert_eq!(answer.header("connection"), Some("close"), "{what}");
}

#[test]
fn a_head_that_two_readers_could_read_in_two_ways_is_refused() {
    let smuggler = Smuggler::new();
    for (what, headers) in [
        ("two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n"),
        ("a list of lengths", "Content-Length: 2, 2\r\n"),
        ("a signed length", "Content-Length: +2\r\n"),
        ("a negative length", "Content-Length: -2\r\n"),
        ("a length in hex", "Content-Length: 0x2\r\n"),
        ("a length beyond 64 bits", "Content-Length: 18446744073709551618\r\n"),
        ("an empty length", "Content-Length: \r\n"),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n"),
        ("identity", "Transfer-Encoding: identity\r\nContent-Length: 2\r\n"),
        ("chunked and then another", "Transfer-Encoding: chunked, identity\r\n"),
        (
            "chunked and then another, in two",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        ),
        ("a coding in quotes", "Transfer-Encoding: \"chunked\"\r\n"),
        ("a space before the colon", "Content-Length : 2\r\n"),
        ("a tab before the colon", "Transfer-Encoding\t: chunked\r\n"),
        ("a folded header", "X-Folded: a\r\n b\r\nContent-Length: 2\r\n"),
        ("a folded coding", "Transfer-Encoding:\r\n chunked\r\n"),
        ("a header that begins with a space", " Content-Length: 2\r\n"),
        ("a carriage return within a value", "X: a\rContent-Length: 2\r\n"),
        ("a NUL within a value", "X: a\0b\r\nContent-Length: 2\r\n"),
        ("a header without a colon", "Content-Length 2\r\n"),
        ("a header without a name", ": 2\r\n"),
        ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("chunked twice in a list", "Transfer-Encoding: chunked, chunked\r\n"),
        ("another and then chunked", "Transfer-Encoding: gzip, chunked\r\n"),
        (
            "another and then chunked, in two",
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        ),
    ] {
        let mut connection = smuggler.send("q", headers, "{}");
        is_refused(&mut connection, 400, what);
        smuggler.is_unharmed(what);
    }
    assert_eq!(smuggler.sold(), 0);
}

#[test]
fn a_request_for_two_hosts_is_refused_and_the_next_one_is_its_own() {
    let smuggler = Smuggler::new();
    let mut connection = smuggler.send("q", "Host: u\r\nContent-Length: 2\r\n", "{}");
    assert_eq!(connection.answer().unwrap().code(), "invalid_request");
    assert_eq!(smuggler.sold(), 0);
    // The operator's own: where the first one ended is beyond doubt.
    assert_eq!(connection.answer().unwrap().status, 204);
    assert_eq!(smuggler.server.as_admin("POST", "/api/admin/start", None).status, 204);
}

#[test]
fn a_request_line_that_is_none_is_refused_with_an_id_like_all_others() {
    let smuggler = Smuggler::new();
    let (long, many) = ("x".repeat(64 * 1024), "X: y\r\n".repeat(100));
    for (what, status, request) in [
        ("no method", 400, " / HTTP/1.1\r\nHost: t\r\n\r\n".to_owned()),
        ("no version", 400, "GET /healthz\r\nHost: t\r\n\r\n".to_owned()),
        ("another version", 400, "GET /healthz HTTP/1.2\r\nHost: t\r\n\r\n".to_owned()),
        ("a space in the path", 400, "GET /health z HTTP/1.1\r\nHost: t\r\n\r\n".to_owned()),
        ("bytes of TLS", 400, "\u{16}\u{3}\u{1}\u{2}\0\u{1}\r\n\r\n".to_owned()),
        (
            "a coding in HTTP/1.0",
            400,
            "POST /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        ),
        ("a path without an end", 431, format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n")),
        ("a header without an end", 431, format!("GET /healthz HTTP/1.1\r\nX: {long}\r\n\r\n")),
        ("too many headers", 431, format!("GET /healthz HTTP/1.1\r\nHost: t\r\n{many}\r\n")),
    ] {
        let mut connection = smuggler.server.connect();
        connection.send(request);
        is_refused(&mut connection, status, what);
    }
    // Behind a request that was answered, too: its answer leaves as it is.
    let mut connection = smuggler.server.connect();
    connection
        .send("GET /healthz HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine\r\n\r\nnonsense\r\n\r\n");
    let first = connection.answer().unwrap();
    assert_eq!((first.status, first.header("x-request-id")), (200, Some("mine")));
    is_refused(&mut connection, 400, "behind another");
}

#[test]
fn a_body_in_chunks_is_the_last_thing_that_is_read_of_its_connection() {
    let smuggler = Smuggler::new();
    let length = "Content-Length: 99\r\n";
    for (index, (what, headers)) in [
        ("chunked", "Transfer-Encoding: chunked\r\n".to_owned()),
        ("in capitals", "TRANSFER-ENCODING: Chunked\r\n".to_owned()),
        ("a length before it", format!("{length}Transfer-Encoding: chunked\r\n")),
        ("a length behind it", format!("Transfer-Encoding: chunked\r\n{length}")),
    ]
    .into_iter()
    .enumerate()
    {
        let body = "2;ext=\"a\"\r\n{}\r\n0\r\nX-Trailer: Content-Length: 9\r\n\r\n";
        let mut connection = smuggler.send(&format!("chunks-{index}"), &headers, body);
        let answer = connection.answer().unwrap();
        assert_eq!((answer.status, answer.header("connection")), (202, Some("close")), "{what}");
        assert!(connection.is_closed(), "{what}: the connection goes on");
        smuggler.is_unharmed(what);
    }
    let sold = smuggler.sold();
    for (what, body) in [
        ("a size of a sign", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a size in the other notation", "0x2\r\n{}\r\n0\r\n\r\n"),
        ("no size", "\r\n{}\r\n0\r\n\r\n"),
        ("a size that overflows", "10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("a bare line feed behind the size", "2\n{}\r\n0\r\n\r\n"),
        ("a bare line feed in the extension", "2;a\n{}\r\n0\r\n\r\n"),
        ("no end of the chunk", "2\r\n{}0\r\n\r\n"),
    ] {
        let mut connection = smuggler.send("never", "Transfer-Encoding: chunked\r\n", body);
        if let Some(answer) = connection.answer() {
            assert_eq!(
                (answer.status, answer.header("connection")),
                (400, Some("close")),
                "{what}"
            );
            is_whole(&answer, what);
            assert!(connection.is_closed(), "{what}: the connection goes on");
        }
        smuggler.is_unharmed(what);
    }
    assert_eq!(smuggler.sold(), sold, "a body that is none buys nothing");
}

#[test]
fn lines_that_end_in_a_bare_line_feed_are_lines_like_others() {
    // RFC 9112, 2.2 allows it; what matters is that a header hidden behind one is seen. A proxy
    // that hands such a line on as one value is broken (RFC 9110, 5.5).
    let smuggler = Smuggler::new();
    let mut connection = smuggler.send("a", "X: y\nContent-Length: 2\r\n", "{}");
    assert_eq!(connection.answer().unwrap().status, 202);
    // The next request is a request: the operator's own.
    assert_eq!(connection.answer().unwrap().status, 204);
    assert_eq!(smuggler.server.as_admin("POST", "/api/admin/start", None).status, 204);
}

#[test]
fn two_equal_lengths_are_one() {
    let smuggler = Smuggler::new();
    let lengths = "Content-Length: 2\r\nContent-Length: 2\r\n";
    let mut connection = smuggler.send("a", lengths, "{}");
    assert_eq!(connection.answer().unwrap().status, 202);
    assert_eq!(connection.answer().unwrap().status, 204);
}

#[test]
fn a_path_means_one_thing() {
    let smuggler = Smuggler::new();
    let Smuggler { server, activity } = &smuggler;
    let stop = "/api/admin/stop";
    for path in [
        "//api/admin/stop",
        "/api//admin/stop",
        "/api/admin/stop/",
        "/api/flashsales/../admin/stop",
        "/api/flashsales/%2e%2e/admin/stop",
        "/api/admin%2fstop",
        "/API/admin/stop",
        "/api/admin/stop;x=1",
        "/api/admin/stop%00",
        "/api/admin/./stop",
    ] {
        let answer = server.as_admin("POST", path, None);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    let backslashes = server.as_admin("POST", "\\api\\admin\\stop", None);
    assert_eq!(backslashes.verdict(), (400, "invalid_request".to_owned()));
    // A shopper does not become an operator by another form of the path.
    for path in
        [format!("http://elsewhere{stop}"), format!("{stop}?role=admin"), format!("{stop}#x")]
    {
        let answer = server.as_user(7, "POST", &path, None);
        assert!([400, 403, 404].contains(&answer.status), "{path}: {answer:?}");
    }
    for (name, value) in [
        ("X-Original-URL", stop),
        ("X-Rewrite-URL", stop),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-Forwarded-Prefix", "/api/admin"),
    ] {
        let bearer = token(1, "admin");
        let path = format!("/api/flashsales/{activity}");
        let answer = server.authorized(&bearer, "GET", &path, &[(name, value)], None);
        assert_eq!(answer.json()["id"], *activity, "{name}");
    }
    // An encoded separator is part of an id that is none.
    let id = format!("/api/flashsales/{activity}%2fpurchase");
    assert_eq!(server.as_user(7, "POST", &id, None).status, 405);
    smuggler.is_unharmed("paths");
}
