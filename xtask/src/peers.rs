//! Sluice beside its peers: builds both sides as they are shipped, and lets the example `peers` of
//! `benches` take the turns.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::{debian, steps};

/// One build for both, so that each is optimised alike.
const BUILDS: [&str; 2] = [
    "build --locked --profile dist --package server --bin sluice",
    "build --locked --profile dist --package benches --example peers",
];

/// Where the page and its plots go, unless the arguments say otherwise.
const OUT: &str = "docs";

/// Provides what is needed, builds, and measures; `arguments` go to `peers run`.
///
/// # Errors
/// [`Failure::Missing`] where a peer can't be installed, [`Failure::Exit`] where a build or the run
/// failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    debian::provide()?;
    for build in BUILDS {
        steps::pass_through(build, &[])?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let built = Path::new(&target).join("dist");
    let mut peers = Command::new(built.join("examples/peers"));
    peers.arg("run").arg("--sluice").arg(built.join("sluice")).args(arguments);
    // A part of the table must not take the place of the whole.
    let is_part = |it: &String| ["--only", "--list", "--help", "--out"].contains(&it.as_str());
    if !arguments.iter().any(is_part) {
        peers.args(["--out", OUT]);
    }
    steps::succeed(&mut peers)
}
