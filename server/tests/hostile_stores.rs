//! Rows in SQL and keys in Redis that somebody else wrote, texts made to break out of a statement,
//! and a database that is not to be used: a clear line, nothing stuck, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/front.rs"]
mod front;
#[path = "common/line.rs"]
mod line;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/market.rs"]
mod market;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;
#[path = "common/stores.rs"]
mod stores;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use serde_json::{Value, json};

use common::{Server, sluice};
use mariadb::MariaDb;
use market::{Market, Sale};
use shop::scratch;

const SALE: Sale = Sale { units: 12, shoppers: 16, times_out: false, poisoned: None, seed: 3 };

/// Texts that look alike, break quoting, end strings early or need four bytes.
const HOSTILE: [&str; 8] = [
    "'); DROP TABLE orders; -- ",
    "' OR '1'='1",
    "\\'; DELETE FROM orders; #",
    "a\u{0}b",
    "👟限量🎉",
    "x\u{202e}y",
    "%s%n{}${jndi:ldap://h}",
    "FLUSHALL\r\nDEL flashsale:stock:1",
];

#[test]
fn texts_made_to_break_out_arrive_as_they_were_sent() {
    let database = MariaDb::start();
    let valkey = valkey::Valkey::start();
    market::statement(&database, "CREATE DATABASE shop");
    let url = database.url("shop");
    let mut server = Server::start_with(&["--database", &url, "--redis", &valkey.url(0)], &[]);
    let per_user = HOSTILE.len();
    // Titles and addresses are lines of text; request ids may be anything.
    let is_line = |text: &&&str| !text.contains(['\u{0}', '\r']);
    for title in HOSTILE.iter().filter(is_line) {
        let address = json!({
            "receiver": title, "phone": "+86 138 0000 0000", "province": title, "city": title,
            "district": title, "detail": title,
        });
        let put = server.as_user(7, "PUT", "/api/addresses/default", Some(&address));
        assert_eq!(put.status, 200, "{title:?}: {}", put.body);
        let activity = server.activity(&json!({"title": title, "per_user_limit": per_user}));
        let accepted: Vec<_> = HOSTILE.map(|id| server.buy(7, activity, id, 1)).into();
        for (id, accepted) in HOSTILE.iter().zip(&accepted) {
            assert_eq!(accepted.status, 202, "{id:?}: {}", accepted.body);
            let again = server.buy(7, activity, id, 1);
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{id:?}");
            let accepted = accepted.json();
            let path =
                format!("/api/flashsales/purchases/{}?wait=30s", accepted["pre_deduction_id"]);
            assert_eq!(server.as_user(7, "GET", &path, None).json()["status"], "ordered", "{id:?}");
            let path = format!("/api/orders/{}", accepted["order_no"].as_str().unwrap());
            let order = server.as_user(7, "GET", &path, None).json();
            assert_eq!(order["address"], address);
            assert_eq!(order["items"][0]["title"], json!(title));
        }
        let stock = format!("flashsale:stock:{activity}");
        valkey::wait_for(|| {
            let left: Option<String> = valkey::say(&mut valkey.connect(0), &format!("GET {stock}"));
            left.as_deref() == Some("2")
        });
    }
    assert!(server.stop().success());
}

#[test]
fn keys_of_another_kind_or_value_are_written_right_again() {
    let market = Market::open();
    let activity = market.open_sale(&SALE);
    market.shop(activity, &SALE, |progress| {
        progress.wait(4);
        let stock = format!("flashsale:stock:{activity}");
        // Each at once: the mirror writes meanwhile.
        market.redis("RPUSH strange:list 1 2 3");
        market.redis(&format!("RENAME strange:list {stock}"));
        market.redis("HSET strange:hash lsn many uuid none");
        market.redis("RENAME strange:hash sluice:cursor");
        market.redis(&format!("SET flashsale:count:{activity}:1 99999999999999999999"));
    });
    market.assert_agreed(activity, &SALE, "keys of somebody else");
    market.close();
}

