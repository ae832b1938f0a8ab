//! H18: how much of the log its tests reach: regions of all of `wal`, and the branches of the files
//! that decide where the log ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::rustc::{self, COVERAGE};
use crate::{llvm, steps};

/// The log's own tests, and the campaigns as a commit runs them.
const TESTS: &str = "test --locked --profile ci -p wal -p sim --lib --test crash --test errors \
                     --test compound --test corruption --test mangle --test trace \
                     --target-dir target/coverage";
const PROFILES: &str = "target/coverage/profiles";
const MERGED: &str = "target/coverage/merged.profdata";

/// Runs the tests under coverage and prints the figures, file by file.
///
/// # Errors
/// [`Failure::Exit`] where a test or a tool fails.
pub(crate) fn run() -> Result<(), Failure> {
    let failed = |source| Failure::Io { what: "use the folder of coverage profiles", source };
    let tools = llvm::tools()?;
    let folder = std::path::absolute(PROFILES).map_err(failed)?;
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let (wrapper, wrapping) = rustc::wrapper(&COVERAGE)?;
    let mut tests = steps::cargo();
    tests.args(TESTS.split_whitespace()).env(wrapper, wrapping);
    tests.env("SLUICE_SIM_SCALE", "quick");
    tests.env("LLVM_PROFILE_FILE", folder.join("%m_%p.profraw"));
    let told = steps::errors_of(&mut tests)?;
    let binaries = binaries(&told);
    let mut profiles: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        profiles.push(entry.map_err(failed)?.path());
    }
    let mut merge = Command::new(tools.join("llvm-profdata"));
    steps::succeed(merge.args(["merge", "-sparse", "-o", MERGED]).args(profiles))?;
    let mut report = Command::new(tools.join("llvm-cov"));
    report.args(["report", "--show-branch-summary", "--show-region-summary"]);
    report.arg(format!("--instr-profile={MERGED}"));
    // What only tests and campaigns are made of says nothing about the product.
    report.arg("--ignore-filename-regex=(tests?\\.rs|testing\\.rs|golden\\.rs|/sim/|planted\\.rs)");
    for (index, binary) in binaries.iter().enumerate() {
        report.args((index > 0).then_some("--object")).arg(binary);
    }
    steps::succeed(report.arg("wal/src").stdin(Stdio::null()))
}

/// The test binaries that cargo says it runs: `Running unittests src/lib.rs (target/..)`.
fn binaries(told: &str) -> Vec<&Path> {
    let lines = told.lines().filter(|line| line.trim_start().starts_with("Running "));
    lines.filter_map(|line| Some(Path::new(line.rsplit_once('(')?.1.strip_suffix(')')?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_binaries_are_found_in_what_cargo_prints() {
        let told = "   Compiling wal v0.1.0 (/x)\n     Running unittests src/lib.rs (a/wal-1)\n\
                    thread 'x' (7) panicked\n     Running tests/crash.rs (b/crash-2)\n";
        assert_eq!(binaries(told), [Path::new("a/wal-1"), Path::new("b/crash-2")]);
    }
}
