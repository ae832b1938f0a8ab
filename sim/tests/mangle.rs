//! H10 to its floor.

use sim::report::{Scale, Settings};

#[test]
fn whatever_the_files_hold_reading_them_ends_in_an_answer() {
    let settings = Settings::standard();
    let report = sim::mangle::run(settings);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("files") >= 60_000, "{report}");
    }
}
