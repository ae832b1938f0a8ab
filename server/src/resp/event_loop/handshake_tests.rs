//! A rush of peers that begin TLS, turn by turn.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::sync::watch;

use super::*;
use crate::app::Shared;
use crate::config::{Flags, load};
use crate::listener::bind_shared;
use crate::resp::Options;
use crate::resp::access::Users;

/// For what the kernel has yet to hand over.
const PATIENCE: Duration = Duration::from_secs(60);

/// A loop with a certificate that the second trusts, where it listens, and what its port rests on.
fn event_loop() -> (EventLoop, ClientConfig, SocketAddr, tokio::runtime::Runtime) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions();
    let tls = versions.unwrap().with_no_client_auth();
    let tls = tls.with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = versions.unwrap().with_root_certificates(roots).with_no_client_auth();

    let settings = load(&Flags::default()).unwrap().settings;
    let (_, http) = watch::channel(Arc::new(settings.http.clone()));
    let shared = Arc::new(Shared::new(&settings, http).unwrap());
    let (address, mut listeners) = bind_shared((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap();
    let options = Options {
        address,
        bounds: settings.resp,
        users: Users::default(),
        tls: Some(Arc::new(tls)),
        test_clock: false,
        drain_timeout: Duration::ZERO,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let port = Arc::new(Port::new(options, &shared, runtime.handle().clone()));
    let (event_loop, _) = EventLoop::new(port, listeners.pop().unwrap()).unwrap();
    (event_loop, client, address, runtime)
}

/// Accepts until there are `count` connections.
fn accept_until(event_loop: &mut EventLoop, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while event_loop.connections.slab.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", event_loop.connections.slab.len());
        event_loop.accepts_from = Some(Instant::now());
        event_loop.accept();
    }
}

/// A peer that has begun TLS with connection `index` of the loop.
fn begin(
    event_loop: &mut EventLoop,
    index: usize,
    config: ClientConfig,
    mut socket: TcpStream,
) -> rustls::StreamOwned<ClientConnection, TcpStream> {
    let name = "localhost".try_into().unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    socket.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while session.is_handshaking() || event_loop.connections.slab[index].wire.is_shaking_hands() {
        assert!(Instant::now() < deadline, "TLS does not begin");
        match session.complete_io(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            told => {
                told.unwrap();
            }
        }
        event_loop.enqueue(index);
        event_loop.take_turn();
    }
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    rustls::StreamOwned::new(session, socket)
}

#[test]
fn a_turn_takes_a_few_steps_of_handshakes_and_all_who_have_begun_before() {
    const PEERS: usize = 3 * HANDSHAKES_MAX;
    let (mut event_loop, config, address, _runtime) = event_loop();
    let buyer = TcpStream::connect(address).unwrap();
    accept_until(&mut event_loop, 1);
    let (index, _) = event_loop.connections.slab.iter().next().unwrap();
    let mut buyer = begin(&mut event_loop, index, config, buyer);

    let _rush: Vec<_> = (0..PEERS).map(|_| TcpStream::connect(address).unwrap()).collect();
    accept_until(&mut event_loop, 1 + PEERS);
    let others: Vec<_> = event_loop.connections.slab.iter().map(|(index, _)| index).collect();
    others.into_iter().filter(|other| *other != index).for_each(|other| event_loop.enqueue(other));
    assert_eq!(event_loop.queue.len(), PEERS);

    // Behind all of them, and read and answered in the same turn.
    buyer.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while event_loop.connections.slab[index].wire.socket().peek(&mut [0]).is_err() {
        assert!(Instant::now() < deadline, "nothing comes");
    }
    event_loop.enqueue(index);
    event_loop.take_turn();
    let mut heard = [0; 7];
    buyer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"+PONG\r\n");

    for turns in 1..=3 {
        assert_eq!(event_loop.queue.len(), PEERS - turns * HANDSHAKES_MAX, "after {turns} turns");
        event_loop.take_turn();
    }
    assert!(event_loop.queue.is_empty());
}
