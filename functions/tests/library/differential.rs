//! The library against the engine: the same calls, the same answers, the same keys.
//!
//! `SLUICE_CALLS` says how many calls; a full run makes 100,000. A failing history is shrunk to
//! the calls that matter and printed with its seed; `SLUICE_SEED` runs that one again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::core::ids::OrderPrefix;

use functions::kit::call::Call;
use functions::kit::history::{self, Random, Shape, Step};
use functions::kit::keys;
use functions::kit::oracle::Oracle;
use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey;

/// In plain `cargo test`.
const CALLS_DEFAULT: u64 = 20_000;
/// From here on each answer must have been met; with fewer calls chance leaves the rarest out.
const CALLS_TO_MEET_ALL: u64 = 100_000;

/// What a run must lead to: a generator that never leads there tests nothing there.
const MUST_BE_SEEN: &[&str] = &[
    "sluice_reserve 1",
    "sluice_reserve 2",
    "sluice_reserve 0",
    "sluice_reserve -1",
    "sluice_reserve -2",
    "sluice_reserve -3",
    "sluice_reserve -4",
    "sluice_reserve -5",
    "sluice_reserve -6",
    "sluice_reserve INVALID",
    "sluice_confirm 1",
    "sluice_confirm 2",
    "sluice_confirm 3",
    "sluice_confirm -1",
    "sluice_confirm 0",
    "sluice_confirm INVALID",
    "sluice_restore 1",
    "sluice_restore 2",
    "sluice_restore 3",
    "sluice_restore 0",
    "sluice_restore INVALID",
    "sluice_warm 1",
    "sluice_warm 0",
    "sluice_warm INVALID",
    "sluice_publish 1",
    "sluice_unpublish 1",
    "sluice_pause 1",
    "sluice_resume 1",
    "sluice_resume 0",
    "sluice_decrease units",
    "sluice_decrease INVALID",
    "sluice_restock units",
    "sluice_restock INVALID",
    "sluice_get map",
    "sluice_get empty",
    "sluice_activity map",
    "sluice_activity empty",
    "user at the bound of reservations",
];

type Seen = BTreeMap<String, u64>;

#[test]
fn the_library_answers_as_the_engine_and_leaves_the_keys_of_its_state() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let calls = number("SLUICE_CALLS").unwrap_or(CALLS_DEFAULT);
    let mut server = Valkey::start();
    let mut seen = Seen::new();
    if let Some(seed) = number("SLUICE_SEED") {
        run_one(&mut server, seed, &mut seen);
        return;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut seeds = Random(since.as_secs() ^ u64::from(since.subsec_nanos()) << 32);
    while seen.get("calls").copied().unwrap_or_default() < calls {
        run_one(&mut server, seeds.draw(), &mut seen);
    }
    println!("{seen:#?}");
    crate::counts::note("differential", &[("calls", seen["calls"])]);
    if calls >= CALLS_TO_MEET_ALL {
        for name in MUST_BE_SEEN {
            assert!(seen.contains_key(*name), "no history met {name}");
        }
    }
}

#[test]
fn histories_are_of_few_and_of_many() {
    let of = |seed| {
        let (shape, steps) = history::make(seed);
        let calls: Vec<_> = steps.iter().map(|step| history::call(&shape, *step, 0, &[])).collect();
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
        let activities: BTreeSet<_> =
            calls.iter().filter_map(|call| number(&call.activity)).collect();
        let purchases = calls.iter().filter(|call| call.name == "sluice_reserve");
        let users: BTreeSet<_> =
            purchases.filter_map(|call| number(call.arguments.first()?)).collect();
        (activities.len(), users.len())
    };
    let seen: Vec<_> = (0..100).map(of).collect();
    assert!(seen.iter().any(|(activities, users)| *activities >= 20 && *users >= 50), "{seen:?}");
    assert!(seen.iter().any(|(activities, users)| *activities <= 3 && *users <= 4), "{seen:?}");
}

