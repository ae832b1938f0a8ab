//! `sluice`: the one binary.

mod cli;
mod config;
mod duration;

fn main() -> std::process::ExitCode {
    cli::run()
}
