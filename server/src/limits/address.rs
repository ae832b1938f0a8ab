//! Where a request comes from.
//!
//! The socket's peer, unless that is a proxy of ours: then the address that this proxy saw, which
//! it wrote at the right end of `X-Forwarded-For`; and so on, leftwards, for as long as the writer
//! is trusted. What stands further left was written by whoever sent it, and is never believed.

use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address, or `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    first: IpAddr,
    bits: u32,
}

/// A text that is no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a trusted proxy is an address or a network such as 10.0.0.0/8")]
pub(crate) struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| NoNetwork)?)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let width = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width { Err(NoNetwork) } else { Ok(Self { first, bits }) }
    }
}

impl Network {
    fn contains(self, ip: IpAddr) -> bool {
        let same = |first: u128, ip: u128, width: u32| {
            self.bits == 0 || (first ^ ip) >> (width - self.bits) == 0
        };
        match (self.first, ip.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                same(u32::from(first).into(), u32::from(ip).into(), 32)
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => same(u128::from(first), u128::from(ip), 128),
            _ => false,
        }
    }
}

/// The proxies whose word counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Proxies(Vec<Network>);

impl FromStr for Proxies {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let networks = text.split(',').map(str::trim).filter(|network| !network.is_empty());
        networks.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Proxies {
    /// Nobody is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `ip` is one of ours.
    pub(crate) fn trust(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(ip))
    }

    /// The client behind `peer`, by the values of `X-Forwarded-For` in the order in which they
    /// came. An entry that is no address ends the walk: beyond it nothing can be known.
    pub(crate) fn client<'a>(
        &self,
        peer: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        for entry in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            if !self.trust(client) {
                break;
            }
            match parse(entry.trim()) {
                Some(ip) => client = ip,
                None => break,
            }
        }
        client
    }
}

/// An address as proxies write it: bare, with a port, in brackets.
fn parse(entry: &str) -> Option<IpAddr> {
    let bare = || entry.parse::<IpAddr>().ok();
    let with_port = || entry.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || entry.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    bare().or_else(with_port).or_else(bracketed).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_right_most_entry_that_no_proxy_of_ours_wrote_is_the_client() {
        let proxies: Proxies = "10.0.0.0/8, 127.0.0.1, fd00::/8".parse().unwrap();
        for (peer, headers, client) in [
            ("127.0.0.1", &[][..], "127.0.0.1"),
            ("127.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            ("127.0.0.1", &["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            ("127.0.0.1", &["6.6.6.6", "1.2.3.4"], "1.2.3.4"),
            ("127.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.7"], "1.2.3.4"),
            ("127.0.0.1", &["10.0.0.9, 10.0.0.7"], "10.0.0.9"),
            ("127.0.0.1", &["6.6.6.6, garbage, 10.0.0.7"], "10.0.0.7"),
            ("127.0.0.1", &[""], "127.0.0.1"),
            ("127.0.0.1", &["1.2.3.4:5678"], "1.2.3.4"),
            ("127.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("127.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("::ffff:127.0.0.1", &["::ffff:1.2.3.4"], "1.2.3.4"),
            ("fd00::1", &["1.2.3.4"], "1.2.3.4"),
            ("9.9.9.9", &["1.2.3.4"], "9.9.9.9"),
        ] {
            let found = proxies.client(ip(peer), headers.iter().copied());
            assert_eq!(found, ip(client), "{peer} {headers:?}");
        }
    }

    #[test]
    fn without_trusted_proxies_no_header_counts() {
        let proxies = Proxies::default();
        assert_eq!(proxies.client(ip("127.0.0.1"), ["1.2.3.4"].into_iter()), ip("127.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["10.0.0.0/33", "10.0.0/8", "::/129", "x", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(text.parse::<Proxies>().is_err(), "{text}");
        }
        let all: Proxies = "0.0.0.0/0".parse().unwrap();
        assert!(all.trust(ip("1.2.3.4")) && !all.trust(ip("::1")));
    }
}
