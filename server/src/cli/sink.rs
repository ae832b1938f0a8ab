//! `sluice sink drop`: forgets a sink that is no longer fed, so that the log need not be kept for
//! it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::{EXIT_OK, EXIT_USAGE};

/// Arguments of `sluice sink`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Forget a sink: the log is no longer kept for it. The server must not run
    Drop {
        /// The sink, as `sluice_sink_confirmed_lsn` names it
        name: String,
        /// The data directory
        #[arg(long, default_value = "./data", env = "SLUICE_DATA_DIR", value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// Runs `sluice sink`.
pub(crate) fn run(args: Args) -> ExitCode {
    let Command::Drop { name, data_dir } = args.command;
    ExitCode::from(match engine::drop_sink(&data_dir, &name) {
        Ok(true) => {
            println!(
                "the log is no longer kept for {name}; it is registered anew if it is fed again"
            );
            EXIT_OK
        }
        Ok(false) => {
            eprintln!("sluice sink: no sink is called {name}");
            EXIT_USAGE
        }
        Err(error) => {
            eprintln!("sluice sink: {error}");
            error.exit_code()
        }
    })
}
