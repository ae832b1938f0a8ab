//! H11 to its floor.

use std::path::Path;

use sim::kill;
use sim::report::{Scale, Settings};

/// On a real disk, unlike the directory for temporary files of some machines.
const ROOT: &str = env!("CARGO_TARGET_TMPDIR");
const PROGRAM: &str = env!("CARGO_BIN_EXE_sim");

#[test]
fn a_kill_at_any_moment_loses_nothing_acknowledged() {
    let settings = Settings::standard();
    let report = kill::run(settings, Path::new(ROOT), Path::new(PROGRAM));
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    assert!(report.count("acknowledged") > report.count("kills"), "{report}");
    assert!(report.count("during the start") > 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("kills") >= 2_000, "{report}");
    }
}

#[test]
fn an_older_log_in_the_place_of_the_one_that_was_told_is_noticed() {
    assert_eq!(kill::miss_what_is_gone(Path::new(ROOT), Path::new(PROGRAM), 1), Ok(()));
}
