//! SQL is away from the start: purchases, queries and cancels go on, lists come from the engine,
//! and the breaker spares callers the wait.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Server;
use serde_json::json;

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
