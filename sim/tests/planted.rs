//! H17, the rung that this version has.

use std::io::Write as _;

use sim::planted::hunt;
use sim::report::{Scale, Settings};
use wal::planted::Bug;

#[test]
fn each_planted_bug_is_caught() {
    let settings = Settings { scale: Scale::Quick, ..Settings::standard() };
    let hunts: Vec<_> = Bug::ALL.iter().map(|bug| hunt(*bug, settings)).collect();
    let caught = hunts.iter().filter(|hunt| hunt.is_caught()).count();
    let mut told = format!("planted    caught {caught} of {}", hunts.len());
    for hunt in &hunts {
        told += &format!("\n  {:?}", hunt.bug);
        for (campaign, found) in &hunt.caught {
            told += &format!("\n    {campaign:<8} {}", found.as_deref().unwrap_or("-"));
        }
    }
    writeln!(std::io::stderr(), "{told}").expect("a test can write");
    assert_eq!(caught, hunts.len(), "{told}");
}
