//! What operators do, and what they are kept from doing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use common::{Answer, PATIENCE, Server, token};
use serde_json::{Value, json};
use time::OffsetDateTime;

fn admin(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Answer {
    server.authorized(&token(1, "admin"), method, path, headers, body)
}

#[test]
fn a_shopper_is_kept_out_of_everything_that_is_an_operators() {
    let server = Server::start();
    for (method, path) in [
        ("GET", "/api/admin/flashsales"),
        ("POST", "/api/admin/flashsales"),
        ("PUT", "/api/admin/flashsales/1"),
        ("POST", "/api/admin/flashsales/1/publish"),
        ("POST", "/api/admin/flashsales/1/restock"),
        ("POST", "/api/admin/reservations/1/release"),
        ("POST", "/api/admin/skus"),
        ("POST", "/api/admin/users"),
    ] {
        let answer = server.as_user(7, method, path, None);
        assert_eq!(answer.verdict(), (403, "forbidden".to_owned()), "{method} {path}");
    }
}

#[test]
fn an_activity_starts_off_sale_and_is_told_whole() {
    let server = Server::start();
    let body = json!({
        "sku_id": 42, "title": "Keyboard", "price": 1999, "stock": 10, "per_user_limit": 2,
        "start_at": "2026-01-01T08:00:00+08:00", "end_at": "9999-12-31T23:59:59.999Z",
        "payment_ttl": "15m", "late_payment": "refund", "dead_letter": "hold",
    });
    let made = admin(&server, "POST", "/api/admin/flashsales", &[], Some(&body));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("etag"), Some("\"1\""));
    let made = made.json();
    for (name, value) in [
        ("sku_id", json!(42)),
        ("title", json!("Keyboard")),
        ("price", json!(1999)),
        ("stock", json!(10)),
        ("total", json!(10)),
        ("available", json!(10)),
        ("locked", json!(0)),
        ("sold", json!(0)),
        ("per_user_limit", json!(2)),
        ("start_at", json!("2026-01-01T00:00:00.000Z")),
        ("end_at", json!("9999-12-31T23:59:59.999Z")),
        ("payment_ttl", json!("15m")),
        ("late_payment", json!("refund")),
        ("dead_letter", json!("hold")),
        ("status", json!("off_sale")),
        ("state", json!("off_sale")),
        ("version", json!(1)),
    ] {
        assert_eq!(made[name], value, "{name}");
    }
    let path = format!("/api/admin/flashsales/{}", made["id"]);
    assert_eq!(admin(&server, "GET", &path, &[], None).json(), made);
}

#[test]
fn an_activity_of_the_wrong_shape_is_refused() {
    let server = Server::start();
    let good = json!({
        "sku_id": 1, "title": "x", "price": 1, "stock": 1,
        "start_at": "2026-01-01T00:00:00Z", "end_at": "2027-01-01T00:00:00Z",
    });
    let mut bad = Vec::new();
    for name in ["sku_id", "title", "price", "stock", "start_at", "end_at"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        bad.push(body);
    }
    for (name, value) in [
        ("sku_id", json!(0)),
        ("sku_id", json!("1")),
        ("sku_id", json!(9_007_199_254_740_992_u64)),
        ("title", json!("")),
        ("title", json!("x".repeat(256))),
        ("price", json!(-1)),
        ("price", json!(1.5)),
        ("price", json!(9_007_199_254_740_992_u64)),
        ("stock", json!(-1)),
        ("stock", json!(2_147_483_648_u64)),
        ("stock", json!(null)),
        ("per_user_limit", json!(0)),
        ("start_at", json!("yesterday")),
        ("start_at", json!(1_764_417_600)),
        ("start_at", json!("2026-01-01T00:00:00")),
        ("end_at", json!("2025-01-01T00:00:00Z")),
        ("payment_ttl", json!("0s")),
        ("payment_ttl", json!(600)),
        ("payment_ttl", json!("31d")),
        ("late_payment", json!("keep")),
        ("dead_letter", json!("ignore")),
    ] {
        let mut body = good.clone();
        body[name] = value;
        bad.push(body);
    }
    for body in bad {
        let answer = admin(&server, "POST", "/api/admin/flashsales", &[], Some(&body));
        assert_eq!(answer.verdict(), (400, "invalid_request".to_owned()), "{body}");
    }
    let list = admin(&server, "GET", "/api/admin/flashsales", &[], None).json();
    assert_eq!(list["items"], json!([]));
}

#[test]
fn switches_act_at_once_and_publishing_again_resets_nothing() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 5, "publish": false}));
    let switch = |name: &str| {
        let path = format!("/api/admin/flashsales/{activity}/{name}");
        assert_eq!(admin(&server, "POST", &path, &[], None).status, 204, "{name}");
    };
    let mut user = 0;
    let mut try_to_buy = || {
        user += 1;
        let answer = server.buy(user, activity, "a", 1);
        if answer.status == 202 { "accepted".to_owned() } else { answer.code() }
    };
    for (name, outcome) in [
        ("publish", "accepted"),
        ("publish", "accepted"),
        ("pause", "paused"),
        ("resume", "accepted"),
        ("drain", "paused"),
        ("resume", "accepted"),
        ("unpublish", "off_sale"),
        ("publish", "accepted"),
    ] {
        switch(name);
        assert_eq!(try_to_buy(), outcome, "{name}");
    }
    assert_eq!(server.figures(activity), [5, 0, 5, 0]);
    let unknown = admin(&server, "POST", "/api/admin/flashsales/99999/publish", &[], None);
    assert_eq!(unknown.verdict(), (404, "activity_not_found".to_owned()));
}

