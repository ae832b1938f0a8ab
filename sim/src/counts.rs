//! Tells a run of all harnesses what one of them counted.

use std::fs::File;
use std::io::Write as _;

/// Adds a harness's counts to the file that `SLUICE_COUNTS` names; does nothing where it names
/// none. One write: processes that run side by side do not mix their lines.
///
/// # Panics
/// Where the file cannot be written: the run would publish less than it did.
#[allow(unreachable_pub, reason = "tests of other crates take this file in")]
pub fn note(harness: &str, counts: &[(&str, u64)]) {
    let Some(path) = std::env::var_os("SLUICE_COUNTS") else { return };
    let lines: String =
        counts.iter().map(|(what, count)| format!("{harness}\t{what}\t{count}\n")).collect();
    let written = File::options()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(lines.as_bytes()));
    written.expect("the file that SLUICE_COUNTS names can be written");
}
