//! An activity whose buyers never pay, with a second to do so: it sells out again and again, and
//! every unit comes back exactly once, across kills of the server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use common::{Server, sluice};
use shop::{Click, Connection, Outcome, Random, Shop, Told, scratch};

const UNITS: usize = 50;
const ROUNDS: usize = 6;

/// Shoppers that come in each round: enough to meet an empty shelf.
const SHOPPERS: usize = 3 * UNITS;

const CONNECTIONS: usize = 8;

/// Units come back a second after acceptance; a restart adds as much again, a slow machine more.
const RETURN_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn unpaid_units_sell_out_again_and_again_across_kills() {
    let mut random = Random::new(shop::seed());
    let data_dir = scratch();
    let mut server = shop::demo(data_dir.path());
    let admin = shop::admin_token(data_dir.path());
    let tokens = shop::tokens(data_dir.path(), 1, SHOPPERS * ROUNDS);
    let activity = open_sale(server.address, &admin);
    let mut shop = Shop::new(server.address, activity, tokens);

    let mut history: Vec<Told> = Vec::new();
    for round in 0..ROUNDS {
        let clicks: Vec<_> = (0..SHOPPERS)
            .map(|shopper| Click {
                shopper: round * SHOPPERS + shopper,
                request_id: format!("round-{round}"),
            })
            .collect();
        // Two rounds without a kill, one killed while it sells, one while units come back.
        let kill_after = (round % 4 == 2).then(|| 1 + random.below(UNITS - 1));
        let (told, next) = sell(&shop, server, data_dir.path(), &clicks, kill_after);
        server = next;
        let accepted =
            told.iter().filter(|told| matches!(told.outcome, Outcome::Accepted { .. })).count();
        assert!(accepted >= UNITS, "round {round} sold only {accepted}");
        assert!(shop::refusals(&told).contains_key("sold_out"), "round {round} never sold out");
        history.extend(told);
        if round % 4 == 3 {
            drop(server);
            server = shop::demo(data_dir.path());
            *shop.address.get_mut().unwrap() = server.address;
        }
        wait_until_all_are_back(&shop, &admin);
    }

    let reservations = shop::reservations(&history);
    shop::assert_limit(&reservations, 1);
    for (id, (click, _)) in &reservations {
        let path = format!("/api/flashsales/purchases/{id}");
        let body = shop.get(&path, &shop.tokens[click.shopper]);
        assert_eq!((&body["status"], &body["reason"]), (&json!("rolled_back"), &json!("timeout")));
    }
    wait_until_sql_knows(data_dir.path(), reservations.len());
    assert!(server.stop().success());
    let checked = books::check(data_dir.path(), activity);
    let sold = reservations.len() as u64;
    assert_eq!((checked.available, checked.locked, checked.sold), (UNITS as u64, 0, 0));
    assert_eq!((checked.reservations, checked.rolled_back), (sold, sold));
    assert_exact_in_log(data_dir.path(), activity, reservations.len());
}

/// An activity of [`UNITS`] units on sale, with a second to pay.
fn open_sale(address: SocketAddr, admin: &str) -> u64 {
    let mut connection = Connection::new(address);
    let body = json!({
        "sku_id": 20_001, "title": "unpaid", "price": 100, "stock": UNITS,
        "start_at": "2020-01-01T00:00:00.000Z", "end_at": "2099-12-31T23:59:59.999Z",
        "payment_ttl": "1s",
    });
    let path = "/api/admin/flashsales";
    let created = connection.call(("POST", path), admin, Some(&body)).unwrap();
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.body["id"].as_u64().unwrap();
    let publish = format!("{path}/{id}/publish");
    assert_eq!(connection.call(("POST", &publish), admin, None).unwrap().status, 204);
    id
}

/// One round's rush; the server is killed and restarted after `kill_after` acceptances.
fn sell(
    shop: &Shop,
    server: Server,
    data_dir: &Path,
    clicks: &[Click],
    kill_after: Option<usize>,
) -> (Vec<Told>, Server) {
    let Some(kill_after) = kill_after else {
        return (shop.rush(clicks, CONNECTIONS), server);
    };
    let target = shop.accepted.load(Ordering::Relaxed) + kill_after;
    std::thread::scope(|threads| {
        let rush = threads.spawn(|| shop.rush(clicks, CONNECTIONS));
        while shop.accepted.load(Ordering::Relaxed) < target && !rush.is_finished() {
            std::thread::yield_now();
        }
        drop(server);
        let server = shop::demo(data_dir);
        *shop.address.write().unwrap() = server.address;
        (rush.join().unwrap(), server)
    })
}

/// Polls until nothing is locked; every look must find the equation true.
fn wait_until_all_are_back(shop: &Shop, admin: &str) {
    let deadline = Instant::now() + RETURN_TIMEOUT;
    loop {
        let (total, available, locked, sold) = books::figures(shop, admin);
        assert_eq!((total, sold), (UNITS as u64, 0));
        if locked == 0 {
            assert_eq!(available, total);
            return;
        }
        assert!(Instant::now() < deadline, "{locked} units never came back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Polls until SQLite has a timed-out order for each reservation, all slots free and all units
/// back on the shelf.
fn wait_until_sql_knows(data_dir: &Path, reservations: usize) {
    let deadline = Instant::now() + RETURN_TIMEOUT;
    let expected = i64::try_from(reservations).unwrap();
    let timed_out = "SELECT count(*) FROM orders WHERE status = 'timeout' \
        AND user_activity_key IS NULL AND cancelled_at IS NOT NULL";
    while books::count(data_dir, timed_out) != expected {
        assert!(Instant::now() < deadline, "{} of {expected}", books::count(data_dir, timed_out));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(books::count(data_dir, "SELECT count(*) FROM orders"), expected);
    let full = "SELECT count(*) FROM flashsale_activities \
        WHERE title = 'unpaid' AND stock = total_stock AND locked_stock = 0 AND sold_stock = 0";
    assert_eq!(books::count(data_dir, full), 1);
}

/// Replays the log's own account of the activity: no unit is sold twice at a time, none comes
/// back twice, and the figures of every event are what the events before it lead to.
fn assert_exact_in_log(data_dir: &Path, activity: u64, reserved: usize) {
    let output = sluice(["dump", "--activity", &activity.to_string(), "--data-dir"])
        .arg(data_dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut held = BTreeMap::new();
    let mut count = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let reservation = line["reservation"].as_u64();
        match (line["event"].as_str().unwrap(), reservation) {
            ("Reserved", Some(id)) => {
                count += 1;
                let at_ms = line["at_ms"].as_u64().unwrap();
                assert_eq!(held.insert(id, at_ms), None, "sold twice: {line}");
            }
            ("Restored", Some(id)) => {
                let since_ms = held.remove(&id).unwrap_or_else(|| panic!("back twice: {line}"));
                assert!(line["at_ms"].as_u64().unwrap() >= since_ms + 1000, "too early: {line}");
            }
            _ => continue,
        }
        let locked = line["locked"].as_u64().unwrap();
        assert_eq!(locked, held.len() as u64, "{line}");
        assert_eq!(locked + line["available"].as_u64().unwrap(), UNITS as u64, "{line}");
    }
    assert_eq!(count, reserved);
    assert!(held.is_empty(), "still held: {held:?}");
}