#[test]
fn a_row_of_somebody_else_halts_the_orders_and_names_it_but_not_the_sale() {
    let database = MariaDb::start();
    market::statement(&database, "CREATE DATABASE shop");
    let url = database.url("shop");
    let mut server = Server::start_with(&["--database", &url], &[]);
    let activity = server.activity(&json!({"per_user_limit": 5}));
    let first = server.buy(7, activity, "a", 1).json();
    let settled = |accepted: &Value, wait: &str| {
        let path =
            format!("/api/flashsales/purchases/{}?wait={wait}", accepted["pre_deduction_id"]);
        server.as_user(7, "GET", &path, None).json()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(settled(&first, "30s"), "ordered");
    let number =
        |accepted: &Value| -> u64 { accepted["order_no"].as_str().unwrap().parse().unwrap() };
    let foreign = number(&first) + 1;
    market::statement(
        &database,
        &format!(
            "INSERT INTO shop.orders (order_no, user_id, order_type, status, activity_id, \
             purchase_slot, total_amount, pay_amount, expire_at, created_at, updated_at) \
             VALUES ('{foreign}', 9, 'seckill', 'paid', {activity}, 1, 1, 1, 1, 1, 1)"
        ),
    );
    let second = server.buy(7, activity, "b", 1);
    assert_eq!(second.status, 202, "the sale goes on");
    assert_eq!(number(&second.json()), foreign);
    valkey::wait_for(|| {
        let metrics = server.call("GET", "/metrics", &[], "").body;
        metrics.contains("sluice_bridge_halted 1")
    });
    assert_eq!(server.buy(7, activity, "c", 1).status, 202, "and on");
    assert_eq!(settled(&second.json(), "0s"), "pending_order");
    let said = server.said();
    let named = said.iter().filter(|line| line.contains(&foreign.to_string())).count();
    assert!(named > 0, "{said:?}");
}

/// A start on a database that is not to be used: what makes it so, and what is said.
const UNUSABLE: [(&str, &str); 2] = [
    (
        "INSERT INTO shop._sqlx_migrations (version, description, success, checksum, \
         execution_time) VALUES (9999, 'later', TRUE, x'00', 0)",
        "schema version 9999",
    ),
    ("CREATE TABLE shop.notes (id INT)", "notes"),
];

#[test]
fn a_database_of_another_version_or_with_foreign_tables_is_refused_with_3_and_its_name() {
    let database = MariaDb::start();
    for (unusable, words) in UNUSABLE {
        market::statement(&database, "DROP DATABASE IF EXISTS shop");
        market::statement(&database, "CREATE DATABASE shop");
        let url = database.url("shop");
        let scratch = scratch();
        let data_dir = scratch.path().join("data");
        let mut server = Server::start_in(&data_dir, &["--database", &url], &[]);
        server.activity(&json!({}));
        assert!(server.stop().success());
        market::statement(&database, unusable);
        let output = sluice(["serve", "--listen", "127.0.0.1:0", "--database", &url])
            .arg("--data-dir")
            .arg(&data_dir)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("sluice: ") && last.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_database_that_may_not_be_written_keeps_nobody_from_buying_and_gets_all_once_it_may() {
    let database = MariaDb::start();
    for sql in [
        "CREATE DATABASE shop",
        "CREATE USER poor IDENTIFIED BY 'secret'",
        "GRANT SELECT ON shop.* TO poor",
    ] {
        market::statement(&database, sql);
    }
    let url = database.url_of("poor:secret", "shop");
    let mut server = Server::start_with(&["--database", &url], &[]);
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "a", 1).json();
    assert_eq!(accepted["status"], "pending_order");
    let why = server.error_with("ALL PRIVILEGES");
    assert!(!why.contains("secret"), "{why}");
    market::statement(&database, "GRANT ALL ON shop.* TO poor");
    let path = format!("/api/flashsales/purchases/{}?wait=30s", accepted["pre_deduction_id"]);
    assert_eq!(server.as_user(7, "GET", &path, None).json()["status"], "ordered");
    assert!(server.stop().success());
}
