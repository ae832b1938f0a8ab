//! `sluice`: the one binary.
//!
//! ```text
//! cli -> config -> serve -> listener -> http -> app.engine   decides, answers once durable
//!                    |                    `---> app.orders   reads and writes SQL
//!                    |-- resp --------------> app.engine     the Redis protocol
//!                    `-- demo, identity, metrics, logs
//! ```
//!
//! [`serve`] is the life of the server; [`app`] is what the rooms share. A reader's way through a
//! purchase: [`listener`], `http/mod.rs`, `http/purchase.rs`.

mod app;
mod cli;
mod config;
mod demo;
mod duration;
mod http;
mod identity;
mod listener;
mod logs;
mod metrics;
mod orders;
mod resp;
mod serve;
mod time;

fn main() -> std::process::ExitCode {
    cli::run()
}
