//! `sluice reconcile`: engine, SQL and Redis of a running server compared, and mended.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::admin::Server;
use super::progress::Bar;
use super::{EXIT_OK, EXIT_USAGE, counted};

/// Differences were found, and not mended.
const EXIT_DIFFERENCES: u8 = 1;

/// Arguments of `sluice reconcile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: Server,
    /// Mend what is found toward the log; each mend leaves a REPAIR row in stock_flows
    #[arg(long, conflicts_with = "dry_run")]
    repair: bool,
    /// Change nothing (the default)
    #[arg(long)]
    dry_run: bool,
}

/// Runs `sluice reconcile`.
pub(crate) fn run(args: &Args) -> ExitCode {
    let asked = json!({"repair": args.repair && !args.dry_run});
    // The server says nothing before it is done.
    let bar = Bar::of_steps("comparing engine, SQL and Redis");
    let answer = args.server.post("/api/admin/reconcile", &asked);
    drop(bar);
    let report = match answer {
        Ok(report) => report,
        Err(error) => {
            eprintln!("sluice reconcile: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or_default();
    // A reader that went away has seen what it wanted; the exit code still tells.
    let _ = show(&report, &mut std::io::stdout());
    let left = count("differences").saturating_sub(count("repaired"));
    let uncompared = uncompared(&report);
    for (side, why) in &uncompared {
        eprintln!("sluice reconcile: {side} could not be compared: {why}");
    }
    ExitCode::from(match (left, uncompared.len()) {
        (0, 0) => EXIT_OK,
        // Nothing is known to differ, nor that nothing does: as if nobody could be asked.
        (0, _) => EXIT_USAGE,
        _ => EXIT_DIFFERENCES,
    })
}

/// Sides that were not compared to their end, and why.
fn uncompared(report: &Value) -> Vec<(&str, &str)> {
    let sides = report.get("uncompared").and_then(Value::as_array);
    let sides = sides.into_iter().flatten();
    sides.filter_map(|it| Some((it.get("side")?.as_str()?, it.get("why")?.as_str()?))).collect()
}

fn show(report: &Value, out: &mut impl std::io::Write) -> std::io::Result<()> {
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mismatches = report.get("mismatches").and_then(Value::as_array);
    for it in mismatches.into_iter().flatten() {
        let text = |name: &str| it.get(name).and_then(Value::as_str).unwrap_or_default();
        let repaired = it.get("repaired").and_then(Value::as_bool).unwrap_or_default();
        let (kind, place, found, expected) =
            (text("kind"), text("place"), text("found"), text("expected"));
        let repaired = if repaired { " (repaired)" } else { "" };
        writeln!(out, "{kind}: {place} is {found}, the log says {expected}{repaired}")?;
    }
    let gone = (count("gone_activities"), count("gone_request_ids"));
    if gone != (0, 0) {
        writeln!(
            out,
            "the database was filled anew; gone: {}; known by their hash alone: {}",
            counted(gone.0, "archived activity", "archived activities"),
            counted(gone.1, "request", "requests")
        )?;
    }
    writeln!(
        out,
        "{} and {} compared, {} in flight: {}, {} repaired",
        counted(count("activities"), "activity", "activities"),
        counted(count("reservations"), "reservation", "reservations"),
        count("in_flight"),
        counted(count("differences"), "difference", "differences"),
        count("repaired")
    )
}
