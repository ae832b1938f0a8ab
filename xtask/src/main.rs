//! The one entry point, for a person and for CI alike: `cargo xtask <command>`.
//!
//! | command | does |
//! |---|---|
//! | `quick` | before each commit: formatting, lints, tidy, unit tests, a small campaign |
//! | `test [STEP...]` | all that must hold before a merge; `--list` names the steps and lanes |
//! | `test mysql redis` | stores of other versions than the machine's; fetched the first time |
//! | `test --publish` | the same, and what it counted goes into docs/reliability.md |
//! | `tidy` | the rules of the house that no compiler knows: imports, sizes, words, links |
//! | `docs` | renders into docs/ what opens the source files they describe, and `openapi.json` |
//! | `fuzz` | the fuzzer alone, to the floor of a commit |
//! | `coverage [--publish]` | how much of the log its tests reach, held to bounds |
//! | `soak [--minutes N]` | the server under steady load, ten minutes where it is not said |
//! | `nightly [STEP...]` | every campaign far beyond its floor; hours; `--list` names the steps |
//! | `nightly --short [STEP...]` | a fraction of it: that each step still starts, and ends |
//! | `nightly [--short] --publish` | all of them, and what they counted goes into that page |
//! | `sim ARGS...` | a campaign on the simulated disk: `cargo xtask sim --help` |
//! | `bench [ARGS...]` | the criterion benches |
//! | `bench peers [ARGS...]` | Sluice beside its peers, into docs/benchmarks.md |
//! | `bench stores` | orders into databases, keys into Valkey, and how soon they are there |
//!
//! Exit status: 0 fine, 1 something failed, 2 usage.
//!
//! No dependencies: this is the first thing that a newcomer's machine builds.

mod canary;
mod counts;
mod coverage;
mod debian;
mod failure;
mod foreign;
mod fuzz;
mod instructions;
mod llvm;
mod nightly;
mod openapi;
mod peers;
mod plan;
mod reached;
mod rustc;
mod sources;
mod steps;
mod stores;
mod tidy;
mod totals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use failure::Failure;
use nightly::Length;
use steps::Step;

const USAGE: &str = "usage: cargo xtask quick | test [--list | --publish | STEP...] | tidy | \
                     docs | fuzz | coverage [--publish] | soak [--minutes N] | \
                     nightly [--list | --short] [--publish | STEP...] | sim ARGS... | \
                     bench [ARGS... | peers [ARGS...] | stores]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = rustc::stand_in(&arguments) {
        return status;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(USAGE.to_owned()));
    };
    std::env::set_current_dir(root())
        .map_err(|source| Failure::Io { what: "enter the repository's root", source })?;
    match (command.as_str(), rest) {
        ("quick", []) => one_lane(&plan::quick()),
        ("test", []) => plan::run(&plan::test(), false),
        ("test", [flag]) if flag == "--publish" => plan::run(&plan::test(), true),
        ("test", [flag]) if flag == "--list" => {
            plan::test().list();
            plan::list("by name alone", &plan::by_name_alone());
            Ok(())
        }
        ("test", names) => one_lane(&plan::chosen(plan::all(), names)?),
        ("nightly", [flag]) if flag == "--list" => {
            plan::list("nightly", &nightly::steps(Length::Night));
            Ok(())
        }
        ("nightly", [flag, rest @ ..]) if flag == "--short" => nightly::run(Length::Short, rest),
        ("nightly", rest) => nightly::run(Length::Night, rest),
        ("fuzz", []) => fuzz::run(),
        ("coverage", []) => coverage::run(),
        ("coverage", [flag]) if flag == "--publish" => coverage::publish(),
        ("soak", rest) => nightly::soak(rest),
        ("tidy", []) => tidy::run(),
        ("docs", []) => tidy::render_docs().and_then(|()| openapi::render()),
        ("sim", rest) => steps::pass_through(plan::SIM, rest),
        ("bench", [first, rest @ ..]) if first == "peers" => peers::run(rest),
        ("bench", [name]) if name == "stores" => stores::run(),
        ("bench", rest) => steps::pass_through(plan::BENCH, rest),
        _ => Err(Failure::Usage(USAGE.to_owned())),
    }
}

/// Runs the steps one after another, and tells how it went.
fn one_lane(steps: &[Step]) -> Result<(), Failure> {
    let started = Instant::now();
    let outcomes = steps::run_all(steps);
    plan::report(&outcomes, started.elapsed())
}

/// The repository's root: cargo names this package's folder in it.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    package.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}
