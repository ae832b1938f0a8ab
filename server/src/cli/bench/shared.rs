//! The flags that both fronts have: who shops, how much, how fast, and what becomes of the figures.

use std::path::PathBuf;
use std::time::Duration;

use super::BenchError;
use super::pace::{Pace, Spike};
use super::plan::Plan;
use super::verify::Depth;
use crate::duration;

/// More connections than this are more than one address pair has ports for.
const CONNECTIONS_MAX: i64 = 50_000;

/// What the shoppers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Profile {
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

/// Flags of both fronts.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// Rush this activity; without it, one is made and put on sale
    #[arg(long, value_name = "ID")]
    pub(super) activity: Option<u64>,
    /// What the shoppers do
    #[arg(long, value_enum, default_value_t = Profile::Accept)]
    profile: Profile,
    /// Share of the requests that repeat an earlier request id (duplicate clicks), 0..1
    /// [default: by the profile]
    #[arg(long, value_name = "SHARE")]
    repeat_share: Option<f64>,
    /// Share of the requests that are an earlier shopper's second try with a new id, 0..1
    /// [default: by the profile]
    #[arg(long, value_name = "SHARE")]
    second_try_share: Option<f64>,
    /// Units of the activity that is made [default: by the profile]
    #[arg(long, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    stock: Option<u32>,
    /// Units a shopper may hold in the activity that is made
    #[arg(long, default_value_t = 1, conflicts_with = "activity",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: u32,
    /// Distinct shoppers
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) shoppers: u32,
    /// User id of the first shopper
    #[arg(long, default_value_t = 1, value_name = "ID")]
    pub(super) first_user: u64,
    /// Connections
    #[arg(long, default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=CONNECTIONS_MAX))]
    pub(super) connections: u32,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Requests to send (default: until every shopper came)
    #[arg(long)]
    requests: Option<u64>,
    /// Stop sending after this long, for example 30s
    #[arg(long, value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Requests per second, sent on schedule whatever the server does (open loop)
    #[arg(long)]
    rate: Option<f64>,
    /// Reach the rate evenly within this long
    #[arg(long, requires = "rate", value_parser = parse_duration, value_name = "TIME")]
    ramp: Option<Duration>,
    /// Rush at another rate for a while, for example 50000@10s+2s: from 10 s on, for 2 s
    #[arg(long, requires = "rate", value_parser = Spike::parse, value_name = "RATE@START+LENGTH")]
    spike: Option<Spike>,
    /// The longest wait for an answer
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// The longest wait for the accepted purchases to become orders
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(super) drain_timeout: Duration,
    /// The server's database, to see when it has the orders, and over HTTP to count them there:
    /// sqlite:PATH or mysql://...
    #[arg(long, value_name = "URL")]
    pub(super) database: Option<String>,
    /// The Redis of the server's mirror (layout `flashsale`), to see when it has the purchases
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// What is checked after the run
    #[arg(long, value_enum, default_value_t = Depth::All)]
    pub(super) check: Depth,
    /// The same seed shops in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plot answers a second and percentiles of their latency over time into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show no progress
    #[arg(long)]
    pub(super) quiet: bool,
}

/// Reads a length of time.
pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("a whole number with a unit is wanted, for example 500ms, 30s, 5m")
}

impl LoadArgs {
    /// What is to be sent, and how many requests of it; `None` where time alone is the bound.
    ///
    /// # Errors
    /// Shares that make no run, or nothing to check.
    pub(super) fn plan(&self) -> Result<(Plan, Option<u64>), BenchError> {
        if self.check == Depth::None && self.activity.is_none() {
            return Err(BenchError::NothingToRush);
        }
        let (repeats, second_tries) = self.shares();
        let plan = Plan::new(self.shoppers, repeats, second_tries, self.seed);
        let plan = plan.ok_or(BenchError::Shares)?;
        let requests = match (self.requests, self.duration) {
            (Some(requests), _) => Some(requests),
            (None, Some(_)) => None,
            (None, None) => Some(plan.natural_len()),
        };
        Ok((plan, requests))
    }

    fn shares(&self) -> (f64, f64) {
        let (repeats, second_tries) = self.profile.shares();
        (self.repeat_share.unwrap_or(repeats), self.second_try_share.unwrap_or(second_tries))
    }

    /// When requests are due; `None` for a closed loop.
    ///
    /// # Errors
    /// A rate that is none.
    pub(super) fn pace(&self) -> Result<Option<Pace>, BenchError> {
        let Some(rate) = self.rate else { return Ok(None) };
        let pace = Pace::new(rate, self.ramp.unwrap_or_default(), self.spike);
        pace.map(Some).ok_or(BenchError::Rate)
    }

    /// Threads that have a connection each.
    pub(super) fn threads(&self) -> u32 {
        self.threads.min(self.connections)
    }

    /// Units of the activity that is made.
    pub(super) fn stock(&self) -> u32 {
        self.stock.unwrap_or_else(|| self.profile.stock(self.shoppers))
    }

    /// The run in words.
    pub(super) fn describe(&self, activity: u64, requests: Option<u64>) -> String {
        let extent = match (requests, self.duration) {
            (Some(requests), Some(duration)) => format!("{requests} requests or {duration:?}"),
            (Some(requests), None) => format!("{requests} requests"),
            (None, duration) => format!("{:?}", duration.unwrap_or_default()),
        };
        let (repeats, second_tries) = self.shares();
        let Self { profile, shoppers, connections, seed, .. } = self;
        format!(
            "{profile:?}, activity {activity}, {shoppers} shoppers, {extent} on {connections} \
             connections, {}, repeats {repeats:.3}, second tries {second_tries:.3}, seed {seed}",
            self.describe_pace()
        )
    }

    fn describe_pace(&self) -> String {
        let Some(rate) = self.rate else { return "closed loop".to_owned() };
        let mut text = format!("open loop at {rate}/s");
        if let Some(ramp) = self.ramp {
            text += &format!(" after a ramp of {ramp:?}");
        }
        if let Some(Spike { rate, start, length }) = self.spike {
            text += &format!(" with a spike of {rate}/s for {length:?} after {start:?}");
        }
        text + ", latencies from the intended send time"
    }
}
