//! What the harnesses counted in a run: gathered from them, told at its end, and published.
//!
//! A harness appends lines `harness TAB what TAB number` to the file that [`VARIABLE`] names.
//! `--publish` writes them into the page, between the two marks of their [`Section`].

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use crate::failure::Failure;

/// The variable that names the file of counts to a harness.
pub(crate) const VARIABLE: &str = "SLUICE_COUNTS";

const PAGE: &str = "docs/reliability.md";

/// A part of the page that is written by a run.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    /// What made it, as a person would type it.
    command: &'static str,
    begin: &'static str,
    end: &'static str,
}

/// What a run counted.
pub(crate) const RUN: Section = Section {
    command: "cargo xtask test --publish",
    begin: "<!-- counts of a run -->",
    end: "<!-- end of the counts -->",
};

/// What a night counted.
pub(crate) const NIGHT: Section = Section {
    command: "cargo xtask nightly --publish",
    begin: "<!-- counts of a night -->",
    end: "<!-- end of the night -->",
};

/// What the fraction of a night counted that shows that each step still starts, and ends.
pub(crate) const SHORT_NIGHT: Section =
    Section { command: "cargo xtask nightly --short --publish", ..NIGHT };

/// What tests reach.
pub(crate) const COVERAGE: Section = Section {
    command: "cargo xtask coverage --publish",
    begin: "<!-- coverage -->",
    end: "<!-- end of the coverage -->",
};

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

/// Counts something that this program itself did, as a harness does.
///
/// # Errors
/// [`Failure::Io`] where it can't be kept.
pub(crate) fn add(harness: &str, what: &str, count: u64) -> Result<(), Failure> {
    let failed = |source| Failure::Io { what: "keep a count", source };
    fs::create_dir_all("target").map_err(failed)?;
    let mut kept = fs::OpenOptions::new().append(true).create(true).open(file()).map_err(failed)?;
    kept.write_all(format!("{harness}\t{what}\t{count}\n").as_bytes()).map_err(failed)
}

/// Writes into the page what the run counted, under the `figures` of all of it.
///
/// # Errors
/// [`Failure::Io`] where a file cannot be read or written, [`Failure::Unread`] where the page has
/// no marks.
pub(crate) fn publish(section: Section, figures: &str) -> Result<(), Failure> {
    let read = |source| Failure::Io { what: "read the counts", source };
    let counts = fs::read_to_string(file()).map_err(read)?;
    put(section, figures, &table(&counts))
}

/// Writes `table` into the page, under what made it and the `figures` of all of it.
///
/// # Errors
/// As [`publish`].
pub(crate) fn put(section: Section, figures: &str, table: &str) -> Result<(), Failure> {
    let read = |source| Failure::Io { what: "read the page of counts", source };
    let page = fs::read_to_string(PAGE).map_err(read)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = format!("`{}`, {cores} cores: {figures}.\n\n{table}", section.command);
    let page = spliced(&page, section, &text).ok_or(Failure::Unread { program: PAGE })?;
    fs::write(PAGE, page).map_err(|source| Failure::Io { what: "write the counts", source })
}

/// The page with `text` between the section's marks, or `None` where it lacks them.
fn spliced(page: &str, Section { begin, end, .. }: Section, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{text}\n{end}{after}"))
}

fn table(counts: &str) -> String {
    let mut text = "| harness | counted |\n|---|---|\n".to_owned();
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
pub(crate) fn grouped(number: u64) -> String {
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
        let table = table(counts);
        assert!(table.contains("| Crash (H1) | 1,292,544 crash images, 7 disks |"), "{table}");
        assert!(table.contains("| Kill | 25 rounds |"), "{table}");
        assert!(!table.contains("noise"), "{table}");
    }

    #[test]
    fn what_stood_between_the_marks_is_replaced() {
        let Section { begin, end, .. } = RUN;
        let page = format!("before\n{begin}\nold\n{end}\nafter\n");
        let fresh = spliced(&page, RUN, "new\n").unwrap();
        assert_eq!(fresh, format!("before\n{begin}\n\nnew\n\n{end}\nafter\n"));
        assert_eq!(spliced(&fresh, RUN, "new\n").unwrap(), fresh);
        assert_eq!(spliced("no marks", RUN, "new"), None);
    }

    #[test]
    fn the_page_has_the_marks_of_every_section() {
        let page = include_str!("../../docs/reliability.md");
        for section in [RUN, NIGHT, SHORT_NIGHT, COVERAGE] {
            assert!(spliced(page, section, "new").is_some(), "{} is lost", section.command);
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        let told: Vec<_> = [0, 999, 1_000, 1_234_567].map(grouped).into_iter().collect();
        assert_eq!(told, ["0", "999", "1,000", "1,234,567"]);
    }
}
