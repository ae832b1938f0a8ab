//! The fuzzer, to a number of executions: each target of `sim/fuzz` gets its share, as many at a
//! time as there are cores.
//!
//! What it finds worth keeping goes to `target/fuzz/corpus`, where the next run goes on; a failing
//! input to `target/fuzz/found`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::failure::Failure;
use crate::rustc::{self, FUZZER};
use crate::{counts, steps};

const BUILD: &str = "build --locked --profile ci -p fuzz --features libfuzzer \
                     --target-dir target/fuzz";
const FUZZER_BIN: &str = "target/fuzz/ci/fuzz";
const FOUND: &str = "target/fuzz/found";

/// A target, its longest input in bytes, and executions of a run in thousands, so that each takes
/// about as long as the others.
const SHARES: &[(&str, u32, u64)] = &[
    ("model", 121, 100),
    ("segments", 64, 250),
    ("control", 256, 250),
    ("snapshot", 256, 250),
    ("frame", 1024, 2_000),
    ("event", 512, 3_000),
    ("image", 512, 3_000),
    ("resp", 512, 2_000),
    ("body", 256, 2_000),
    ("mirror", 256, 3_000),
];

/// Runs every target to its share.
///
/// # Errors
/// [`Failure::Found`] where an input breaks a claim, [`Failure::Exit`] where the build fails.
pub(crate) fn run() -> Result<(), Failure> {
    campaign(1)
}

/// Runs every target to `times` its share.
///
/// # Errors
/// As [`run`].
pub(crate) fn campaign(times: u64) -> Result<(), Failure> {
    steps::pass_through_with(BUILD, rustc::wrapper(&FUZZER)?)?;
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(share) = SHARES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = fuzz(*share, times);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    let mut all = 0;
    for result in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        all += result?;
    }
    let floor = times * 1000 * SHARES.iter().map(|share| share.2).sum::<u64>();
    println!("fuzz: {all} executions in all, of at least {floor}");
    if all < floor {
        return Err(Failure::Unread { program: "the fuzzer" });
    }
    counts::add("fuzz", "executions", all)
}

/// Runs one target; its executions.
fn fuzz((name, bytes_max, thousands): (&str, u32, u64), times: u64) -> Result<u64, Failure> {
    let failed = |source| Failure::Io { what: "make a folder of the fuzzer", source };
    let kept = format!("target/fuzz/corpus/{name}");
    for folder in [kept.as_str(), FOUND] {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let started = Instant::now();
    let runs = times * 1000 * thousands;
    let mut command = Command::new(Path::new(FUZZER_BIN));
    command.env("SLUICE_FUZZ", name).arg(format!("-runs={runs}"));
    command.args([format!("-max_len={bytes_max}"), format!("-artifact_prefix={FOUND}/{name}-")]);
    // A commit is tried with the same inputs everywhere; longer campaigns (0) draw others.
    command.arg(format!("-seed={}", u8::from(times == 1)));
    command.args([
        "-print_final_stats=1",
        "-timeout=10",
        "-rss_limit_mb=1024",
        "-use_value_profile=0",
    ]);
    command.args([kept, format!("sim/fuzz/corpus/{name}")]);
    let output = command.output();
    let output = output.map_err(|source| Failure::Spawn { program: FUZZER_BIN.into(), source })?;
    let told = String::from_utf8_lossy(&output.stderr);
    let Some(count) = executions(&told).filter(|_| output.status.success()) else {
        println!("{told}");
        return Err(Failure::Found { target: name.to_owned() });
    };
    println!("fuzz: {name}: {count} executions, {} s", started.elapsed().as_secs());
    Ok(count)
}

/// The count in the fuzzer's last lines.
fn executions(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.starts_with("stat::number_of_executed_units:"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executions_are_found_in_what_the_fuzzer_prints() {
        let told = "Done 10 runs in 0 second(s)\nstat::number_of_executed_units: 1234\nstat::x: 2";
        assert_eq!(executions(told), Some(1234));
        assert_eq!(executions("==1== ERROR: libFuzzer: deadly signal"), None);
    }

    #[test]
    fn every_target_has_a_share_and_a_corpus() {
        let source = include_str!("../../sim/fuzz/src/lib.rs");
        let targets: Vec<_> = source.matches("Target { name: \"").collect();
        assert_eq!(targets.len(), SHARES.len());
        for (name, bytes_max, _) in SHARES {
            let row = format!("Target {{ name: \"{name}\", bytes_max: {bytes_max},");
            assert!(source.contains(&row), "{row}");
        }
    }
}
