//! A rush whose orders go into a real MariaDB, which dies in the middle of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

use common::{Server, sluice};
use mariadb::MariaDb;
use shop::{Shop, scratch};

/// The demo's activity and its units.
const ACTIVITY: u64 = 30_001;
const UNITS: u64 = 1_000;

/// Shoppers, each of whom gets a unit; one half comes while the database is down.
const SHOPPERS: usize = 500;
const CONNECTIONS: usize = 16;

/// The first column of every row, as text.
fn query(database: &MariaDb, name: &str, sql: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = MySqlConnection::connect(&database.url(name)).await.unwrap();
        let sql = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
        sql.fetch_all(&mut connection).await.unwrap()
    })
}

#[test]
fn a_rush_into_a_database_that_dies_makes_every_order_once() {
    let database = MariaDb::start();
    query(&database, "mysql", "CREATE DATABASE shop");
    let data_dir = scratch();
    let url = database.url("shop");
    let mut server = Server::start_in(data_dir.path(), &["--demo", "--database", &url], &[]);
    let tokens = shop::tokens(data_dir.path(), 1, SHOPPERS);
    let admin = shop::admin_token(data_dir.path());
    let shop = Shop::new(server.address, ACTIVITY, tokens);
    let (early, late): (Vec<_>, Vec<_>) = shop::rush_clicks(SHOPPERS, shop::seed())
        .into_iter()
        .partition(|click| click.shopper < SHOPPERS / 2);

    let mut history = shop.rush(&early, CONNECTIONS);
    database.kill();
    history.extend(shop.rush(&late, CONNECTIONS));
    let reservations = shop::reservations(&history);
    assert_eq!(reservations.len(), SHOPPERS, "the sale does not wait for its database");
    database.start_again();

    books::wait_until_ordered(&shop, reservations.iter().map(|(id, own)| (id, own.0.shopper)));
    let sold = SHOPPERS as u64;
    assert_eq!(books::figures(&shop, &admin), (UNITS, UNITS - sold, sold, 0));
    let told: BTreeSet<_> = reservations.values().map(|(_, order_no)| order_no.clone()).collect();
    let orders = query(
        &database,
        "shop",
        "SELECT o.order_no FROM orders o JOIN order_items i ON i.order_no = o.order_no \
         JOIN flashsale_pre_deductions p ON p.order_no = o.order_no AND p.id = o.purchase_slot",
    );
    assert_eq!(orders.len(), SHOPPERS);
    assert_eq!(BTreeSet::from_iter(orders), told);
    let units = query(
        &database,
        "shop",
        "SELECT CONCAT(stock, ' ', locked_stock, ' ', sold_stock) FROM flashsale_activities",
    );
    assert_eq!(units, [format!("{} {sold} 0", UNITS - sold)]);

    // Read by the server, too: the buyer's own list has the order.
    let list = shop.get("/api/orders", &shop.tokens[0]);
    assert_eq!(list["total"], 1, "{list}");
    assert!(server.stop().success());
}

#[test]
fn a_password_in_the_databases_url_is_not_printed() {
    let output = sluice(["serve", "--demo", "--print-config"])
        .args(["--database", "mysql://sluice:hunter2@host/shop"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("mysql://host/shop") && !text.contains("hunter2"), "{text}");
}

#[test]
fn the_load_generator_counts_the_orders_in_the_database_itself() {
    let database = MariaDb::start();
    query(&database, "mysql", "CREATE DATABASE shop");
    let data_dir = scratch();
    let url = database.url("shop");
    let mut server = Server::start_in(data_dir.path(), &["--demo", "--database", &url], &[]);
    let address = format!("http://{}", server.address);
    let output = sluice(["bench", "http", "--url", &address, "--database", &url, "--json"])
        .args(["--stock", "900", "--shoppers", "1000", "--repeat-share", "0.2", "--data-dir"])
        .arg(data_dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["drain_s"].is_number(), "the last order's lag: {report}");
    let checks = report["checks"].as_array().unwrap().iter();
    let figures = |claim: &str| {
        let mut checks = checks.clone();
        checks.find(|check| check["claim"] == claim).unwrap()["figures"].as_str().unwrap()
    };
    let made = figures("orders made in SQL = purchases accepted");
    assert_eq!(made, "orders 0 -> 900; accepted 900, unknown 0");
    assert_eq!(figures("each order in SQL has its item and its reservation, once"), "900 of 900");
    assert!(server.stop().success());
}
