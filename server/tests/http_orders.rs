//! Orders as their owner sees them, and cancelling them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Server;
use serde_json::{Value, json};

fn ordered(server: &Server, user: u64, accepted: &Value) {
    let path = format!("/api/flashsales/purchases/{}?wait=30s", accepted["pre_deduction_id"]);
    assert_eq!(server.as_user(user, "GET", &path, None).json()["status"], "ordered");
}

fn order_path(accepted: &Value) -> String {
    format!("/api/orders/{}", accepted["order_no"].as_str().unwrap())
}

#[test]
fn an_order_comes_from_sql_with_its_items_and_address() {
    let server = Server::start();
    let address = json!({
        "receiver": "陈晨", "phone": "13800000000", "province": "广东", "city": "深圳",
        "district": "南山", "detail": "科技园 1 号",
    });
    let user = json!({"id": 7, "username": "chen", "address": address});
    assert_eq!(server.as_admin("POST", "/api/admin/users", Some(&user)).status, 201);
    let activity = server.activity(&json!({"price": 500, "per_user_limit": 3, "title": "键盘"}));
    let accepted = server.buy(7, activity, "a", 2).json();
    ordered(&server, 7, &accepted);
    let order = server.as_user(7, "GET", &order_path(&accepted), None).json();
    assert_eq!(order["status"], "pending_payment");
    assert_eq!(order["total_amount"], 1000);
    assert_eq!(order["address"], address);
    let item = json!({"sku_id": 1, "title": "键盘", "price": 500, "quantity": 2, "amount": 1000});
    assert_eq!(order["items"], json!([item]));
    let list = server.as_user(7, "GET", "/api/orders", None).json();
    assert_eq!((&list["total"], &list["items"][0]), (&json!(1), &order));
    let none = server.as_user(7, "GET", "/api/orders?status=paid", None).json();
    assert_eq!(none["items"], json!([]));
    assert_eq!(server.as_user(8, "GET", "/api/orders", None).json()["total"], 0);
    for query in ["status=lost", "page=0", "page=x"] {
        let answer = server.as_user(7, "GET", &format!("/api/orders?{query}"), None);
        assert_eq!(answer.code(), "invalid_request", "{query}");
    }
}

#[test]
fn a_database_that_is_down_stops_nothing_and_orders_come_from_the_engine() {
    let server = Server::start_with(&["--database", "sqlite:/nonexistent/orders.db"], &[]);
    let activity = server.activity(&json!({"price": 500, "title": "键盘"}));
    let accepted = server.buy(7, activity, "a", 1);
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let accepted = accepted.json();
    let order = server.as_user(7, "GET", &order_path(&accepted), None);
    assert_eq!(order.status, 200, "{order:?}");
    let order = order.json();
    assert_eq!(order["status"], "pending_payment");
    assert_eq!(order["pre_deduction_id"], accepted["pre_deduction_id"]);
    assert_eq!(order["items"][0]["title"], "键盘");
    let path = format!("/api/flashsales/purchases/{}", accepted["pre_deduction_id"]);
    assert_eq!(server.as_user(7, "GET", &path, None).json()["status"], "pending_order");
    let cancel = format!("{}/cancel", order_path(&accepted));
    assert_eq!(server.as_user(7, "POST", &cancel, None).json()["status"], "rolled_back");
    let unavailable = (503, "database_unavailable".to_owned());
    let list = server.as_user(7, "GET", "/api/orders", None).json();
    assert_eq!((&list["degraded"], &list["total"]), (&json!(true), &json!(1)));
    assert_eq!(list["items"][0]["items"][0]["title"], "键盘");
    let user = json!({"id": 7});
    let made = server.as_admin("POST", "/api/admin/users", Some(&user));
    assert_eq!(made.verdict(), unavailable);
    assert_eq!(server.call("GET", "/readyz", &[], "").status, 200);
}

#[test]
fn cancelling_gives_the_unit_back_once_and_says_the_same_again() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let cancel = format!("{}/cancel", order_path(&accepted));
    for _ in 0..3 {
        let answer = server.as_user(7, "POST", &cancel, None);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["status"], "rolled_back");
        assert_eq!(answer.json()["reason"], "cancelled");
        assert_eq!(server.figures(activity), [1, 1, 0, 0]);
    }
    assert_eq!(
        server.as_user(7, "GET", &order_path(&accepted), None).json()["status"],
        "cancelled"
    );
    // The old id keeps its outcome; a new one buys.
    assert_eq!(server.buy(7, activity, "a", 1).json()["status"], "rolled_back");
    assert_eq!(server.buy(7, activity, "b", 1).json()["status"], "pending_order");
}

