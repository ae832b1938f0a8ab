//! An activity a day after its end: it leaves the engine's memory, and SQL answers for it: queries,
//! replays, orders, late money and refunds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;

use std::path::Path;
use std::time::Instant;

use common::resp::{Client, Reply, request};
use common::{Answer, PATIENCE, Server, token};
use mariadb::MariaDb;
use provider::{Provider, body, call_back, open, refund, secrets, verdict};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

/// In the window of [`over`]'s activity, Unix milliseconds.
const THEN_MS: u64 = 1_577_900_000_000;

fn start(provider: &Provider, data_dir: &Path, database: Option<&str>) -> Server {
    let providers = format!("mock=http://{}/refunds", provider.address);
    let secrets = secrets();
    let env = [
        ("SLUICE_PAYMENTS__SECRETS", secrets.as_str()),
        ("SLUICE_PAYMENTS__PROVIDERS", &providers),
        ("SLUICE_HTTP__REPLAYS_PER_CONNECTION", "3/1h"),
    ];
    let mut args = vec!["--resp-listen", "127.0.0.1:0", "--test-clock"];
    args.extend(database.into_iter().flat_map(|database| ["--database", database]));
    Server::start_in(data_dir, &args, &env)
}

/// Buys a unit of a sale that is long over, and opens its payment.
fn sold(server: &Server, user: u64, activity: u64) -> (u64, String, String) {
    let call = format!("FCALL sluice_reserve 1 {activity} {user} once 1 {THEN_MS}");
    let Reply::Array(reply) = Client::to(server.resp()).say(&call) else {
        panic!("no reservation")
    };
    let [_, Reply::Integer(id), Reply::Bulk(order_no), _] = &reply[..] else { panic!("{reply:?}") };
    let opened = open(server, user, &json!(order_no));
    let payment_no = opened.json()["payment_no"].as_str().unwrap().to_owned();
    (u64::try_from(*id).unwrap(), order_no.clone(), payment_no)
}

/// Asks until `is_there`.
fn until(mut ask: impl FnMut() -> Value, is_there: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if is_there(&answer) {
            return;
        }
        assert!(Instant::now() < deadline, "not in time: {answer}");
        std::thread::yield_now();
    }
}

/// The purchase `id`.
fn purchase(server: &Server, user: u64, id: u64, query: &str) -> Answer {
    server.as_user(user, "GET", &format!("/api/flashsales/purchases/{id}{query}"), None)
}

fn cancel(server: &Server, user: u64, order_no: &str) -> Answer {
    server.as_user(user, "POST", &format!("/api/orders/{order_no}/cancel"), None)
}

/// A sale of 2020 in which user 7 has paid and user 8 has cancelled, archived by a server that
/// still runs.
struct Over {
    provider: Provider,
    data_dir: tempfile::TempDir,
    server: Server,
    activity: u64,
    paid: (u64, String, String),
    gone: (u64, String, String),
}

fn over(database: Option<&str>) -> Over {
    let (provider, data_dir) = (Provider::start(), shop::scratch());
    let mut server = start(&provider, data_dir.path(), database);
    let activity = server.activity(&json!({
        "price": 700, "start_at": "2020-01-01T00:00:00Z", "end_at": "2020-01-02T00:00:00Z",
        "title": "去年的键盘",
    }));
    let paid = sold(&server, 7, activity);
    let gone = sold(&server, 8, activity);
    assert_eq!(verdict(&call_back(&server, &body(&paid.2, "t7", 700, "paid"))), "accepted");
    assert_eq!(cancel(&server, 8, &gone.1).status, 200);
    assert_eq!(purchase(&server, 7, paid.0, "?wait=30s").json()["status"], "ordered");
    assert!(server.stop().success());
    let server = start(&provider, data_dir.path(), database);
    let detail = format!("/api/flashsales/{activity}");
    let shown = || server.as_user(7, "GET", &detail, None).json();
    until(shown, |shown| shown["state"] == "archived");
    assert_eq!((&shown()["title"], &shown()["held"]), (&json!("去年的键盘"), &json!(1)));
    Over { provider, data_dir, server, activity, paid, gone }
}

