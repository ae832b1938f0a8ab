//! What the stores behind a sale take, and how soon they have it: the figures of README that
//! [`peers`](crate::peers) does not measure, each by the command that stands beside it there.

use crate::failure::Failure;
use crate::{debian, steps};

/// Built first, so that nothing compiles while something is measured.
const BUILDS: [&str; 3] = [
    "build --locked --release --package server --bin sluice",
    "build --locked --release --package benches --example peers",
    "build --locked --release --package bridge --examples",
];

/// What is measured, one after another.
const RUNS: [&str; 4] = [
    "run --locked --release -p bridge --example orders_per_second -- compare 20000 3",
    "run --locked --release -p bridge --example orders_per_second -- 100000 2000",
    "run --locked --release -p bridge --example mirrored_per_second",
    "run --locked --release -p benches --example peers -- stores --sluice target/release/sluice",
];

/// Provides what is needed, builds, and measures: minutes, on a quiet machine.
///
/// # Errors
/// [`Failure::Missing`] where a store can't be installed, [`Failure::Exit`] where a build or a
/// measurement failed.
pub(crate) fn run() -> Result<(), Failure> {
    debian::provide()?;
    BUILDS.iter().try_for_each(|build| steps::pass_through(build, &[]))?;
    RUNS.iter().try_for_each(|run| {
        println!("\n==> cargo {run}");
        steps::pass_through(run, &[])
    })
}
