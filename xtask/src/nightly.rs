//! What takes hours: every campaign far beyond the floor of a commit, in one command, each with its
//! counts.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;
use crate::plan::{ASAN, CAMPAIGNS, LOOM, MODEL, MYSQL, PACKAGES, REDIS, SHUTTLE, VALGRIND};
use crate::steps::{Step, Work};
use crate::{counts, coverage, fuzz, plan, steps};

/// Times the fuzzer's share of a commit.
const FUZZ_TIMES: u64 = 60;

/// The files that decide where the log ends: there no change may go unnoticed.
const MUTATED: &[&str] = &["wal/src/verdict.rs", "wal/src/recover.rs", "wal/src/frame.rs"];

const MUTANTS_ROOT: &str = "target/mutants";

/// How much of it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// All: hours.
    Night,
    /// A fraction: that each step still starts, and ends.
    Short,
}

impl Length {
    fn pick<T>(self, night: T, short: T) -> T {
        match self {
            Self::Night => night,
            Self::Short => short,
        }
    }
}

/// Runs the named steps, or all of them; with `--publish` before them, what was counted goes into
/// the page. A night may be cut into runs of some steps each: counts are forgotten when all of it
/// begins anew.
///
/// # Errors
/// [`Failure::Step`] for the first that failed, [`Failure::Usage`] for a name that no step has,
/// [`Failure::Io`] where the counts could not be kept.
pub(crate) fn run(length: Length, rest: &[String]) -> Result<(), Failure> {
    let (publishes, names) = match rest {
        [flag, names @ ..] if flag == "--publish" => (true, names),
        names => (false, names),
    };
    let chosen = plan::chosen(steps(length), names)?;
    if names.is_empty() {
        counts::forget()?;
    }
    let started = Instant::now();
    let outcomes = steps::run_all(&chosen);
    plan::report(&outcomes, started.elapsed())?;
    for outcome in &outcomes {
        let step = format!("step `{}`", outcome.name);
        counts::add(&step, "seconds", outcome.took.as_secs())?;
        if outcome.totals.passed > 0 {
            counts::add(&step, "tests passed", outcome.totals.passed)?;
        }
    }
    let section = length.pick(counts::NIGHT, counts::SHORT_NIGHT);
    let about = "what its harnesses counted, and its steps";
    if publishes { counts::publish(section, about) } else { Ok(()) }
}

/// Everything, in the order of what fails fastest.
pub(crate) fn steps(length: Length) -> Vec<Step> {
    let minutes = |step: Step, work: Work, budget_minutes| Step { work, budget_minutes, ..step };
    let shop = |name, test, variable: &'static [(&'static str, &'static str)]| Step {
        name,
        work: Work::cargo(test).with(variable),
        budget_minutes: 240,
    };
    let call =
        |name, function, budget_minutes| Step { name, work: Work::Call(function), budget_minutes };
    vec![
        PACKAGES,
        ASAN,
        VALGRIND,
        call("coverage", coverage::run, 30),
        call("mutants", length.pick(mutants as fn() -> _, some_mutants), 90),
        minutes(
            SHUTTLE,
            SHUTTLE.work.with(length.pick(
                &[("RUSTFLAGS", "--cfg shuttle"), ("SLUICE_SCHEDULES", "1700000")],
                &[("RUSTFLAGS", "--cfg shuttle"), ("SLUICE_SCHEDULES", "2000")],
            )),
            60,
        ),
        minutes(
            LOOM,
            LOOM.work.with(length.pick(
                &[("RUSTFLAGS", "--cfg loom"), ("LOOM_MAX_PREEMPTIONS", "3")],
                &[("RUSTFLAGS", "--cfg loom"), ("LOOM_MAX_PREEMPTIONS", "1")],
            )),
            60,
        ),
        call("fuzz", length.pick(fuzz_long as fn() -> _, fuzz::run), 240),
        minutes(
            MODEL,
            MODEL.work.with(length.pick(
                &[("SLUICE_CASES", "1000000"), ("SLUICE_RACES", "50000000")],
                &[("SLUICE_CASES", "1000"), ("SLUICE_RACES", "100000")],
            )),
            240,
        ),
        campaigns(length),
        shop(
            "kills",
            "test --locked --profile ci -p server --test kill_nine --test kill_histories",
            length.pick(&[("SLUICE_TEST_KILLS", "10000")], &[("SLUICE_TEST_KILLS", "4")]),
        ),
        shop(
            "fail-stop",
            "test --locked --profile ci -p server --test fail_stop",
            length.pick(&[("SLUICE_TEST_FAILURES", "long")], &[]),
        ),
        shop(
            "mirrors",
            "test --locked --profile ci -p server --test mirrors_for_real",
            length.pick(&[("SLUICE_ROUNDS", "1000")], &[("SLUICE_ROUNDS", "2")]),
        ),
        shop(
            "soak",
            SOAK,
            length.pick(&[("SLUICE_SOAK_MINUTES", "480")], &[("SLUICE_SOAK_MINUTES", "1")]),
        ),
        // Last: they alone want a mirror of packages that may be out of reach, or in motion.
        redis(length),
        MYSQL,
    ]
}

