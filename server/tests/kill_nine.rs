//! The rush of `rush.rs` while the server is killed with SIGKILL again and again.
//!
//! The clients know nothing of the kills: they send a request without an answer again, under the
//! same id. What was once acknowledged must then be answered the same for ever, and the sale must
//! come out exact. Kills are placed by what the shoppers were told so far, not by time, so that
//! most of them fall where units are being sold; a quarter hits a server that is still starting.
//!
//! `SLUICE_TEST_KILLS` sets the number of kills, `SLUICE_TEST_SEED` repeats a run's placement.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use books::Checked;
use common::Server;
use shop::{Click, Outcome, Random, Shop, scratch};

const ACTIVITY: u64 = 30_001;
const UNITS: usize = 1_000;
const SHOPPERS: usize = 10_000;
const CONNECTIONS: usize = 32;
const KILLS: usize = 20;

/// The longest a start is let run before it is killed, in microseconds: a little longer than a
/// start takes, so that every step of it is hit now and then.
const START_US_MAX: usize = 60_000;

#[test]
fn what_was_acknowledged_survives_every_kill_and_the_sale_stays_exact() {
    let seed = shop::seed();
    let kills = std::env::var("SLUICE_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let tokens = shop::tokens(data_dir.path(), 1, SHOPPERS);
    let admin = shop::admin_token(data_dir.path());
    let shop = Shop::new(server.address, ACTIVITY, tokens);
    let clicks = shop::rush_clicks(SHOPPERS, seed);

    let is_over = AtomicBool::new(false);
    let (mut history, server) = std::thread::scope(|threads| {
        let killer = threads
            .spawn(|| kill_again_and_again(&shop, server, data_dir.path(), kills, seed, &is_over));
        let history = shop.rush(&clicks, CONNECTIONS);
        is_over.store(true, Ordering::Release);
        (history, killer.join().unwrap())
    });

    let retried = history.iter().filter(|told| told.tries > 1).count();
    println!("{retried} clicks were sent more than once");
    let counts = [("kills", kills as u64), ("clicks sent more than once", retried as u64)];
    common::counts::note("kill_nine", &counts);
    assert!(retried > 0, "the kills hit nobody");

    // Every id that was accepted, once more, and a whole life later.
    let accepted: Vec<Click> =
        shop::reservations(&history).into_values().map(|(click, _)| click).collect();
    let again = shop.rush(&accepted, CONNECTIONS);
    assert!(again.iter().all(|told| matches!(told.outcome, Outcome::Accepted { .. })));
    history.extend(again);

    let reservations = shop::reservations(&history);
    assert_eq!(reservations.len(), UNITS);
    shop::assert_limit(&reservations, 1);
    books::wait_until_ordered(&shop, reservations.iter().map(|(id, own)| (id, own.0.shopper)));
    assert_eq!(books::figures(&shop, &admin), (UNITS as u64, 0, UNITS as u64, 0));
    let told: BTreeSet<_> = reservations.values().map(|(_, order_no)| order_no.clone()).collect();
    assert_eq!(books::orders(data_dir.path(), ACTIVITY), told);
    drop(server);
    let units = UNITS as u64;
    let expected = Checked {
        total: units,
        available: 0,
        locked: units,
        sold: 0,
        rolled_back: 0,
        reservations: units,
    };
    assert_eq!(books::check(data_dir.path(), ACTIVITY), expected);
}

/// When a server is killed: after so many acceptances or so many answers.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Accepted(usize),
    Answered(usize),
}

/// Kills and restarts the server at `kills` random moments of the rush; returns the last server.
fn kill_again_and_again(
    shop: &Shop,
    mut server: Server,
    data_dir: &Path,
    kills: usize,
    seed: u64,
    is_over: &AtomicBool,
) -> Server {
    let mut random = Random::new(seed ^ 0x6B69_6C6C);
    let mut moments: Vec<Moment> = (0..kills)
        .map(|_| match random.below(4) {
            0 => Moment::Answered(random.below(3 * SHOPPERS)),
            _ => Moment::Accepted(1 + random.below(UNITS)),
        })
        .collect();
    moments.sort_by_key(|moment| match moment {
        // All acceptances of a rush come in about its first tenth.
        Moment::Accepted(count) => *count * 3,
        Moment::Answered(count) => *count,
    });
    for (round, moment) in moments.into_iter().enumerate() {
        let has_come = || match moment {
            Moment::Accepted(count) => shop.accepted.load(Ordering::Relaxed) >= count,
            Moment::Answered(count) => shop.answered.load(Ordering::Relaxed) >= count,
        };
        while !has_come() && !is_over.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        println!("kill {round} at {moment:?}");
        drop(server);
        if random.below(4) == 0 {
            let delay = Duration::from_micros(random.below(START_US_MAX) as u64);
            println!("and during the next start, after {delay:?}");
            let mut child = shop::start_demo(data_dir);
            std::thread::sleep(delay);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        server = shop::demo(data_dir);
        *shop.address.write().unwrap() = server.address;
    }
    server
}
