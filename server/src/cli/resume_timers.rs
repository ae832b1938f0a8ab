//! `sluice resume-timers`: after a restore time-outs wait until an operator has looked.

use std::process::ExitCode;

use serde_json::json;

use super::admin::Server;
use super::{EXIT_OK, EXIT_USAGE};

/// Arguments of `sluice resume-timers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
}

/// Runs `sluice resume-timers`.
pub(crate) fn run(args: &Args) -> ExitCode {
    match args.server.post("/api/admin/resume-timers", &json!({})) {
        Ok(_) => {
            println!("time-outs run again; every unpaid reservation has some time yet");
            ExitCode::from(EXIT_OK)
        }
        Err(error) => {
            eprintln!("sluice resume-timers: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