/// The campaigns on the simulated disk.
fn campaigns(length: Length) -> Step {
    let scale = length.pick(&[("SLUICE_SIM_SCALE", "long")], &[("SLUICE_SIM_SCALE", "quick")]);
    Step { work: CAMPAIGNS.work.with(scale), budget_minutes: 360, ..CAMPAIGNS }
}

/// What speaks to Redis, with more random histories.
fn redis(length: Length) -> Step {
    let calls = length.pick(&[("SLUICE_CALLS", "1000000")], &[("SLUICE_CALLS", "1000")]);
    Step { work: REDIS.work.with(calls), budget_minutes: 60, ..REDIS }
}

/// The optimised server under steady load.
const SOAK: &str = "test --locked --release -p server --test soak -- --nocapture";

/// Runs the soak alone: `--minutes N`, ten without it.
///
/// # Errors
/// [`Failure::Usage`] for other arguments, [`Failure::Exit`] where it failed.
pub(crate) fn soak(arguments: &[String]) -> Result<(), Failure> {
    let minutes = match arguments {
        [] => 10,
        [flag, minutes] if flag == "--minutes" => minutes
            .parse::<u64>()
            .map_err(|_| Failure::Usage("--minutes needs a whole number".to_owned()))?,
        _ => return Err(Failure::Usage("usage: cargo xtask soak [--minutes N]".to_owned())),
    };
    steps::pass_through_with(SOAK, ("SLUICE_SOAK_MINUTES", minutes.to_string().into()))
}

fn fuzz_long() -> Result<(), Failure> {
    fuzz::campaign(FUZZ_TIMES)
}

/// Changes the code that judges the end of the log, a place at a time: the log's unit tests must
/// notice each change.
fn mutants() -> Result<(), Failure> {
    mutate(&[])
}

/// One change in forty.
fn some_mutants() -> Result<(), Failure> {
    mutate(&["--shard", "0/40"])
}

fn mutate(which: &[&str]) -> Result<(), Failure> {
    let tool = Path::new(MUTANTS_ROOT).join("bin/cargo-mutants");
    if !tool.is_file() {
        let install = "install --quiet --locked cargo-mutants --root target/mutants";
        steps::pass_through(install, &[])?;
    }
    let mut mutants = Command::new(tool);
    mutants.args(["mutants", "--package", "wal", "--output", MUTANTS_ROOT, "--timeout", "120"]);
    for file in MUTATED {
        mutants.args(["--file", file]);
    }
    steps::succeed(mutants.args(which).args(["--", "--lib"]))?;
    // Where one was missed the tool has failed.
    for (what, list) in [("noticed", "caught.txt"), ("that do not compile", "unviable.txt")] {
        let path = Path::new(MUTANTS_ROOT).join("mutants.out").join(list);
        let list = std::fs::read_to_string(path)
            .map_err(|source| Failure::Io { what: "read what became of the mutants", source })?;
        counts::add("mutants", what, list.lines().count() as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_night_has_every_step_of_a_long_one_and_asks_less_of_it() {
        let (night, short) = (steps(Length::Night), steps(Length::Short));
        assert!(night.iter().map(|it| it.name).eq(short.iter().map(|it| it.name)));
        let asks = |step: &Step| match step.work {
            Work::Cargo { environment, .. } => environment,
            Work::Call(_) => &[],
        };
        // What a step asks for beside how it is built.
        let amounts =
            |step: &Step| asks(step).iter().filter(|(name, _)| name.contains('_')).count();
        for (night, short) in night.iter().zip(&short).filter(|(night, _)| amounts(night) > 0) {
            let built = night.name == ASAN.name;
            assert!(built || asks(night) != asks(short), "{} takes as long", short.name);
        }
    }

    #[test]
    fn a_step_is_shown_as_a_person_would_type_it() {
        let shown = VALGRIND.work.to_string();
        assert!(shown.contains(" --config \"target.'cfg(unix)'.runner=["), "{shown}");
    }
}
