//! Every call that takes a body, with bodies of every wrong shape: refused like all others, and
//! nothing is changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Connection, Server, token};
use serde_json::{Value, json};

/// Every call with a body, but for callbacks: those are asked for their signature first.
fn calls(activity: u64, payment_no: &str) -> Vec<(&'static str, String)> {
    let all = format!("/api/admin/flashsales/{activity}");
    let path = |path: &str| path.to_owned();
    vec![
        ("POST", path("/api/auth/login")),
        ("POST", format!("/api/flashsales/{activity}/purchase")),
        ("POST", path("/api/payments")),
        ("POST", format!("/api/payments/{payment_no}/refund")),
        ("PUT", path("/api/addresses/default")),
        ("POST", path("/api/admin/flashsales")),
        ("PUT", all.clone()),
        ("POST", format!("{all}/restock")),
        ("POST", format!("{all}/decrease")),
        ("POST", path("/api/admin/skus")),
        ("POST", path("/api/admin/users")),
        ("PUT", path("/api/admin/users/7/password")),
        ("POST", path("/api/admin/blacklist")),
        ("DELETE", path("/api/admin/blacklist")),
        ("PUT", path("/api/admin/limits")),
        ("POST", path("/api/admin/canary")),
        ("POST", path("/api/admin/reconcile")),
    ]
}

fn shapes() -> Vec<Vec<u8>> {
    // A value of the wrong kind for whatever field a call may have.
    let names = [
        "username",
        "password",
        "client_request_id",
        "quantity",
        "order_no",
        "channel",
        "refund_no",
        "receiver",
        "sku_id",
        "id",
        "title",
        "price",
        "stock",
        "kind",
        "value",
        "global",
        "percent",
        "repair",
    ];
    let fields = |value: &Value| {
        let fields = names.iter().map(|name| ((*name).to_owned(), value.clone()));
        Value::Object(fields.collect()).to_string().into_bytes()
    };
    let mut shapes: Vec<Vec<u8>> = [
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "true",
        "7",
        "1e999",
        "\"x\"",
        "{\"a\":}",
        "{\"a\"}",
        "{} {}",
        "{},",
        "{'a':1}",
        "{\"a\":1,}",
        "\u{feff}{}",
        "a=1&b=2",
        "<a/>",
        "{\"a\":\"\\x\"}",
        "{\"\\ud800\":1}",
        "\0",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    shapes.push(b"{\"a\":\"\xff\xfe\"}".to_vec());
    shapes.push(b"\xff\xfe{\0}\0".to_vec());
    shapes.push("[".repeat(10_000).into_bytes());
    shapes.push(format!("{}1{}", "{\"a\":".repeat(3_000), "}".repeat(3_000)).into_bytes());
    shapes.extend([json!([[]]), json!({"a": {}}), json!(-1.5)].iter().map(fields));
    shapes
}

fn send(server: &Server, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
    // With a key a purchase needs no body at all.
    let key = if path.contains("/admin/") { "Idempotency-Key: k\r\n" } else { "" };
    let mut connection = Connection::to(server.address);
    connection.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {}\r\n\
         Content-Type: {kind}\r\n{key}Content-Length: {}\r\n\r\n",
        token(7, "admin"),
        body.len()
    ));
    connection.send(body);
    connection.answer().unwrap_or_else(|| panic!("{method} {path}: no answer"))
}

#[test]
fn every_call_refuses_every_body_that_is_none_of_its_own_and_changes_nothing() {
    let secrets = [("SLUICE_PAYMENTS__SECRETS", "mock:q8Zt1LkV5sXw0RbN7yJc3HfP9dGmA2eU")];
    let server = Server::start_with(&[], &secrets);
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let opened = server.as_user(
        7,
        "POST",
        "/api/payments",
        Some(&json!({"order_no": accepted["order_no"]})),
    );
    let payment_no = opened.json()["payment_no"].as_str().unwrap().to_owned();
    let seen = || {
        ["/api/admin/flashsales", "/api/admin/limits", "/api/admin/blacklist"].map(|path| {
            let mut shown = server.as_admin("GET", path, None).json();
            shown.as_object_mut().unwrap().remove("server_time");
            shown
        })
    };
    let before = seen();
    for (method, path) in calls(activity, &payment_no) {
        for body in shapes() {
            let what =
                format!("{method} {path} {}", String::from_utf8_lossy(&body[..body.len().min(60)]));
            let answer = send(&server, method, &path, "application/json", &body);
            assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
            assert!(!answer.code().is_empty(), "{what}");
            assert!(answer.header("x-request-id").is_some(), "{what}");
            let ours = [400, 413, 415];
            // Guesses at a password are counted whatever they look like.
            let is_login = path.ends_with("/login") && answer.status == 429;
            assert!(ours.contains(&answer.status) || is_login, "{what}: {answer:?}");
        }
        let answer = send(&server, method, &path, "text/plain", b"{\"a\":1}");
        assert_eq!(answer.code(), "unsupported_media_type", "{method} {path}");
    }
    assert_eq!(seen(), before);
    assert_eq!(server.figures(activity), [10, 9, 1, 0]);
}

#[test]
fn ids_in_paths_and_queries_are_ids_or_refused() {
    let server = Server::start();
    let long = "9".repeat(400);
    for id in ["0", "-1", "+1", "1.0", "1e3", "0x1", "abc", "%00", "%ff", "9007199254740992", &long]
    {
        for (method, path) in [
            ("GET", format!("/api/flashsales/{id}")),
            ("POST", format!("/api/flashsales/{id}/purchase")),
            ("GET", format!("/api/flashsales/purchases/{id}")),
            ("GET", format!("/api/flashsales/purchases/{id}/events")),
            ("GET", format!("/api/orders/{id}")),
            ("POST", format!("/api/orders/{id}/cancel")),
            ("GET", format!("/api/payments/{id}")),
            ("GET", format!("/api/admin/flashsales/{id}")),
            ("POST", format!("/api/admin/flashsales/{id}/publish")),
            ("POST", format!("/api/admin/reservations/{id}/release")),
            ("POST", format!("/api/admin/dead-letters/{id}/retry")),
            ("POST", format!("/api/admin/users/{id}/disable")),
        ] {
            let body = json!({"client_request_id": "a"});
            let body = path.ends_with("purchase").then_some(&body);
            let answer = server.authorized(&token(1, "admin"), method, &path, &[], body);
            assert!([400, 404].contains(&answer.status), "{method} {path}: {answer:?}");
            assert!(!answer.code().is_empty());
        }
    }
    for query in
        ["page=0", "page=-1", "page=x", "page_size=0", "page_size=101", "page=1&page=2", "page=%00"]
    {
        for path in [
            "/api/flashsales",
            "/api/orders",
            "/api/admin/audit",
            "/api/admin/callbacks",
            "/api/admin/dead-letters",
            "/api/admin/refunds",
            "/api/admin/stocks",
        ] {
            if path == "/api/orders" && query.starts_with("page_size") {
                continue;
            }
            let answer = server.as_admin("GET", &format!("{path}?{query}"), None);
            assert_eq!(answer.code(), "invalid_request", "{path}?{query}");
        }
    }
}
