//! Sluice beside its peers, turn by turn in one run, all driven by the same client, `sluice bench`.
//!
//! `peers run --sluice FILE` is what `cargo xtask bench peers` starts. Each turn gives a contender
//! an empty server of its own, loads it for a few seconds, checks that the sale was exact, and
//! takes the server down again; a round is one turn of every contender for one workload. [`run`]
//! is the order of it, [`workloads`] the table of what is measured, [`contenders`] who takes part,
//! [`report`] and [`plot`] what becomes of the figures.
//!
//! `peers stores` measures what no peer has: how soon orders and keys follow ([`stores`]).
//!
//! The other commands are contenders that must be programs of their own: [`service`], the shop that
//! an axum service over a Valkey or a MariaDB is, and [`hello`], the least that an HTTP server over
//! epoll can do, which is the ceiling.

mod client;
mod contenders;
mod cost;
mod figures;
mod hello;
mod in_process;
mod machine;
mod plot;
mod process;
mod report;
mod run;
mod service;
mod stores;
mod support;
mod trouble;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

/// Sluice beside its peers.
#[derive(Parser)]
enum Command {
    /// Measure all of them and write the table and the plots
    Run(run::Args),
    /// Measure how soon purchases are in the stores behind a sale
    Stores(stores::Args),
    /// Be a shop's service over a store
    Service(service::Args),
    /// Be an HTTP server that only says yes
    Hello(hello::Args),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Run(args) => run::run(&args),
        Command::Stores(args) => stores::run(&args),
        Command::Service(args) => service::run(args),
        Command::Hello(args) => hello::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("peers: {trouble}");
            ExitCode::FAILURE
        }
    }
}
