//! The Redis protocol: the calls of the function library, durable before they are answered.
//!
//! # The story on one page
//!
//! A [loop](event_loop) for each core but one listens on the same address; the kernel spreads
//! connections over them. A loop reads what has come on all its connections, cuts it into
//! [requests](request), and [decides](commands) them in order; the answers of a [turn] are made
//! durable with one write, which the loop does itself, and leave with one write a connection. So
//! pipelining and many connections make large commits, and a lone request wakes no other thread.
//!
//! The calls themselves are the [function library](functions)'s, with its [arguments] and codes;
//! the compatibility [keys] are read from the engine's state. What a purchase may do is decided by
//! the engine alone.
//!
//! | file | idea |
//! |---|---|
//! | `request`, `reply` | the protocol: borrowed words in, bytes out |
//! | `event_loop`, `connections`, `connection` | sockets and buffers, all bounded |
//! | `wire` | bytes as they are, or under TLS |
//! | `pipeline`, `turn`, `render` | answers in order, after one commit |
//! | `commands`, `calls`, `functions`, `arguments`, `keys` | what is asked |
//! | `archived`, `asked` | what memory has let go of: SQL is asked, beside the loops |
//! | `connection_commands`, `session`, `access` | who asks, and what else they say |
//! | `gate`, `blacklist` | who may buy, and how often |

pub(crate) mod access;
mod archived;
mod arguments;
mod asked;
mod blacklist;
mod calls;
mod commands;
mod connection;
mod connection_commands;
mod connections;
mod event_loop;
mod functions;
mod gate;
mod keys;
mod pipeline;
mod render;
mod reply;
mod request;
mod session;
mod turn;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::core::ids::UserId;
use engine::{BatchAnswer, Busy, Engine};

use crate::app::Shared;
use crate::config::Resp;
use crate::gate::Reason;
use crate::http::problem::{Code, Problem};
use crate::listener::{ConnectionCounts, bind_shared, loop_count, settle};
use crate::metrics::PurchaseOutcome;
use access::Users;
use asked::Asker;
use event_loop::EventLoop;

/// How the port is run.
pub(crate) struct Options {
    /// Its address; port 0 takes a free one.
    pub(crate) address: SocketAddr,
    /// Its bounds.
    pub(crate) bounds: Resp,
    /// Who may call; nobody: everybody on this machine.
    pub(crate) users: Users,
    /// The certificate and how it is used; without one nothing is encrypted.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// Honour the times that callers give.
    pub(crate) test_clock: bool,
    /// For peers to take what was answered when the server ends.
    pub(crate) drain_timeout: Duration,
}

/// What the loops share.
struct Port {
    shared: Arc<Shared>,
    users: Users,
    /// What the next connection begins TLS with.
    tls: Mutex<Option<Arc<rustls::ServerConfig>>>,
    test_clock: bool,
    connections_max: usize,
    request_timeout: Duration,
    write_timeout: Duration,
    drain_timeout: Duration,
    started: Instant,
    counts: Arc<ConnectionCounts>,
    is_stopping: AtomicBool,
    asker: Asker,
}

impl Port {
    /// A port of `options`; SQL is asked on `runtime`.
    fn new(options: Options, shared: &Arc<Shared>, runtime: tokio::runtime::Handle) -> Self {
        Self {
            shared: Arc::clone(shared),
            users: options.users,
            tls: Mutex::new(options.tls),
            test_clock: options.test_clock,
            connections_max: options.bounds.connections_max,
            request_timeout: options.bounds.request_timeout,
            write_timeout: options.bounds.write_timeout,
            drain_timeout: options.drain_timeout,
            started: Instant::now(),
            counts: Arc::clone(&shared.resp_connections),
            is_stopping: AtomicBool::new(false),
            asker: Asker::new(shared, runtime),
        }
    }

    /// The engine, once it is there, for a loop that commits by itself.
    fn engine(&self) -> Option<Engine> {
        self.shared.app().ok().map(|app| app.engine.committing())
    }

    /// How a connection that begins now is encrypted.
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a purchase that the gate refused.
    fn refused(&self, reason: Reason, code: Code, user: UserId, ip: IpAddr) {
        self.shared.gate.counts.refused(reason, Some(user), ip);
        self.shared.metrics.purchase(PurchaseOutcome::Refused(code));
    }

    /// Counts a purchase.
    fn count(&self, outcome: &turn::PurchaseOutcome) {
        self.shared.metrics.purchase(match outcome.map(|answer| answer.answer) {
            Ok(BatchAnswer::Reserved(_)) => PurchaseOutcome::Accepted,
            Ok(BatchAnswer::Replayed(_)) => PurchaseOutcome::Replayed,
            Ok(BatchAnswer::Refused(refusal)) => {
                PurchaseOutcome::Refused(Problem::from(refusal).code)
            }
            Err(Busy::Overloaded) => PurchaseOutcome::Refused(Code::Overloaded),
            Err(Busy::LogUnavailable) => PurchaseOutcome::Refused(Code::LogUnavailable),
        });
    }
}

/// The running port.
pub(crate) struct RespServer {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    port: Arc<Port>,
    wakers: Vec<Arc<mio::Waker>>,
    threads: Vec<JoinHandle<()>>,
}

impl RespServer {
    /// Listens, and answers from now on; calls are `RECOVERING` until `shared` has its engine.
    ///
    /// # Errors
    /// The address is taken, or the operating system refuses sockets or threads.
    ///
    /// # Panics
    /// Outside a runtime.
    pub(crate) fn start(options: Options, shared: &Arc<Shared>) -> io::Result<Self> {
        let wanted = options.bounds.loops;
        let loops = loop_count(wanted);
        let (address, listeners) = bind_shared(options.address, loops)?;
        let runtime = tokio::runtime::Handle::current();
        let port = Arc::new(Port::new(options, shared, runtime));
        let mut server =
            Self { address, port: Arc::clone(&port), wakers: Vec::new(), threads: Vec::new() };
        for (number, listener) in listeners.into_iter().enumerate() {
            let (event_loop, waker) = EventLoop::new(Arc::clone(&port), listener)?;
            let builder = std::thread::Builder::new().name(format!("resp-{number}"));
            server.threads.push(builder.spawn(move || {
                settle(wanted, number);
                event_loop.run();
            })?);
            server.wakers.push(waker);
        }
        Ok(server)
    }

    /// Shows connections that begin from now on another certificate; those that are there keep
    /// theirs.
    pub(crate) fn renew_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *self.port.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    /// Accepts nobody any more, answers what has come, and ends the loops.
    pub(crate) fn stop(self) {
        self.port.is_stopping.store(true, Ordering::Release);
        for waker in &self.wakers {
            if let Err(error) = waker.wake() {
                tracing::warn!("a loop of the Redis port hears of its end later: {error}");
            }
        }
        for thread in self.threads {
            // A loop that panics aborts the process.
            let _ = thread.join();
        }
    }
}
