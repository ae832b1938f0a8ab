//! What callers send wrong: the right status, the stable code, and nothing changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::{Answer, SECRET, Server, signed, token};
use serde_json::{Value, json};

fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let bearer = format!("Bearer {}", token(7, "user"));
    let mut all = vec![("Authorization", bearer.as_str())];
    all.extend_from_slice(headers);
    server.call("POST", path, &all, body)
}

#[test]
fn a_purchase_of_the_wrong_shape_is_refused_and_reserves_nothing() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 100, "per_user_limit": 100}));
    let path = format!("/api/flashsales/{activity}/purchase");
    let quantities = [
        "0",
        "-1",
        "1.5",
        "1.0",
        "1e0",
        "\"1\"",
        "null",
        "true",
        "[1]",
        "{}",
        "2147483648",
        "4294967297",
        "18446744073709551617",
        "01",
        "NaN",
        "Infinity",
    ];
    let mut bodies: Vec<String> = quantities
        .iter()
        .map(|quantity| format!("{{\"client_request_id\":\"q\",\"quantity\":{quantity}}}"))
        .collect();
    let long = "x".repeat(65);
    for id in ["\"\"", "null", "7", "[]", &format!("\"{long}\""), "\"\\ud800\""] {
        bodies.push(format!("{{\"client_request_id\":{id}}}"));
    }
    for body in [
        "{",
        "{}",
        "[]",
        "[\"q\",1]",
        "null",
        "\"q\"",
        "7",
        "{\"client_request_id\":\"q\"",
        "{\"client_request_id\":\"q\"}}",
        "{\"client_request_id\":\"q\"} {}",
        "{'a':1}",
        "{\"client_request_id\":\"q\",}",
        "client_request_id=q",
        "\u{feff}{}",
        " ",
        "{\"client_request_id\":\"q\",\"client_request_id\":\"r\"}",
        "{\"quantity\":1}",
        "",
    ] {
        bodies.push(body.to_owned());
    }
    for body in bodies {
        let answer = post(&server, &path, &[], &body);
        assert_eq!(answer.verdict(), (400, "invalid_request".to_owned()), "{body}");
    }
    let large =
        server.activity(&json!({"price": (1_u64 << 53) - 1, "stock": 10, "per_user_limit": 9}));
    let beyond = post(
        &server,
        &format!("/api/flashsales/{large}/purchase"),
        &[],
        "{\"client_request_id\":\"q\",\"quantity\":2}",
    );
    assert_eq!(beyond.verdict(), (400, "invalid_request".to_owned()));
    assert_eq!(server.figures(activity), [100, 100, 0, 0]);
    assert_eq!(server.figures(large), [10, 10, 0, 0]);
}

#[test]
fn the_edges_of_what_is_allowed_are_allowed() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 100, "per_user_limit": 100}));
    let path = format!("/api/flashsales/{activity}/purchase");
    let longest = "é".repeat(32);
    for (body, headers) in [
        (format!("{{\"client_request_id\":\"{longest}\"}}"), vec![]),
        (
            "{\"client_request_id\":\"a\",\"quantity\":1,\"now\":\"1999\",\"x\":[{}]}".to_owned(),
            vec![],
        ),
        (" \r\n{\"client_request_id\":\"b\"}\n ".to_owned(), vec![]),
        (
            "{\"client_request_id\":\"c\"}".to_owned(),
            vec![("Content-Type", "Application/JSON; charset=utf-8")],
        ),
        (
            "{\"client_request_id\":\"d\"}".to_owned(),
            vec![("Content-Type", "application/vnd.shop+json")],
        ),
        ("{\"client_request_id\":\"\\u0000\"}".to_owned(), vec![]),
    ] {
        let answer = post(&server, &path, &headers, &body);
        assert_eq!(answer.status, 202, "{body}: {answer:?}");
    }
}

#[test]
fn a_body_of_another_kind_or_too_large_is_refused() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let path = format!("/api/flashsales/{activity}/purchase");
    let body = "{\"client_request_id\":\"a\"}";
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""] {
        let answer = post(&server, &path, &[("Content-Type", kind)], body);
        assert_eq!(answer.verdict(), (415, "unsupported_media_type".to_owned()), "{kind:?}");
    }
    let padded = format!("{{\"client_request_id\":\"a\",\"x\":\"{}\"}}", "x".repeat(16 * 1024));
    let announced = post(&server, &path, &[], &padded);
    assert_eq!(announced.verdict(), (413, "payload_too_large".to_owned()));
    assert_eq!(announced.header("connection"), Some("close"));
    // A length that is never sent, and a chunked body that never says how long it is.
    let mut connection = server.connect();
    let bearer = token(7, "user");
    let head = format!("POST {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {bearer}\r\n");
    connection.send(format!("{head}Content-Length: 99999999999\r\n\r\n"));
    assert_eq!(connection.answer().unwrap().code(), "payload_too_large");
    // Who asks before sending is not told to go on.
    let mut connection = server.connect();
    connection.send(format!("{head}Expect: 100-continue\r\nContent-Length: 20000\r\n\r\n"));
    assert_eq!(connection.answer().unwrap().verdict(), (413, "payload_too_large".to_owned()));
    let mut connection = server.connect();
    connection.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    for _ in 0..40 {
        connection.send(format!("400\r\n{}\r\n", "x".repeat(1024)));
    }
    assert_eq!(connection.answer().unwrap().code(), "payload_too_large");
    assert_eq!(server.figures(activity), [10, 10, 0, 0]);
}

