//! H1 to its floor.

use sim::report::{Scale, Settings};

#[test]
fn every_crash_of_every_short_workload_keeps_what_was_acknowledged() {
    let settings = Settings::standard();
    let report = sim::crash::run(settings);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("crash images") >= 1_000_000, "{report}");
        // Of the points only those with a disk of their own: reading changes nothing.
        assert!(report.count("distinct disks") >= 30_000, "{report}");
    }
}
