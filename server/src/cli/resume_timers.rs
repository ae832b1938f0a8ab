//! `sluice resume-timers`: after a restore time-outs wait until an operator has looked.
//!
//! A running server is asked; where none answers, the directory that `--data-dir` names is told,
//! and the next server on it heeds it.

use std::path::PathBuf;
use std::process::ExitCode;

use engine::core::control::keys::TIMERS_HELD;
use engine::core::event::Actor;
use engine::{CloseError, Engine, EngineOptions, LogUnavailable, OpenError};
use serde_json::json;

use super::admin::{AdminError, Server};
use super::{EXIT_LOG, EXIT_OK, EXIT_USAGE};
use crate::config::{self, ConfigError, Flags, Settings};
use crate::orders::companions;

/// Who does it, in the log.
const ACTOR: Actor<'static> = Actor { name: "resume-timers", request_id: "" };

/// Arguments of `sluice resume-timers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
}

/// Why a directory was not told. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
enum DirectoryError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}: no log is there")]
    NoLog(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Log(#[from] LogUnavailable),
    #[error("the log takes nothing now: {0}")]
    Busy(#[from] engine::Busy),
    #[error(transparent)]
    Close(#[from] CloseError),
}

impl DirectoryError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Log(_) | Self::Busy(_) | Self::Close(_) => EXIT_LOG,
            Self::Config(_) | Self::NoLog(_) => EXIT_USAGE,
        }
    }
}

/// Runs `sluice resume-timers`.
pub(crate) fn run(args: &Args) -> ExitCode {
    let error = match args.server.post("/api/admin/resume-timers", &json!({})) {
        Ok(_) => {
            println!("time-outs run again; every unpaid reservation has some time yet");
            return ExitCode::from(EXIT_OK);
        }
        Err(error) => error,
    };
    let is_unasked = matches!(error, AdminError::Connect { .. } | AdminError::Token(_));
    if !is_unasked || args.server.data_dir.is_none() {
        eprintln!("sluice resume-timers: {error}");
        if is_unasked {
            eprintln!("sluice resume-timers: for a server that is stopped, give --data-dir");
        }
        return ExitCode::from(EXIT_USAGE);
    }
    match tell_directory(args) {
        Ok(was_held) => {
            let said = if was_held {
                "no server runs: time-outs run again from its next start on"
            } else {
                "no server runs, and its time-outs are not held"
            };
            println!("{said}");
            ExitCode::from(EXIT_OK)
        }
        Err(told) => {
            eprintln!("sluice resume-timers: {error}; and the directory: {told}");
            ExitCode::from(told.exit_code())
        }
    }
}

/// Clears the control in the directory itself; whether it was set.
fn tell_directory(args: &Args) -> Result<bool, DirectoryError> {
    let mut flags = Flags { file: args.server.config.clone(), values: Vec::new() };
    let data_dir = args.server.data_dir.as_ref();
    flags.set("data_dir", data_dir.map(|path| path.display().to_string()));
    let settings = config::load(&flags)?.settings;
    // An engine would make a log where there is none.
    if !settings.data_dir.join("CONTROL").exists() {
        return Err(DirectoryError::NoLog(settings.data_dir));
    }
    let (engine, _) = Engine::open(options(&settings))?;
    let told = engine.control_clear(ACTOR, TIMERS_HELD)?.wait()?;
    engine.close()?;
    // A control that stays is none of this name.
    Ok(told.unwrap_or(false))
}

fn options(settings: &Settings) -> EngineOptions {
    let mut options = EngineOptions::new(settings.data_dir.clone());
    options.companions.extend(companions(settings));
    options.appends = settings.wal.device.into();
    options.accept_clock = settings.accept_clock;
    options.accept_file_system = settings.accept_file_system;
    // Nothing but one record is to be written.
    options.snapshot_after_bytes = u64::MAX;
    options
}
