//! The histories that library, engine and port are held against, hostile numbers, repeats and the
//! edges of windows among them: the mirror of their events leaves the keys that the library has
//! after the same calls.
//!
//! `SLUICE_CALLS` says how many calls; a full run makes 100,000. A history that differs is told
//! with its seed; `SLUICE_SEED` runs that one again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use engine::core::ids::OrderPrefix;
use functions::kit::history;
use functions::kit::oracle::Oracle;
use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey as Library;

use crate::keys::{self, Keys};
use crate::sale::Sale;
use crate::support::Random;
use crate::valkey::{Valkey, say};

/// In plain `cargo test`.
const CALLS_DEFAULT: u64 = 4_000;

/// Within this the ends of keys agree: a call that brings no time happens when the server says.
const ENDS_APART_MS: u64 = 1_000;

#[tokio::test]
async fn the_histories_of_the_library_leave_its_keys_in_the_mirror() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (mut library, mirrored) = (Library::start(), Valkey::start());
    if let Some(seed) = number("SLUICE_SEED") {
        run(&mut library, &mirrored, seed).await;
        return;
    }
    let mut seed = RandomState::new().hash_one(0);
    let (mut calls, mut keys) = (0, 0);
    while calls < number("SLUICE_CALLS").unwrap_or(CALLS_DEFAULT) {
        let counts = run(&mut library, &mirrored, seed).await;
        (calls, keys) = (calls + counts.0, keys + counts.1);
        seed = seed.wrapping_add(1);
    }
    println!("{calls} calls, {keys} keys");
    assert!(keys > calls / 20, "{keys} keys after {calls} calls");
}

/// Runs a history; the number of its calls and of the keys that it left.
async fn run(library: &mut Library, mirrored: &Valkey, seed: u64) -> (u64, u64) {
    let again = format!("again: SLUICE_SEED={seed} cargo test -p bridge --test mirror histories");
    let mut redis = mirrored.connect(0);
    let () = say(&mut redis, "FLUSHALL");
    assert_eq!(library.command(&["FLUSHALL", "SYNC"]), Reply::text("OK"));
    let (shape, steps) = history::make(seed);
    let prefix = OrderPrefix::new(shape.order_prefix).unwrap();
    library.command(&["HSET", "sluice:meta", "order_prefix", &shape.order_prefix.to_string()]);
    let base_ms = library.now_ms();
    let (mut oracle, sale) = (Oracle::new(prefix, base_ms), Sale::empty(seed));
    let (mut reservations, mut random) = (Vec::new(), Random::new(seed));
    let mut calls = 0;
    for step in steps {
        let call = history::call(&shape, step, base_ms, &reservations);
        let (told, expected) = (library.call(&call), oracle.call(&call));
        assert_eq!(told, expected, "{call:?}\n{again}");
        calls += 1;
        if let Reply::List(items) = &told
            && let [Reply::Integer(1), Reply::Integer(id), ..] = items.as_slice()
        {
            reservations.push((call.activity.clone(), u64::try_from(*id).unwrap()));
        }
        for (kind, bytes) in oracle.take_events() {
            sale.take_over(kind, &bytes);
        }
        if random.below(5) == 0 {
            sale.commit();
        }
        if random.below(40) == 0 {
            follow(&sale, mirrored, &mut random).await;
        }
    }
    sale.commit();
    follow(&sale, mirrored, &mut random).await;
    let found = keys::present(&mut redis, "flashsale:*");
    let expected = keys::present(&mut library.connection, "flashsale:*");
    let (extra, missing) = (only(&found, &expected), only(&expected, &found));
    assert!(
        extra.is_empty() && missing.is_empty(),
        "the mirror has {extra:#?}\nthe library has {missing:#?}\n{again}"
    );
    (calls, found.len() as u64)
}

/// Mirrors what is durable, in batches of some size.
async fn follow(sale: &Sale, mirrored: &Valkey, random: &mut Random) {
    let mut size = || usize::try_from(1 + random.below(60)).unwrap();
    let bounds = Bounds { call_records_max: size(), step_records_max: size() };
    let met = Mirror::meet(sale, &mirrored.url(0), Layout::Flashsale, bounds).await;
    let mut mirror = met.unwrap();
    while mirror.step().await.unwrap() != Step::CaughtUp {}
}

/// The keys of `here` that `there` has not, or otherwise.
fn only(here: &Keys, there: &Keys) -> Keys {
    let same = |(value, ends_ms): &(String, Option<u64>), other: &(String, Option<u64>)| {
        let ends_alike = match (ends_ms, other.1) {
            (Some(ends_ms), Some(other)) => ends_ms.abs_diff(other) <= ENDS_APART_MS,
            (ends_ms, other) => *ends_ms == other,
        };
        *value == other.0 && ends_alike
    };
    let differs = |(key, it): &(&String, &(String, Option<u64>))| {
        there.get(*key).is_none_or(|other| !same(it, other))
    };
    here.iter().filter(differs).map(|(key, it)| (key.clone(), it.clone())).collect()
}
