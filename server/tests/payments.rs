//! Payments on the running binary: opened, called back, late, refunded; and what a provider that
//! misbehaves or a forger can't do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;

use std::time::Instant;

use common::{PATIENCE, Server};
use provider::{
    BANK_SECRET, MOCK_SECRET, Provider, Reply, body, call_back, now, open, refund, send, sign,
    verdict,
};
use serde_json::{Value, json};

/// Buys one unit and opens its payment: the purchase and the payment's number.
fn bought(server: &Server, user: u64, activity: u64, id: &str) -> (Value, String) {
    let accepted = server.buy(user, activity, id, 1).json();
    let opened = open(server, user, &accepted["order_no"]);
    assert_eq!(opened.status, 201, "{opened:?}");
    let payment_no = opened.json()["payment_no"].as_str().unwrap().to_owned();
    (accepted, payment_no)
}

fn order(server: &Server, user: u64, accepted: &Value) -> Value {
    let path = format!("/api/orders/{}", accepted["order_no"].as_str().unwrap());
    server.as_user(user, "GET", &path, None).json()
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
        std::thread::yield_now();
    }
}

fn until_order(server: &Server, user: u64, accepted: &Value, status: &str) {
    until(|| order(server, user, accepted), |order| order["status"] == status);
}

#[test]
fn a_payment_is_opened_once_paid_once_and_seen_by_its_owner() {
    let server = Provider::start().server(&[], &[]);
    let activity = server.activity(&json!({"price": 700, "per_user_limit": 3}));
    let accepted = server.buy(7, activity, "a", 2).json();
    let opened = open(&server, 7, &accepted["order_no"]);
    assert_eq!(opened.status, 201, "{opened:?}");
    let payment = opened.json();
    let payment_no = payment["payment_no"].as_str().unwrap();
    assert_eq!(payment_no, format!("{}01", accepted["order_no"].as_str().unwrap()));
    assert_eq!((&payment["amount"], &payment["channel"]), (&json!(1400), &json!("mock")));
    assert!(payment["expires_at"].as_str() <= accepted["pay_before"].as_str(), "{payment}");
    assert_eq!(open(&server, 7, &accepted["order_no"]).json(), payment, "the same one");

    for (user, order_no, expected) in [
        (8, accepted["order_no"].clone(), (404, "order_not_found")),
        (7, json!("19007199254740991"), (404, "order_not_found")),
        (7, json!("x"), (404, "order_not_found")),
        (7, json!(5), (400, "invalid_request")),
    ] {
        let verdict = open(&server, user, &order_no).verdict();
        assert_eq!(verdict, (expected.0, expected.1.to_owned()), "{user} {order_no}");
    }
    let elsewhere = json!({"order_no": accepted["order_no"], "channel": "none"});
    let elsewhere = server.as_user(7, "POST", "/api/payments", Some(&elsewhere));
    assert_eq!(elsewhere.code(), "invalid_request");
    let other = json!({"order_no": accepted["order_no"], "channel": "bank"});
    let other = server.as_user(7, "POST", "/api/payments", Some(&other));
    assert_eq!(other.verdict(), (409, "payment_in_progress".to_owned()));

    let path = format!("/api/payments/{payment_no}");
    assert_eq!(server.as_user(7, "GET", &path, None).json()["status"], "pending");
    assert_eq!(server.as_user(8, "GET", &path, None).code(), "payment_not_found");
    assert_eq!(server.call("GET", &path, &[], "").status, 401);
    let paid = body(payment_no, "t1", 1400, "paid");
    assert_eq!(verdict(&call_back(&server, &paid)), "accepted");
    assert_eq!(verdict(&call_back(&server, &paid)), "repeated");
    assert_eq!(server.as_user(7, "GET", &path, None).json()["status"], "paid");
    assert_eq!(server.figures(activity), [10, 8, 0, 2]);
    until_order(&server, 7, &accepted, "paid");
    assert_eq!(open(&server, 7, &accepted["order_no"]).code(), "already_paid");
    let cancel = format!("/api/orders/{}/cancel", accepted["order_no"].as_str().unwrap());
    assert_eq!(server.as_user(7, "POST", &cancel, None).code(), "already_paid");
}

