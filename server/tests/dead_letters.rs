//! Orders that can't be made: held or given back by policy, tried again, given up.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::time::Instant;

use common::{PATIENCE, Server};
use serde_json::{Value, json};

fn start() -> Server {
    Server::start_with(&[], &[("SLUICE_ORDERS__REQUIRE_ADDRESS", "true")])
}

fn letters(server: &Server, query: &str) -> Value {
    let answer = server.as_admin("GET", &format!("/api/admin/dead-letters{query}"), None);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Asks until `is_there`.
fn until(mut ask: impl FnMut() -> Value, is_there: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if is_there(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {answer}");
    }
}

fn set_address(server: &Server, user: u64) {
    let address = json!({
        "receiver": "陈晨", "phone": "13800000000", "province": "广东", "city": "深圳",
        "district": "南山", "detail": "科技园 1 号",
    });
    let set = server.as_user(user, "PUT", "/api/addresses/default", Some(&address));
    assert_eq!(set.status, 200, "{set:?}");
}

fn purchase(server: &Server, user: u64, accepted: &Value, query: &str) -> Value {
    let path = format!("/api/flashsales/purchases/{}{query}", accepted["pre_deduction_id"]);
    server.as_user(user, "GET", &path, None).json()
}

#[test]
fn one_that_is_held_waits_for_an_operator_and_a_retry_makes_the_order() {
    let server = start();
    let activity = server.activity(&json!({"dead_letter": "hold"}));
    let accepted = server.buy(7, activity, "a", 1).json();
    set_address(&server, 8);
    let other = server.buy(8, activity, "a", 1).json();
    assert_eq!(purchase(&server, 8, &other, "?wait=30s")["status"], "ordered");
    let list = letters(&server, "?status=open");
    let letter = &list["items"][0];
    assert_eq!((&list["total"], &letter["id"]), (&json!(1), &accepted["pre_deduction_id"]));
    assert_eq!((&letter["user_id"], &letter["attempts"]), (&json!(7), &json!(1)));
    assert!(letter["reason"].as_str().unwrap().contains("address"), "{letter}");
    assert_eq!(purchase(&server, 7, &accepted, "")["status"], "pending_order");
    assert_eq!(server.figures(activity), [10, 8, 2, 0]);
    let shown = server.as_user(7, "GET", "/api/orders", None).json();
    assert_eq!(shown["items"][0]["order_no"], accepted["order_no"]);

    let retry = format!("/api/admin/dead-letters/{}/retry", accepted["pre_deduction_id"]);
    assert_eq!(server.as_admin("POST", &retry, None).status, 200);
    let again = |list: &Value| list["items"][0]["attempts"] == 2;
    until(|| letters(&server, "?status=open"), again);
    assert_eq!(purchase(&server, 7, &accepted, "")["status"], "pending_order");
    set_address(&server, 7);
    assert_eq!(server.as_admin("POST", &retry, None).status, 200);
    assert_eq!(purchase(&server, 7, &accepted, "?wait=30s")["status"], "ordered");
    let path = format!("/api/orders/{}", accepted["order_no"].as_str().unwrap());
    let order = server.as_user(7, "GET", &path, None).json();
    assert_eq!(order["address"]["receiver"], "陈晨");
    assert_eq!(letters(&server, "?status=open")["total"], 0);
    assert_eq!(letters(&server, "")["items"][0]["status"], "delivered");
    let audited = "SELECT COUNT(*) FROM audit WHERE action = 'dead_letter_delivered'";
    assert_eq!(books::count(server.data_dir(), audited), 2);
}

#[test]
fn by_default_its_units_go_back_and_its_buyer_may_buy_again() {
    let server = start();
    let activity = server.activity(&json!({"stock": 1}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let settled = purchase(&server, 7, &accepted, "?wait=30s");
    assert_eq!(settled["status"], "rolled_back", "{settled}");
    assert_eq!(settled["reason"], "dead_letter");
    assert_eq!(server.figures(activity), [1, 1, 0, 0]);
    until(|| letters(&server, "?status=rolled_back"), |list| list["total"] == 1);
    let letter = format!("/api/admin/dead-letters/{}", accepted["pre_deduction_id"]);
    let retried = server.as_admin("POST", &format!("{letter}/retry"), None);
    assert_eq!(retried.verdict(), (409, "already_rolled_back".to_owned()));
    let rolled_back = server.as_admin("POST", &format!("{letter}/rollback"), None);
    assert_eq!(rolled_back.status, 200, "again it changes nothing");
    set_address(&server, 7);
    let second = server.buy(7, activity, "b", 1).json();
    assert_eq!(purchase(&server, 7, &second, "?wait=30s")["status"], "ordered");
    let query = "SELECT COUNT(*) FROM orders";
    assert_eq!(books::count(server.data_dir(), query), 1);
}

#[test]
fn one_that_is_held_can_be_given_up_and_only_by_an_operator() {
    let server = start();
    let activity = server.activity(&json!({"dead_letter": "hold", "per_user_limit": 3}));
    let accepted: Vec<_> =
        ["a", "b", "c"].map(|id| server.buy(7, activity, id, 1).json()).into_iter().collect();
    until(|| letters(&server, ""), |list| list["total"] == 3);
    let page = letters(&server, "?page=2&page_size=2");
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    let path = format!("/api/admin/dead-letters/{}/rollback", accepted[0]["pre_deduction_id"]);
    assert_eq!(server.as_user(7, "POST", &path, None).status, 403);
    let rolled_back = server.as_admin("POST", &path, None).json();
    assert_eq!(
        (&rolled_back["status"], &rolled_back["reason"]),
        (&json!("rolled_back"), &json!("dead_letter"))
    );
    assert_eq!(server.figures(activity), [10, 8, 2, 0]);
    until(|| letters(&server, "?status=open"), |list| list["total"] == 2);
    for (path, expected) in [
        ("/api/admin/dead-letters/1/retry", (404, "dead_letter_not_found")),
        ("/api/admin/dead-letters/x/rollback", (404, "dead_letter_not_found")),
    ] {
        let answer = server.as_admin("POST", path, None);
        assert_eq!(answer.verdict(), (expected.0, expected.1.to_owned()), "{path}");
    }
    for query in ["?status=lost", "?page=0", "?page_size=101", "?page_size=0"] {
        let answer = server.as_admin("GET", &format!("/api/admin/dead-letters{query}"), None);
        assert_eq!(answer.code(), "invalid_request", "{query}");
    }
}
