//! `sluice bench resp`: the same rush over the Redis protocol, against Sluice or against a Redis or
//! Valkey with the function library loaded.
//!
//! [`options`] says what is wanted, [`wire`] composes calls and reads answers, [`sale`] makes and
//! reads the activity, [`load`] drives the connections. What comes back is tallied and judged as
//! for HTTP.

mod link;
mod load;
mod options;
mod sale;
mod timer;
mod wire;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Instant;

use load::Load;
pub(super) use options::RespArgs;
use sale::Console;

use super::lag::Watch;
use super::progress::Display;
use super::report::Report;
use super::tally::Acceptance;
use super::verify::{self, Check, Evidence};
use super::{BenchError, run_number};

/// Loads, checks and reports; whether the sale was exact.
pub(super) fn run(args: &RespArgs) -> Result<bool, BenchError> {
    let (plan, requests) = args.plan()?;
    let address = args.server()?;
    let mut console = Console::connect(address, args.timeout, args.credentials()?)?;
    let activity = match args.activity {
        Some(id) => id,
        None => console.open_sale(run_number(), args.stock(), args.limit)?,
    };
    let before = console.activity(activity)?;
    let stores = (args.database.as_deref(), args.redis.as_deref());
    let watch = Watch::begin(activity, stores.0, stores.1, args.drain_timeout)?;
    let load = Load {
        plan,
        requests: requests.unwrap_or(u64::MAX),
        duration_max: args.duration,
        rate: args.rate,
        connections: args.connections,
        depth: args.depth,
        threads: args.threads.min(args.connections),
        address,
        time_out: args.timeout,
        credentials: args.credentials()?,
        wait_aof: args.wait_aof,
        first_user: args.first_user,
        samples: watch.samples(),
        calls: wire::Calls::new(activity, run_number()),
    };
    let mut display = Display::new(requests, args.quiet);
    let (tally, elapsed) = load::run(&load, |progress| display.show(progress))?;
    watch.ended(&tally.acceptances, Instant::now());
    let lags = watch.lags()?;
    display.finish();

    let after = console.activity(activity)?;
    let evidence = Evidence {
        before,
        after,
        acceptances: &tally.acceptances,
        unsettled: tally.unsettled.len(),
        purchases: &BTreeMap::new(),
    };
    let mut checks = verify::judge_figures(&evidence);
    checks.push(known(&mut console, &load, activity, &tally.acceptances)?);
    let report = Report {
        run: args.describe(activity, requests),
        tally: &tally,
        elapsed,
        drain: None,
        lags: &lags,
        checks: &checks,
    };
    let text = if args.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    // A reader that went away has seen what it wanted; the exit code still tells.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(report.is_exact())
}

/// Asks for every accepted reservation.
fn known(
    console: &mut Console,
    load: &Load,
    activity: u64,
    acceptances: &[Acceptance],
) -> Result<Check, BenchError> {
    let owners: BTreeMap<u64, u64> = acceptances
        .iter()
        .map(|one| (one.reservation, load.first_user + u64::from(one.request.shopper)))
        .collect();
    let found = console.owners(activity, owners.keys().copied())?;
    let right = owners.iter().filter(|(id, owner)| found.get(id) == Some(owner)).count();
    Ok(Check {
        claim: "each accepted purchase is known, and its buyer's",
        holds: right == owners.len(),
        figures: format!("{right} of {}", owners.len()),
    })
}
