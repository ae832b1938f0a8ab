//! Who did what, and what it was before: every command of an operator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Instant;

use common::{PATIENCE, Server, token};
use serde_json::{Map, Value, json};

const OP_1: &[(&str, &str)] = &[("Idempotency-Key", "op-1")];
const OP_2: &[(&str, &str)] = &[("Idempotency-Key", "op-2")];

/// One action of an operator and what the audit must say of it.
struct Case {
    method: &'static str,
    path: String,
    headers: &'static [(&'static str, &'static str)],
    body: Value,
    action: &'static str,
    subject: Value,
    /// Some of the fields, before and after.
    before: Value,
    after: Value,
}

fn case(
    (method, path): (&'static str, String),
    body: Value,
    (action, subject): (&'static str, Value),
    (before, after): (Value, Value),
) -> Case {
    Case { method, path, headers: &[], body, action, subject, before, after }
}

/// The newest entry, once there are `total`.
fn newest(server: &Server, total: u64) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let list = server.as_admin("GET", "/api/admin/audit?page_size=1", None).json();
        if list["total"] == total {
            return list["items"][0].clone();
        }
        assert!(Instant::now() < deadline, "{total} entries: {list}");
        std::thread::yield_now();
    }
}

fn total(server: &Server) -> u64 {
    server.as_admin("GET", "/api/admin/audit", None).json()["total"].as_u64().unwrap()
}

/// Whether `whole` says what `part` says; nothing where it is null.
fn says(whole: &Value, part: &Value) -> bool {
    let empty = Map::new();
    match part.as_object() {
        None => whole.is_null(),
        Some(part) => {
            let whole = whole.as_object().unwrap_or(&empty);
            part.iter().all(|(name, value)| whole.get(name) == Some(value))
        }
    }
}

fn run(server: &Server, mut seen: u64, cases: Vec<Case>) -> u64 {
    for case in cases {
        let id = format!("req-{}-{seen}", case.action);
        let mut headers = vec![("X-Request-Id", id.as_str())];
        headers.extend_from_slice(case.headers);
        let body = (!case.body.is_null()).then_some(&case.body);
        let admin = token(5, "admin");
        let done = server.authorized(&admin, case.method, &case.path, &headers, body);
        assert!((200..300).contains(&done.status), "{} {}: {done:?}", case.method, case.path);
        seen += 1;
        let entry = newest(server, seen);
        let (before, after) = (&entry["before"], &entry["after"]);
        assert_eq!(entry["action"], case.action, "{entry}");
        assert_eq!((&entry["actor"], &entry["request_id"]), (&json!("5"), &json!(id)));
        assert_eq!(entry.get("subject").unwrap_or(&Value::Null), &case.subject, "{entry}");
        assert!(says(before, &case.before), "{}: {entry}", case.action);
        assert!(says(after, &case.after), "{}: {entry}", case.action);
        assert!(entry["created_at"].as_str().unwrap().ends_with('Z'));
    }
    seen
}

/// An activity, audited as made.
fn made(server: &Server) -> (u64, u64) {
    let none = Value::Null;
    let create = json!({
        "sku_id": 1, "title": "a", "price": 5, "stock": 10, "per_user_limit": 1,
        "start_at": "2020-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z",
    });
    let all = "/api/admin/flashsales";
    let made = json!({
        "title": "a", "total": 10, "available": 10, "status": "off_sale", "version": 1,
        "start_at": "2020-01-01T00:00:00.000Z",
    });
    let create =
        case(("POST", all.to_owned()), create, ("create", none.clone()), (none.clone(), made));
    let seen = run(server, 0, vec![create]);
    let list = server.as_admin("GET", all, None).json();
    (list["items"][0]["id"].as_u64().unwrap(), seen)
}

#[test]
fn every_command_on_an_activity_is_audited_with_what_it_found_and_left() {
    let server = Server::start();
    let none = Value::Null;
    let all = "/api/admin/flashsales";
    let (id, seen) = made(&server);
    let one = |action: &str| format!("{all}/{id}{action}");
    let switch = |path: &str, action, name: &str, before: Value, after: Value| {
        let change = (json!({ name: before }), json!({ name: after }));
        case(("POST", one(path)), Value::Null, (action, Value::Null), change)
    };
    let edit = case(
        ("PUT", one("")),
        json!({"title": "b", "end_at": "2098-01-01T00:00:00Z"}),
        ("edit", none.clone()),
        (
            json!({"title": "a", "end_at": "2099-01-01T00:00:00.000Z", "version": 1}),
            json!({"title": "b", "end_at": "2098-01-01T00:00:00.000Z", "version": 2}),
        ),
    );
    let units = |action, key, headers, quantity: u32, before: u32, after: u32| Case {
        headers,
        ..case(
            ("POST", one(&format!("/{action}"))),
            json!({ "quantity": quantity }),
            (action, json!(key)),
            (
                json!({"total": before, "available": before}),
                json!({"total": after, "available": after}),
            ),
        )
    };
    run(
        &server,
        seen,
        vec![
            edit,
            switch("/publish", "publish", "status", json!("off_sale"), json!("on_sale")),
            switch("/pause", "pause", "paused", json!(false), json!(true)),
            switch("/resume", "resume", "paused", json!(true), json!(false)),
            switch("/drain", "drain", "drained", json!(false), json!(true)),
            switch("/resume", "resume", "drained", json!(true), json!(false)),
            switch("/unpublish", "unpublish", "status", json!("on_sale"), json!("off_sale")),
            units("restock", "op-1", OP_1, 3, 10, 13),
            units("decrease", "op-2", OP_2, 2, 13, 11),
        ],
    );
    // The same key again did nothing: nothing is written down.
    let entries = total(&server);
    let again = server.authorized(
        &token(5, "admin"),
        "POST",
        &one("/restock"),
        OP_1,
        Some(&json!({"quantity": 3})),
    );
    assert_eq!(again.status, 200);
    assert_eq!(server.as_admin("POST", &one("/publish"), None).status, 204);
    assert_eq!(newest(&server, entries + 1)["action"], "publish");
}

