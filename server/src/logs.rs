//! Log lines, to stderr: for people, or as JSON for machines. A request never makes one at
//! `info`: what a caller could repeat must not fill a disk.

use std::io;

use engine::{SnapshotMade, SnapshotMakeError};
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, Registry, fmt, reload};

/// The filter of a running process, to be changed at `SIGHUP`.
#[derive(Clone)]
pub(crate) struct LogLevel(reload::Handle<EnvFilter, Registry>);

/// Logging could not be set up as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LogError {
    /// The filter is not one.
    #[error("log_level: {0}")]
    Filter(#[from] ParseError),
    /// Something else in this process logs already.
    #[error("logging: {0}")]
    Init(#[from] TryInitError),
    /// The filter could not be replaced.
    #[error("logging: {0}")]
    Reload(#[from] reload::Error),
}

/// Sets the process's logging up.
///
/// # Errors
/// `level` is no filter, or logging is set up already.
pub(crate) fn init(level: &str, json: bool) -> Result<LogLevel, LogError> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(level)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = if json {
        lines.json().flatten_event(true).boxed()
    } else {
        lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed()
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(LogLevel(handle))
}

/// Tells of a snapshot that was made, or of one that was not: the log is kept whole meanwhile.
pub(crate) fn snapshot(outcome: &Result<SnapshotMade, SnapshotMakeError>) {
    match outcome {
        Ok(made) => tracing::info!(
            "snapshot of LSN {}: {} bytes, {} records replayed, {} segments given back",
            made.lsn,
            made.bytes,
            made.records,
            made.segments_retired
        ),
        Err(error) => tracing::error!(
            "{error}; no snapshot was made, and the log grows until one is: look after the disk, \
             or run `sluice check`"
        ),
    }
}

impl LogLevel {
    /// Replaces the filter.
    ///
    /// # Errors
    /// `level` is no filter; the old one stays.
    pub(crate) fn set(&self, level: &str) -> Result<(), LogError> {
        self.0.reload(EnvFilter::try_new(level)?)?;
        Ok(())
    }
}
