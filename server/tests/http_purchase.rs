//! Buying over HTTP: every outcome of the contract, each with its status and stable code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Server, token};
use serde_json::{Value, json};

fn purchase_path(activity: u64) -> String {
    format!("/api/flashsales/{activity}/purchase")
}

fn query_path(accepted: &Value) -> String {
    format!("/api/flashsales/purchases/{}", accepted["pre_deduction_id"])
}

#[test]
fn an_accepted_purchase_tells_everything_a_shopper_needs() {
    let server = Server::start();
    let activity = server.activity(&json!({"price": 1999, "stock": 5, "per_user_limit": 3}));
    let answer = server.buy(7, activity, "first", 2);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("idempotency-replayed"), None);
    let body = answer.json();
    assert_eq!(body["activity_id"], activity);
    assert_eq!(body["quantity"], 2);
    assert_eq!(body["price"], 1999);
    assert_eq!(body["status"], "pending_order");
    let order_no = body["order_no"].as_str().unwrap();
    assert_eq!(order_no, format!("1{:017}", body["pre_deduction_id"].as_u64().unwrap()));
    let pay_before = body["pay_before"].as_str().unwrap();
    assert!(pay_before.len() == 24 && pay_before.ends_with('Z'), "{pay_before}");
    assert_eq!(server.figures(activity), [5, 3, 2, 0]);
}

#[test]
fn each_refusal_has_its_status_and_code_and_changes_nothing() {
    let server = Server::start();
    let open = server.activity(&json!({"stock": 2}));
    let empty = server.activity(&json!({"stock": 1}));
    assert_eq!(server.buy(1, empty, "last", 1).status, 202);
    let off = server.activity(&json!({"publish": false}));
    let early = server.activity(&json!({"start_at": "2098-01-01T00:00:00Z"}));
    let late = server.activity(&json!({
        "start_at": "2020-01-01T00:00:00Z", "end_at": "2020-01-02T00:00:00Z",
    }));
    let paused = server.activity(&json!({}));
    let drained = server.activity(&json!({}));
    for (activity, switch) in [(paused, "pause"), (drained, "drain")] {
        let path = format!("/api/admin/flashsales/{activity}/{switch}");
        assert_eq!(server.as_admin("POST", &path, None).status, 204);
    }
    assert_eq!(server.buy(9, open, "held", 1).status, 202);
    for (activity, user, request_id, quantity, status, code) in [
        (999_999, 1, "a", 1, 404, "activity_not_found"),
        (off, 1, "a", 1, 409, "off_sale"),
        (early, 1, "a", 1, 409, "not_started"),
        (late, 1, "a", 1, 409, "ended"),
        (paused, 1, "a", 1, 409, "paused"),
        (drained, 1, "a", 1, 409, "paused"),
        (empty, 2, "a", 1, 409, "sold_out"),
        (open, 9, "again", 1, 409, "limit_reached"),
        (open, 9, "held", 2, 422, "request_id_reused"),
    ] {
        let answer = server.buy(user, activity, request_id, quantity);
        assert_eq!(answer.verdict(), (status, code.to_owned()), "{answer:?}");
    }
    assert_eq!(server.figures(open), [2, 1, 1, 0]);
    assert_eq!(server.figures(empty), [1, 0, 1, 0]);
}

#[test]
fn a_refused_request_may_try_again_under_the_same_id() {
    let server = Server::start();
    let activity = server.activity(&json!({"publish": false}));
    assert_eq!(server.buy(1, activity, "mine", 1).code(), "off_sale");
    let path = format!("/api/admin/flashsales/{activity}/publish");
    assert_eq!(server.as_admin("POST", &path, None).status, 204);
    assert_eq!(server.buy(1, activity, "mine", 1).status, 202);
}

#[test]
fn the_same_id_again_is_the_same_purchase_with_its_present_status() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 5, "per_user_limit": 5}));
    let first = server.buy(3, activity, "mine", 2).json();
    let ordered = server.as_user(3, "GET", &format!("{}?wait=30s", query_path(&first)), None);
    assert_eq!(ordered.json()["status"], "ordered", "{ordered:?}");
    let again = server.buy(3, activity, "mine", 2);
    assert_eq!(again.status, 202);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let mut expected = first.clone();
    expected["status"] = json!("ordered");
    assert_eq!(again.json(), expected);
    // Another user's id is another id; and so is one in another activity.
    assert_eq!(server.buy(4, activity, "mine", 2).header("idempotency-replayed"), None);
    assert_eq!(server.figures(activity), [5, 1, 4, 0]);
}

#[test]
fn the_header_serves_where_the_body_has_no_id_and_the_body_wins() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 9, "per_user_limit": 9}));
    let call = |key: &str, body: Option<&Value>| {
        let headers = [("Idempotency-Key", key)];
        server.authorized(&token(5, "user"), "POST", &purchase_path(activity), &headers, body)
    };
    let bare = call("one", None);
    assert_eq!(bare.status, 202, "{bare:?}");
    let quoted = call("\"one\"", Some(&json!({})));
    assert_eq!(quoted.header("idempotency-replayed"), Some("true"), "{quoted:?}");
    let other = call("one", Some(&json!({"client_request_id": "two"})));
    assert_eq!(other.header("idempotency-replayed"), None);
    assert_ne!(other.json()["pre_deduction_id"], bare.json()["pre_deduction_id"]);
    let same = server.buy(5, activity, "one", 1);
    assert_eq!(same.json()["pre_deduction_id"], bare.json()["pre_deduction_id"]);
}