fn set(subject: &str) -> (&'static str, Value) {
    ("control_set", json!(subject))
}

fn cleared(subject: &str) -> (&'static str, Value) {
    ("control_clear", json!(subject))
}

fn to(method: &'static str, path: &str) -> (&'static str, String) {
    (method, path.to_owned())
}

/// Who may come in, and how often.
fn at_the_gate() -> Vec<Case> {
    let none = Value::Null;
    let listed = json!({"kind": "user", "value": "9", "reason": "bot"});
    let unlisted = json!({"kind": "user", "value": "9"});
    vec![
        case(
            to("POST", "/api/admin/blacklist"),
            listed,
            set("blacklist/user/9"),
            (none.clone(), json!({})),
        ),
        case(
            to("DELETE", "/api/admin/blacklist"),
            unlisted,
            cleared("blacklist/user/9"),
            (json!({}), none.clone()),
        ),
        case(
            to("POST", "/api/admin/stop"),
            none.clone(),
            set("stop"),
            (none.clone(), json!({"value": 1})),
        ),
        case(
            to("POST", "/api/admin/start"),
            none.clone(),
            cleared("stop"),
            (json!({"value": 1}), none.clone()),
        ),
        case(
            to("PUT", "/api/admin/limits"),
            json!({"user": "5/1s"}),
            set("limits/rules"),
            (none.clone(), json!({"value": {"user": "5/1s"}})),
        ),
        case(
            to("PUT", "/api/admin/limits"),
            json!({"user": "6/1s"}),
            set("limits/rules"),
            (json!({"value": {"user": "5/1s"}}), json!({"value": {"user": "6/1s"}})),
        ),
    ]
}

/// What only SQL knows.
fn accounts_and_catalogue() -> Vec<Case> {
    let none = Value::Null;
    let user = json!({"id": 70, "username": "amy", "password": "correct horse"});
    let amy = json!({"username": "amy", "role": "user", "has_password": true});
    let password = json!({"password": "battery staple"});
    let sku = |title: &str| json!({"id": 7, "title": title, "price": 500});
    let priced = |title: &str| json!({ "title": title });
    vec![
        case(to("POST", "/api/admin/users"), user, ("user", json!("70")), (none.clone(), amy)),
        case(
            to("PUT", "/api/admin/users/70/password"),
            password,
            ("password", json!("70")),
            (json!({"is_new_password": false}), json!({"is_new_password": true})),
        ),
        case(
            to("POST", "/api/admin/users/70/disable"),
            none.clone(),
            set("blacklist/account/70"),
            (none.clone(), json!({})),
        ),
        case(
            to("POST", "/api/admin/users/70/enable"),
            none.clone(),
            cleared("blacklist/account/70"),
            (json!({}), none.clone()),
        ),
        case(
            to("POST", "/api/admin/skus"),
            sku("old"),
            ("sku", json!("7")),
            (none.clone(), priced("old")),
        ),
        case(
            to("POST", "/api/admin/skus"),
            sku("new"),
            ("sku", json!("7")),
            (priced("old"), priced("new")),
        ),
        case(
            to("POST", "/api/admin/reconcile"),
            json!({"repair": true}),
            ("reconcile_repair", none.clone()),
            (none.clone(), json!({"differences": 0, "repaired": 0})),
        ),
    ]
}

#[test]
fn every_command_about_people_money_and_the_gate_is_audited_too() {
    let server = Server::start();
    let activity = server.activity(&json!({"per_user_limit": 5}));
    let bought = server.buy(7, activity, "a", 1).json();
    let (id, none) = (bought["pre_deduction_id"].as_u64().unwrap(), Value::Null);
    newest(&server, 2); // create, publish
    let release = vec![case(
        to("POST", &format!("/api/admin/reservations/{id}/release")),
        none.clone(),
        ("release", json!(id.to_string())),
        (
            json!({"status": "ordered", "order_status": "pending_payment"}),
            json!({"status": "rolled_back", "reason": "admin", "order_status": "cancelled"}),
        ),
    )];
    let seen = run(&server, 2, release);
    let seen = run(&server, seen, at_the_gate());
    run(&server, seen, accounts_and_catalogue());
    let list = server.as_admin("GET", "/api/admin/audit?page_size=100", None).body;
    for secret in ["correct horse", "battery staple", "argon2"] {
        assert!(!list.contains(secret), "{secret}");
    }
    let of_password = server.as_admin("GET", "/api/admin/audit?subject=70&actor=5", None).json();
    assert_eq!(of_password["total"], 2);
}
