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

/// Shoppers of one drill.
const DRILLED: usize = 60;

/// A drill: what the database does, and how it is made to stop.
type Drill = (&'static str, &'static str, &'static str);

const DRILLS: [Drill; 3] = [
    ("write refused", "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
    (
        "transaction rolled back",
        "CREATE TRIGGER shop.undone BEFORE INSERT ON shop.order_items FOR EACH ROW \
         SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock'",
        "DROP TRIGGER shop.undone",
    ),
    ("connection cut", "KILL USER sluice", "KILL USER sluice"),
];

/// What SQL says after a drill: every reservation is one order, every unit in one place.
fn assert_consistent(database: &MariaDb, shop: &Shop, admin: &str, sold: u64, what: &str) {
    let one = |sql: &str| query(database, "shop", sql);
    let joined = "SELECT CAST(COUNT(*) AS CHAR) FROM orders o \
                  JOIN order_items i ON i.order_no = o.order_no \
                  JOIN flashsale_pre_deductions p ON p.order_no = o.order_no \
                  AND p.id = o.purchase_slot AND p.status = 'ordered'";
    assert_eq!(one(joined), [sold.to_string()], "{what}");
    assert_eq!(one("SELECT CAST(COUNT(*) AS CHAR) FROM orders"), [sold.to_string()], "{what}");
    let units = one("SELECT CONCAT(stock, ' ', locked_stock, ' ', sold_stock) \
                     FROM flashsale_activities");
    assert_eq!(units, [format!("{} {sold} 0", UNITS - sold)], "{what}");
    let flows = one("SELECT CAST(SUM(change_qty) AS CHAR) FROM stock_flows");
    assert_eq!(flows, [(UNITS - sold).to_string()], "{what}");
    assert_eq!(books::figures(shop, admin), (UNITS, UNITS - sold, sold, 0), "{what}");
}

#[test]
fn a_database_that_refuses_rolls_back_or_is_cut_off_loses_and_doubles_nothing() {
    let database = MariaDb::start();
    for sql in [
        "CREATE DATABASE shop",
        "CREATE USER sluice IDENTIFIED BY 'secret'",
        "GRANT ALL ON shop.* TO sluice",
    ] {
        query(&database, "mysql", sql);
    }
    let data_dir = scratch();
    let url = database.url_of("sluice:secret", "shop");
    let mut server = Server::start_in(data_dir.path(), &["--demo", "--database", &url], &[]);
    let shoppers = DRILLED * (DRILLS.len() + 1);
    let tokens = shop::tokens(data_dir.path(), 1, shoppers);
    let admin = shop::admin_token(data_dir.path());
    let shop = Shop::new(server.address, ACTIVITY, tokens);
    let clicks = shop::rush_clicks(shoppers, shop::seed());
    let of_drill = |drill: usize| {
        let range = drill * DRILLED..(drill + 1) * DRILLED;
        let clicks = clicks.iter().filter(|click| range.contains(&click.shopper));
        clicks.cloned().collect::<Vec<_>>()
    };
    let mut sold = 0;
    for (index, (what, begin, end)) in DRILLS.into_iter().enumerate() {
        query(&database, "mysql", begin);
        let history = shop.rush(&of_drill(index), CONNECTIONS);
        query(&database, "mysql", end);
        let reservations = shop::reservations(&history);
        assert_eq!(reservations.len(), DRILLED, "{what}: the sale does not wait");
        books::wait_until_ordered(&shop, reservations.iter().map(|(id, own)| (id, own.0.shopper)));
        sold += DRILLED as u64;
        assert_consistent(&database, &shop, &admin, sold, what);
    }

    // A poison row among the others: it alone is given back.
    let poisoned = DRILLS.len() * DRILLED + 7;
    let trigger = format!(
        "CREATE TRIGGER shop.poison BEFORE INSERT ON shop.orders FOR EACH ROW \
         IF NEW.user_id = {} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'poison'; END IF",
        poisoned + 1
    );
    query(&database, "mysql", &trigger);
    let reservations = shop::reservations(&shop.rush(&of_drill(DRILLS.len()), CONNECTIONS));
    let (dead, alive): (Vec<_>, Vec<_>) =
        reservations.iter().partition(|(_, own)| own.0.shopper == poisoned);
    books::wait_until_ordered(&shop, alive.iter().map(|(id, own)| (*id, own.0.shopper)));
    let path = format!("/api/flashsales/purchases/{}?wait=5s", dead[0].0);
    let settled = shop.get(&path, &shop.tokens[poisoned]);
    assert_eq!(settled["reason"], "dead_letter", "{settled}");
    let letters = shop.get("/api/admin/dead-letters?status=rolled_back", &admin);
    assert_eq!(letters["items"][0]["id"], *dead[0].0);
    sold += DRILLED as u64 - 1;
    assert_consistent(&database, &shop, &admin, sold, "poison row");
    assert!(server.stop().success());
}