#[test]
fn a_planted_difference_is_found_and_shrunk_to_the_calls_that_matter() {
    let mut server = Valkey::start();
    let planted = functions::LIBRARY.replace("held + quantity > activity.limit", "false");
    assert_ne!(planted, functions::LIBRARY);
    let load = ["FUNCTION", "LOAD", "REPLACE", planted.as_str()];
    assert_eq!(server.command(&load), Reply::text("sluice"));
    let fails = |seed: &u64| {
        let (shape, steps) = history::make(*seed);
        run(&mut server, &shape, &steps, &mut Seen::new()).is_err()
    };
    let seed = (0..100).find(fails).expect("some history meets the limit");
    let (shape, steps) = history::make(seed);
    let steps = shrink(&mut server, &shape, steps);
    // The activity, on sale, and one purchase too large or one too many.
    assert!((3..=4).contains(&steps.len()), "{steps:?}");
}

fn run_one(server: &mut Valkey, seed: u64, seen: &mut Seen) {
    let (shape, steps) = history::make(seed);
    let Err(first) = run(server, &shape, &steps, seen) else { return };
    let steps = shrink(server, &shape, steps);
    let shrunk = run(server, &shape, &steps, &mut Seen::new());
    panic!(
        "{}\n{shape:?}\nagain: SLUICE_SEED={seed} cargo test -p functions differential",
        shrunk.err().unwrap_or(first)
    );
}

/// Runs a history on both sides; an error tells the calls up to the first difference.
fn run(server: &mut Valkey, shape: &Shape, steps: &[Step], seen: &mut Seen) -> Result<(), String> {
    assert_eq!(server.command(&["FLUSHALL", "SYNC"]), Reply::text("OK"));
    let prefix = shape.order_prefix;
    if prefix != 1 {
        server.command(&["HSET", "sluice:meta", "order_prefix", &prefix.to_string()]);
    }
    let base_ms = server.now_ms();
    let mut oracle = Oracle::new(OrderPrefix::new(prefix).unwrap(), base_ms);
    let mut told = String::new();
    let mut reservations = Vec::new();
    for step in steps {
        let call = history::call(shape, *step, base_ms, &reservations);
        let (library, engine) = (server.call(&call), oracle.call(&call));
        told += &format!("{call:?}\n  engine {engine:?}\n");
        if library != engine {
            return Err(format!("{told}  library {library:?}"));
        }
        *seen.entry("calls".to_owned()).or_default() += 1;
        let label = match (call.name, &library) {
            ("sluice_decrease" | "sluice_restock", Reply::Integer(_)) => "units".to_owned(),
            (_, reply) => reply.label(),
        };
        *seen.entry(format!("{} {label}", call.name)).or_default() += 1;
        note(&call, &library, &mut reservations, &oracle, seen);
    }
    let now_ms = server.now_ms();
    let (library, engine) = (keys::present(server), keys::due(&oracle, now_ms));
    if library != engine {
        let only = |here: &keys::Keys, there: &keys::Keys| -> keys::Keys {
            let differs = |(key, value): &(&String, _)| there.get(*key) != Some(*value);
            here.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let (extra, missing) = (only(&library, &engine), only(&engine, &library));
        return Err(format!("{told}library has {extra:#?}\nthe engine asks for {missing:#?}"));
    }
    Ok(())
}

/// Remembers the reservation that a call made.
fn note(
    call: &Call,
    reply: &Reply,
    reservations: &mut Vec<(Vec<u8>, u64)>,
    oracle: &Oracle,
    seen: &mut Seen,
) {
    let Reply::List(items) = reply else { return };
    match items.as_slice() {
        [Reply::Integer(1), Reply::Integer(id), ..] => {
            reservations.push((call.activity.clone(), u64::try_from(*id).unwrap()));
        }
        [Reply::Integer(-2), ..] if oracle.is_at_bound(call) => {
            *seen.entry("user at the bound of reservations".to_owned()).or_default() += 1;
        }
        _ => {}
    }
}

fn shrink(server: &mut Valkey, shape: &Shape, steps: Vec<Step>) -> Vec<Step> {
    history::shrink(steps, |fewer| run(server, shape, fewer, &mut Seen::new()).is_err())
}
