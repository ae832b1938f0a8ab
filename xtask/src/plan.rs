//! Which steps a run has, in which order, and how its end is told.
//!
//! The order is: what fails fastest first. Profiles are chosen so that no dependency is compiled
//! more often than it must be: lints, documentation and the tests of the shop share the dev
//! profile, where the C code of SQLite and of the cryptography is built once; campaigns use the
//! optimised `ci` profile, which needs only the two crates at the heart; loom models need a
//! compiler flag of their own, and so a target directory of their own.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::steps::{Outcome, Step, Work};
use crate::totals::Totals;
use crate::{canary, counts, debian, foreign, fuzz, instructions, steps, tidy};

/// What `cargo xtask sim` passes its arguments to.
pub(crate) const SIM: &str = "run --locked --profile ci --package sim --";
/// What `cargo xtask bench` passes its arguments to.
pub(crate) const BENCH: &str = "bench --locked --package benches --benches";

pub(crate) const PACKAGES: Step =
    Step { name: "packages", work: Work::Call(debian::provide), budget_minutes: 5 };

const FMT: Step = Step { name: "fmt", work: Work::cargo("fmt --all --check"), budget_minutes: 1 };

const TIDY: Step = Step { name: "tidy", work: Work::Call(tidy::run), budget_minutes: 1 };

/// That red is seen.
const CANARY: Step = Step { name: "canary", work: Work::Call(canary::run), budget_minutes: 2 };

/// All crates and targets. The simulation asks for the features `sim` and `planted-bugs`, and
/// cargo unifies features over the workspace: so this covers the code behind them.
const CLIPPY: Step = Step {
    name: "clippy",
    work: Work::cargo("clippy --workspace --all-targets --locked -- -D warnings"),
    budget_minutes: 8,
};

/// The product as it is shipped: none of those features.
const CLIPPY_PRODUCT: Step = Step {
    name: "clippy-product",
    work: Work::cargo("clippy --package server --locked -- -D warnings"),
    budget_minutes: 4,
};

