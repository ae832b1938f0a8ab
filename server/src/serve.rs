//! The life of the server: listen, recover, sell, drain.
//!
//! ```text
//! bind        the port answers: /healthz 200, /readyz and the API 503 `recovering`
//! look        the log is read; do the order database and Redis follow it?
//! open        its next run begins, an older system's reservations are taken over, the bridge
//!             started, a demo's sale made
//! serve       /readyz 200; time-outs run
//! SIGTERM     /readyz 503, no new connections, requests in flight finish (drain_timeout)
//! close       bridge, then log: everything acknowledged is on disk already; exit 0
//! ```
//!
//! Opening fails with the log's own exit code, before anything was changed on disk. A log that
//! fails later ends the process by itself, with 4, and nothing here catches that.

mod descriptors;
mod first_look;
mod reload;
mod signals;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::core::ids::OrderPrefix;
use engine::{Engine, EngineOptions, ORDERS_SINK, OpenError, SinkClass};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::{App, Shared};
use crate::cli::progress::Bar;
use crate::cli::{EXIT_LOG, EXIT_REFUSED, EXIT_USAGE};
use crate::config::{self, ConfigError, Flags, Loaded, Settings};
use crate::demo::{self, DemoError};
use crate::http;
use crate::identity::{KeyError, tokens_of};
use crate::keepers;
use crate::legacy::{self, LegacyError};
use crate::listener::{self, Certificate, Cores, House, Listener};
use crate::logs::{self, LogError, LogLevel};
use crate::mirror::{Mirror, MirrorError};
use crate::orders::{self, Orders, OrdersError};
use crate::payments::Payments;
use crate::production::{self, Finding};
use crate::reconcile::{self, Reconcile};
use crate::resp::{self, RespServer};
use descriptors::bound_connections;
pub(crate) use descriptors::raise_limit;
use reload::Running;
use signals::{Asked, Signals};

/// As a shell reports a process that SIGTERM ended: the drain was cut short.
const EXIT_TERMINATED: i32 = 128 + 15;

/// What ends the server other than a signal. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    /// The configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It must not be started like this.
    #[error("{}", .0.first().map_or_else(String::new, ToString::to_string))]
    Findings(Vec<Finding>),
    /// A key of tokens can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The operating system has no randomness.
    #[error("no randomness for keys: {0}")]
    Random(getrandom::Error),
    /// Logging can't be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The address can't be listened on.
    #[error("listen on {address}: {source}; is another server there?")]
    Bind { address: SocketAddr, source: std::io::Error },
    /// The operating system refuses threads or signals.
    #[error("start: {0}")]
    System(#[from] std::io::Error),
    /// The data directory can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The older system's reservations can't be taken over.
    #[error(transparent)]
    Legacy(#[from] LegacyError),
    /// The order database can't be used.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The Redis mirror can't be used.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The demo's sale can't be made.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// The order database or Redis follows another log.
    #[error("{0}")]
    Fork(String),
    /// A task of ours died.
    #[error("internal error: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The log failed while it was being closed.
    #[error(transparent)]
    Close(#[from] engine::CloseError),
}

impl ServeError {
    /// The exit code of the contract.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Legacy(error) => error.exit_code(),
            Self::Orders(error) => error.exit_code(),
            Self::Mirror(error) => error.exit_code(),
            Self::Fork(_) => EXIT_REFUSED,
            Self::Close(_) | Self::Task(_) => EXIT_LOG,
            Self::Demo(DemoError::Log(_)) => EXIT_LOG,
            Self::Findings(_)
            | Self::Config(_)
            | Self::Key(_)
            | Self::Random(_)
            | Self::Log(_)
            | Self::Bind { .. }
            | Self::System(_)
            | Self::Demo(_) => EXIT_USAGE,
        }
    }
}

/// Serves until a signal ends it.
///
/// # Errors
/// [`ServeError`]; its exit code is the process's.
pub(crate) fn run(flags: Flags, mut loaded: Loaded) -> Result<(), ServeError> {
    let findings = production::findings(&loaded);
    if !findings.is_empty() {
        return Err(ServeError::Findings(findings));
    }
    let log_level = logs::init(&loaded.settings.log_level, loaded.settings.log_json)?;
    let descriptors_max = raise_limit();
    bound_connections(&mut loaded.settings, descriptors_max);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(flags, loaded, log_level));
    // A start that was refused may leave a thread at work; nothing of it is worth waiting for.
    runtime.shutdown_background();
    outcome
}

