//! `sluice upgrade`: starts writing a newer format.

use std::path::PathBuf;
use std::process::ExitCode;

use wal::{FORMAT_VERSION, PosixDevice, Upgraded};

/// Arguments of `sluice upgrade`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory
    #[arg(long, default_value = "./data", env = "SLUICE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// Write the newest format from the next segment on: older versions can't read the directory
    /// any more
    #[arg(long, required = true)]
    finalize: bool,
}

/// Runs `sluice upgrade`.
pub(crate) fn run(args: Args) -> ExitCode {
    match wal::upgrade(&PosixDevice::new(&args.data_dir)) {
        Ok(Upgraded::Already) => {
            println!(
                "the log is written in the newest format this version knows, {FORMAT_VERSION}: \
                 nothing was changed"
            );
            super::EXIT_OK.into()
        }
        Ok(Upgraded::Now { from, to }) => {
            println!(
                "the log uses features {to:#x} instead of {from:#x} from its next segment on: \
                 older versions refuse it"
            );
            super::EXIT_OK.into()
        }
        Err(error) => {
            eprintln!("sluice upgrade: {error}");
            engine::OpenError::from(error).exit_code().into()
        }
    }
}
