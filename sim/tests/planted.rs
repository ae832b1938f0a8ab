//! H17, the rung that this version has.

use std::io::Write as _;

use sim::planted::{hunt, told};
use sim::report::{Scale, Settings};
use wal::planted::Bug;

#[test]
fn each_planted_bug_is_caught() {
    let settings = Settings { scale: Scale::Quick, ..Settings::standard() };
    let hunts: Vec<_> = Bug::ALL.iter().map(|bug| hunt(*bug, settings, false)).collect();
    let told = told(&hunts);
    writeln!(std::io::stderr(), "{told}").expect("a test can write");
    assert!(hunts.iter().all(|hunt| !hunt.caught.is_empty()), "{told}");
}

#[test]
fn the_documentation_lists_every_planted_bug() {
    let page = include_str!("../../docs/reliability.md");
    let rows: Vec<_> =
        Bug::ALL.iter().map(|bug| format!("| `{bug:?}` | {} |", bug.does())).collect();
    let missing: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/reliability.md lacks {missing:#?}");
}
