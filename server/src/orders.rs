//! The way to SQL: the bridge that writes orders from the log, and what the server itself reads
//! and writes there.

use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge::lag::{Cause, State, Status};
use bridge::sql::accounts::Accounts;
use bridge::sql::database::{UrlError, without_secrets};
use bridge::sql::queries::Queries;
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::{SPLIT_MAX, Split};
use bridge::{BridgeHandle, Drained, StartError, Watcher};
use engine::Engine;

use crate::breaker::Breaker;
use crate::cli::{EXIT_REFUSED, EXIT_USAGE};
use crate::config::Settings;

/// For the bridge to deliver what is durable when the server stops. What it doesn't, the next
/// start does.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends when what `watcher` looks at is found to follow another history; else never.
pub(crate) async fn forked(watcher: &Watcher) -> String {
    let mut states = watcher.subscribe();
    let forked = |state: &State| matches!(state, State::Halted { cause: Cause::Fork, .. });
    let state = states.wait_for(forked).await.map(|state| state.clone());
    match state {
        Ok(State::Halted { why, .. }) => why,
        _ => pending().await,
    }
}

/// What keeps orders from being written. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OrdersError {
    /// The URL names no database that can be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No such number of tables.
    #[error("orders.split must be 1 to {SPLIT_MAX}")]
    Split,
    /// The bridge can't be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The database follows another history than this data directory.
    #[error("{0}")]
    Fork(String),
    /// The database is not one that this binary may write to.
    #[error("{database}: {why}")]
    Schema {
        /// Its URL, without what may be secret.
        database: String,
        /// Why, and what to do.
        why: String,
    },
}

impl OrdersError {
    /// The exit code of the contract.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Url(_) | Self::Split | Self::Start(_) => EXIT_USAGE,
            Self::Fork(_) | Self::Schema { .. } => EXIT_REFUSED,
        }
    }
}

/// The projection, and queries to it.
pub(crate) struct Orders {
    /// Reads.
    pub(crate) queries: Queries,
    /// Spares requests a database that fails or drags.
    pub(crate) breaker: Breaker,
    /// Catalogue and accounts.
    pub(crate) accounts: Arc<Accounts>,
    watcher: Watcher,
    /// Taken when the server stops.
    bridge: Mutex<Option<BridgeHandle>>,
}

pub(crate) fn database_url(settings: &Settings) -> String {
    settings
        .database
        .clone()
        .unwrap_or_else(|| format!("sqlite:{}", settings.data_dir.join("orders.db").display()))
}

/// How orders are written. A demo's shoppers need not know that an order wants an address.
pub(crate) fn order_options(settings: &Settings) -> Result<OrderOptions, OrdersError> {
    let split = Split::new(settings.orders.split).ok_or(OrdersError::Split)?;
    let require_address = settings.orders.require_address.unwrap_or(!settings.demo);
    Ok(OrderOptions { split, require_address })
}

/// The files that the database may keep in the data directory, which refuses strangers.
pub(crate) fn companions(settings: &Settings) -> Vec<String> {
    let url = database_url(settings);
    let Some(path) = url.strip_prefix("sqlite:") else { return Vec::new() };
    let path = path.trim_start_matches("//");
    let path = path.split('?').next().unwrap_or_default();
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    ["", "-wal", "-shm", "-journal"].iter().map(|suffix| format!("{name}{suffix}")).collect()
}

impl Orders {
    /// Starts the bridge, and waits, `patience` at most, until it has met its database or failed
    /// to: a fork, or the wrong database, must be found before anything is sold.
    ///
    /// # Errors
    /// The database can't be named, follows another log, or isn't Sluice's. One that does not
    /// answer is no error: the sale does not depend on it.
    pub(crate) async fn start(
        settings: &Settings,
        engine: &Engine,
        patience: Duration,
    ) -> Result<Self, OrdersError> {
        let database_url = database_url(settings);
        let options = order_options(settings)?;
        let queries = Queries::open(&database_url, options.split)?;
        let accounts = Arc::new(Accounts::open(&database_url)?);
        let host = Arc::new(engine.clone());
        if settings.http.loops > 0 || settings.resp.loops > 0 {
            bridge::loops_move();
        }
        let bridge = bridge::start(
            host,
            &bridge::Options { database_url: database_url.clone(), orders: options },
        )?;
        let watcher = bridge.watcher();
        let contact = tokio::time::timeout(patience, watcher.first_contact()).await;
        match contact.unwrap_or(State::Starting) {
            State::Halted { why, cause: Cause::Fork } => Err(OrdersError::Fork(why)),
            State::Halted { why, cause: Cause::Schema } => {
                Err(OrdersError::Schema { database: without_secrets(&database_url), why })
            }
            _ => Ok(Self {
                queries,
                breaker: Breaker::default(),
                accounts,
                watcher,
                bridge: Mutex::new(Some(bridge)),
            }),
        }
    }

    /// How far behind, and how it is.
    pub(crate) fn status(&self) -> Status {
        self.watcher.status()
    }

    /// State and changes of it.
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Delivers what is durable, and ends the bridge. Blocks.
    pub(crate) fn stop(&self) {
        let bridge = self.bridge.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(bridge) = bridge else { return };
        if let Drained::No { applied, durable } = bridge.stop(STOP_TIMEOUT) {
            tracing::warn!(%applied, %durable, "the next start delivers the remaining orders");
        }
    }
}
