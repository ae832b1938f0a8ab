//! Ten thousand shoppers after a thousand units, with duplicate clicks: exactly a thousand sold.
//!
//! The rush is driven twice: by a client of the tests' own that keeps every answer, and by
//! `sluice bench http`, whose verdict is then compared with the books.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use books::Checked;
use common::{Server, sluice};
use shop::{Click, Connection, Outcome, Shop, scratch};

/// The demo's activity, its units, and its users.
const ACTIVITY: u64 = 30_001;
const UNITS: usize = 1_000;
const SHOPPERS: usize = 10_000;

const CONNECTIONS: usize = 32;

const SOLD_OUT: Checked = Checked {
    total: UNITS as u64,
    available: 0,
    locked: UNITS as u64,
    sold: 0,
    rolled_back: 0,
    reservations: UNITS as u64,
};

#[test]
fn a_rush_with_duplicate_clicks_sells_every_unit_once() {
    let seed = shop::seed();
    let data_dir = scratch();
    let mut server = shop::demo(data_dir.path());
    let tokens = shop::tokens(data_dir.path(), 1, SHOPPERS);
    let admin = shop::admin_token(data_dir.path());
    let shop = Shop::new(server.address, ACTIVITY, tokens);

    let history = shop.rush(&shop::rush_clicks(SHOPPERS, seed), CONNECTIONS);
    assert_eq!(history.len(), 3 * SHOPPERS);

    let reservations = shop::reservations(&history);
    assert_eq!(reservations.len(), UNITS);
    shop::assert_limit(&reservations, 1);
    let refusals = shop::refusals(&history);
    let kinds: Vec<_> = refusals.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["limit_reached", "sold_out"], "{refusals:?}");

    books::wait_until_ordered(&shop, reservations.iter().map(|(id, own)| (id, own.0.shopper)));
    assert_eq!(books::figures(&shop, &admin), (UNITS as u64, 0, UNITS as u64, 0));
    let told: BTreeSet<_> = reservations.values().map(|(_, order_no)| order_no.clone()).collect();
    assert_eq!(books::orders(data_dir.path(), ACTIVITY), told);
    books::assert_comes_to(data_dir.path(), ACTIVITY, SOLD_OUT);
    assert!(server.stop().success());
    assert_eq!(books::check(data_dir.path(), ACTIVITY), SOLD_OUT, "after its end");
    assert_eq!(books::orders(data_dir.path(), ACTIVITY), told);
}

#[test]
fn the_load_generator_rushes_and_its_verdict_agrees_with_the_books() {
    let data_dir = scratch();
    let mut server = shop::demo(data_dir.path());
    let third = "0.3333";
    let output = bench(&server, data_dir.path())
        .args(["--activity", "30001", "--shoppers", "10000", "--connections", "64", "--json"])
        .args(["--repeat-share", third, "--second-try-share", third])
        .output()
        .unwrap();
    let report = report(&output);
    assert!(output.status.success(), "{report:#}");
    let answers = |kind: &str| report["answers"][kind]["count"].as_u64().unwrap();
    assert_eq!(answers("accepted"), UNITS as u64);
    assert!(answers("all") >= 29_990, "a third are first tries: {report:#}");
    assert!(answers("replayed") > 0, "duplicate clicks hit accepted ones: {report:#}");
    assert_eq!(report["errors"], serde_json::json!({}));
    assert_eq!(report["exact"], true);

    assert_eq!(books::orders(data_dir.path(), ACTIVITY).len(), UNITS);
    assert!(server.stop().success());
    assert_eq!(books::check(data_dir.path(), ACTIVITY), SOLD_OUT);
}

#[test]
fn the_load_generator_notices_a_unit_that_it_did_not_buy() {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let stranger = Shop::new(server.address, ACTIVITY, shop::tokens(data_dir.path(), 9_999, 1));
    let admin = shop::admin_token(data_dir.path());
    let bench = bench(&server, data_dir.path())
        .args(["--activity", "30001", "--shoppers", "400", "--rate", "200", "--json"])
        .spawn()
        .unwrap();
    // The generator has read the figures once a unit is taken.
    while books::figures(&stranger, &admin).2 == 0 {}
    let click = Click { shopper: 0, request_id: "stranger".to_owned() };
    let told = stranger.click(&click, &mut Connection::new(server.address));
    assert!(matches!(told.outcome, Outcome::Accepted { .. }), "{told:?}");

    let output = bench.wait_with_output().unwrap();
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert_eq!(report["exact"], false);
    let wrong: Vec<_> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["holds"] == false)
        .map(|check| check["claim"].as_str().unwrap())
        .collect();
    assert_eq!(wrong, ["units taken = purchases accepted"]);
}

#[test]
fn a_server_that_is_not_there_is_a_usage_error() {
    let data_dir = scratch();
    let mut server = shop::demo(data_dir.path());
    let mut bench = bench(&server, data_dir.path());
    assert!(server.stop().success());
    let output = bench.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("does not answer") && errors.lines().count() == 1, "{errors}");
}

fn bench(server: &Server, data_dir: &Path) -> Command {
    let url = format!("http://{}", server.address);
    let mut command = sluice(["bench", "http", "--url", &url, "--data-dir"]);
    command.arg(data_dir);
    command
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}
