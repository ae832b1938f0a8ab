//! H2 to its floor.

use sim::report::{Scale, Settings};

#[test]
fn whatever_operation_fails_nothing_acknowledged_is_lost() {
    let settings = Settings::standard();
    let errors = sim::errors::run(settings);
    errors.report.tell();
    assert_eq!(errors.report.failed, 0, "{}", errors.report);
    let missed: Vec<_> = errors.sites.iter().filter(|(_, hit)| !hit).collect();
    assert!(missed.is_empty(), "call sites that no fault met: {missed:?}");
    if settings.scale != Scale::Quick {
        assert!(errors.report.count("runs") >= 60_000, "{}", errors.report);
    }
}

#[test]
fn a_full_disk_stops_purchases_alone_and_only_while_it_is_full() {
    assert_eq!(sim::errors::full_disk(1), Ok(()));
}