/// Asks over the Redis port what a back end asks again.
fn called_again(over: &Over) {
    let Over { server, activity, paid, gone, .. } = over;
    let (activity, number) = (*activity, |id: u64| i64::try_from(id).unwrap());
    let mut client = Client::to(server.resp());
    let mut call = |line: String| client.say(&format!("FCALL {line}"));
    let replayed = Reply::purchase(2, number(paid.0), &paid.1, 0);
    let refused = |code| Reply::purchase(code, 0, "", 0);
    for (line, expected) in [
        (format!("sluice_reserve 1 {activity} 7 once 1"), replayed.clone()),
        (format!("sluice_reserve 1 {activity} 7 once 1 {THEN_MS}"), replayed.clone()),
        (format!("sluice_reserve 1 {activity} 7 once 2"), refused(-6)),
        (format!("sluice_reserve 1 {activity} 7 new 1"), refused(-1)),
        (format!("sluice_confirm 1 {activity} {} {}", paid.0, paid.2), Reply::Integer(2)),
        (format!("sluice_confirm 1 {activity} {} another", paid.0), Reply::Integer(3)),
        (format!("sluice_confirm 1 {activity} {} late", gone.0), Reply::Integer(-1)),
        (format!("sluice_confirm 1 {activity} {} none", gone.0 + 1), Reply::Integer(0)),
        (format!("sluice_confirm 1 9 {} {}", paid.0, paid.2), Reply::Integer(0)),
        (format!("sluice_restore 1 {activity} {}", paid.0), Reply::Integer(3)),
        (format!("sluice_restore 1 {activity} {}", gone.0), Reply::Integer(2)),
        (format!("sluice_restore 1 {activity} {}", gone.0 + 1), Reply::Integer(0)),
        (format!("sluice_publish 1 {activity}"), Reply::Integer(0)),
    ] {
        assert_eq!(call(line.clone()), expected, "{line}");
    }
    let map = |told: Reply| match told {
        Reply::Array(fields) => fields,
        other => panic!("{other:?}"),
    };
    let seen = map(call(format!("sluice_get 1 {activity} {}", paid.0)));
    for word in ["confirmed", &paid.1, &paid.2] {
        assert!(seen.contains(&Reply::bulk(word)), "{word} in {seen:?}");
    }
    assert!(map(call(format!("sluice_activity 1 {activity}"))).contains(&Reply::bulk("sold")));
    assert_eq!(map(call(format!("sluice_get 1 {activity} {}", gone.0 + 1))), []);

    // Answers keep the order of their requests, whoever gives them.
    let again = format!("FCALL sluice_reserve 1 {activity} 7 once 1");
    let lines = ["PING", &again, "ECHO a", &again, "ECHO b"];
    let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    let pipelined: Vec<u8> = words.iter().flat_map(|words| request(words)).collect();
    client.send(pipelined);
    let told: Vec<_> = lines.iter().map(|_| client.reply().unwrap()).collect();
    let pong = Reply::Simple("PONG".to_owned());
    let expected = [pong, replayed.clone(), Reply::bulk("a"), replayed, Reply::bulk("b")];
    assert_eq!(told, expected);
    // A peer that has said all it had to say is answered before it is let go.
    client.send(request(&again.split(' ').collect::<Vec<_>>()));
    client.socket().shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(client.reply(), Some(Reply::Array(_))));
    assert!(client.is_closed());
}

#[test]
fn what_is_archived_is_answered_from_sql_and_without_it_not_at_all() {
    let over = over(None);
    looked_at(&over);
    called_again(&over);
    let Over { provider, data_dir, server, activity, paid, gone } = over;
    drop(server);
    let server = start(&provider, data_dir.path(), Some("sqlite:/nonexistent/orders.db"));
    let without = (503, "database_unavailable".to_owned());
    assert_eq!(purchase(&server, 7, paid.0, "").verdict(), without);
    assert_eq!(server.buy(7, activity, "once", 1).verdict(), without);
    let mut client = Client::to(server.resp());
    for line in [
        format!("sluice_reserve 1 {activity} 7 once 1"),
        format!("sluice_confirm 1 {activity} {} {}", paid.0, paid.2),
        format!("sluice_get 1 {activity} {}", paid.0),
    ] {
        let told = client.say(&format!("FCALL {line}"));
        assert_eq!(told.word(), "DATABASEUNAVAILABLE", "{line}");
    }
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    let list = server.as_admin("GET", "/api/admin/flashsales", None).json();
    assert_eq!((&list["archived"], &list["items"]), (&json!(1), &json!([])));
    assert_eq!(refund(&server, &paid.2, &json!({"refund_no": "r3"})).verdict(), without);
    assert_eq!(call_back(&server, &body(&gone.2, "t11", 700, "paid")).verdict(), without);
}