#[test]
fn a_callback_that_is_not_its_channels_is_401_and_changes_nothing() {
    let mut server = Provider::start().server(&[], &[]);
    let activity = server.activity(&json!({"price": 700}));
    let (_, payment_no) = bought(&server, 7, activity, "a");
    let (paid, at) = (body(&payment_no, "t1", 700, "paid"), now());
    let good = sign(MOCK_SECRET, at, &paid);
    for (channel, timestamp, signature) in [
        ("mock", at, sign(BANK_SECRET, at, &paid)),
        ("bank", at, good.clone()),
        ("none", at, good.clone()),
        ("mock", at + 1, good.clone()),
        ("mock", at - 400, sign(MOCK_SECRET, at - 400, &paid)),
        ("mock", at + 400, sign(MOCK_SECRET, at + 400, &paid)),
        ("mock", at, sign(MOCK_SECRET, at, &(paid.clone() + " "))),
        ("mock", at, String::new()),
        ("mock", at, "0".repeat(64)),
    ] {
        let answer = send(&server, channel, timestamp, &signature, &paid);
        assert_eq!(answer.verdict(), (401, "bad_signature".to_owned()), "{channel} {timestamp}");
    }
    let path = "/api/payments/callback/mock";
    let bare = server.call("POST", path, &[("Content-Type", "application/json")], &paid);
    assert_eq!(bare.code(), "bad_signature");
    let twice = [("X-Timestamp", "1"), ("X-Signature", &good), ("X-Signature", &good)];
    assert_eq!(server.call("POST", path, &twice, &paid).code(), "bad_signature");
    let large = body(&payment_no, &"t".repeat(5000), 700, "paid");
    assert_eq!(call_back(&server, &large).code(), "payload_too_large");
    for bad in ["", "[]", "{}", &paid.replace("700", "-1"), &paid.replace("paid", "maybe")] {
        assert_eq!(call_back(&server, bad).code(), "invalid_request", "{bad}");
    }
    assert_eq!(server.figures(activity), [10, 9, 1, 0]);
    let metrics = server.call("GET", "/metrics", &[], "").body;
    assert!(metrics.contains("sluice_payment_callbacks_forged_total 11"), "{metrics}");
    assert_eq!(send(&server, "mock", at, &good, &paid).status, 200);
    let said = server.said().join("\n");
    for secret in [MOCK_SECRET, BANK_SECRET, common::SECRET, &good] {
        assert!(!said.contains(secret), "a secret in the log");
    }
}

