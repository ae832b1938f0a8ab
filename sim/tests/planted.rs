//! H17: the campaigns catch what is planted.

use std::io::Write as _;
use std::time::UNIX_EPOCH;

use sim::planted::{hunt, told};
use sim::report::{Scale, Settings};
use wal::planted::Bug;

/// Bugs of one run but the long one, which hunts them all.
const BUGS_A_RUN: usize = 3;

/// Those of this run: all in the long campaign, else three, other ones each day.
fn bugs(scale: Scale) -> Vec<Bug> {
    if scale == Scale::Long {
        return Bug::ALL.to_vec();
    }
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    let day = usize::try_from(since.as_secs() / 86_400).unwrap_or(0);
    let first = day * BUGS_A_RUN % Bug::ALL.len();
    Bug::ALL.iter().copied().cycle().skip(first).take(BUGS_A_RUN).collect()
}

#[test]
fn the_planted_bugs_of_the_day_are_caught() {
    let standard = Settings::standard();
    let bugs = bugs(standard.scale);
    let settings = Settings { scale: Scale::Quick, ..standard };
    let hunts: Vec<_> = bugs.into_iter().map(|bug| hunt(bug, settings, false)).collect();
    let told = told(&hunts);
    writeln!(std::io::stderr(), "{told}").expect("a test can write");
    let caught = hunts.iter().filter(|hunt| !hunt.caught.is_empty()).count();
    let score = [("planted faults caught", caught as u64), ("planted", hunts.len() as u64)];
    sim::counts::note("campaign `planted`", &score);
    assert!(hunts.iter().all(|hunt| !hunt.caught.is_empty()), "{told}");
}

#[test]
fn the_documentation_lists_every_planted_bug() {
    let page = include_str!("../../docs/reliability.md");
    let engine = engine::planted::Bug::ALL.iter().map(|bug| (format!("{bug:?}"), bug.does()));
    let log = Bug::ALL.iter().map(|bug| (format!("{bug:?}"), bug.does()));
    let rows: Vec<_> =
        log.chain(engine).map(|(bug, does)| format!("| `{bug}` | {does} |")).collect();
    let missing: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/reliability.md lacks {missing:#?}");
}