/// Asks for everything that can be asked of what is over.
fn looked_at(over: &Over) {
    let Over { server, activity, paid, gone, .. } = over;
    let activity = *activity;
    assert_eq!(server.figures(activity), [10, 9, 0, 1]);
    let mine = purchase(server, 7, paid.0, "").json();
    assert_eq!((&mine["status"], &mine["order_no"]), (&json!("ordered"), &json!(paid.1)));
    assert_eq!(purchase(server, 8, paid.0, "").code(), "purchase_not_found");
    let back = purchase(server, 8, gone.0, "").json();
    assert_eq!((&back["status"], &back["reason"]), (&json!("rolled_back"), &json!("cancelled")));

    let replayed = server.buy(7, activity, "once", 1);
    assert_eq!((replayed.status, replayed.header("idempotency-replayed")), (202, Some("true")));
    assert_eq!(replayed.json()["pre_deduction_id"], paid.0);
    assert_eq!(server.buy(7, activity, "once", 2).code(), "request_id_reused");
    assert_eq!(server.buy(7, activity, "new", 1).code(), "ended");
    stopped(over);
    operated(over);
    assert_eq!(cancel(server, 7, &paid.1).code(), "already_paid");
    assert_eq!(cancel(server, 8, &gone.1).json()["status"], "rolled_back");
    assert_eq!(open(server, 7, &json!(paid.1)).code(), "already_paid");
    assert_eq!(open(server, 8, &json!(gone.1)).code(), "already_rolled_back");
    assert_eq!(open(server, 9, &json!(gone.1)).code(), "order_not_found");
}

/// The order of checks is that of a live activity: a replay, the kill switch, and then its end.
fn stopped(over: &Over) {
    let Over { server, activity, paid, .. } = over;
    let switch = |name: &str| {
        assert_eq!(server.as_admin("POST", &format!("/api/admin/{name}"), None).status, 204);
    };
    switch("stop");
    assert_eq!(server.buy(7, *activity, "new", 1).code(), "paused");
    assert_eq!(server.buy(7, *activity, "once", 1).json()["pre_deduction_id"], paid.0);
    let new = format!("FCALL sluice_reserve 1 {activity} 7 new 1");
    assert_eq!(Client::to(server.resp()).say(&new), Reply::purchase(-4, 0, "", 0));
    switch("start");
    let mut connection = server.connect();
    let bearer = format!("Bearer {}", token(7, "user"));
    let headers = [("Authorization", bearer.as_str())];
    let path = format!("/api/flashsales/{activity}/purchase");
    let body = "{\"client_request_id\":\"once\"}";
    let mut click = || connection.call("POST", &path, &headers, body).status;
    let clicks: Vec<u16> = (0..4).map(|_| click()).collect();
    assert_eq!(clicks, [202, 202, 202, 429], "repeats are bounded by connection");
}

/// What operators do again, and what they see.
fn operated(over: &Over) {
    let Over { server, activity, paid, gone, .. } = over;
    let path = format!("/api/admin/flashsales/{activity}");
    for (method, what, body) in [
        ("POST", "/publish", None),
        ("POST", "/pause", None),
        ("PUT", "", Some(json!({"title": "x"}))),
    ] {
        let told = server.as_admin(method, &format!("{path}{what}"), body.as_ref());
        assert_eq!(told.verdict(), (409, "ended".to_owned()), "{method} {what}");
    }
    let release =
        |id: u64| server.as_admin("POST", &format!("/api/admin/reservations/{id}/release"), None);
    assert_eq!(release(gone.0).json()["reason"], "cancelled", "asked again, the same");
    assert_eq!(release(paid.0).code(), "already_paid");
    assert_eq!(release(gone.0 + 1).code(), "purchase_not_found");
    let retry = format!("/api/admin/dead-letters/{}/retry", paid.0);
    assert_eq!(server.as_admin("POST", &retry, None).code(), "dead_letter_not_found");
    let list = server.as_admin("GET", "/api/admin/flashsales", None).json();
    let listed = &list["items"][0];
    assert_eq!((&listed["id"], &listed["state"]), (&json!(activity), &json!("archived")));
    assert_eq!((&listed["sold"], &list["archived"]), (&json!(1), &json!(1)));
}

