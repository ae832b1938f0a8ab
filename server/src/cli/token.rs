//! `sluice token`.

use std::process::ExitCode;

/// Arguments of `sluice token`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sluice token`.
pub(crate) fn run(_args: Args) -> ExitCode {
    ExitCode::from(super::EXIT_USAGE)
}
