//! The command line: one enum of subcommands, one file each.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod admin;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod openapi;
pub(crate) mod progress;
pub(crate) mod reconcile;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod resume_timers;
pub(crate) mod serve;
pub(crate) mod sink;
pub(crate) mod token;
mod trust;
pub(crate) mod upgrade;

/// Fine.
pub(crate) const EXIT_OK: u8 = 0;
/// Usage or configuration: nothing was started.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Refused to start: damage, a fork, the clock, an unknown format, an unsuitable file system.
pub(crate) const EXIT_REFUSED: u8 = 3;
/// The log failed.
pub(crate) const EXIT_LOG: u8 = 4;

/// A number of things, as people write it: `1 activity`, `2 activities`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A flash-sale reservation server: a purchase is on disk before it is answered.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(Box<serve::Args>),
    /// Print a signed bearer token.
    Token(token::Args),
    /// Verify the log and recompute every sale from it.
    Check(check::Args),
    /// Print log records as JSON lines.
    Dump(dump::Args),
    /// Give up the damaged end of a log.
    Repair(repair::Args),
    /// Start writing a newer format.
    Upgrade(upgrade::Args),
    /// Look after what the log is kept for.
    Sink(sink::Args),
    /// Compare engine, SQL and Redis of a running server, and mend them.
    Reconcile(reconcile::Args),
    /// Build a fresh data directory from the order database of a lost one.
    Restore(restore::Args),
    /// Let time-outs run again after a restore.
    ResumeTimers(resume_timers::Args),
    /// Print the HTTP interface as an OpenAPI document.
    Openapi,
    /// Load a server and check that it sold exactly.
    Bench(bench::Args),
}

/// Parses the command line and runs what it asks for. Usage errors exit with 2 (clap's own code).
pub(crate) fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Token(args) => token::run(args),
        Command::Check(args) => check::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Repair(args) => repair::run(args),
        Command::Upgrade(args) => upgrade::run(args),
        Command::Sink(args) => sink::run(args),
        Command::Reconcile(args) => reconcile::run(&args),
        Command::Restore(args) => restore::run(args),
        Command::ResumeTimers(args) => resume_timers::run(&args),
        Command::Openapi => openapi::run(),
        Command::Bench(args) => bench::run(args),
    }
}
