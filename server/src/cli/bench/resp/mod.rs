//! `sluice bench resp`: the same rush over the Redis protocol, against Sluice or against a Redis or
//! Valkey with the function library loaded.
//!
//! [`options`] says what is wanted, [`wire`] composes calls and reads answers, [`sale`] makes and
//! reads the activity. The load is driven, and what comes back is tallied and judged, as for HTTP.

mod options;
mod sale;
mod wire;

use std::collections::BTreeMap;

pub(super) use options::RespArgs;
use sale::Console;
use wire::Calls;

use super::drive::{self, Load};
use super::lag::Watch;
use super::progress::Display;
use super::report::Report;
use super::sale::Activity;
use super::tally::{Acceptance, Tally};
use super::verify::{self, Check, Depth, Evidence};
use super::{BenchError, publish, run_number};

/// Loads, checks and reports; whether the sale was exact.
pub(super) fn run(args: &RespArgs) -> Result<bool, BenchError> {
    let (plan, requests) = args.load.plan()?;
    let pace = args.load.pace()?;
    let address = args.server()?;
    let (time_out, credentials) = (args.load.timeout, args.credentials()?);
    let mut console = Console::connect(address, time_out, credentials.clone())?;
    let activity = match args.load.activity {
        Some(id) => id,
        None => console.open_sale(run_number(), args.load.stock(), args.load.limit)?,
    };
    let before = match args.load.check {
        Depth::None => Activity::unknown(activity),
        Depth::Figures | Depth::All => console.activity(activity)?,
    };
    let protocol = Calls {
        activity,
        run: run_number(),
        first_user: args.load.first_user,
        credentials,
        wait_aof_ms: args.wait_aof.then_some(time_out.as_millis()),
    };
    let watch = Watch::begin(activity, &args.load)?;
    let load = Load {
        protocol,
        plan,
        requests: requests.unwrap_or(u64::MAX),
        duration_max: args.load.duration,
        pace,
        connections: args.load.connections,
        depth: args.depth,
        threads: args.load.threads(),
        address,
        time_out,
        samples: watch.samples(),
    };
    let mut display = Display::new(requests, args.load.quiet);
    let (tally, elapsed) = drive::run(&load, |progress| display.show(progress))?;
    watch.ended(&tally.acceptances);
    let lags = &watch.lags()?;
    display.finish();
    let checks = check(&mut console, args, before, &tally)?;
    let run = args.describe(activity, requests);
    publish(&Report { run, tally: &tally, elapsed, drain: None, lags, checks: &checks }, &args.load)
}

/// The verdicts on the sale, as many as were asked for.
fn check(
    console: &mut Console,
    args: &RespArgs,
    before: Activity,
    tally: &Tally,
) -> Result<Vec<Check>, BenchError> {
    if args.load.check == Depth::None {
        return Ok(Vec::new());
    }
    let after = console.activity(before.id)?;
    let (acceptances, purchases) = (&tally.acceptances, &BTreeMap::new());
    let unsettled = tally.unsettled.len();
    let evidence = Evidence { before, after, acceptances, unsettled, purchases };
    let mut checks = verify::judge_figures(&evidence);
    if args.load.check == Depth::All {
        checks.push(known(console, args.load.first_user, before.id, acceptances)?);
    }
    Ok(checks)
}

/// Asks for every accepted reservation.
fn known(
    console: &mut Console,
    first_user: u64,
    activity: u64,
    acceptances: &[Acceptance],
) -> Result<Check, BenchError> {
    let owners: BTreeMap<u64, u64> = acceptances
        .iter()
        .map(|one| (one.reservation, first_user + u64::from(one.request.shopper)))
        .collect();
    let found = console.owners(activity, owners.keys().copied())?;
    let right = owners.iter().filter(|(id, owner)| found.get(id) == Some(owner)).count();
    Ok(Check {
        claim: "each accepted purchase is known, and its buyer's",
        holds: right == owners.len(),
        figures: format!("{right} of {}", owners.len()),
    })
}