#[test]
fn restock_and_decrease_happen_once_a_key() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1}));
    assert_eq!(server.buy(1, activity, "a", 1).status, 202);
    assert_eq!(server.buy(2, activity, "b", 1).code(), "sold_out");
    let step = |name: &str, key: &str, quantity: u32| {
        let path = format!("/api/admin/flashsales/{activity}/{name}");
        let body = json!({"quantity": quantity});
        admin(&server, "POST", &path, &[("Idempotency-Key", key)], Some(&body))
    };
    for _ in 0..2 {
        let answer = step("restock", "r1", 4);
        assert_eq!((answer.status, &answer.json()["available"]), (200, &json!(4)), "{answer:?}");
    }
    assert_eq!(server.figures(activity), [5, 4, 1, 0]);
    assert_eq!(server.buy(2, activity, "b", 1).status, 202);
    assert_eq!(step("restock", "r1", 5).verdict(), (422, "request_id_reused".to_owned()));
    for _ in 0..2 {
        assert_eq!(step("decrease", "d1", 2).status, 200);
    }
    assert_eq!(server.figures(activity), [3, 1, 2, 0]);
    assert_eq!(step("decrease", "d2", 2).verdict(), (409, "stock_below_reserved".to_owned()));
    let path = format!("/api/admin/flashsales/{activity}/restock");
    let keyless = admin(&server, "POST", &path, &[], Some(&json!({"quantity": 1})));
    assert_eq!(keyless.verdict(), (400, "invalid_request".to_owned()));
    for quantity in [json!(0), json!(-1), json!("1"), json!(1.5), json!(null)] {
        let body = json!({"quantity": quantity});
        let answer = admin(&server, "POST", &path, &[("Idempotency-Key", "r9")], Some(&body));
        assert_eq!(answer.code(), "invalid_request", "{body}");
    }
    assert_eq!(server.figures(activity), [3, 1, 2, 0]);
}

#[test]
fn an_edit_needs_the_version_it_was_made_from_and_freezes_with_the_first_reservation() {
    let server = Server::start();
    let activity = server.activity(&json!({
        "stock": 10, "start_at": "2098-01-01T00:00:00Z", "publish": false,
    }));
    let path = format!("/api/admin/flashsales/{activity}");
    let edit = |version: &str, body: Value| {
        admin(&server, "PUT", &path, &[("If-Match", version)], Some(&body))
    };
    let edited = edit("\"1\"", json!({"title": "new", "price": 5, "stock": 20}));
    assert_eq!(edited.status, 200, "{edited:?}");
    assert_eq!(edited.header("etag"), Some("\"2\""));
    assert_eq!((&edited.json()["price"], &edited.json()["total"]), (&json!(5), &json!(20)));
    assert_eq!(edit("1", json!({"title": "x"})).verdict(), (412, "version_mismatch".to_owned()));
    assert_eq!(edit("soon", json!({"title": "x"})).code(), "invalid_request");
    let opened = edit("2", json!({"start_at": "2020-01-01T00:00:00Z"}));
    assert_eq!(opened.status, 200, "{opened:?}");
    assert_eq!(admin(&server, "POST", &format!("{path}/publish"), &[], None).status, 204);
    assert_eq!(server.buy(1, activity, "a", 1).status, 202);
    let version = || admin(&server, "GET", &path, &[], None).json()["version"].to_string();
    for frozen in [json!({"price": 6}), json!({"stock": 21}), json!({"per_user_limit": 2})] {
        let answer = edit(&version(), frozen.clone());
        assert_eq!(answer.verdict(), (409, "locked_while_in_progress".to_owned()), "{frozen}");
    }
    assert_eq!(edit(&version(), json!({"stock": 0})).code(), "stock_below_reserved");
    let allowed = edit(&version(), json!({"title": "newer", "stock": 3}));
    assert_eq!(allowed.status, 200, "{allowed:?}");
    assert_eq!(server.figures(activity), [3, 2, 1, 0]);
    let unknown = admin(&server, "PUT", "/api/admin/flashsales/99999", &[], Some(&json!({})));
    assert_eq!(unknown.verdict(), (404, "activity_not_found".to_owned()));
}

#[test]
fn a_schedule_stays_until_an_edit_takes_it_back() {
    let server = Server::start();
    let activity = server.activity(&json!({
        "publish_at": "2098-01-01T00:00:00.000Z", "publish": false,
    }));
    let path = format!("/api/admin/flashsales/{activity}");
    let edited = |body: Value| admin(&server, "PUT", &path, &[], Some(&body)).json();
    assert_eq!(edited(json!({"title": "x"}))["publish_at"], "2098-01-01T00:00:00.000Z");
    assert_eq!(edited(json!({"publish_at": null})).get("publish_at"), None);
}

