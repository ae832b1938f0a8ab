//! Sluice beside its peers: builds both sides alike, and lets the example `peers` of `benches` take
//! the turns.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::{debian, foreign, steps};

/// What is built, with the same profile.
const BUILDS: [&str; 2] = [
    "build --locked --package server --bin sluice --profile",
    "build --locked --package benches --example peers --profile",
];

/// What is shipped. Another one builds faster, and the page says which it was.
const PROFILE: &str = "dist";

/// Where the page and its plots go, unless the arguments say otherwise.
const OUT: &str = "docs";

/// Provides what is needed, builds, and measures; `arguments` go to `peers run`, a `--profile NAME`
/// in front of them to the build as well.
///
/// # Errors
/// [`Failure::Missing`] where a peer can't be installed, [`Failure::Exit`] where a build or the run
/// failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (profile, arguments) = profile(arguments);
    debian::provide()?;
    for build in BUILDS {
        steps::pass_through(build, &[profile.to_owned()])?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let built = Path::new(&target).join(profile);
    let mut peers = Command::new(built.join("examples/peers"));
    peers.args(["run", "--profile", profile]).arg("--sluice").arg(built.join("sluice"));
    // A MySQL would stand under MariaDB's name.
    peers.env_remove(foreign::MYSQL.variable);
    match foreign::REDIS.provide() {
        Ok(server) => _ = peers.env(foreign::REDIS.variable, server),
        Err(failure) => eprintln!("xtask: Redis 8 takes no part: {failure}"),
    }
    // A part of the table must not take the place of the whole.
    let is_part = |it: &String| ["--only", "--list", "--help", "--out"].contains(&it.as_str());
    if !arguments.iter().any(is_part) {
        peers.args(["--out", OUT]);
    }
    steps::succeed(peers.args(arguments))
}

fn profile(arguments: &[String]) -> (&str, &[String]) {
    match arguments {
        [flag, profile, rest @ ..] if flag == "--profile" => (profile, rest),
        all => (PROFILE, all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_in_front_is_taken_and_the_rest_is_passed_on() {
        let words = |words: &[&str]| words.iter().map(|it| it.to_string()).collect::<Vec<_>>();
        let given = words(&["--profile", "release", "--rounds", "1"]);
        assert_eq!(profile(&given), ("release", &given[2..]));
        let given = words(&["--rounds", "1"]);
        assert_eq!(profile(&given), ("dist", &given[..]));
    }
}
