//! H18: how much of the log its tests reach: regions of all of `wal`, and the branches of the files
//! that decide where the log ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::counts::{self, grouped};
use crate::failure::Failure;
use crate::reached::{self, File, Share};
use crate::rustc::{self, COVERAGE};
use crate::{llvm, steps};

/// The log's own tests, those of the engine that are about the log under it, and the campaigns as a
/// commit runs them.
const TESTS: &str = "test --locked --profile ci -p wal -p engine -p sim --lib \
                     --test log_on_disk --test tools --test snapshots --test snapshot_content \
                     --test engine_over_log --test long_start --test crash --test errors \
                     --test compound --test corruption --test lies --test mangle --test trace \
                     --test regressions --target-dir target/coverage";
const PROFILES: &str = "target/coverage/profiles";
const MERGED: &str = "target/coverage/merged.profdata";

/// Of the regions of the log as many are reached at least, of a thousand.
const REGIONS_PER_MILLE_MIN: u64 = 980;

/// Of the branches of these files no more are missed.
const BRANCHES_MISSED_MAX: &[(&str, u64)] =
    &[("frame.rs", 0), ("recover.rs", 0), ("verdict.rs", 0)];

/// Runs the tests under coverage, prints the figures, file by file, and holds them to the bounds.
///
/// # Errors
/// [`Failure::Exit`] where a test or a tool fails, [`Failure::Uncovered`] where a bound is broken.
pub(crate) fn run() -> Result<(), Failure> {
    measure().map(drop)
}

/// The same, and what was found goes into the page.
///
/// # Errors
/// As [`run`], and [`Failure::Io`] where the page can't be written.
pub(crate) fn publish() -> Result<(), Failure> {
    let (total, table) = measure()?;
    let Share { all, missed } = total;
    let (met, all) = (grouped(all - missed), grouped(all));
    counts::put(counts::COVERAGE, &format!("{met} of {all} regions of the log"), &table)
}

/// Regions of all files, and the table of them.
fn measure() -> Result<(Share, String), Failure> {
    let files = files()?;
    let total = files.values().map(File::regions).fold(Share::default(), Share::plus);
    let table = table(&files, total);
    print!("{table}");
    for (name, file) in &files {
        for (line, column, what) in file.missed() {
            println!("{name}:{line}:{column}: {what}");
        }
    }
    counts::add("coverage", "regions of the log", total.all)?;
    counts::add("coverage", "of them never entered", total.missed)?;
    match broken(&files, total) {
        0 => Ok((total, table)),
        bounds => Err(Failure::Uncovered { bounds }),
    }
}

/// How many bounds are broken.
fn broken(files: &BTreeMap<String, File>, total: Share) -> usize {
    let holds = |(name, missed_max): &&(&str, u64)| {
        let file = files.iter().find(|(path, _)| path.ends_with(&format!("/{name}")));
        // A file that is not there any more is no file whose every branch is met.
        file.is_some_and(|(_, file)| file.branches().missed <= *missed_max)
    };
    let files_broken = BRANCHES_MISSED_MAX.iter().filter(|bound| !holds(bound)).count();
    files_broken + usize::from(total.per_mille() < REGIONS_PER_MILLE_MIN)
}

fn table(files: &BTreeMap<String, File>, total: Share) -> String {
    let percent = |share: Share| match share.per_mille() {
        _ if share.all == 0 => "-".to_owned(),
        mille => format!("{}.{} %", mille / 10, mille % 10),
    };
    let row = |name: &str, regions: Share, branches: Share| {
        let (all, missed) = (grouped(regions.all), regions.missed);
        let (branch, ways) = (percent(branches), branches.missed);
        format!("| {name} | {all} | {missed} | {} | {branch} | {ways} |\n", percent(regions))
    };
    let mut text = "| file | regions | never entered | met | branches met | never taken |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for (path, file) in files {
        let name = path.rsplit_once("/wal/src/").map_or(path.as_str(), |(_, name)| name);
        text += &row(&format!("`{name}`"), file.regions(), file.branches());
    }
    let branches = files.values().map(File::branches).fold(Share::default(), Share::plus);
    text + &row("all of the log", total, branches)
}

/// What tests and campaigns are made of says nothing about the product.
fn is_product(path: &str) -> bool {
    const OTHERS: &[&str] = &["tests.rs", "testing.rs", "golden.rs", "planted.rs"];
    let Some((_, name)) = path.rsplit_once("/wal/src/") else { return false };
    !name.starts_with("device/sim/") && !OTHERS.iter().any(|other| name.ends_with(other))
}

/// Runs the tests under coverage; what they reach.
fn files() -> Result<BTreeMap<String, File>, Failure> {
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
    // Eight files for each binary, however many processes it becomes: they are merged as they end.
    tests.env("LLVM_PROFILE_FILE", folder.join("%8m.profraw"));
    let told = steps::errors_of(&mut tests)?;
    let binaries = binaries(&told);
    let mut profiles: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        profiles.push(entry.map_err(failed)?.path());
    }
    let mut merge = Command::new(tools.join("llvm-profdata"));
    steps::succeed(merge.args(["merge", "-sparse", "-o", MERGED]).args(profiles))?;
    let mut export = Command::new(tools.join("llvm-cov"));
    export.args(["export", "--format=text"]).arg(format!("--instr-profile={MERGED}"));
    for (index, binary) in binaries.iter().enumerate() {
        export.args((index > 0).then_some("--object")).arg(binary);
    }
    let exported = steps::output_of(export.stdin(Stdio::null()))?;
    let exported = String::from_utf8_lossy(&exported);
    let mut files =
        reached::files(&exported, is_product).ok_or(Failure::Unread { program: "llvm-cov" })?;
    for (path, file) in &mut files {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Failure::Io { what: "read what was covered", source })?;
        file.leave_out(&reached::excused(path, &text));
    }
    Ok(files)
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

    #[test]
    fn what_is_not_measured_breaks_its_bound() {
        let nothing = BTreeMap::new();
        assert_eq!(broken(&nothing, Share { all: 1, missed: 1 }), BRANCHES_MISSED_MAX.len() + 1);
    }

    #[test]
    fn the_log_is_measured_and_its_tests_are_not() {
        for path in ["/x/wal/src/frame.rs", "/x/wal/src/snapshot/reader.rs"] {
            assert!(is_product(path), "{path}");
        }
        for path in [
            "/x/wal/src/recover_tests.rs",
            "/x/wal/src/device/sim/image.rs",
            "/x/engine/src/lib.rs",
            "/x/wal/src/golden.rs",
        ] {
            assert!(!is_product(path), "{path}");
        }
    }
}
