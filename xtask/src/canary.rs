//! The canary: a test that must fail, so that a run which has gone blind is seen.
//!
//! A run is green where everything passed, and as green where nothing was run, where nobody reads
//! exit statuses, or where failures are counted wrong. So one test fails on purpose, through all
//! that a failing test goes through, and this step fails where its failure does not arrive.

use crate::failure::Failure;
use crate::plan;
use crate::steps::{self, Step, Work};

/// What the test says in its last moment.
const LAST_WORDS: &str = "the canary fails on purpose";

const DEATH: Step = Step {
    name: "canary-dies",
    work: Work::cargo("test --locked -p xtask canary::tests::it_dies -- --ignored --exact"),
    budget_minutes: 5,
};

/// Runs the test that must fail; what it prints is not shown, lest a reader take it for real.
///
/// # Errors
/// [`Failure::Blind`] where its failure is not seen.
pub(crate) fn run() -> Result<(), Failure> {
    let (outcome, told) = steps::run_unseen(&DEATH);
    let has_died = told.contains(LAST_WORDS);
    let is_counted = matches!(outcome.failure, Some(Failure::Tests { failed: 1 }));
    let verdict = plan::verdict(&[outcome]);
    let is_red = verdict.err().is_some_and(|failure| failure.exit_code() == 1);
    if has_died && is_counted && is_red {
        println!("canary: it failed, and the failure was seen");
        return Ok(());
    }
    println!("{told}");
    Err(Failure::Blind { has_died, is_counted, is_red })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "fails on purpose: `cargo xtask test canary` runs it and wants it red"]
    fn it_dies() {
        panic!("{LAST_WORDS}");
    }
}