async fn serve(flags: Flags, loaded: Loaded, log_level: LogLevel) -> Result<(), ServeError> {
    let mut signals = Signals::new()?;
    let settings = loaded.settings.clone();
    let (http_sender, http_receiver) = watch::channel(Arc::new(settings.http.clone()));
    let shared = Shared::new(&settings, http_receiver).map_err(ServeError::Random)?;
    let shared = Arc::new(shared);
    let listening = listen(&settings, &shared)?;
    let opened = {
        let (loaded, shared) = (loaded.clone(), Arc::clone(&shared));
        tokio::spawn(async move { open(&loaded, &shared).await })
    };
    tokio::select! {
        opened = opened => opened??,
        // Recovery changes nothing that a kill could break, and there is nothing to drain.
        () = signals.stop() => return Ok(()),
    }
    announce("ready");
    if settings.demo {
        announce(&demo::banner(
            shared.tokens().map_err(|_| ConfigError::SecretMissing)?,
            &config::demo_channel_secret(&config::load_secret(&loaded)?)?,
            &listening.url(),
        )?);
    }
    let ended = attend(&shared, &mut signals, |reason| {
        let running = Running {
            started: &loaded,
            gate: &shared.gate,
            http: &http_sender,
            certificate: listening.certificate.as_ref(),
            resp: listening.resp.as_ref(),
            log_level: &log_level,
        };
        running.reload(&flags, reason);
    })
    .await;
    tokio::spawn(async move {
        signals.stop().await;
        std::process::exit(EXIT_TERMINATED);
    });
    drain(&shared, listening).await?;
    ended
}

/// Says `line` on standard output, where tools read it. Nobody having to listen, a closed pipe is
/// no error.
fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Listening {
    cores: Cores,
    /// What the HTTP port encrypts with, where it does.
    certificate: Option<Certificate>,
    /// Metrics and health, where they have an address of their own.
    apart: Option<tokio::task::JoinHandle<usize>>,
    resp: Option<RespServer>,
}

impl Listening {
    /// Where the HTTP port is.
    fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.cores.address)
    }
}

/// Listens on the addresses of `settings` and announces them on standard output.
fn listen(settings: &Settings, shared: &Arc<Shared>) -> Result<Listening, ServeError> {
    let house = |router| House::new(router, shared);
    let (address, metrics) = (settings.listen, settings.metrics_listen);
    let refused = |address| move |source| ServeError::Bind { address, source };
    let certificate = config::http_tls(&settings.http)?.map(Certificate::new);
    let api = house(http::router(shared, metrics.is_none())).encrypted(certificate.clone());
    let apart = metrics.map(|apart| listener::bind(apart).map_err(refused(apart))).transpose()?;
    let cores = Cores::start(address, &api, shared).map_err(refused(address))?;
    let apart = match apart {
        Some(socket) => {
            let socket = TcpListener::from_std(socket)?;
            let listener =
                Listener::new(socket, house(http::metrics_router(shared)).that_sells_nothing());
            Some(tokio::spawn(listener.run()))
        }
        None => None,
    };
    let mut listening = Listening { cores, certificate, apart, resp: None };
    announce(&format!("listening on {}", listening.url()));
    let resp = settings.resp_listen.map(|it| listen_resp(it, settings, shared)).transpose()?;
    listening.resp = resp;
    Ok(listening)
}

/// Listens for the Redis protocol.
fn listen_resp(
    address: SocketAddr,
    settings: &Settings,
    shared: &Arc<Shared>,
) -> Result<RespServer, ServeError> {
    let options = resp::Options {
        address,
        bounds: settings.resp.clone(),
        users: config::resp_users(&settings.resp)?,
        tls: config::resp_tls(&settings.resp)?,
        test_clock: settings.test_clock,
        drain_timeout: settings.http.drain_timeout,
    };
    let is_encrypted = options.tls.is_some();
    let server = RespServer::start(options, shared);
    let server = server.map_err(|source| ServeError::Bind { address, source })?;
    let scheme = if is_encrypted { "rediss" } else { "redis" };
    announce(&format!("listening on {scheme}://{}", server.address));
    Ok(server)
}