#[test]
fn a_purchase_is_its_owners_alone() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "mine", 1).json();
    let path = query_path(&accepted);
    let mine = server.as_user(7, "GET", &path, None);
    assert_eq!(mine.status, 200, "{mine:?}");
    assert_eq!(mine.json()["order_no"], accepted["order_no"]);
    for (user, path) in [
        (8, path.as_str()),
        (7, "/api/flashsales/purchases/4294967297999"),
        (7, "/api/flashsales/purchases/0"),
        (7, "/api/flashsales/purchases/abc"),
        (7, "/api/flashsales/purchases/18446744073709551616"),
    ] {
        let answer = server.as_user(user, "GET", path, None);
        assert_eq!(answer.verdict(), (404, "purchase_not_found".to_owned()), "{path}");
    }
}

#[test]
fn a_waiting_query_answers_when_the_purchase_is_given_back() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "mine", 1).json();
    let cancel = format!("/api/orders/{}/cancel", accepted["order_no"].as_str().unwrap());
    assert_eq!(server.as_user(7, "POST", &cancel, None).status, 200);
    let path = format!("{}?wait=30s", query_path(&accepted));
    let answer = server.as_user(7, "GET", &path, None).json();
    assert_eq!(
        (&answer["status"], &answer["reason"]),
        (&json!("rolled_back"), &json!("cancelled"))
    );
    let bad = server.as_user(7, "GET", &format!("{}?wait=soon", query_path(&accepted)), None);
    assert_eq!(bad.code(), "invalid_request");
}

#[test]
fn an_unpaid_purchase_is_given_back_when_its_time_is_over_and_sells_again() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1, "payment_ttl": "1s"}));
    let first = server.buy(1, activity, "a", 1);
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(server.buy(2, activity, "b", 1).code(), "sold_out");
    // Waiting ends at `ordered`; so ask until the engine has given it back.
    let path = query_path(&first.json());
    let deadline = std::time::Instant::now() + common::PATIENCE;
    loop {
        let seen = server.as_user(1, "GET", &path, None).json();
        if seen["status"] == "rolled_back" {
            assert_eq!(seen["reason"], "timeout");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{seen}");
    }
    assert_eq!(server.buy(2, activity, "b", 1).status, 202);
    assert_eq!(server.figures(activity), [1, 0, 1, 0]);
}

#[test]
fn a_rush_sells_each_unit_once() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 20}));
    let accepted: usize = std::thread::scope(|scope| {
        let shoppers: Vec<_> = (0..8)
            .map(|thread| {
                let server = &server;
                scope.spawn(move || {
                    (0..10)
                        .filter(|try_no| {
                            let user = thread * 10 + try_no + 1;
                            let answer = server.buy(user, activity, "rush", 1);
                            assert!(answer.status == 202 || answer.code() == "sold_out");
                            answer.status == 202
                        })
                        .count()
                })
            })
            .collect();
        shoppers.into_iter().map(|shopper| shopper.join().unwrap()).sum()
    });
    assert_eq!(accepted, 20);
    assert_eq!(server.figures(activity), [20, 0, 20, 0]);
}

#[test]
fn shoppers_see_what_is_published_and_what_they_hold() {
    let server = Server::start();
    let open = server.activity(&json!({"stock": 3, "title": "开放"}));
    let hidden = server.activity(&json!({"publish": false}));
    assert_eq!(server.buy(7, open, "a", 1).status, 202);
    let list = server.as_user(7, "GET", "/api/flashsales", None).json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["id"], open);
    assert_eq!(items[0]["title"], "开放");
    assert_eq!((&items[0]["stock"], &items[0]["remaining"]), (&json!(3), &json!(2)));
    assert_eq!(items[0]["state"], "in_progress");
    assert!(list["server_time"].is_string());
    let detail = server.as_user(7, "GET", &format!("/api/flashsales/{open}"), None).json();
    assert_eq!(detail["held"], 1);
    assert!(detail["remain_seconds"].as_u64().unwrap() > 1_000_000);
    let off = server.as_user(7, "GET", &format!("/api/flashsales/{hidden}"), None).json();
    assert_eq!(off["state"], "off_sale");
    let second = server.as_user(7, "GET", "/api/flashsales?page=2&page_size=1", None).json();
    assert_eq!(second["items"], json!([]));
    for query in ["page=0", "page_size=101", "page_size=0", "page=x", "page=-1"] {
        let answer = server.as_user(7, "GET", &format!("/api/flashsales?{query}"), None);
        assert_eq!(answer.verdict(), (400, "invalid_request".to_owned()), "{query}");
    }
}

#[test]
fn a_sale_that_names_no_time_to_pay_gives_ten_minutes() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let path = format!("/api/admin/flashsales/{activity}");
    assert_eq!(server.as_admin("GET", &path, None).json()["payment_ttl"], "10m");
    let bought = server.buy(7, activity, "a", 1).json();
    let seen = server.as_user(7, "GET", &query_path(&bought), None).json();
    // 2026-01-01T23:59:59.999Z: the day may end in between.
    const DAY_MS: u64 = 24 * 3600 * 1000;
    let of_day_ms = |name: &str| {
        let text = seen[name].as_str().unwrap();
        let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
        ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1000 + number(20..23)
    };
    assert_eq!((of_day_ms("pay_before") + DAY_MS - of_day_ms("created_at")) % DAY_MS, 600_000);
}