/// With private items: these crates are read in their source, and their rooms link to each other.
const DOC: Step = Step {
    name: "doc",
    work: Work::cargo("doc --workspace --no-deps --document-private-items --locked")
        .with(&[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")]),
    budget_minutes: 3,
};

/// The heart and the tools, with the simulated disk.
const TESTS_HEART: Step = Step {
    name: "tests-heart",
    work: Work::cargo("test --locked --no-fail-fast -p wal -p engine -p benches -p fuzz -p xtask"),
    budget_minutes: 6,
};

/// The shop, end to end, on a binary without the simulated disk and without planted bugs; random
/// histories on the Redis port, to the floor of docs/reliability.md.
const TESTS_SHOP: Step = Step {
    name: "tests-shop",
    work: Work::cargo("test --locked --no-fail-fast -p migrations -p bridge -p server")
        .with(&[("SLUICE_CALLS", "100000")]),
    budget_minutes: 14,
};

/// The function library on a real server: its contract, and random histories against the engine, to
/// the floor of docs/reliability.md.
const FUNCTIONS: Step = Step {
    name: "functions",
    work: Work::cargo("test --locked --no-fail-fast -p functions")
        .with(&[("SLUICE_CALLS", "100000")]),
    budget_minutes: 3,
};

/// Random histories against the reference model, and races of all that can happen to orders, to the
/// floors of docs/reliability.md.
pub(crate) const MODEL: Step = Step {
    name: "model",
    work: Work::cargo("test --locked --profile ci -p engine --test model_based --test lifecycle")
        .with(&[("SLUICE_CASES", "10000"), ("SLUICE_RACES", "1000000")]),
    budget_minutes: 4,
};

/// A whole sale that times out at once, in the engine and in SQL, to the floors of
/// docs/reliability.md.
const TIME_OUTS: Step = Step {
    name: "time-outs",
    work: Work::cargo("test --locked --profile ci -p engine -p bridge --test mass_time_out")
        .with(&[("SLUICE_TIME_OUTS", "1000000"), ("SLUICE_TIMED_OUT_ORDERS", "100000")]),
    budget_minutes: 4,
};

/// The campaigns on the simulated disk, each to its floor.
pub(crate) const CAMPAIGNS: Step = Step {
    name: "campaigns",
    work: Work::cargo("test --locked --no-fail-fast --profile ci -p sim"),
    budget_minutes: 10,
};

/// The same with few cases: enough to catch the planted bugs.
const CAMPAIGNS_QUICK: Step = Step {
    name: "campaigns",
    work: CAMPAIGNS.work.with(&[("SLUICE_SIM_SCALE", "quick")]),
    budget_minutes: 4,
};

/// Every hand-over between threads, in every schedule within the bound.
pub(crate) const LOOM: Step = Step {
    name: "loom",
    work: Work::cargo(
        "test --locked --no-fail-fast --profile ci -p loom-tests --target-dir target/loom",
    )
    .with(&[("RUSTFLAGS", "--cfg loom"), ("LOOM_MAX_PREEMPTIONS", "2")]),
    budget_minutes: 4,
};

/// The log's whole protocol, in drawn schedules, to the floor of docs/reliability.md.
pub(crate) const SHUTTLE: Step = Step {
    name: "shuttle",
    work: Work::cargo(
        "test --locked --no-fail-fast --profile ci -p loom-tests --target-dir target/shuttle",
    )
    .with(&[("RUSTFLAGS", "--cfg shuttle")]),
    budget_minutes: 3,
};

/// The log, the engine and the one unsafe module under the address sanitizer: what is freed, out of
/// bounds or leaked shows. The compiler takes the flag only where it is told that it may.
pub(crate) const ASAN: Step = Step {
    name: "asan",
    work: Work::cargo(
        "test --locked --no-fail-fast --profile ci -p wal -p engine -p uring --lib --bins \
         --target host-tuple --target-dir target/asan",
    )
    .with(&[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address")]),
    budget_minutes: 4,
};

/// The log and the one unsafe module under valgrind, which sees reads of what was never written.
pub(crate) const VALGRIND: Step = Step {
    name: "valgrind",
    work: Work::cargo(
        "test --locked --no-fail-fast --profile ci -p wal -p uring --lib --bins \
         --config target.'cfg(unix)'.runner=['valgrind','--quiet','--error-exitcode=99']",
    ),
    budget_minutes: 10,
};

/// Every reader of foreign bytes, to the floor of docs/reliability.md.
const FUZZ: Step = Step { name: "fuzz", work: Work::Call(fuzz::run), budget_minutes: 5 };

/// What a reservation costs, as it is shipped.
const INSTRUCTIONS: Step =
    Step { name: "instructions", work: Work::Call(instructions::run), budget_minutes: 5 };

/// What speaks SQL, on a real MySQL in place of the machine's MariaDB. Debian has none but in a
/// suite that moves: so by name and at night alone.
pub(crate) const MYSQL: Step = Step {
    name: "mysql",
    work: Work::cargo(
        "test --locked --no-fail-fast -p migrations -p bridge -p server --test mysql --test events \
         --test exactly_once --test split --test queries --test dead_letters --test halts \
         --test fill --test legacy --test restore --test reconcile --test mass_time_out \
         --test end_to_end --test lost_database --test archived --test hostile_stores \
         --test drills --test mirrors_for_real",
    )
    .beside(&foreign::MYSQL),
    budget_minutes: 20,
};

/// What speaks to Redis, on a Redis 8 in place of the machine's Valkey.
pub(crate) const REDIS: Step = Step {
    name: "redis",
    work: Work::cargo(
        "test --locked --no-fail-fast -p functions -p bridge -p server --test library \
         --test mirror --test resp_bench --test mirrors_for_real",
    )
    .with(&[("SLUICE_CALLS", "100000")])
    .beside(&foreign::REDIS),
    budget_minutes: 8,
};

const TESTS_UNIT: Step = Step {
    name: "tests-unit",
    work: Work::cargo(
        "test --locked --no-fail-fast --workspace --exclude sim --exclude loom-tests --lib --bins",
    ),
    budget_minutes: 6,
};

/// What to run before each commit.
pub(crate) fn quick() -> Vec<Step> {
    vec![FMT, TIDY, CLIPPY, TESTS_UNIT, CAMPAIGNS_QUICK]
}

/// What runs where it is asked for by name, and at night.
pub(crate) fn by_name_alone() -> Vec<Step> {
    vec![MYSQL, REDIS]
}

/// Every step that can be asked for by name.
pub(crate) fn all() -> Vec<Step> {
    test().into_steps().into_iter().chain(by_name_alone()).collect()
}

/// What must hold before a change is merged.
pub(crate) struct Plan {
    /// What the lanes need, or what fails at once.
    pub(crate) first: Vec<Step>,
    /// Steps side by side. Cargo locks a build directory while it builds, and has one for each
    /// profile: so lanes are of different profiles.
    pub(crate) lanes: [Vec<Step>; 2],
}

impl Plan {
    /// All steps, one after another.
    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.first.into_iter().chain(self.lanes.into_iter().flatten()).collect()
    }

    /// Prints the steps of each lane.
    pub(crate) fn list(&self) {
        list("first", &self.first);
        for (name, steps) in ["lane 1", "lane 2"].into_iter().zip(&self.lanes) {
            list(name, steps);
        }
    }
}

/// The lanes are about equally long: what the compiler and the shop say, and the campaigns.
pub(crate) fn test() -> Plan {
    Plan {
        first: vec![PACKAGES, FMT, TIDY],
        lanes: [
            vec![CLIPPY, CLIPPY_PRODUCT, DOC, TESTS_HEART, CANARY, TESTS_SHOP, FUNCTIONS, ASAN],
            vec![MODEL, TIME_OUTS, CAMPAIGNS, LOOM, SHUTTLE, FUZZ, INSTRUCTIONS],
        ],
    }
}

/// Runs the whole plan; publishes its counts where asked.
///
/// # Errors
/// [`Failure::Step`] where a step failed, [`Failure::Io`] where the counts could not be kept.
pub(crate) fn run(plan: &Plan, publish: bool) -> Result<(), Failure> {
    counts::forget()?;
    let started = Instant::now();
    let mut outcomes = steps::run_all(&plan.first);
    if outcomes.iter().all(|outcome| outcome.failure.is_none()) {
        outcomes.extend(steps::run_lanes(&plan.lanes));
    }
    let took = started.elapsed();
    report(&outcomes, took)?;
    let passed: u64 = outcomes.iter().map(|outcome| outcome.totals.passed).sum();
    let figures = format!("{} minutes, {passed} tests passed", took.as_secs() / 60);
    if publish { counts::publish(counts::RUN, &figures) } else { Ok(()) }
}

/// The named ones of `steps`, in the order of the plan; all of them where no name is given.
///
/// # Errors
/// [`Failure::Usage`] for a name that no step has.
pub(crate) fn chosen(steps: Vec<Step>, names: &[String]) -> Result<Vec<Step>, Failure> {
    let is_step = |name: &&String| steps.iter().any(|step| step.name == name.as_str());
    if let Some(stranger) = names.iter().find(|name| !is_step(name)) {
        let known: Vec<_> = steps.iter().map(|step| step.name).collect();
        return Err(Failure::Usage(format!("no step {stranger}: there are {}", known.join(", "))));
    }
    let wanted = |step: &Step| names.is_empty() || names.iter().any(|name| name == step.name);
    Ok(steps.into_iter().filter(wanted).collect())
}

/// Prints the steps of a lane, minutes that each should take at most, and their commands.
pub(crate) fn list(name: &str, steps: &[Step]) {
    println!("{name}: {} minutes at most", minutes(steps));
    for Step { name, work, budget_minutes } in steps {
        println!("  {name:16} {budget_minutes:3} {work}");
    }
}

/// Minutes that the steps should take at most, one after another.
fn minutes(steps: &[Step]) -> u64 {
    steps.iter().map(|step| step.budget_minutes).sum()
}

/// Prints the summary of a run that took so long; its last line is the total of all tests.
///
/// # Errors
/// [`Failure::Step`] for the first that failed.
pub(crate) fn report(outcomes: &[Outcome], took: Duration) -> Result<(), Failure> {
    print!("{}", summary(outcomes, took));
    verdict(outcomes)
}

/// What a run has come to.
///
/// # Errors
/// As [`report`].
pub(crate) fn verdict(outcomes: &[Outcome]) -> Result<(), Failure> {
    match outcomes.iter().find(|outcome| outcome.failure.is_some()) {
        Some(outcome) => Err(Failure::Step { name: outcome.name }),
        None => Ok(()),
    }
}

fn summary(outcomes: &[Outcome], took: Duration) -> String {
    let mut table = format!(
        "\n{:<16} {:>8} {:>8} {:>8} {:>8}\n",
        "step", "time", "passed", "failed", "ignored"
    );
    let mut all = Totals::default();
    for outcome in outcomes {
        let mut totals = outcome.totals;
        // A step that failed without a failed test (a lint, a build) counts as one failure:
        // a red run must not end in "0 failed".
        if outcome.failure.is_some() && totals.failed == 0 {
            totals.failed = 1;
        }
        table += &row(outcome.name, outcome.took, totals);
        all += totals;
    }
    table += &row("total", took, all);
    format!("{table}\n{} passed, {} failed\n", all.passed, all.failed)
}

fn row(name: &str, took: Duration, totals: Totals) -> String {
    let seconds = took.as_secs();
    let time = format!("{}:{:02}", seconds / 60, seconds % 60);
    let Totals { passed, failed, ignored } = totals;
    format!("{name:<16} {time:>8} {passed:>8} {failed:>8} {ignored:>8}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, totals: Totals, failure: Option<Failure>) -> Outcome {
        Outcome { name, took: Duration::from_secs(61), totals, failure }
    }

    #[test]
    fn the_last_line_is_the_sum_of_all_steps() {
        let outcomes = [
            outcome("one", Totals { passed: 3, failed: 0, ignored: 1 }, None),
            outcome("two", Totals { passed: 4, failed: 0, ignored: 0 }, None),
        ];
        let summary = summary(&outcomes, Duration::from_secs(61));
        assert_eq!(summary.lines().last(), Some("7 passed, 0 failed"));
        assert!(summary.contains("1:01"), "{summary}");
    }

    #[test]
    fn a_failed_lint_counts_as_a_failure() {
        let failure = Some(Failure::Untidy { problems: 3 });
        let outcomes = vec![outcome("tidy", Totals::default(), failure)];
        assert_eq!(summary(&outcomes, Duration::ZERO).lines().last(), Some("0 passed, 1 failed"));
        assert!(matches!(report(&outcomes, Duration::ZERO), Err(Failure::Step { name: "tidy" })));
    }

    #[test]
    fn steps_are_chosen_by_name_and_a_strange_name_is_refused() {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let steps = chosen(test().into_steps(), &names(&["loom", "fmt"])).unwrap();
        assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["fmt", "loom"]);
        let stranger = chosen(test().into_steps(), &names(&["lom"]));
        assert!(matches!(stranger, Err(Failure::Usage(_))));
    }

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let mut names: Vec<_> = all().iter().map(|step| step.name).collect();
        let steps = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps);
    }

    #[test]
    fn no_lane_is_given_more_than_an_hour() {
        let plan = test();
        for lane in &plan.lanes {
            let minutes = minutes(&plan.first) + minutes(lane);
            assert!(minutes <= 60, "{minutes} minutes");
        }
    }
}
