//! The way to Redis: the mirror of the log in the keys that other programs read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge::Drained;
use bridge::lag::{Cause, State};
use bridge::redis::layouts::Layout;
use bridge::redis::run::{MirrorHandle, MirrorStartError, MirrorWatcher, Options};
use engine::Engine;

use crate::cli::{EXIT_REFUSED, EXIT_USAGE};
use crate::config::Settings;
use crate::orders::STOP_TIMEOUT;

/// What keeps the mirror from being written. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    /// It can't be started.
    #[error(transparent)]
    Start(#[from] MirrorStartError),
    /// Redis follows another history than this data directory.
    #[error("{0}")]
    Fork(String),
}

impl MirrorError {
    /// The exit code of the contract.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Start(_) => EXIT_USAGE,
            Self::Fork(_) => EXIT_REFUSED,
        }
    }
}

/// The running mirror.
pub(crate) struct Mirror {
    /// A look at it.
    pub(crate) watcher: MirrorWatcher,
    /// Taken when the server stops.
    handle: Mutex<Option<MirrorHandle>>,
}

impl Mirror {
    /// Starts the mirror where the settings name a Redis, and waits, `patience` at most, until it
    /// has met it or failed to: a fork must be found before anything is sold.
    ///
    /// # Errors
    /// Redis can't be named, or follows another log. One that does not answer is no error.
    pub(crate) async fn start(
        settings: &Settings,
        engine: &Engine,
        patience: Duration,
    ) -> Result<Option<Self>, MirrorError> {
        let Some(url) = settings.redis.clone() else { return Ok(None) };
        let mut options = Options::new(url);
        options.layout = settings.mirror.layout;
        options.bounds.call_records_max = settings.mirror.call_records_max;
        options.bounds.step_records_max = settings.mirror.step_records_max;
        if options.layout.is_keyed_by_sku() {
            engine.allow_one_live_activity_per_sku();
        }
        let handle = bridge::redis::run::start(Arc::new(engine.clone()), &options)?;
        let watcher = handle.watcher();
        let contact = watcher.sink().first_contact();
        let state = tokio::time::timeout(patience, contact).await;
        match state.unwrap_or(State::Starting) {
            State::Halted { why, cause: Cause::Fork } => Err(MirrorError::Fork(why)),
            _ => Ok(Some(Self { watcher, handle: Mutex::new(Some(handle)) })),
        }
    }

    /// Delivers what is durable, and ends the mirror. Blocks.
    pub(crate) fn stop(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(handle) = handle else { return };
        if let Drained::No { applied, durable } = handle.stop(STOP_TIMEOUT) {
            tracing::warn!(%applied, %durable, "the next start brings Redis up to date");
        }
    }
}

/// A layout by its name in the configuration.
pub(crate) fn layout(name: &str) -> Result<Layout, String> {
    Layout::named(name).ok_or_else(|| {
        let names: Vec<_> = Layout::ALL.iter().map(|layout| layout.name()).collect();
        format!("{name:?} is no layout of Redis keys: choose one of {}", names.join(", "))
    })
}
