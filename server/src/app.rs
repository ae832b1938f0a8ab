//! What the rooms of the server share.
//!
//! [`Shared`] exists from the first moment, so that the port answers while the log is being
//! recovered; [`App`], the part that can sell, is put into it once it is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::Engine;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Http, Settings};
use crate::events::Events;
use crate::gate::Gate;
use crate::http::on_sale::OnSale;
use crate::http::problem::Code;
use crate::identity::{Passwords, Tokens, Verified};
use crate::listener::ConnectionCounts;
use crate::metrics::Metrics;
use crate::mirror::Mirror;
use crate::orders::Orders;
use crate::payments::Payments;
use crate::reconcile::Reconcile;
use crate::time::wall_seconds;

/// The engine and what follows its log.
pub(crate) struct App {
    /// Decides and remembers.
    pub(crate) engine: Engine,
    /// The same for threads that commit what they decide.
    pub(crate) committing: Engine,
    /// The projection into SQL, and queries to it.
    pub(crate) orders: Orders,
    /// The projection into Redis, where one is named.
    pub(crate) mirror: Option<Mirror>,
    /// The ways to pay.
    pub(crate) payments: Payments,
    /// Holds engine, SQL and Redis against each other.
    pub(crate) reconcile: Reconcile,
}

/// Everything a request can reach.
pub(crate) struct Shared {
    /// Counts.
    pub(crate) metrics: Metrics,
    /// Counts of the listener.
    pub(crate) connections: Arc<ConnectionCounts>,
    /// Counts of the Redis port.
    pub(crate) resp_connections: Arc<ConnectionCounts>,
    /// Changes whenever the order sink's mark became durable.
    pub(crate) ordered: watch::Sender<()>,
    /// Places for queries that wait.
    pub(crate) waiters: Semaphore,
    /// Who may come in.
    pub(crate) gate: Arc<Gate>,
    /// Held while an operator changes limits.
    pub(crate) changing_limits: tokio::sync::Mutex<()>,
    /// Hashes passwords.
    pub(crate) passwords: Passwords,
    /// How long a login lasts.
    pub(crate) login_ttl: Duration,
    /// A place for an export of orders.
    pub(crate) exports: Arc<Semaphore>,
    /// Which activities shoppers are shown.
    pub(crate) on_sale: OnSale,
    /// Figures for browsers.
    pub(crate) events: Arc<Events>,
    /// Cancelled when the server is told to stop.
    pub(crate) stop: CancellationToken,
    http: watch::Receiver<Arc<Http>>,
    draining: AtomicBool,
    tokens: OnceLock<Tokens>,
    app: OnceLock<App>,
}

impl Shared {
    /// Nothing is recovered yet.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn new(
        settings: &Settings,
        http: watch::Receiver<Arc<Http>>,
    ) -> Result<Self, getrandom::Error> {
        let waiters = http.borrow().waiters_max.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            metrics: Metrics::new(),
            connections: Arc::new(ConnectionCounts::default()),
            resp_connections: Arc::new(ConnectionCounts::default()),
            ordered: watch::Sender::new(()),
            waiters: Semaphore::new(waiters),
            gate: Arc::new(Gate::new(settings)?),
            changing_limits: tokio::sync::Mutex::new(()),
            passwords: Passwords::new(),
            login_ttl: settings.token.ttl,
            exports: Arc::new(Semaphore::new(1)),
            on_sale: OnSale::default(),
            events: Arc::new(Events::new()?),
            stop: CancellationToken::new(),
            http,
            draining: AtomicBool::new(false),
            tokens: OnceLock::new(),
            app: OnceLock::new(),
        })
    }

    /// The bounds of the HTTP listener as they are now.
    pub(crate) fn http(&self) -> Arc<Http> {
        Arc::clone(&self.http.borrow())
    }

    /// The signing key is there. A demo's is made only in a data directory that proved to be ours.
    pub(crate) fn know(&self, tokens: Tokens) {
        assert!(self.tokens.set(tokens).is_ok(), "a server has one signing key");
    }

    /// Signs and verifies tokens.
    ///
    /// # Errors
    /// `recovering`, until the key is there.
    pub(crate) fn tokens(&self) -> Result<&Tokens, Code> {
        self.tokens.get().ok_or(Code::Recovering)
    }

    /// The engine is there: requests are decided from now on.
    pub(crate) fn start(&self, app: App) {
        assert!(self.app.set(app).is_ok(), "a server starts once");
    }

    /// The token of a caller: signed by us, and neither over, nor revoked, nor of an account that
    /// is disabled.
    ///
    /// # Errors
    /// `unauthenticated`, or `recovering` until the key is there.
    pub(crate) fn verify(&self, token: &str) -> Result<Verified, Code> {
        let verified = self.tokens()?.verify(token).map_err(|_| Code::Unauthenticated)?;
        let controls = &self.gate.controls;
        let now_ms = wall_seconds().saturating_mul(1000);
        let refused =
            controls.is_revoked(&verified.id) || controls.is_disabled(verified.caller.user, now_ms);
        if refused { Err(Code::Unauthenticated) } else { Ok(verified) }
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
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Purchases would be decided. The bridge being behind is no reason to be taken out: purchases
    /// do not depend on it.
    ///
    /// # Errors
    /// What keeps them from it.
    pub(crate) fn ready(&self) -> Result<(), Code> {
        if self.is_draining() {
            return Err(Code::Draining);
        }
        if self.app()?.engine.is_poisoned() {
            return Err(Code::LogUnavailable);
        }
        Ok(())
    }
}
