//! What operators carry out and look up: orders as CSV, and who did what.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read as _, Write as _};
use std::time::Instant;

use common::{PATIENCE, Server, request, token};
use serde_json::{Value, json};

/// The body of a chunked answer, and whether it came to its end.
fn download(server: &Server, path: &str) -> (String, bool) {
    let bearer = format!("Bearer {}", token(1, "admin"));
    let headers = [("Authorization", bearer.as_str()), ("Connection", "close")];
    let mut socket = std::net::TcpStream::connect(server.address).unwrap();
    socket.write_all(request("GET", path, &headers, "").as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    (body, false)
}

fn ordered(server: &Server, user: u64, accepted: &Value) {
    let path = format!("/api/flashsales/purchases/{}?wait=30s", accepted["pre_deduction_id"]);
    assert_eq!(server.as_user(user, "GET", &path, None).json()["status"], "ordered");
}

#[test]
fn orders_are_exported_from_every_table_with_their_items() {
    let server = Server::start_with(&[], &[("SLUICE_ORDERS__SPLIT", "3")]);
    let first = server.activity(&json!({"title": "=1+1, \"键盘\"", "price": 500}));
    let second = server.activity(&json!({"title": "b"}));
    for user in 1..=7 {
        ordered(&server, user, &server.buy(user, first, "a", 1).json());
    }
    ordered(&server, 1, &server.buy(1, second, "a", 1).json());
    let (text, is_whole) = download(&server, "/api/admin/orders.csv");
    assert!(is_whole);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().unwrap().clone();
    assert_eq!((&columns[0], &columns[6]), ("order_no", "title"));
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 8);
    let mut users: Vec<&str> = lines.iter().map(|line| &line[1]).collect();
    users.sort_unstable();
    assert_eq!(users, ["1", "1", "2", "3", "4", "5", "6", "7"]);
    let of_first = lines.iter().find(|line| line[3] == first.to_string()).unwrap();
    assert_eq!((&of_first[2], &of_first[6]), ("pending_payment", "'=1+1, \"键盘\""));
    let lines_of = |query: &str| {
        let (text, _) = download(&server, &format!("/api/admin/orders.csv{query}"));
        csv::Reader::from_reader(text.as_bytes()).records().count()
    };
    assert_eq!(lines_of(&format!("?activity_id={second}")), 1);
    assert_eq!(lines_of("?status=paid"), 0);
    for query in ["?status=lost", "?activity_id=0", "?activity_id=x"] {
        let answer = server.as_admin("GET", &format!("/api/admin/orders.csv{query}"), None);
        assert_eq!(answer.code(), "invalid_request", "{query}");
    }
    assert_eq!(server.as_user(7, "GET", "/api/admin/orders.csv", None).status, 403);
}

#[test]
fn an_export_without_a_database_is_refused_before_it_begins() {
    let server = Server::start_with(&["--database", "sqlite:/nonexistent/orders.db"], &[]);
    for path in ["/api/admin/orders.csv", "/api/admin/audit"] {
        let answer = server.as_admin("GET", path, None);
        assert_eq!(answer.verdict(), (503, "database_unavailable".to_owned()), "{path}");
    }
}

#[test]
fn whoever_did_what_is_listed_the_newest_first() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let restock = format!("/api/admin/flashsales/{activity}/restock");
    let headers = [("Idempotency-Key", "op-1"), ("X-Request-Id", "req-42")];
    let body = json!({"quantity": 3});
    let admin = token(5, "admin");
    assert_eq!(server.authorized(&admin, "POST", &restock, &headers, Some(&body)).status, 200);
    assert_eq!(server.as_admin("POST", "/api/admin/stop", None).status, 204);
    let list = |query: &str| {
        let answer = server.as_admin("GET", &format!("/api/admin/audit{query}"), None);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let deadline = Instant::now() + PATIENCE;
    while list("")["total"] != 4 {
        assert!(Instant::now() < deadline, "{}", list(""));
        std::thread::yield_now();
    }
    let all = list("");
    let actions: Vec<_> = all["items"].as_array().unwrap().iter().map(|it| &it["action"]).collect();
    assert_eq!(actions, ["control_set", "restock", "publish", "create"]);
    let restock = &list("?actor=5")["items"][0];
    assert_eq!((&restock["request_id"], &restock["subject"]), (&json!("req-42"), &json!("op-1")));
    assert_eq!((&restock["quantity"], &restock["activity_id"]), (&json!(3), &json!(activity)));
    assert_eq!(list(&format!("?activity_id={activity}&action=publish"))["total"], 1);
    assert_eq!(list("?page=2&page_size=3")["items"].as_array().unwrap().len(), 1);
    for query in ["?page=0", "?page_size=101", "?activity_id=0"] {
        let answer = server.as_admin("GET", &format!("/api/admin/audit{query}"), None);
        assert_eq!(answer.code(), "invalid_request", "{query}");
    }
    assert_eq!(server.as_user(7, "GET", "/api/admin/audit", None).status, 403);
}

#[test]
fn skus_are_imported_from_a_csv_all_of_them_or_none() {
    let server = Server::start();
    let send = |csv: &str| {
        let bearer = format!("Bearer {}", token(1, "admin"));
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/csv")];
        server.call("POST", "/api/admin/skus", &headers, csv)
    };
    let made = send("id,title,price\n7,键盘,500\n8,鼠标,\n");
    assert_eq!((made.status, &made.json()["imported"]), (201, &json!(2)));
    assert_eq!(send("id,title\n9,a\n0,b\n").code(), "invalid_request");
    let one = json!({"id": 7, "title": "键盘 2", "price": 600});
    assert_eq!(server.as_admin("POST", "/api/admin/skus", Some(&one)).status, 201);
}

#[test]
fn an_activity_is_published_by_its_schedule_ahead_of_its_start() {
    let server = Server::start();
    let activity = server.activity(&json!({
        "publish": false, "publish_at": "2020-01-01T00:00:00Z", "start_at": "2098-01-01T00:00:00Z",
    }));
    let path = format!("/api/flashsales/{activity}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = server.as_user(7, "GET", &path, None).json();
        if shown["state"] == "not_started" {
            break;
        }
        assert_eq!(shown["state"], "off_sale");
        assert!(Instant::now() < deadline, "never published");
        std::thread::yield_now();
    }
    let listed = server.as_user(7, "GET", "/api/flashsales", None).json();
    assert_eq!(listed["items"][0]["id"], activity);
    assert_eq!(server.buy(7, activity, "a", 1).code(), "not_started");
}
