//! What the harnesses counted in a run: gathered from them, told at its end, and published.
//!
//! A harness appends lines `harness TAB what TAB number` to the file that [`VARIABLE`] names.
//! `cargo xtask test --publish` writes them into the page, between its two marks.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use crate::steps::Outcome;

/// The variable that names the file of counts to a harness.
pub(crate) const VARIABLE: &str = "SLUICE_COUNTS";

const PAGE: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- counts of a run -->";
const END: &str = "<!-- end of the counts -->";

/// Where the counts of this run are gathered, for a process in any directory.
pub(crate) fn file() -> PathBuf {
    std::env::current_dir().unwrap_or_default().join("target/counts.tsv")
}

/// Forgets what an earlier run counted.
///
/// # Errors
/// [`Failure::Io`] where the file cannot be emptied.
pub(crate) fn forget() -> Result<(), Failure> {
    let failed = |source| Failure::Io { what: "empty the file of counts", source };
    fs::create_dir_all("target").map_err(failed)?;
    fs::write(file(), "").map_err(failed)
}

/// Writes into the page what the run counted.
///
/// # Errors
/// [`Failure::Io`] where a file cannot be read or written, [`Failure::Unread`] where the page has
/// no marks.
pub(crate) fn publish(outcomes: &[Outcome], took: Duration) -> Result<(), Failure> {
    let read = |source| Failure::Io { what: "read the counts or their page", source };
    let counts = fs::read_to_string(file()).map_err(read)?;
    let page = fs::read_to_string(PAGE).map_err(read)?;
    let table = table(&counts, outcomes, took);
    let page = spliced(&page, &table).ok_or(Failure::Unread { program: PAGE })?;
    fs::write(PAGE, page).map_err(|source| Failure::Io { what: "write the counts", source })
}

/// The page with `table` between its marks, or `None` where it lacks them.
fn spliced(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

fn table(counts: &str, outcomes: &[Outcome], took: Duration) -> String {
    let passed: u64 = outcomes.iter().map(|outcome| outcome.totals.passed).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "`cargo xtask test --publish`, {cores} cores: {} minutes, {passed} tests passed.\n\n\
         | harness | counted |\n|---|---|\n",
        took.as_secs() / 60,
    );
    for (harness, counted) in by_harness(counts) {
        let told: Vec<_> =
            counted.iter().map(|(what, count)| format!("{} {what}", grouped(*count))).collect();
        text += &format!("| {harness} | {} |\n", told.join(", "));
    }
    text
}

/// The counts of each harness; what several processes counted of one thing is added up.
fn by_harness(counts: &str) -> BTreeMap<&str, Vec<(&str, u64)>> {
    let mut harnesses: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for line in counts.lines() {
        let mut parts = line.split('\t');
        let (Some(harness), Some(what), Some(Ok(count))) =
            (parts.next(), parts.next(), parts.next().map(str::parse::<u64>))
        else {
            continue;
        };
        let counted = harnesses.entry(harness).or_default();
        match counted.iter_mut().find(|(known, _)| *known == what) {
            Some((_, total)) => *total += count,
            None => counted.push((what, count)),
        }
    }
    harnesses
}

/// A number with its thousands set apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_harness_are_one_row() {
        let counts = "Crash (H1)\tcrash images\t1292544\nKill\trounds\t20\nnoise\n\
                      Crash (H1)\tdisks\t7\nKill\trounds\t5\n";
        let table = table(counts, &[], Duration::from_secs(120));
        assert!(table.contains("2 minutes, 0 tests passed"), "{table}");
        assert!(table.contains("| Crash (H1) | 1,292,544 crash images, 7 disks |"), "{table}");
        assert!(table.contains("| Kill | 25 rounds |"), "{table}");
        assert!(!table.contains("noise"), "{table}");
    }

    #[test]
    fn what_stood_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let fresh = spliced(&page, "new\n").unwrap();
        assert_eq!(fresh, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(spliced(&fresh, "new\n").unwrap(), fresh);
        assert_eq!(spliced("no marks", "new"), None);
    }

    #[test]
    fn thousands_are_set_apart() {
        let told: Vec<_> = [0, 999, 1_000, 1_234_567].map(grouped).into_iter().collect();
        assert_eq!(told, ["0", "999", "1,000", "1,234,567"]);
    }
}
