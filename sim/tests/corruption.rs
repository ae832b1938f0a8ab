//! H4 to its floor.

use sim::report::{Scale, Settings};

#[test]
fn damage_is_refused_wherever_anything_vouches_and_served_wherever_nothing_is_lost() {
    let settings = Settings::standard();
    let report = sim::corrupt::run(settings);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("mutations") >= 200_000, "{report}");
    }
}
