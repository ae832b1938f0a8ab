//! What a reservation costs in instructions: the one figure of speed that a shared machine does
//! not blur, and so the one that gates.
//!
//! The bin `instructions` of `benches` does one piece of work a number of times. It runs under
//! valgrind with two counts; the difference is what the work costs, without what comes before and
//! after. A bound is a tenth above the figure that it was set by: a change that costs more says so
//! here, with its reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Work with a bound.
struct Bound {
    /// As the bin knows it.
    work: &'static str,
    /// Instructions a time at most.
    instructions_max: u64,
    /// What they are spent on.
    what: &'static str,
}

const BOUNDS: &[Bound] = &[
    Bound {
        work: "batch",
        instructions_max: 805,
        what: "a purchase in a batch of 1,024, logged, in memory made ahead",
    },
    Bound { work: "single", instructions_max: 1_820, what: "a purchase by itself, logged" },
    Bound { work: "refused", instructions_max: 480, what: "a purchase above the limit" },
    Bound { work: "replayed", instructions_max: 517, what: "a purchase made before" },
    Bound { work: "hash", instructions_max: 125, what: "the hash of a UUID" },
    Bound { work: "recovery", instructions_max: 1_165, what: "a purchase replayed at a start" },
];

/// Bytes of the log that a reservation takes at most, in batches of 1,024, framing and padding
/// included: as the bin knows the work, at most, and with which request id.
const LOG_BYTES: &[(&str, u64, &str)] =
    &[("bytes", 144, "of 36 bytes"), ("bytes-short", 104, "of a few bytes")];

/// Times that the work is done in the shorter run; the longer one does it twice as often.
const COUNT: u64 = 65_536;

/// Counts, tells, and judges.
///
/// # Errors
/// [`Failure::Slower`] where a bound is broken; [`Failure::Spawn`] where valgrind is missing.
pub(crate) fn run() -> Result<(), Failure> {
    let bin = build()?;
    let mut broken = 0;
    println!("{:<10} {:>12} {:>8}   for", "work", "instructions", "at most");
    for bound in BOUNDS {
        let count = per_time(&bin, bound.work)?;
        let verdict = if count > bound.instructions_max { "TOO MANY" } else { "" };
        broken += usize::from(count > bound.instructions_max);
        let Bound { work, instructions_max, what } = bound;
        println!("{work:<10} {count:>12} {instructions_max:>8}   {what} {verdict}");
    }
    for (work, bytes_max, with) in LOG_BYTES {
        let bytes = log_bytes(&bin, work)?;
        let what = format!("bytes of the log a reservation with an id {with}");
        println!("{:<10} {bytes:>12} {bytes_max:>8}   {what}", "log");
        broken += usize::from(bytes > *bytes_max);
    }
    if broken > 0 { Err(Failure::Slower { bounds: broken }) } else { Ok(()) }
}

/// Builds what is counted as it is shipped.
fn build() -> Result<PathBuf, Failure> {
    let build = "build --locked --profile dist --package benches --bin instructions";
    crate::steps::pass_through(build, &[])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(Path::new(&target).join("dist/instructions"))
}

fn per_time(bin: &Path, work: &str) -> Result<u64, Failure> {
    let [short, long] = [COUNT, 2 * COUNT].map(|count| counted(bin, work, count));
    Ok(long?.saturating_sub(short?) / COUNT)
}

/// Instructions of a whole run.
fn counted(bin: &Path, work: &str, count: u64) -> Result<u64, Failure> {
    let directory = bin.with_file_name(format!("instructions-{}", std::process::id()));
    if work == "recovery" {
        output(Command::new(bin).arg("prepare").arg(count.to_string()).arg(&directory))?;
    }
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let told = output(valgrind.arg(bin).arg(work).arg(count.to_string()).arg(&directory));
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .map_err(|source| Failure::Io { what: "remove a bench's directory", source })?;
    }
    parse(&told?).ok_or(Failure::Unread { program: "valgrind" })
}

fn log_bytes(bin: &Path, work: &str) -> Result<u64, Failure> {
    let told = output(Command::new(bin).arg(work).arg(COUNT.to_string()))?;
    told.trim().parse().map_err(|_| Failure::Unread { program: "instructions" })
}

/// What `command` prints, on both of its streams.
fn output(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Failure::Spawn { program: program.clone(), source })?;
    let mut told = String::from_utf8_lossy(&output.stdout).into_owned();
    told += &String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(told);
    }
    print!("{told}");
    Err(Failure::Exit { command: program })
}

/// The count in what cachegrind prints: `==12== I refs:      1,234,567`, `I   refs` in some
/// versions.
fn parse(told: &str) -> Option<u64> {
    let mut counts = told.lines().filter_map(|line| {
        let (before, count) = line.rsplit_once("refs:")?;
        before.trim_end().ends_with('I').then_some(count)
    });
    counts.next_back()?.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_cachegrind_prints() {
        assert_eq!(parse("==1== Cachegrind\n==1== I refs:   1,234,567\n==1== \n"), Some(1_234_567));
        assert_eq!(parse("==1== I   refs:      42\n==1== D   refs:      17\n"), Some(42));
        assert_eq!(parse("==1== no counts\n"), None);
    }
}
