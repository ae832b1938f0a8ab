//! Who is at the other end of a connection, and what this connection has asked too often.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Rate;

/// One connection, known to each of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<State>);

#[derive(Debug)]
struct State {
    address: SocketAddr,
    is_encrypted: bool,
    repeats: AtomicU64,
}

impl Peer {
    /// The connection from `address`.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::of(address, false)
    }

    /// The same, where TLS ends here or does not.
    pub(super) fn of(address: SocketAddr, is_encrypted: bool) -> Self {
        Self(Arc::new(State { address, is_encrypted, repeats: AtomicU64::new(0) }))
    }

    /// Whether TLS ends here.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.is_encrypted
    }

    /// The address of the socket: a proxy's, where there is one.
    pub(crate) fn ip(&self) -> IpAddr {
        self.0.address.ip()
    }

    /// Takes one repeat of a known request id.
    ///
    /// # Errors
    /// Nanoseconds until one would pass.
    pub(crate) fn repeat(&self, rate: Rate, now_ns: u64) -> Result<(), u64> {
        let taken = self.0.repeats.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            rate.take(state, now_ns).ok()
        });
        taken.map(|_| ()).map_err(|state| rate.take(state, now_ns).err().unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_repeats_and_another_has_its_own() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (one, other) = (Peer::new(address), Peer::new(address));
        let rate = "2/1s".parse().unwrap();
        let taken = |peer: &Peer, now_ns| peer.clone().repeat(rate, now_ns).is_ok();
        assert_eq!([1, 1, 1].map(|now_ns| taken(&one, now_ns)), [true, true, false]);
        assert!(taken(&other, 1));
        assert_eq!(one.repeat(rate, 1), Err(500_000_000));
        assert!(taken(&one, 500_000_001));
    }
}
