//! `sluice bench`.

use std::process::ExitCode;

/// Arguments of `sluice bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sluice bench`.
pub(crate) fn run(_args: Args) -> ExitCode {
    ExitCode::from(super::EXIT_USAGE)
}
