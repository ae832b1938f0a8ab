//! H14: the built server with a real MariaDB and a real Valkey, each of which dies at random
//! moments while people shop; then the three must agree, row by row and key by key, with what the
//! shoppers were told.
//!
//! `SLUICE_ROUNDS` sets the number of rounds, `SLUICE_TEST_SEED` repeats a run's plan.
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

use line::{CUTS, Cut};
use market::{Market, Progress, Sale};
use shop::Random;

/// Rounds of a run in CI.
const ROUNDS: usize = 30;

const UNITS: u64 = 24;
const SHOPPERS: usize = 48;
const SALE: Sale =
    Sale { units: UNITS, shoppers: SHOPPERS as u64, times_out: false, poisoned: None, seed: 1 };

/// Blows of a round.
const BLOWS_MAX: usize = 3;

/// What happens to the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blow {
    ServerDies,
    DatabaseDies,
    CacheDies,
    CacheIsEmptied,
    BothStoresDie { database_first: bool },
    LineIsCut(Cut),
}

/// When, and for how long, in shoppers.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: usize,
    lasts: usize,
    blow: Blow,
}

fn plan(random: &mut Random) -> Vec<Step> {
    let blows = 1 + random.below(BLOWS_MAX);
    let mut steps: Vec<_> = (0..blows)
        .map(|_| {
            let (at, lasts) = (random.below(SHOPPERS), random.below(12));
            let blow = match random.below(10) {
                0..=2 => Blow::ServerDies,
                3 | 4 => Blow::DatabaseDies,
                5 => Blow::CacheDies,
                6 => Blow::CacheIsEmptied,
                7 => Blow::BothStoresDie { database_first: random.below(2) == 0 },
                _ => Blow::LineIsCut(CUTS[random.below(CUTS.len())]),
            };
            Step { at, lasts, blow }
        })
        .collect();
    steps.sort_by_key(|step| step.at);
    steps
}

fn strike(market: &Market, step: Step, progress: &Progress) {
    progress.wait(step.at);
    let goes_on = || progress.wait(progress.answered() + step.lasts);
    match step.blow {
        Blow::ServerDies => {
            market.kill_server();
            market.start_server();
        }
        Blow::DatabaseDies => {
            market.database.kill();
            goes_on();
            market.database.start_again();
        }
        Blow::CacheDies => {
            market.kill_redis();
            goes_on();
            market.start_redis();
        }
        Blow::CacheIsEmptied => market.redis("FLUSHALL"),
        Blow::BothStoresDie { database_first } => {
            market.kill_redis();
            market.database.kill();
            goes_on();
            if database_first {
                market.database.start_again();
            }
            market.start_redis();
            if !database_first {
                market.database.start_again();
            }
        }
        Blow::LineIsCut(cut) => market.line.arm(cut),
    }
}

#[test]
fn whoever_dies_the_three_stores_agree_with_what_shoppers_were_told() {
    let seed = shop::seed();
    let rounds = std::env::var("SLUICE_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let market = Market::open();
    let mut random = Random::new(seed);
    let mut blows = Vec::new();
    for round in 0..rounds {
        let times_out = random.below(3) == 0;
        let sale = Sale { times_out, seed: seed ^ round as u64, ..SALE };
        let steps = plan(&mut random);
        println!("round {round}: {steps:?}, times out: {times_out}");
        let activity = market.open_sale(&sale);
        let got = market.shop(activity, &sale, |progress| {
            for step in &steps {
                strike(&market, *step, progress);
            }
        });
        assert!(got as u64 >= UNITS, "round {round} sold only {got}");
        market.assert_agreed(activity, &sale, &format!("round {round}"));
        market.line.disarm();
        blows.extend(steps.iter().map(|step| step.blow));
    }
    let cuts = market.line.made();
    println!("{} blows; cuts made: {cuts:?} of {CUTS:?}", blows.len());
    let counts = [("rounds", rounds), ("kills and cuts", blows.len())];
    common::counts::note("mirrors_for_real", &counts.map(|(what, count)| (what, count as u64)));
    if rounds >= ROUNDS {
        assert!(cuts.into_iter().sum::<usize>() > 0, "no line was cut");
        let struck = |blow| blows.contains(&blow);
        assert!([Blow::ServerDies, Blow::DatabaseDies, Blow::CacheDies].into_iter().all(struck));
    }
    market.close();
}

/// The failpoints by themselves, since a random plan may arm one behind the last commit.
#[test]
fn a_commit_that_is_lost_or_whose_answer_is_lost_makes_every_order_once() {
    let market = Market::open();
    for (index, cut) in CUTS.into_iter().cycle().take(2 * CUTS.len()).enumerate() {
        let sale = Sale { seed: index as u64, ..SALE };
        let activity = market.open_sale(&sale);
        market.line.arm(cut);
        let kills = index >= CUTS.len();
        market.shop(activity, &sale, |_| {
            market.line.wait_for_cut();
            // Whoever asks the database what became of it is another process.
            if kills {
                market.kill_server();
                market.start_server();
            }
        });
        market.assert_agreed(activity, &sale, &format!("{cut:?}"));
    }
    assert_eq!(market.line.made(), [2; CUTS.len()]);
    market.close();
}

/// The last batch of all is the one that is cut: no later one can mend what it left.
#[test]
fn what_is_told_to_be_an_order_is_one_though_its_commit_failed() {
    let market = Market::open();
    let activity = market.open_sale(&SALE);
    for (user, cut) in (1..).zip(CUTS) {
        // Until it is an order: the bridge is at rest.
        market.sell_to(2 * user, activity);
        market.settle(activity, &SALE);
        market.line.arm(cut);
        market.sell_to(2 * user + 1, activity);
        market.line.wait_for_cut();
        market.assert_agreed(activity, &SALE, &format!("{cut:?} of the last batch"));
    }
    market.close();
}

/// Beside the server, whose mirror may mend a key at any time: so the keys come first, from a
/// server that has ended.
#[test]
fn a_wrong_row_and_a_wrong_key_are_noticed() {
    let market = Market::open();
    let sale = Sale { units: 4, shoppers: 8, ..SALE };
    let activity = market.open_sale(&sale);
    market.shop(activity, &sale, |_| {});
    market.assert_agreed(activity, &sale, "untouched");
    market.close();
    let account = market.account.lock().unwrap();
    let key = format!("flashsale:stock:{activity}");
    for command in [format!("SET {key} 77"), format!("DEL {key}"), "SET sluice:stale 1".to_owned()]
    {
        assert_eq!(account.compare_redis(&market.redis_url()), Ok(()));
        market.redis(&command);
        assert!(account.compare_redis(&market.redis_url()).is_err(), "{command}");
        let available = account.figures(activity).available;
        market.redis(&format!("SET {key} {available}"));
        market.redis("DEL sluice:stale");
    }
    // The last table that is compared comes first: each one's own difference is what is told.
    for tamper in [
        "DELETE FROM shop.stock_flows WHERE change_type = 'DEDUCT' LIMIT 1",
        "UPDATE shop.flashsale_activities SET stock = stock + 1, total_stock = total_stock + 1",
        "DELETE FROM shop.orders LIMIT 1",
    ] {
        market.sql(tamper);
        let told = account.compare_sql(&market.database.url("shop")).unwrap_err();
        let table = tamper.split("shop.").nth(1).unwrap().split(' ').next().unwrap();
        assert!(told.contains(&format!("FROM {table}")), "{tamper}: {told}");
    }
}
