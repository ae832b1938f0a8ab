//! `sluice restore`: a fresh data directory from SQL, when the old one is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bridge::redis::MirrorError;
use bridge::restore::{NEVER_IN_SQL, RestoreError, Restored, Source};
use bridge::sql::database::{Database, UrlError};
use engine::core::ids::OrderPrefix;
use engine::{CloseError, Engine, EngineOptions, ORDERS_SINK, OpenError, SinkClass};

use super::progress::Bar;
use super::{EXIT_LOG, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, counted};
use crate::config::{self, ConfigError, Flags, Settings};
use crate::orders::{OrdersError, companions, order_options};

/// Arguments of `sluice restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The lost directory's order database: sqlite:PATH or mysql://USER@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    database: String,
    /// The lost directory's Redis: it is written anew when the server starts
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// The directory to make; it must be empty
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Read further settings from this TOML file (also SLUICE_CONFIG)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why nothing was restored. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Orders(#[from] OrdersError),
    #[error("{0} is not empty: a restore makes a directory of its own")]
    NotEmpty(String),
    #[error("{path}: {source}")]
    Directory { path: String, source: io::Error },
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error("start: {0}")]
    Runtime(io::Error),
    #[error(
        "the directory is made, but Redis was not taken over: {0}; delete its sluice:cursor keys"
    )]
    Redis(MirrorError),
}

impl CommandError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Restore(RestoreError::Schema(_) | RestoreError::Moved) => EXIT_REFUSED,
            Self::Restore(RestoreError::Log) | Self::Close(_) => EXIT_LOG,
            _ => EXIT_USAGE,
        }
    }
}

/// Runs `sluice restore`.
pub(crate) fn run(args: Args) -> ExitCode {
    match restore(args) {
        Ok(restored) => {
            tell(&restored);
            ExitCode::from(EXIT_OK)
        }
        Err(error) => {
            eprintln!("sluice restore: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn restore(args: Args) -> Result<Restored, CommandError> {
    let mut flags = Flags { file: args.config, values: Vec::new() };
    flags.set("data_dir", args.data_dir.map(|path| path.display().to_string()));
    flags.set("database", Some(args.database.clone()));
    flags.set("redis", args.redis);
    let settings = config::load(&flags)?.settings;
    let strangers = companions(&settings);
    refuse_filled(&settings.data_dir, &strangers)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CommandError::Runtime)?.block_on(async {
        let database = Database::at(&args.database)?;
        let source = Source::open(database, order_options(&settings)?.split).await?;
        let options = options(&settings, &source, strangers);
        let (engine, _) = Engine::open(options)?;
        let bar = Bar::of_steps("taking reservations over");
        let watch = |done, total| bar.reach(done, total);
        let restored = source.rebuild_watched(&engine, &watch).await?;
        drop(bar);
        let (identity, activities) = (engine.identity(), engine.live_activities());
        engine.close()?;
        if let Some(url) = &settings.redis {
            let layout = settings.mirror.layout;
            let taken = bridge::redis::take_over(url, layout, identity, &activities).await;
            taken.map_err(CommandError::Redis)?;
        }
        Ok(restored)
    })
}

/// The new directory's constants are the lost one's, as far as SQL keeps them.
fn options(settings: &Settings, source: &Source, companions: Vec<String>) -> EngineOptions {
    let mut options = EngineOptions::new(settings.data_dir.clone());
    options.segment_bytes = settings.format.segment_bytes;
    let configured = OrderPrefix::new(settings.format.order_prefix);
    if let Some(prefix) = source.order_prefix().or(configured) {
        options.order_prefix = prefix;
    }
    options.request_hash_key = Some(source.request_hash_key());
    options.companions.extend(companions);
    options.appends = settings.wal.device.into();
    options.accept_file_system = settings.accept_file_system;
    // The sink has yet to read what is written here: none of it may be given back before.
    options.sinks.push((ORDERS_SINK.to_owned(), SinkClass::MustDeliver));
    options
}

/// A directory with anything but the database and what people put beside it is in use.
fn refuse_filled(data_dir: &Path, companions: &[String]) -> Result<(), CommandError> {
    let error = |source| CommandError::Directory { path: data_dir.display().to_string(), source };
    let entries = match std::fs::read_dir(data_dir) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(error)?,
    };
    for entry in entries {
        let name = entry.map_err(error)?.file_name();
        let name = name.to_string_lossy();
        let beside = ["secret", "sluice.toml"].contains(&name.as_ref());
        if !beside && !companions.iter().any(|it| *it == name) {
            return Err(CommandError::NotEmpty(data_dir.display().to_string()));
        }
    }
    Ok(())
}

fn tell(restored: &Restored) {
    let Restored { activities, archived, reservations, unknown } = restored;
    println!(
        "{} ({archived} of them archived), {}",
        counted(*activities, "activity", "activities"),
        counted(*reservations, "reservation", "reservations")
    );
    println!(
        "lost: whatever log {} held beyond LSN {} (run {}): purchases answered and not yet \
         ordered, payments, give-backs",
        unknown.uuid, unknown.lsn, unknown.epoch
    );
    for never in NEVER_IN_SQL {
        println!("not known: {never}");
    }
    for row in &unknown.rows {
        println!("doubtful: {row}");
    }
    let more = unknown.rows_count.saturating_sub(unknown.rows.len() as u64);
    if more > 0 {
        println!("doubtful: {more} more");
    }
    println!("time-outs wait for `sluice resume-timers`");
}