#[test]
fn a_schedule_that_is_over_is_shown_no_more_and_a_new_date_starts_another() {
    let server = Server::start();
    let activity = server.activity(&json!({
        "publish_at": "2098-01-01T00:00:00.000Z", "publish": false,
    }));
    let path = format!("/api/admin/flashsales/{activity}");
    let shown = || admin(&server, "GET", &path, &[], None).json();
    assert_eq!(shown()["publish_at"], "2098-01-01T00:00:00.000Z");
    let unpublish = format!("{path}/unpublish");
    assert_eq!(admin(&server, "POST", &unpublish, &[], None).status, 204);
    assert_eq!(shown().get("publish_at"), None);

    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 2;
    let soon = OffsetDateTime::from_unix_timestamp(i64::try_from(soon).unwrap()).unwrap();
    let (date, (hour, minute, second)) = (soon.date(), soon.to_hms());
    let body = json!({"publish_at": format!("{date}T{hour:02}:{minute:02}:{second:02}Z")});
    let edited = admin(&server, "PUT", &path, &[], Some(&body)).json();
    assert!(edited["publish_at"].is_string(), "{edited}");
    let deadline = Instant::now() + PATIENCE;
    while shown()["status"] != "on_sale" {
        assert!(Instant::now() < deadline, "never published");
        std::thread::yield_now();
    }
    assert_eq!(shown().get("publish_at"), None);
    assert_eq!(server.buy(1, activity, "a", 1).status, 202);
}

#[test]
fn a_scheduled_activity_can_be_unpublished_again_and_again() {
    let server = Server::start();
    let activity = server.activity(&json!({
        "publish_at": "2098-01-01T00:00:00.000Z", "publish": false,
    }));
    let path = format!("/api/admin/flashsales/{activity}/unpublish");
    for _ in 0..2 {
        let answer = admin(&server, "POST", &path, &[], None);
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    assert_eq!(server.buy(1, activity, "a", 1).code(), "off_sale");
}

#[test]
fn a_release_gives_an_unpaid_reservation_back_for_its_owner() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let path = format!("/api/admin/reservations/{}/release", accepted["pre_deduction_id"]);
    for _ in 0..2 {
        let answer = admin(&server, "POST", &path, &[], None);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["reason"], "admin");
    }
    assert_eq!(server.figures(activity), [1, 1, 0, 0]);
    let unknown = admin(&server, "POST", "/api/admin/reservations/77/release", &[], None);
    assert_eq!(unknown.verdict(), (404, "purchase_not_found".to_owned()));
}

#[test]
fn the_list_shows_every_state_and_sums_by_sku() {
    let server = Server::start();
    let first = server.activity(&json!({"sku_id": 5, "stock": 3}));
    let second = server.activity(&json!({"sku_id": 5, "stock": 4, "publish": false}));
    assert_eq!(server.buy(7, first, "a", 1).status, 202);
    let list = admin(&server, "GET", "/api/admin/flashsales", &[], None).json();
    let ids: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, [json!(first), json!(second)]);
    assert_eq!(list["items"][1]["state"], "off_sale");
    let sum = json!({
        "sku_id": 5, "activities": 2, "total": 7, "available": 6, "locked": 1, "sold": 0,
    });
    assert_eq!(list["skus"], json!([sum]));
}

#[test]
fn skus_and_users_are_made_one_by_one_or_from_a_csv() {
    let server = Server::start();
    let sku = json!({"id": 5, "title": "Keyboard", "price": 100});
    for _ in 0..2 {
        let made = admin(&server, "POST", "/api/admin/skus", &[], Some(&sku));
        assert_eq!((made.status, made.json()), (201, sku.clone()));
    }
    let user = json!({"id": 7, "username": "amy"});
    assert_eq!(admin(&server, "POST", "/api/admin/users", &[], Some(&user)).status, 201);
    let taken = admin(&server, "POST", "/api/admin/users", &[], Some(&user));
    assert_eq!(taken.verdict(), (409, "conflict".to_owned()));
    let bearer = format!("Bearer {}", token(1, "admin"));
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/csv")];
    let csv = "id,username,receiver,phone,province,city,district,detail\n\
               7,amy,,,,,,\n8,bo,Bo,139,GD,SZ,NS,Road 8\n";
    let made = server.call("POST", "/api/admin/users", &headers, csv);
    assert_eq!((made.status, made.json()), (201, json!({"created": 1, "kept": 1})), "{made:?}");
    let broken = server.call("POST", "/api/admin/users", &headers, "id\n9\nx\n");
    assert_eq!(broken.code(), "invalid_request");
    assert!(broken.json()["detail"].as_str().unwrap().contains("line 3"));
    let free = server.call("POST", "/api/admin/users", &headers, "id\n9\n");
    assert_eq!(free.json()["created"], 1, "nothing of a broken list was kept");
}
