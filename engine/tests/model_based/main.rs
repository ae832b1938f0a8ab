//! The engine's core against the reference model (H6): the same random histories, call by call.
//!
//! Each history mixes shoppers, operators, retries under the same ids, hostile numbers and a clock
//! that only goes forward. Held at every call: the answers are equal, and what was refused or
//! repeated changed nothing. Held after each history: the figures are equal, they add up again
//! from the reservations, and the log, read back from its bytes into a fresh shard with other
//! table seeds, leads to the same digest.
//!
//! `SLUICE_CASES` says how many histories; the floor of a full run is 10,000, of 150 commands on
//! average. A failure is shrunk and printed as the list of commands that leads to it.

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
use proptest::test_runner::{Config, TestRunner};

use crate::history::History;

/// In plain `cargo test`; the full run sets `SLUICE_CASES`.
const CASES_DEFAULT: u32 = 500;

/// From here on each answer must have been met. With fewer histories the rarest, met once in a
/// hundred, are left out by chance, and a test would fail that found nothing.
const CASES_TO_MEET_ALL: u32 = 10_000;

/// A history has 1 to this many commands, 150 on average.
const OPS_MAX: usize = 299;

#[test]
fn the_engine_answers_as_the_model_and_replays_to_the_same_state() {
    let cases = std::env::var("SLUICE_CASES").map_or(CASES_DEFAULT, |cases| cases.parse().unwrap());
    let seen = RefCell::new(BTreeMap::<String, u64>::new());
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&(op::openings(), vec(op::op(), 1..=OPS_MAX)), |(opening, ops)| {
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
    let seen = seen.into_inner();
    println!("{seen:#?}");
    let count = |name| (name, seen.get(name).copied().unwrap_or_default());
    counts::note("model_based", &[count("histories"), count("commands")]);
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    if cases >= CASES_TO_MEET_ALL {
        for name in history::MUST_BE_SEEN {
            // A generator that never leads there tests nothing there.
            assert!(seen.contains_key(*name), "no history met {name}");
        }
    }
}
