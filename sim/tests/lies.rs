//! A lying disk, to its floor.

use sim::lies;
use sim::report::{Scale, Settings};
use sim::workload::parse;
use wal::device::sim::Lie;

#[test]
fn what_a_lying_disk_took_is_found_wherever_anything_vouches_for_it() {
    let settings = Settings::standard();
    let report = lies::run(settings);
    report.tell();
    assert_eq!(report.failed, 0, "{report}");
    for verdict in ["refused", "residual", "served whole"] {
        assert!(report.count(verdict) > 0, "{report}");
    }
    if settings.scale != Scale::Quick {
        assert!(report.count("lies") >= 10_000, "{report}");
    }
}

/// The syncs of the last three steps of a word: one frame each.
fn verdicts(word: &str) -> Vec<&'static str> {
    let steps = parse(word).expect("a workload");
    let of = |at| lies::again(&steps, Lie { at, lasting: false }, Settings::standard());
    let reports: Vec<_> = (1..).map(of).take_while(|report| report.count("lies") > 0).collect();
    let verdict = |report: &sim::report::Report| {
        ["refused", "residual", "served whole"]
            .into_iter()
            .find(|verdict| report.count(verdict) > 0)
            .unwrap_or("failed")
    };
    reports.iter().rev().take(3).rev().map(verdict).collect()
}

#[test]
fn every_frame_but_the_last_is_vouched_for() {
    assert_eq!(verdicts("sss"), ["refused", "refused", "residual"]);
    // The watermark of an idle log vouches for the last frame; nothing is lost with it.
    assert_eq!(verdicts("ssi"), ["refused", "refused", "served whole"]);
}