/// Recovers the log, starts the bridge, makes the demo's sale, and lets requests in.
async fn open(loaded: &Loaded, shared: &Arc<Shared>) -> Result<(), ServeError> {
    let settings = &loaded.settings;
    let secret = config::configured_secret(loaded)?;
    if secret.is_some() || !settings.demo {
        shared.know(tokens_of(loaded, secret.as_ref())?);
    }
    let mut options = EngineOptions::new(settings.data_dir.clone());
    options.segment_bytes = settings.format.segment_bytes;
    if let Some(prefix) = OrderPrefix::new(settings.format.order_prefix) {
        options.order_prefix = prefix;
    }
    options.companions.extend(orders::companions(settings));
    options.appends = settings.wal.device.into();
    options.sinks.push((ORDERS_SINK.to_owned(), SinkClass::MustDeliver));
    options.snapshot_after_bytes = settings.retention.snapshot_after_bytes;
    options.retention = settings.retention.limits();
    options.memory_ahead_bytes_max = settings.memory.ahead_bytes_max;
    options.on_snapshot = Box::new(logs::snapshot);
    options.accept_clock = settings.accept_clock;
    options.accept_file_system = settings.accept_file_system;
    let bar = Bar::of_reading("recovering the log", &options.progress);
    let recovered = tokio::task::spawn_blocking(|| Engine::recover(options)).await;
    drop(bar);
    let recovered = recovered??;
    let patience = first_look::look(settings, &recovered).await?;
    let (engine, report) = tokio::task::spawn_blocking(|| recovered.finish()).await??;
    tracing::info!("{report}");
    if shared.tokens().is_err() {
        shared.know(tokens_of(loaded, Some(&config::load_secret(loaded)?))?);
    }
    legacy::adopt(settings, &engine).await?;
    let ordered = shared.ordered.clone();
    engine.on_ordered(Box::new(move || ordered.send_replace(())));
    let orders = Orders::start(settings, &engine, patience.orders).await?;
    let mirror = Mirror::start(settings, &engine, patience.mirror).await?;
    let payments = payments_of(loaded)?;
    let reconcile = Reconcile::new(settings, &engine)?;
    let committing = engine.committing();
    let app = App { engine, committing, orders, mirror, payments, reconcile };
    if settings.demo {
        demo::prepare(&app, &shared.passwords).await?;
    }
    shared.gate.load(&app.engine);
    keepers::start(shared, &app);
    keepers::archive(&app.engine).await?;
    app.engine.serving();
    shared.start(app);
    tokio::spawn(reconcile::scheduled(Arc::clone(shared)));
    Ok(())
}

/// The ways to pay; a demo always has one.
fn payments_of(loaded: &Loaded) -> Result<Payments, ConfigError> {
    let settings = &loaded.settings;
    let mut channels = config::payment_channels(&settings.payments)?;
    if settings.demo {
        channels = channels.with_demo(config::demo_channel_secret(&config::load_secret(loaded)?)?);
    }
    Ok(Payments::new(channels, settings.payments.ttl))
}

/// Waits for what ends the server, and reloads the configuration whenever it is told to.
async fn attend(
    shared: &Shared,
    signals: &mut Signals,
    reload: impl Fn(&str),
) -> Result<(), ServeError> {
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Stop => return Ok(()),
                Asked::Reload => reload("SIGHUP"),
            },
            why = forked(shared) => return Err(ServeError::Fork(why)),
        }
    }
}

/// Ends when the bridge finds that the order database or Redis follows another history.
async fn forked(shared: &Shared) -> String {
    match shared.app() {
        Ok(app) => {
            let mirror = async {
                match &app.mirror {
                    Some(mirror) => orders::forked(mirror.watcher.sink()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                why = orders::forked(app.orders.watcher()) => why,
                why = mirror => why,
            }
        }
        Err(_) => std::future::pending().await,
    }
}

/// Stops in the order in which nothing acknowledged can be lost.
async fn drain(shared: &Arc<Shared>, mut listening: Listening) -> Result<(), ServeError> {
    tracing::info!("stopping");
    shared.drain();
    let mut cut_off = listening.cores.served().await;
    if let Some(apart) = listening.apart {
        cut_off += apart.await?;
    }
    if cut_off > 0 {
        tracing::warn!("{cut_off} connections were cut off: drain_timeout is over");
    }
    let shared = Arc::clone(shared);
    tokio::task::spawn_blocking(move || {
        if let Some(resp) = listening.resp {
            resp.stop();
        }
        let Ok(app) = shared.app() else { return Ok(()) };
        app.orders.stop();
        if let Some(mirror) = &app.mirror {
            mirror.stop();
        }
        app.engine.close()
    })
    .await??;
    drop(listening.cores);
    tracing::info!("stopped");
    Ok(())
}