#[test]
fn money_that_fits_nothing_is_recorded_flagged_and_never_an_order() {
    let server = Provider::start().server(&[], &[]);
    let activity = server.activity(&json!({"price": 700}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    let foreign = format!("{}02", accepted["order_no"].as_str().unwrap());
    for (payment_no, transaction, amount, status, expected) in [
        (payment_no.as_str(), "t1", 699, "paid", "wrong_amount"),
        (&payment_no, "t1", 700, "paid", "repeated"),
        (&foreign, "t2", 700, "paid", "unknown"),
        ("nobody's", "t3", 700, "paid", "unknown"),
        (&payment_no, "t4", 0, "failed", "failed"),
        (&payment_no, "t4", 700, "paid", "accepted"),
    ] {
        let told = call_back(&server, &body(payment_no, transaction, amount, status));
        assert_eq!(verdict(&told), expected, "{payment_no} {transaction}");
    }
    assert_eq!(server.figures(activity), [10, 9, 0, 1]);
    until_order(&server, 7, &accepted, "paid");
    let rows = "SELECT COUNT(*) FROM payment_callbacks WHERE verdict IN \
                ('wrong_amount', 'repeated', 'unknown', 'failed', 'accepted')";
    until(|| books::count(server.data_dir(), rows).into(), |count| *count == 6);
    let list =
        |query: &str| server.as_admin("GET", &format!("/api/admin/callbacks{query}"), None).json();
    let flagged = list("?flagged=true");
    assert_eq!(flagged["total"], 3, "{flagged}");
    let verdicts: Vec<_> =
        flagged["items"].as_array().unwrap().iter().map(|it| it["verdict"].clone()).collect();
    assert_eq!(verdicts, ["unknown", "unknown", "wrong_amount"]);
    let newest = &flagged["items"][0];
    assert_eq!((&newest["payment_no"], &newest["flagged"]), (&json!("nobody's"), &json!(true)));
    assert!(newest["body"].as_str().unwrap().contains("\"t3\""), "{newest}");
    assert_eq!(list("?flagged=false")["total"], 3);
    assert_eq!(list(&format!("?payment_no={payment_no}"))["total"], 4);
    assert_eq!(list("?page=2&page_size=4")["items"].as_array().unwrap().len(), 2);
    for path in ["/api/admin/callbacks", "/api/admin/refunds"] {
        assert_eq!(server.as_user(7, "GET", path, None).code(), "forbidden", "{path}");
    }
    for path in ["/api/admin/callbacks?flagged=1", "/api/admin/refunds?status=lost"] {
        assert_eq!(server.as_admin("GET", path, None).code(), "invalid_request", "{path}");
    }
}

#[test]
fn copies_of_one_signed_callback_do_not_fill_the_log() {
    let server = Provider::start().server(&[], &[]);
    let activity = server.activity(&json!({"price": 700}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    let (paid, at) = (body(&payment_no, "t1", 700, "paid"), now());
    let signature = sign(MOCK_SECRET, at, &paid);
    let verdicts: Vec<_> =
        (0..20).map(|_| verdict(&send(&server, "mock", at, &signature, &paid))).collect();
    assert_eq!(verdicts[0], "accepted");
    assert!(verdicts[1..].iter().all(|verdict| verdict == "repeated"), "{verdicts:?}");
    until_order(&server, 7, &accepted, "paid");
    let (_, other) = bought(&server, 8, activity, "b");
    assert_eq!(verdict(&call_back(&server, &body(&other, "t2", 700, "paid"))), "accepted");
    let rows = "SELECT COUNT(*) FROM payment_callbacks";
    until(|| books::count(server.data_dir(), rows).into(), |count| *count == 4);
}

#[test]
fn late_money_brings_the_order_back_or_goes_back_itself() {
    let provider = Provider::start();
    let server = provider.server(&[], &[]);
    let activity = server.activity(&json!({"price": 700, "stock": 1}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    let cancel = format!("/api/orders/{}/cancel", accepted["order_no"].as_str().unwrap());
    assert_eq!(server.as_user(7, "POST", &cancel, None).status, 200);
    assert_eq!(server.figures(activity), [1, 1, 0, 0]);
    assert_eq!(verdict(&call_back(&server, &body(&payment_no, "t1", 700, "paid"))), "accepted");
    assert_eq!(server.figures(activity), [1, 0, 0, 1]);
    until_order(&server, 7, &accepted, "paid");

    let activity = server.activity(&json!({"price": 700, "stock": 1}));
    let (late, payment_no) = bought(&server, 7, activity, "a");
    let cancel = format!("/api/orders/{}/cancel", late["order_no"].as_str().unwrap());
    assert_eq!(server.as_user(7, "POST", &cancel, None).status, 200);
    assert_eq!(server.buy(8, activity, "b", 1).status, 202, "the unit is another's now");
    let told = call_back(&server, &body(&payment_no, "t2", 700, "paid"));
    assert_eq!(verdict(&told), "late");
    let refund_no = told.json()["refund_no"].as_str().unwrap().to_owned();
    let asked = until(|| provider.asked().into(), |asked| asked.as_array().unwrap().len() == 1);
    assert_eq!(asked[0]["amount"], 700);
    assert_eq!(asked[0]["transaction_no"], "t2");
    assert_eq!(asked[0]["refund_no"], format!("{payment_no}-{refund_no}"));
    until_order(&server, 7, &late, "cancelled");
    assert_eq!(server.figures(activity), [1, 0, 1, 0]);
    let settled = "SELECT COUNT(*) FROM refunds WHERE status = 'SETTLED' AND scope = 'payment'";
    until(|| books::count(server.data_dir(), settled).into(), |count| *count == 1);
}

#[test]
fn an_unpaid_order_times_out_and_its_money_may_still_come() {
    let server = Provider::start().server(&[], &[]);
    let activity = server.activity(&json!({"price": 700, "payment_ttl": "1s"}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    until_order(&server, 7, &accepted, "timeout");
    assert_eq!(verdict(&call_back(&server, &body(&payment_no, "t1", 700, "paid"))), "accepted");
    until_order(&server, 7, &accepted, "paid");
    assert_eq!(server.figures(activity), [10, 9, 0, 1]);
}

#[test]
fn a_refund_is_asked_for_until_the_provider_settles_it_and_moves_what_was_asked() {
    let provider = Provider::start();
    let server = provider.server(&[], &[]);
    let activity = server.activity(&json!({"price": 700, "stock": 2}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    let wanted = json!({"refund_no": "r1", "restock": true, "free_limit": true, "reason": "坏"});
    assert_eq!(refund(&server, &payment_no, &wanted).verdict(), (409, "not_paid".to_owned()));
    call_back(&server, &body(&payment_no, "t1", 700, "paid"));
    until_order(&server, 7, &accepted, "paid");

    provider.will([Reply::Status(500), Reply::Garbage]);
    let told = refund(&server, &payment_no, &wanted);
    assert_eq!((told.status, &told.json()["status"]), (202, &json!("requested")), "{told:?}");
    until_order(&server, 7, &accepted, "refunding");
    let path = format!("/api/payments/{payment_no}");
    let shown = server.as_user(7, "GET", &path, None).json();
    assert_eq!((&shown["status"], &shown["refund"]), (&json!("paid"), &json!("requested")));
    let other = json!({"refund_no": "r2"});
    assert_eq!(refund(&server, &payment_no, &other).code(), "refund_in_progress");
    let changed = json!({"refund_no": "r1", "restock": false});
    assert_eq!(refund(&server, &payment_no, &changed).code(), "request_id_reused");
    let refunds = |status: &str| {
        server.as_admin("GET", &format!("/api/admin/refunds?status={status}"), None).json()
    };
    let sent = || refunds("sent");
    until(sent, |list| list["total"] == 1 && list["items"][0]["refund_no"] == "r1");
    until_order(&server, 7, &accepted, "refunded");
    let settled = || refunds("settled");
    until(settled, |list| list["total"] == 1 && list["items"][0]["amount"] == 700);
    assert_eq!(refunds("open")["total"], 0);

    let asked = provider.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked.iter().all(|ask| *ask == asked[0]), "always the same question: {asked:?}");
    let again = refund(&server, &payment_no, &wanted);
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("settled")));
    assert_eq!(refund(&server, &payment_no, &other).code(), "already_refunded");
    assert_eq!(server.figures(activity), [2, 2, 0, 0]);
    assert_eq!(server.buy(7, activity, "b", 1).status, 202, "and may buy again");
}

#[test]
fn a_refund_that_is_refused_leaves_the_order_paid_and_raises_an_alarm() {
    let provider = Provider::start();
    let mut server = provider.server(&[], &[]);
    let activity = server.activity(&json!({"price": 700}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    call_back(&server, &body(&payment_no, "t1", 700, "paid"));
    provider.will([Reply::Refused]);
    assert_eq!(refund(&server, &payment_no, &json!({"refund_no": "r1"})).status, 202);
    let path = format!("/api/payments/{payment_no}");
    let payment = || server.as_user(7, "GET", &path, None).json();
    until(payment, |payment| payment["refund"] == "failed");
    until_order(&server, 7, &accepted, "paid");
    assert_eq!(server.figures(activity), [10, 9, 0, 1]);
    let again = refund(&server, &payment_no, &json!({"refund_no": "r2"}));
    assert_eq!(again.status, 202, "{again:?}");
    until_order(&server, 7, &accepted, "refunded");
    assert_eq!(server.figures(activity), [10, 9, 0, 1], "sold, and nobody's");
    server.error_with("refused by its provider");
}

#[test]
fn a_refund_outlives_the_server_and_is_asked_for_under_the_same_number() {
    let provider = Provider::start();
    let data_dir = shop::scratch();
    let providers = format!("mock=http://{}/refunds", provider.address);
    let secrets = provider::secrets();
    let env = [
        ("SLUICE_PAYMENTS__SECRETS", secrets.as_str()),
        ("SLUICE_PAYMENTS__PROVIDERS", &providers),
    ];
    let server = Server::start_in(data_dir.path(), &[], &env);
    let activity = server.activity(&json!({"price": 700}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    call_back(&server, &body(&payment_no, "t1", 700, "paid"));
    provider.will([Reply::HangUp]);
    assert_eq!(refund(&server, &payment_no, &json!({"refund_no": "r1"})).status, 202);
    until(|| provider.asked().into(), |asked| !asked.as_array().unwrap().is_empty());
    drop(server);
    let server = Server::start_in(data_dir.path(), &[], &env);
    until_order(&server, 7, &accepted, "refunded");
    let asked = provider.asked();
    assert!(asked.len() >= 2 && asked.iter().all(|ask| *ask == asked[0]), "{asked:?}");
}

#[test]
fn without_sql_payments_and_refunds_go_on() {
    let provider = Provider::start();
    let server = provider.server(&["--database", "sqlite:/nonexistent/orders.db"], &[]);
    let activity = server.activity(&json!({"price": 700}));
    let (accepted, payment_no) = bought(&server, 7, activity, "a");
    assert_eq!(verdict(&call_back(&server, &body(&payment_no, "t1", 700, "paid"))), "accepted");
    assert_eq!(order(&server, 7, &accepted)["status"], "paid");
    assert_eq!(refund(&server, &payment_no, &json!({"refund_no": "r1"})).status, 202);
    let path = format!("/api/payments/{payment_no}");
    let payment = || server.as_user(7, "GET", &path, None).json();
    until(payment, |payment| payment["refund"] == "settled");
    assert_eq!(provider.asked().len(), 1);
}
