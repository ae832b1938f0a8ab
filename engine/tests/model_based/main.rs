//! The engine's core against the reference model (H6): the same random histories, call by call.
//!
//! Each history mixes shoppers, operators, retries under the same ids, hostile numbers and a clock
//! that only goes forward. Held at every call: the answers are equal, and what was refused or
//! repeated changed nothing. Held after each history: the figures are equal, they add up again
//! from the reservations, and the log, read back from its bytes into a fresh shard with other
//! table seeds, leads to the same digest.
//!
//! `SLUICE_CASES` says how many histories; the floor of a full run is 10,000, of 150 commands on
//! average. A failure is shrunk and printed as the list of commands that leads to it, under the
//! command that runs this history alone again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../sim/src/counts.rs"]
mod counts;
mod history;
mod op;
#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::history::History;

/// In plain `cargo test`; the full run sets `SLUICE_CASES`.
const CASES_DEFAULT: u32 = 500;

/// From here on each answer must have been met. With fewer histories the rarest, met once in a
/// hundred, are left out by chance, and a test would fail that found nothing.
const CASES_TO_MEET_ALL: u32 = 10_000;

/// A history has 1 to this many commands, 150 on average.
const OPS_MAX: usize = 299;

/// The number in environment variable `name`, where there is one.
fn from_environment<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str) -> Option<T> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

/// Each history has a seed and a runner of its own, so that one can be run again alone.
fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: 1,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn the_engine_answers_as_the_model_and_replays_to_the_same_state() {
    let cases: u32 = from_environment("SLUICE_CASES").unwrap_or(CASES_DEFAULT);
    // Other histories each time.
    let first = from_environment("SLUICE_SEED").unwrap_or_else(new_seed);
    let seen = RefCell::new(BTreeMap::<String, u64>::new());
    let histories = (op::openings(), vec(op::op(), 1..=OPS_MAX));
    for seed in (0..u64::from(cases)).map(|case| first.wrapping_add(case)) {
        let outcome = runner(seed).run(&histories, |(opening, ops)| {
            let mut history = History::new();
            for op in opening.iter().chain(&ops) {
                history.run(op)?;
            }
            history.finish()?;
            let mut seen = seen.borrow_mut();
            *seen.entry("histories".to_owned()).or_default() += 1;
            for (name, count) in history.seen() {
                *seen.entry(name.to_owned()).or_default() += count;
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}{failure}", again(seed)));
    }
    let seen = seen.into_inner();
    println!("{seen:#?}");
    let count = |name| (name, seen.get(name).copied().unwrap_or_default());
    counts::note("model_based", &[count("histories"), count("commands")]);
    if cases >= CASES_TO_MEET_ALL {
        for name in history::MUST_BE_SEEN {
            // A generator that never leads there tests nothing there.
            assert!(seen.contains_key(*name), "no history met {name}");
        }
    }
}

/// The command that runs the history of `seed` again.
fn again(seed: u64) -> String {
    format!("SLUICE_SEED={seed} SLUICE_CASES=1 cargo test -p engine --test model_based\n")
}

/// A seed that no other run has.
fn new_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

#[test]
fn a_seed_is_one_history() {
    let histories = (op::openings(), vec(op::op(), 1..=OPS_MAX));
    let drawn = |seed| {
        let tree = proptest::strategy::Strategy::new_tree(&histories, &mut runner(seed)).unwrap();
        format!("{:?}", proptest::strategy::ValueTree::current(&tree))
    };
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
}
