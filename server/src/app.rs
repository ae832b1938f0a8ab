//! What the rooms of the server share.
//!
//! [`Shared`] exists from the first moment, so that the port answers while the log is being
//! recovered; [`App`], the part that can sell, is put into it once it is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use engine::Engine;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::config::Http;
use crate::http::problem::Code;
use crate::identity::Tokens;
use crate::listener::ConnectionCounts;
use crate::metrics::Metrics;
use crate::orders::Orders;

/// The engine and what follows its log.
pub(crate) struct App {
    /// Decides and remembers.
    pub(crate) engine: Engine,
    /// The projection into SQL, and queries to it.
    pub(crate) orders: Orders,
}

/// Everything a request can reach.
pub(crate) struct Shared {
    /// Signs and verifies tokens.
    pub(crate) tokens: Tokens,
    /// Counts.
    pub(crate) metrics: Metrics,
    /// Counts of the listener.
    pub(crate) connections: Arc<ConnectionCounts>,
    /// Changes whenever the order sink's mark became durable.
    pub(crate) ordered: watch::Sender<()>,
    /// Places for queries that wait.
    pub(crate) waiters: Semaphore,
    /// Cancelled when the server is told to stop.
    pub(crate) stop: CancellationToken,
    http: watch::Receiver<Arc<Http>>,
    draining: AtomicBool,
    app: OnceLock<App>,
}

impl Shared {
    /// Nothing is recovered yet.
    pub(crate) fn new(tokens: Tokens, http: watch::Receiver<Arc<Http>>) -> Self {
        let waiters = http.borrow().waiters_max.min(Semaphore::MAX_PERMITS);
        Self {
            tokens,
            metrics: Metrics::new(),
            connections: Arc::new(ConnectionCounts::default()),
            ordered: watch::Sender::new(()),
            waiters: Semaphore::new(waiters),
            stop: CancellationToken::new(),
            http,
            draining: AtomicBool::new(false),
            app: OnceLock::new(),
        }
    }

    /// The bounds of the HTTP listener as they are now.
    pub(crate) fn http(&self) -> Arc<Http> {
        Arc::clone(&self.http.borrow())
    }

    /// The engine is there: requests are decided from now on.
    pub(crate) fn start(&self, app: App) {
        assert!(self.app.set(app).is_ok(), "a server starts once");
    }

    /// What decides.
    ///
    /// # Errors
    /// `recovering`, until it is there.
    pub(crate) fn app(&self) -> Result<&App, Code> {
        self.app.get().ok_or(Code::Recovering)
    }

    /// No longer ready, whatever else works: load balancers are to look elsewhere.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }

    /// Whether the server was told to stop.
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}
