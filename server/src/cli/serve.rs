//! `sluice serve`.

use std::process::ExitCode;

/// Arguments of `sluice serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sluice serve`.
pub(crate) fn run(_args: Args) -> ExitCode {
    ExitCode::from(super::EXIT_USAGE)
}
