//! The fault drills: one thing goes wrong while people shop, is put right, and the engine, its
//! log, SQL and Redis must say, row by row and key by key, what the shoppers were told.
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

use line::Cut;
use market::{Market, Sale};

const UNITS: u64 = 40;
const SALE: Sale = Sale { units: UNITS, shoppers: 60, times_out: false, poisoned: None, seed: 7 };

/// Shoppers who come before it goes wrong.
const BEFORE: usize = 10;

/// A sale in whose middle `begin` happens; once the last shopper has gone, `end` puts it right.
fn drill(market: &Market, what: &str, sale: Sale, begin: impl FnOnce(), end: impl FnOnce()) {
    let activity = market.open_sale(&sale);
    let got = market.shop(activity, &sale, |progress| {
        progress.wait(BEFORE);
        begin();
    });
    assert!(got as u64 >= UNITS, "{what}: the sale went on, but sold only {got}");
    end();
    market.assert_agreed(activity, &sale, what);
}

#[test]
fn a_cache_that_is_down_or_emptied_ends_as_if_it_never_was() {
    let market = Market::open();
    drill(&market, "down", SALE, || market.kill_redis(), || market.start_redis());
    drill(&market, "emptied", SALE, || market.redis("FLUSHALL"), || {});
    let forget = || market.redis("FUNCTION FLUSH SYNC");
    drill(&market, "its functions are gone", SALE, forget, || {});
    market.close();
}

#[test]
fn a_cache_that_is_down_while_units_come_back_learns_of_each() {
    let market = Market::open();
    let sale = Sale { times_out: true, ..SALE };
    let activity = market.open_sale(&sale);
    market.shop(activity, &sale, |progress| progress.wait(BEFORE));
    market.kill_redis();
    market.settle(activity, &sale);
    market.start_redis();
    market.assert_agreed(activity, &sale, "given back without a cache");
    market.close();
}

#[test]
fn a_database_that_is_down_refuses_or_rolls_back_gets_every_order_once() {
    let market = Market::open();
    let database = &market.database;
    drill(&market, "down", SALE, || database.kill(), || database.start_again());
    let read_only = |on: u8| market.sql(&format!("SET GLOBAL read_only = {on}"));
    drill(&market, "writes are refused", SALE, || read_only(1), || read_only(0));
    let undo = "CREATE TRIGGER shop.undone BEFORE INSERT ON shop.order_items FOR EACH ROW \
                SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock'";
    let cure = || market.sql("DROP TRIGGER shop.undone");
    let cut = || market.cut_connections();
    drill(&market, "connections are killed", SALE, cut, cut);
    drill(&market, "transactions are rolled back", SALE, || market.sql(undo), cure);
    market.close();
}

#[test]
fn a_poison_row_is_given_back_alone_and_the_rows_around_it_become_orders() {
    let market = Market::open();
    let poisoned = 17;
    let trigger = format!(
        "CREATE TRIGGER shop.poison BEFORE INSERT ON shop.orders FOR EACH ROW \
         IF NEW.user_id = {poisoned} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'poison'; \
         END IF"
    );
    market.sql(&trigger);
    // Units for all: the poisoned one buys, too.
    let sale = Sale { units: SALE.shoppers, poisoned: Some(poisoned), ..SALE };
    drill(&market, "poison", sale, || {}, || {});
    let account = market.account.lock().unwrap();
    assert_eq!(account.bought.iter().filter(|it| it.user == poisoned).count(), 1);
    drop(account);
    market.close();
}

#[test]
fn a_server_that_is_killed_comes_back_to_the_same_three_stores() {
    let market = Market::open();
    for what in ["once", "again"] {
        let restart = || {
            market.kill_server();
            market.start_server();
        };
        drill(&market, what, SALE, restart, restart);
    }
    market.close();
}

#[test]
fn both_stores_down_come_back_in_either_order_to_a_server_that_was_killed_meanwhile() {
    let market = Market::open();
    let down = || {
        market.database.kill();
        market.kill_redis();
    };
    drill(&market, "the cache first", SALE, down, || {
        market.start_redis();
        market.database.start_again();
    });
    drill(&market, "the database first", SALE, down, || {
        market.database.start_again();
        market.start_redis();
    });
    drill(&market, "a start without either", SALE, down, || {
        market.kill_server();
        market.start_server();
        market.database.start_again();
        market.start_redis();
    });
    market.close();
}

#[test]
fn a_connection_cut_mid_batch_loses_and_doubles_nothing() {
    let market = Market::open();
    for round in 0..3 {
        market.line.arm(Cut::MidBatch);
        let what = format!("cut {round}");
        drill(&market, &what, SALE, || market.line.wait_for_cut(), || {});
    }
    market.close();
}
