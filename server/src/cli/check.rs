//! `sluice check`.

use std::process::ExitCode;

/// Arguments of `sluice check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sluice check`.
pub(crate) fn run(_args: Args) -> ExitCode {
    ExitCode::from(super::EXIT_USAGE)
}
