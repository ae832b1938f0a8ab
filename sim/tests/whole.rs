//! H5 to its floor, and its own kill score.

use sim::report::{Scale, Settings};
use sim::whole::{self, planted::Fault};

#[test]
fn whatever_fails_everything_meets_again() {
    let settings = Settings::standard();
    let report = whole::run(settings, None);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("seeds") >= 50_000, "{report}");
    }
}

#[test]
fn a_run_can_be_run_again() {
    let runs = [whole::again(7, None), whole::again(7, None)];
    assert_eq!(runs[0].counts, runs[1].counts);
    assert!(runs[0].count("reservations") > 0, "{}", runs[0]);
}

#[test]
fn each_planted_fault_is_caught() {
    for fault in Fault::all() {
        let settings = Settings { scale: Scale::Quick, ..Settings::standard() };
        let report = whole::run(settings, Some(fault));
        assert!(report.failed > 0, "{fault:?} was not caught: {report}");
    }
}