#[test]
fn a_missing_foreign_or_stale_token_is_unauthenticated() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = |name: &str, value: Value| {
        let mut claims =
            json!({"sub": "7", "role": "user", "exp": now + 60, "iat": now, "jti": "a"});
        claims[name] = value;
        claims
    };
    let none = {
        let good = signed(&claims("sub", json!("7")), SECRET);
        format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap())
    };
    let tokens = [
        format!(
            "Bearer {}",
            signed(&claims("sub", json!("7")), "Z3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE")
        ),
        format!("Bearer {}", signed(&claims("exp", json!(now - 1)), SECRET)),
        format!("Bearer {}", signed(&claims("sub", json!("alice")), SECRET)),
        format!("Bearer {}", signed(&claims("sub", json!("0")), SECRET)),
        format!("Bearer {}", signed(&claims("role", json!("root")), SECRET)),
        format!("Bearer {none}"),
        format!("Basic {}", token(7, "user")),
        token(7, "user"),
        "Bearer".to_owned(),
        "Bearer x".to_owned(),
    ];
    for path in [format!("/api/flashsales/{activity}/purchase"), "/api/admin/skus".to_owned()] {
        let bare = server.call("POST", &path, &[], "{\"client_request_id\":\"a\"}");
        assert_eq!(bare.verdict(), (401, "unauthenticated".to_owned()));
        assert_eq!(bare.header("www-authenticate"), Some("Bearer"));
        for token in &tokens {
            let headers = [("Authorization", token.as_str())];
            let answer = server.call("POST", &path, &headers, "{\"client_request_id\":\"a\"}");
            assert_eq!(answer.verdict(), (401, "unauthenticated".to_owned()), "{token}");
            assert_eq!(answer.body, bare.body, "an answer tells nothing of what was wrong");
        }
    }
    // Authentication comes before shape.
    let path = format!("/api/flashsales/{activity}/purchase");
    assert_eq!(server.call("POST", &path, &[], "{").code(), "unauthenticated");
    assert_eq!(server.figures(activity), [10, 10, 0, 0]);
}

#[test]
fn unknown_paths_and_methods_are_problems_like_all_others() {
    let server = Server::start();
    for path in
        ["/", "/api", "/api/flashsales/", "/api/nothing", "/admin", "/%00", "/../etc/passwd"]
    {
        let answer = server.call("GET", path, &[], "");
        assert_eq!(answer.verdict(), (404, "not_found".to_owned()), "{path}");
    }
    for (method, path, allow) in [
        ("GET", "/api/flashsales/1/purchase", "POST"),
        ("DELETE", "/api/flashsales", "GET,HEAD"),
        ("POST", "/healthz", "GET,HEAD"),
        ("PATCH", "/api/admin/flashsales/1", "GET,HEAD,PUT"),
        ("BREW", "/api/flashsales/1", "GET,HEAD"),
    ] {
        let answer = server.call(method, path, &[], "");
        assert_eq!(answer.verdict(), (405, "method_not_allowed".to_owned()), "{method} {path}");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[test]
fn every_answer_carries_a_request_id_and_continues_the_trace() {
    let server = Server::start();
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/nowhere", 404),
        ("POST", "/healthz", 405),
        ("GET", "/api/flashsales", 401),
    ] {
        let headers = [("X-Request-Id", "shop-42"), ("traceparent", trace)];
        let answer = server.call(method, path, &headers, "");
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-request-id"), Some("shop-42"));
        let continued = answer.header("traceparent").unwrap();
        assert_eq!(continued[..36], trace[..36]);
        assert_ne!(continued, trace);
        let made = server.call(method, path, &[("X-Request-Id", "a b\"c")], "");
        assert_eq!(made.header("x-request-id").unwrap().len(), 32);
        assert_eq!(made.header("traceparent"), None);
    }
}

#[test]
fn health_readiness_and_metrics_need_no_token() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1}));
    assert_eq!(server.buy(1, activity, "a", 1).status, 202);
    assert_eq!(server.buy(2, activity, "b", 1).status, 409);
    assert_eq!(server.call("GET", "/healthz", &[], "").json()["status"], "alive");
    assert_eq!(server.call("GET", "/readyz", &[], "").json()["status"], "ready");
    assert_eq!(server.call("GET", "/nowhere/a/b/c", &[], "").status, 404);
    let metrics = server.call("GET", "/metrics", &[], "");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let purchase = "sluice_http_requests_total{route=\"/api/flashsales/{id}/purchase\"";
    for line in [
        &format!("{purchase},status=\"202\"}} 1\n"),
        &format!("{purchase},status=\"409\"}} 1\n"),
        "sluice_http_requests_total{route=\"unmatched\",status=\"404\"} 1\n",
        "sluice_purchases_total{outcome=\"accepted\"} 1\n",
        "sluice_purchases_total{outcome=\"sold_out\"} 1\n",
        "sluice_ready 1\n",
        "sluice_clock_stepped 0\n",
        "sluice_log_sync_seconds_bucket{le=\"+Inf\"}",
        "sluice_build_info{version=",
        "sluice_bridge_lag_seconds ",
        "sluice_bridge_lag_records ",
        "sluice_log_durable_lsn ",
    ] {
        assert!(metrics.body.contains(line), "{line} is missing in\n{}", metrics.body);
    }
}
