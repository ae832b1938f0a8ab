//! The flags of `sluice bench resp`, and what they add up to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use super::super::BenchError;
use super::super::options::parse_duration;
use super::super::plan::Plan;

/// More connections than this are more than one address pair has ports for.
const CONNECTIONS_MAX: i64 = 50_000;

/// Calls that a connection keeps in flight at most.
const DEPTH_MAX: i64 = 4096;

/// What the shoppers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(in super::super) enum Profile {
    /// Every shopper comes once, and there is a unit for each
    Accept,
    /// Every shopper comes once, and there is a unit for one in a hundred
    SoldOut,
    /// Nine in ten requests repeat an earlier one
    Replay,
    /// A quarter repeats, a quarter are second tries, and there are units for half the shoppers
    Mixed,
}

impl Profile {
    /// Shares of repeats and of second tries.
    const fn shares(self) -> (f64, f64) {
        match self {
            Self::Accept | Self::SoldOut => (0.0, 0.0),
            Self::Replay => (0.9, 0.0),
            Self::Mixed => (0.25, 0.25),
        }
    }

    const fn stock(self, shoppers: u32) -> u32 {
        let units = match self {
            Self::Accept | Self::Replay => shoppers,
            Self::SoldOut => shoppers / 100,
            Self::Mixed => shoppers / 2,
        };
        if units == 0 { 1 } else { units }
    }
}

/// Arguments of `sluice bench resp`.
#[derive(Clone, Debug, clap::Args)]
pub(in super::super) struct RespArgs {
    /// The server: Sluice's Redis port, or a Redis or Valkey with the function library loaded
    #[arg(
        long,
        visible_alias = "peer",
        default_value = "127.0.0.1:6379",
        value_name = "HOST:PORT"
    )]
    address: String,
    /// The user to authenticate as
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Rush this activity; without it, one is made and put on sale
    #[arg(long, value_name = "ID")]
    pub(super) activity: Option<u64>,
    /// What the shoppers do
    #[arg(long, value_enum, default_value_t = Profile::Accept)]
    profile: Profile,
    /// Units of the activity that is made [default: by the profile]
    #[arg(long, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    stock: Option<u32>,
    /// Units a shopper may hold in the activity that is made
    #[arg(long, default_value_t = 1, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// Distinct shoppers
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    shoppers: u32,
    /// User id of the first shopper
    #[arg(long, default_value_t = 1, value_name = "ID")]
    pub(super) first_user: u64,
    /// Connections
    #[arg(long, default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    pub(super) connections: u32,
    /// Calls that each connection keeps in flight
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    pub(super) depth: u32,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,
    /// Requests to send (default: until every shopper came)
    #[arg(long)]
    requests: Option<u64>,
    /// Stop sending after this long, for example 30s
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Requests per second, sent on schedule whatever the server does (open loop)
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Follow each batch of calls with `WAITAOF 1 0 0`, and count an answer from there: what a
    /// Redis needs for an answer that is on disk
    #[arg(long = "waitaof")]
    pub(super) wait_aof: bool,
    /// The longest wait for an answer
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// The server's database, to see when it has the orders: sqlite:PATH or mysql://...
    #[arg(long, value_name = "URL")]
    pub(super) database: Option<String>,
    /// The Redis of the server's mirror (layout `flashsale`), to see when it has the purchases
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// The longest wait for the last purchase in those two
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(super) drain_timeout: Duration,
    /// The same seed shops in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress
    #[arg(long)]
    pub(super) quiet: bool,
}

impl RespArgs {
    /// What is to be sent, and how many requests of it; `None` where time alone is the bound.
    ///
    /// # Errors
    /// A rate that makes no run.
    pub(super) fn plan(&self) -> Result<(Plan, Option<u64>), BenchError> {
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(BenchError::Rate);
        }
        let (repeats, second_tries) = self.profile.shares();
        let plan = Plan::new(self.shoppers, repeats, second_tries, self.seed);
        let plan = plan.ok_or(BenchError::Shares)?;
        let requests = match (self.requests, self.duration) {
            (Some(requests), _) => Some(requests),
            (None, Some(_)) => None,
            (None, None) => Some(plan.natural_len()),
        };
        Ok((plan, requests))
    }

    /// Units of the activity that is made.
    pub(super) fn stock(&self) -> u32 {
        self.stock.unwrap_or_else(|| self.profile.stock(self.shoppers))
    }

    /// The address.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn server(&self) -> Result<SocketAddr, BenchError> {
        let source = |source| BenchError::Host { authority: self.address.clone(), source };
        let found = self.address.to_socket_addrs().map_err(source)?.next();
        found.ok_or_else(|| BenchError::Url { url: self.address.clone() })
    }

    /// User and password.
    ///
    /// # Errors
    /// The password's file can't be read.
    pub(super) fn credentials(&self) -> Result<Option<(String, String)>, BenchError> {
        let (Some(user), Some(path)) = (&self.user, &self.password_file) else { return Ok(None) };
        let password = std::fs::read_to_string(path)?;
        Ok(Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned())))
    }

    /// The run in words.
    pub(super) fn describe(&self, activity: u64, requests: Option<u64>) -> String {
        let pace = match self.rate {
            Some(rate) => format!("open loop at {rate}/s, latencies from the intended send time"),
            None => format!("closed loop, {} in flight each", self.depth),
        };
        let extent = match (requests, self.duration) {
            (Some(requests), Some(duration)) => format!("{requests} requests or {duration:?}"),
            (Some(requests), None) => format!("{requests} requests"),
            (None, duration) => format!("{:?}", duration.unwrap_or_default()),
        };
        let durable = if self.wait_aof { ", WAITAOF" } else { "" };
        format!(
            "sluice bench resp {}: {:?}, activity {activity}, {} shoppers, {extent} on {} \
             connections, {pace}{durable}, seed {}",
            self.address, self.profile, self.shoppers, self.connections, self.seed
        )
    }
}
