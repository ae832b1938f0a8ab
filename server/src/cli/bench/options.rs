//! The flags of `sluice bench http`, and what they add up to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use super::BenchError;
use super::header::Header;
use super::shared::LoadArgs;

/// Arguments of `sluice bench http`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HttpArgs {
    /// The server: `http://HOST:PORT`
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,
    /// Configuration file that names the secret to sign the shoppers' tokens with
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Data directory whose secret signs the shoppers' tokens (a demo keeps it there)
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// A header that every purchase carries besides, for example `X-Forwarded-For: 203.0.113.7`
    #[arg(long = "header", value_name = "NAME:VALUE")]
    pub(super) headers: Vec<Header>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    /// SKU of the activity that is made (the demo has 20001)
    #[arg(long, default_value_t = 20_001, conflicts_with = "activity", value_name = "ID")]
    pub(super) sku: u64,
}

impl HttpArgs {
    /// Host and port as they stand in the `Host` header, and the address behind them.
    ///
    /// # Errors
    /// The URL is not `http://HOST:PORT`, or its host has no address.
    pub(super) fn server(&self) -> Result<(String, SocketAddr), BenchError> {
        let authority = authority(&self.url)
            .ok_or_else(|| BenchError::Url { url: self.url.clone() })?
            .to_owned();
        let with_port =
            if has_port(&authority) { authority.clone() } else { authority.clone() + ":80" };
        let addresses = with_port
            .to_socket_addrs()
            .map_err(|source| BenchError::Host { authority: authority.clone(), source })?;
        match addresses.into_iter().next() {
            Some(address) => Ok((authority, address)),
            None => Err(BenchError::Url { url: self.url.clone() }),
        }
    }

    /// The run in words.
    pub(super) fn describe(&self, activity: u64, requests: Option<u64>) -> String {
        format!("sluice bench http: {}", self.load.describe(activity, requests))
    }
}

/// `host[:port]` of an `http://` URL without a path, or `None`.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    (!rest.is_empty() && rest.chars().all(is_plain)).then_some(rest)
}

fn has_port(authority: &str) -> bool {
    let after_host = authority.rsplit(']').next().unwrap_or(authority);
    after_host.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_addresses_are_taken() {
        let table = [
            ("http://127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("http://localhost/", Some("localhost")),
            ("http://[::1]:80", Some("[::1]:80")),
            ("https://localhost", None),
            ("localhost:8080", None),
            ("http://", None),
            ("http://a/b", None),
            ("http://a\r\nHost: b", None),
        ];
        for (url, expected) in table {
            assert_eq!(authority(url), expected, "{url}");
        }
    }

    #[test]
    fn a_port_is_told_from_the_colons_of_an_ipv6_address() {
        assert!(has_port("[::1]:80") && has_port("a:80"));
        assert!(!has_port("[::1]") && !has_port("a"));
    }
}
