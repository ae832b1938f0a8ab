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
