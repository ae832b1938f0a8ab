//! Listening sockets: one of its own, or several that share an address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds for us between two accepts: a rush is thousands at once.
const BACKLOG: i32 = 4096;

/// A socket that listens on `address`.
///
/// # Errors
/// The address is taken, or not ours.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, false)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// `count` sockets on one address, over which the kernel spreads connections, and that address:
/// port 0 takes a free one.
///
/// # Errors
/// The address is taken, or not ours.
pub(crate) fn bind_shared(
    address: SocketAddr,
    count: usize,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    // Sockets that share their port do not notice a stranger who shares it as well: one that does
    // not share finds out first, and finds the port where any will do.
    let alone = socket(address, false)?;
    let address = alone.local_addr()?.as_socket().unwrap_or(address);
    drop(alone);
    let bound = |_| {
        let socket = socket(address, true)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    Ok((address, (0..count).map(bound).collect::<io::Result<_>>()?))
}

/// A bound socket that does not listen yet.
fn socket(address: SocketAddr, shares: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
