//! H13 to its floor.

use std::path::Path;

use sim::report::{Scale, Settings};

#[test]
fn a_power_cut_at_any_operation_of_a_real_run_loses_nothing_acknowledged() {
    let settings = Settings::standard();
    let report = sim::trace::run(settings, Path::new(env!("CARGO_TARGET_TMPDIR")));
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    if settings.scale != Scale::Quick {
        assert!(report.count("runs") >= 20, "{report}");
        assert!(report.count("crash images") >= 20_000, "{report}");
    }
}
