//! The flags of `sluice bench http`, and what they add up to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use super::BenchError;
use super::plan::Plan;
use crate::duration;

/// More connections than this are more than one address pair has ports for.
const CONNECTIONS_MAX: u64 = 50_000;

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
    /// Rush this activity; without it, one is made and put on sale
    #[arg(long, value_name = "ID")]
    pub(super) activity: Option<u64>,
    /// Units of the activity that is made
    #[arg(long, default_value_t = 1000, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(super) stock: u32,
    /// Units a shopper may hold in the activity that is made
    #[arg(long, default_value_t = 1, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// SKU of the activity that is made (the demo has 20001)
    #[arg(long, default_value_t = 20_001, conflicts_with = "activity", value_name = "ID")]
    pub(super) sku: u64,
    /// Distinct shoppers
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) shoppers: u32,
    /// User id of the first shopper
    #[arg(long, default_value_t = 1, value_name = "ID")]
    pub(super) first_user: u64,
    /// Connections
    #[arg(long, default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(super) connections: u64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(super) threads: u64,
    /// Requests to send (default: until every shopper came)
    #[arg(long)]
    pub(super) requests: Option<u64>,
    /// Stop sending after this long, for example 30s
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Requests per second, sent on schedule whatever the server does (open loop)
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Share of the requests that repeat an earlier request id (duplicate clicks), 0..1
    #[arg(long, default_value_t = 0.0)]
    pub(super) repeat_share: f64,
    /// Share of the requests that are an earlier shopper's second try with a new id, 0..1
    #[arg(long, default_value_t = 0.0)]
    pub(super) second_try_share: f64,
    /// The longest wait for an answer
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// The longest wait for the accepted purchases to become orders
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(super) drain_timeout: Duration,
    /// The server's database, to count the orders there, too, and to see when it has them:
    /// sqlite:PATH or mysql://...
    #[arg(long, value_name = "URL")]
    pub(super) database: Option<String>,
    /// The Redis of the server's mirror (layout `flashsale`), to see when it has the purchases
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// The same seed shops in the same order
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress
    #[arg(long)]
    pub(super) quiet: bool,
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("a whole number with a unit is wanted, for example 500ms, 30s, 5m")
}

impl HttpArgs {
    /// What is to be sent, and how many requests of it; `None` where time alone is the bound.
    ///
    /// # Errors
    /// Shares or a rate that make no run.
    pub(super) fn plan(&self) -> Result<(Plan, Option<u64>), BenchError> {
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(BenchError::Rate);
        }
        let shares = (self.repeat_share, self.second_try_share);
        let plan =
            Plan::new(self.shoppers, shares.0, shares.1, self.seed).ok_or(BenchError::Shares)?;
        let requests = match (self.requests, self.duration) {
            (Some(requests), _) => Some(requests),
            (None, Some(_)) => None,
            (None, None) => Some(plan.natural_len()),
        };
        Ok((plan, requests))
    }

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
        let pace = match self.rate {
            Some(rate) => format!("open loop at {rate}/s, latencies from the intended send time"),
            None => "closed loop".to_owned(),
        };
        let extent = match (requests, self.duration) {
            (Some(requests), Some(duration)) => format!("{requests} requests or {duration:?}"),
            (Some(requests), None) => format!("{requests} requests"),
            (None, duration) => format!("{:?}", duration.unwrap_or_default()),
        };
        format!(
            "sluice bench http: activity {activity}, {} shoppers, {extent} on {} connections, \
             {pace}, repeats {:.3}, second tries {:.3}, seed {}",
            self.shoppers, self.connections, self.repeat_share, self.second_try_share, self.seed
        )
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