#[test]
fn the_money_of_what_is_archived_finds_its_way_and_moves_no_unit() {
    let over = over(None);
    money_moved(&over, &|status| {
        let rows = match status {
            "SENT" => "SELECT COUNT(*) FROM refunds WHERE status = 'SENT'",
            _ => "SELECT COUNT(*) FROM refunds WHERE status = 'SETTLED'",
        };
        books::count(over.data_dir.path(), rows)
    });
}

#[test]
fn all_of_it_holds_in_mariadb() {
    let database = MariaDb::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let count = |name: &str, text: String| -> i64 {
        runtime.block_on(async {
            let mut connection = MySqlConnection::connect(&database.url(name)).await.unwrap();
            sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut connection).await.unwrap()
        })
    };
    runtime.block_on(async {
        let mut connection = MySqlConnection::connect(&database.url("mysql")).await.unwrap();
        sqlx::query("CREATE DATABASE shop").execute(&mut connection).await.unwrap();
    });
    let over = over(Some(&database.url("shop")));
    looked_at(&over);
    money_moved(&over, &|status| {
        count("shop", format!("SELECT COUNT(*) FROM refunds WHERE status = '{status}'"))
    });
    let audit = over.server.as_admin("GET", "/api/admin/audit?action=refund", None).json();
    assert_eq!((&audit["total"], &audit["items"][0]["subject"]), (&json!(1), &json!("r1")));
    let export = over.server.as_admin("GET", "/api/admin/orders.csv", None);
    assert_eq!(export.status, 200, "{export:?}");
}

/// Late, second and wrong money, and a refund; `refunds` counts rows by their status.
fn money_moved(over: &Over, refunds: &dyn Fn(&str) -> i64) {
    let Over { provider, server, activity, paid, gone, .. } = over;
    let (activity, (_, paid_order, paid), (_, _, gone)) = (*activity, paid, gone);
    for (payment_no, transaction, amount, expected) in [
        (gone, "t8", 700, "late"),
        (gone, "t8", 700, "repeated"),
        (paid, "t7", 700, "repeated"),
        (paid, "t9", 700, "second_payment"),
        (paid, "t10", 1, "wrong_amount"),
    ] {
        let told = call_back(server, &body(payment_no, transaction, amount, "paid"));
        assert_eq!(verdict(&told), expected, "{transaction}");
    }
    let wanted = json!({"refund_no": "r1", "restock": true, "reason": "late"});
    assert_eq!(refund(server, gone, &wanted).code(), "not_paid");
    until(|| refunds("SETTLED").into(), |count| *count == 2);
    provider.will([provider::Reply::Status(500), provider::Reply::HangUp]);
    assert_eq!(refund(server, paid, &wanted).status, 202);
    until(|| refunds("SENT").into(), |count| *count == 1);
    let order = format!("/api/orders/{paid_order}");
    let order = || server.as_user(7, "GET", &order, None).json();
    until(order, |order| order["status"] == "refunded");
    assert_eq!(refund(server, paid, &wanted).json()["status"], "settled");
    let other = refund(server, paid, &json!({"refund_no": "r2"}));
    assert_eq!(other.code(), "already_refunded");
    let payment = server.as_user(7, "GET", &format!("/api/payments/{paid}"), None).json();
    assert_eq!((&payment["status"], &payment["refund"]), (&json!("paid"), &json!("settled")));
    until(|| refunds("SETTLED").into(), |count| *count == 3);
    assert_eq!(provider.asked().len(), 5);
    assert_eq!(server.figures(activity), [10, 9, 0, 1], "what is over moves no unit");
}