#[test]
fn only_its_owner_can_see_or_cancel_an_order() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let path = order_path(&accepted);
    for (user, path) in [
        (8, path.as_str()),
        (7, "/api/orders/100000000000000001"),
        (7, "/api/orders/abc"),
        (7, "/api/orders/9"),
    ] {
        let seen = server.as_user(user, "GET", path, None);
        assert_eq!(seen.verdict(), (404, "order_not_found".to_owned()), "{path}");
        let cancelled = server.as_user(user, "POST", &format!("{path}/cancel"), None);
        assert_eq!(cancelled.verdict(), (404, "order_not_found".to_owned()), "{path}");
    }
    assert_eq!(server.figures(activity), [10, 9, 1, 0]);
}

#[test]
fn an_accepted_purchase_is_in_the_list_before_its_order_is_made() {
    let server = Server::start();
    let activity = server.activity(&json!({"per_user_limit": 50, "stock": 50, "title": "键盘"}));
    let mut bought: Vec<String> = (0..45)
        .map(|request| {
            let accepted = server.buy(7, activity, &format!("r{request}"), 1).json();
            // Listed at once, wherever the bridge is by now.
            let list = server.as_user(7, "GET", "/api/orders", None).json();
            assert_eq!(list["items"][0]["order_no"], accepted["order_no"]);
            assert_eq!(list["total"], request + 1);
            accepted["order_no"].as_str().unwrap().to_owned()
        })
        .collect();
    bought.reverse();
    let mut listed = Vec::new();
    for page in 1..=4 {
        let list = server.as_user(7, "GET", &format!("/api/orders?page={page}"), None).json();
        assert_eq!(list["total"], 45);
        let items = list["items"].as_array().unwrap();
        listed.extend(items.iter().map(|item| item["order_no"].as_str().unwrap().to_owned()));
    }
    assert_eq!(listed, bought);
    let pending = server.as_user(7, "GET", "/api/orders?status=pending_payment", None).json();
    assert_eq!(pending["total"], 45);
    assert_eq!(server.as_user(7, "GET", "/api/orders?status=paid", None).json()["total"], 0);
}

#[test]
fn an_address_is_its_owners_and_orders_keep_it_as_it_was() {
    let server = Server::start();
    let put =
        |user, body: &Value| server.as_user(user, "PUT", "/api/addresses/default", Some(body));
    assert_eq!(server.as_user(7, "GET", "/api/addresses", None).json(), json!({"items": []}));
    let mut address = json!({
        "receiver": "O'Neil \"陈\" 👟", "phone": "+86 138 0000 0000", "province": "广东",
        "city": "深圳'); DROP TABLE orders; --", "district": "", "detail": "科技园 1 号\\",
    });
    assert_eq!(put(7, &address).json(), address);
    let activity = server.activity(&json!({"per_user_limit": 3}));
    let first = server.buy(7, activity, "a", 1).json();
    ordered(&server, 7, &first);
    address["receiver"] = json!("another");
    assert_eq!(put(7, &address).status, 200);
    let second = server.buy(7, activity, "b", 1).json();
    ordered(&server, 7, &second);
    let receiver = |accepted: &Value| {
        let order = server.as_user(7, "GET", &order_path(accepted), None).json();
        order["address"]["receiver"].as_str().unwrap().to_owned()
    };
    assert_eq!(receiver(&first), "O'Neil \"陈\" 👟");
    assert_eq!(receiver(&second), "another");
    let mut listed = address.clone();
    listed["is_default"] = json!(true);
    assert_eq!(server.as_user(7, "GET", "/api/addresses", None).json(), json!({"items": [listed]}));
    assert_eq!(server.as_user(8, "GET", "/api/addresses", None).json(), json!({"items": []}));
    for (part, value) in [
        ("phone", json!("none")),
        ("phone", json!(13_800_000_000_u64)),
        ("receiver", json!("")),
        ("detail", json!("x".repeat(256))),
        ("city", json!("a\nb")),
        ("city", json!(null)),
    ] {
        let mut bad = address.clone();
        bad[part] = value;
        assert_eq!(put(7, &bad).code(), "invalid_request", "{bad}");
    }
    let anonymous = server.call("PUT", "/api/addresses/default", &[], &address.to_string());
    assert_eq!(anonymous.status, 401);
}
