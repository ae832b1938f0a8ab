//! The accept loop: bounded connections, every wait on a clock, and a drain that ends.
//!
//! `axum::serve` has no header time-out and no bound on connections, so the loop is our own over
//! hyper's HTTP/1.1. A connection beyond the bound is told 503 and closed, by a bounded number of
//! helpers; beyond those it is closed without a word. Running out of file descriptors pauses the
//! loop instead of ending it.
//!
//! There are such loops on all [cores] but one, each with a runtime of its own; what a loop decides
//! in a [turn] it makes durable itself. A connection that only buys goes the [short way](shortcut);
//! from its first other request on it is [routed]. Where the port has a certificate, all of this
//! happens under [TLS](encrypted).

mod cores;
mod encrypted;
mod guard;
mod loops;
mod peer;
mod refused;
mod routed;
mod shortcut;
mod sockets;
mod streamed;
pub(crate) mod turn;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::app::Shared;
use crate::http::problem::Code;
use guard::{Guard, Patience, Phase};
use shortcut::Rest;

pub(crate) use cores::Cores;
pub(crate) use encrypted::Certificate;
pub(crate) use loops::{loop_count, settle};
pub(crate) use peer::Peer;
pub(crate) use sockets::{bind, bind_shared};
pub(crate) use streamed::Streamed;

/// How long the loop rests after an accept that failed (no descriptors, no memory): at once it
/// would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections being turned away at once.
const TURNED_AWAY_MAX: usize = 64;

/// What the listener counts.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    /// Accepted and served.
    pub(crate) accepted: AtomicU64,
    /// Closed at the bound.
    pub(crate) turned_away: AtomicU64,
    /// Open now.
    pub(crate) open: AtomicU64,
}

/// What is served, and within which bounds: the same for every socket of an address.
#[derive(Clone)]
pub(crate) struct House {
    router: Router,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    turning_away: Arc<Semaphore>,
    certificate: Option<Certificate>,
    is_selling: bool,
}

impl House {
    /// Serves `router`.
    pub(crate) fn new(router: Router, shared: &Arc<Shared>) -> Self {
        let places = shared.http().connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            router,
            shared: Arc::clone(shared),
            places: Arc::new(Semaphore::new(places)),
            turning_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            certificate: None,
            is_selling: true,
        }
    }

    /// Under TLS, where there is a certificate.
    pub(crate) fn encrypted(self, certificate: Option<Certificate>) -> Self {
        Self { certificate, ..self }
    }

    /// Where only the router answers: purchases don't go the short way past it.
    pub(crate) fn that_sells_nothing(self) -> Self {
        Self { is_selling: false, ..self }
    }
}

/// A socket of a house.
pub(crate) struct Listener {
    socket: TcpListener,
    house: House,
    connections: TaskTracker,
}

impl Listener {
    /// Serves `house` on `socket`.
    pub(crate) fn new(socket: TcpListener, house: House) -> Self {
        Self { socket, house, connections: TaskTracker::new() }
    }

    /// Accepts until told to stop, then waits for the connections to finish what they have
    /// begun, `drain_timeout` at most. Returns the number of connections that were cut off.
    pub(crate) async fn run(self) -> usize {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = self.house.shared.stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, address)) => {
                    self.admit(stream, Peer::of(address, self.house.certificate.is_some()));
                }
                // A client that was gone before we came leaves an error that says nothing of us.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(self.socket);
        self.connections.close();
        let patience = self.house.shared.http().drain_timeout;
        match tokio::time::timeout(patience, self.connections.wait()).await {
            Ok(()) => 0,
            Err(_) => self.connections.len(),
        }
    }

    fn admit(&self, stream: TcpStream, peer: Peer) {
        let counts = &self.house.shared.connections;
        match Arc::clone(&self.house.places).try_acquire_owned() {
            Ok(place) => {
                counts.accepted.fetch_add(1, Ordering::Relaxed);
                self.serve(stream, peer, place);
            }
            Err(_) => {
                counts.turned_away.fetch_add(1, Ordering::Relaxed);
                // Who comes under TLS would have to be shaken hands with first.
                if self.house.certificate.is_none()
                    && let Ok(helper) = Arc::clone(&self.house.turning_away).try_acquire_owned()
                {
                    tokio::spawn(turn_away(stream, helper));
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream, peer: Peer, place: OwnedSemaphorePermit) {
        let house = self.house.clone();
        let open = OpenConnection::new(Arc::clone(&house.shared.connections), place);
        self.connections.spawn(async move {
            let _open = open;
            // Small answers, each waited for: Nagle would hold them back. A socket that refuses
            // the option is dead already, which the first read tells.
            let _ = stream.set_nodelay(true);
            match house.certificate.clone() {
                None => converse(stream, peer, house).await,
                // Boxed: it is large, and nobody else needs it.
                Some(certificate) => {
                    let conversation = async move {
                        let begun = certificate.begin(stream, &house.shared.stop).await;
                        if let Some(stream) = begun {
                            converse(stream, peer, house).await;
                        }
                    };
                    Box::pin(conversation).await;
                }
            }
        });
    }
}

/// Answers what comes on `stream`, to its end.
async fn converse<S>(stream: S, peer: Peer, house: House)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let House { router, shared, is_selling, .. } = house;
    let http = shared.http();
    let phase = Phase::default();
    let patience = Patience {
        idle: http.idle_timeout,
        header: http.header_timeout,
        write: http.write_timeout,
    };
    let mut guard = Guard::new(stream, phase.clone(), patience);
    let rest = match is_selling {
        true => shortcut::serve((&mut guard, &phase), &peer, &shared).await,
        false => Rest::Other(Vec::new()),
    };
    match rest {
        // Under TLS an end that is not told looks like one that somebody cut.
        Rest::Nothing => _ = guard.shutdown().await,
        Rest::Other(bytes) => {
            guard.give_back(bytes);
            // Boxed: it is large, and who only buys never needs it.
            Box::pin(routed::serve((guard, phase), peer, (router, &shared))).await;
        }
    }
}

/// Holds a connection's place, and its count.
struct OpenConnection {
    counts: Arc<ConnectionCounts>,
    _place: OwnedSemaphorePermit,
}

impl OpenConnection {
    fn new(counts: Arc<ConnectionCounts>, place: OwnedSemaphorePermit) -> Self {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self { counts, _place: place }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says 503 and closes. What the client has sent is read away, since closing a socket with unread
/// bytes resets it and may destroy the answer on its way.
async fn turn_away(mut stream: TcpStream, _helper: OwnedSemaphorePermit) {
    let farewell = async {
        stream.write_all(&refused::answer(Code::Overloaded, "")).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was heard is the client's affair.
    let _ = tokio::time::timeout(refused::FAREWELL_TIMEOUT, farewell).await;
}
