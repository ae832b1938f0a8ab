//! `sluice dump`.

use std::process::ExitCode;

/// Arguments of `sluice dump`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs `sluice dump`.
pub(crate) fn run(_args: Args) -> ExitCode {
    ExitCode::from(super::EXIT_USAGE)
}
