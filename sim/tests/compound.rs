//! H3 to its floor.

use sim::report::{Scale, Settings};

#[test]
fn a_second_blow_during_recovery_costs_no_more_than_the_first() {
    let settings = Settings::standard();
    let report = sim::compound::run(settings);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        let blows = report.count("second crashes") + report.count("faults in recovery");
        assert!(blows >= 40_000, "{report}");
    }
}
