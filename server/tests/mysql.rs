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
