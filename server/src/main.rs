//! `sluice`: the one binary.
//!
//! ```text
//! cli -> config -> serve -> listener -> http -> app.engine   decides, answers once durable
//!                    |          |         `---> app.orders   reads and writes SQL
//!                    |          `-- gate: identity, blacklist, limits, canary, admission
//!                    |-- resp --------------> app.engine     the Redis protocol
//!                    `-- demo, metrics, logs
//! ```
//!
//! [`serve`] is the life of the server; [`app`] is what the rooms share. A reader's way through a
//! purchase: [`listener`], `http/mod.rs`, `http/purchase.rs`.

mod admission;
mod app;
mod breaker;
mod canary;
mod cli;
mod config;
mod demo;
mod disk_watch;
mod duration;
mod events;
mod gate;
mod http;
mod identity;
mod keepers;
mod legacy;
mod limits;
mod listener;
mod logs;
mod metrics;
mod mirror;
mod orders;
mod payments;
mod production;
mod reconcile;
mod resp;
mod serve;
mod time;

fn main() -> std::process::ExitCode {
    cli::run()
}
