//! SQL is away from the start: purchases, queries and cancels go on, lists come from the engine,
//! and the breaker spares callers the wait.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::TcpListener;

use common::{Answer, Server};
use serde_json::{Value, json};

fn breaker(server: &Server) -> String {
    let text = server.call("GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix("sluice_sql_breaker_state "));
    line.unwrap().to_owned()
}

#[test]
fn without_sql_reads_come_from_the_engine_and_soon_without_asking_it() {
    // Nothing listens there.
    let server = Server::start_with(&["--database", "mysql://sluice@127.0.0.1:1/sluice"], &[]);
    let activity = server.activity(&json!({"stock": 10, "per_user_limit": 5}));
    let orders: Vec<String> = ["a", "b", "c"]
        .map(|id| server.buy(7, activity, id, 1).json()["order_no"].as_str().unwrap().to_owned())
        .into();
    assert_eq!(server.buy(8, activity, "a", 1).status, 202);
    let cancel = format!("/api/orders/{}/cancel", orders[0]);
    assert_eq!(server.as_user(7, "POST", &cancel, None).status, 200);
    let list = |query: &str| server.as_user(7, "GET", &format!("/api/orders{query}"), None);
    // As many callers as the breaker wants to see fail, all at once.
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let shown = list("");
                assert_eq!(shown.status, 200, "{shown:?}");
                assert_eq!(shown.json()["degraded"], true);
            });
        }
    });
    assert_eq!(breaker(&server), "1", "nobody asks any more");
    let shown = list("").json();
    assert_eq!(shown["total"], 3);
    let numbers: Vec<_> = shown["items"].as_array().unwrap().iter().collect();
    let newest_first: Vec<_> = numbers.iter().map(|it| it["order_no"].as_str().unwrap()).collect();
    assert_eq!(newest_first, [orders[2].as_str(), &orders[1], &orders[0]]);
    assert_eq!(numbers[2]["status"], "cancelled");
    assert_eq!(list("?status=cancelled").json()["total"], 1);
    assert_eq!(list("?page=2").json()["items"], json!([]));
    let detail = server.as_user(7, "GET", &format!("/api/orders/{}", orders[1]), None);
    assert_eq!(detail.json()["status"], "pending_payment");
    let body = json!({"username": "amy", "password": "correct horse"}).to_string();
    let headers = [("Content-Type", "application/json")];
    let login = server.call("POST", "/api/auth/login", &headers, &body);
    assert_eq!(login.verdict(), (503, "database_unavailable".to_owned()));
    assert_eq!(server.buy(9, activity, "a", 1).status, 202);
    assert_eq!(server.figures(activity), [10, 6, 4, 0]);
}

/// A server whose SQL and Redis are at these places.
fn server_with(sql: &str, redis: &str) -> Server {
    let database = format!("mysql://sluice@{sql}/sluice");
    let redis = format!("redis://{redis}");
    let secrets = [("SLUICE_PAYMENTS__SECRETS", "mock:q8Zt1LkV5sXw0RbN7yJc3HfP9dGmA2eU")];
    Server::start_with(&["--database", &database, "--redis", &redis], &secrets)
}

/// Everything that needs neither, while both are away, and everything that does.
fn goes_on(server: &Server) {
    let activity = server.activity(&json!({"stock": 10, "per_user_limit": 5}));
    let order = |answer: Answer| {
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["order_no"].as_str().unwrap().to_owned()
    };
    let (kept, cancelled) =
        (order(server.buy(7, activity, "a", 1)), order(server.buy(7, activity, "b", 1)));
    let cancel = format!("/api/orders/{cancelled}/cancel");
    assert_eq!(server.as_user(7, "POST", &cancel, None).status, 200);
    let opened = server.as_user(7, "POST", "/api/payments", Some(&json!({"order_no": kept})));
    assert_eq!(opened.status, 201, "{opened:?}");
    let addressed = json!({
        "receiver": "Amy", "phone": "123456", "province": "", "city": "", "district": "",
        "detail": "1 Road",
    });
    let needing: [(&str, &str, Option<&Value>); 7] = [
        ("GET", "/api/addresses", None),
        ("PUT", "/api/addresses/default", Some(&addressed)),
        ("GET", "/api/admin/dead-letters", None),
        ("GET", "/api/admin/audit", None),
        ("GET", "/api/admin/callbacks?flagged=true", None),
        ("GET", "/api/admin/refunds?status=open", None),
        ("GET", "/api/addresses", None),
    ];
    // Side by side, for one that drags is waited for as long as the breaker lets anybody.
    std::thread::scope(|scope| {
        // One export at a time.
        let export = [("GET", "/api/admin/orders.csv", None)];
        for (method, path, body) in needing.into_iter().chain(needing).chain(export) {
            scope.spawn(move || {
                let answer = server.as_admin(method, path, body);
                let verdict = (503, "database_unavailable".to_owned());
                assert_eq!(answer.verdict(), verdict, "{method} {path}");
            });
        }
        // Purchases and figures do not wait behind them.
        for number in 0..3 {
            order(server.buy(8, activity, &number.to_string(), 1));
        }
    });
    assert_eq!(breaker(server), "1", "nobody asks any more");
    let stocks = server.as_admin("GET", "/api/admin/stocks", None).json();
    let item = &stocks["items"][0];
    assert_eq!(item["engine"], json!({"total": 10, "available": 6, "locked": 4, "sold": 0}));
    assert_eq!((&item["sql"], &item["redis"]), (&Value::Null, &Value::Null), "{stocks}");
    assert_eq!(server.as_user(7, "GET", "/api/orders", None).json()["degraded"], true);
    assert_eq!(server.figures(activity), [10, 6, 4, 0]);
}

#[test]
fn with_sql_and_redis_dead_purchases_and_cancels_go_on_and_whatever_needs_sql_says_so() {
    goes_on(&server_with("127.0.0.1:1", "127.0.0.1:1"));
}

#[test]
fn with_sql_and_redis_that_take_connections_and_never_answer_it_is_the_same() {
    let silent = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (sql, redis) = (silent(), silent());
    let place = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    goes_on(&server_with(&place(&sql), &place(&redis)));
}
