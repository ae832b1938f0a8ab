use crate::Log;
use crate::device::sim::{Fault, FaultKind, SimDevice};
use crate::retire::Retired;
use crate::testing::{append, disk, frame, open, rotate, snapshot};

/// Lets the operation fail that comes `after` others, once.
fn fail_after(device: &SimDevice, after: u64) {
    let at = device.counts().0 + after + 1;
    device.set_fault(Some(Fault { at, lasting: false, kind: FaultKind::ErrorNewContent }));
}

fn files(device: &SimDevice, dir: &str) -> Vec<String> {
    device.image().paths().into_iter().filter(|path| path.starts_with(dir)).collect()
}

/// Begins segments and makes snapshots until the segment that the log was opened behind is not
/// needed any more.
fn give_back(log: &Log) -> Retired {
    let mut all = Retired::default();
    for _ in 0..3 {
        rotate(log, 30);
        snapshot(log);
        let Retired { segments, recycled, quarantined, left } = log.retire().unwrap();
        all.segments += segments;
        all.recycled += recycled;
        all.quarantined += quarantined;
        all.left += left;
    }
    all
}

#[test]
fn a_segment_that_saw_an_error_is_set_aside_once_it_is_given_back() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    append(&log, 3, 100);
    // The write is done, the sync fails.
    fail_after(&device, 1);
    assert!(log.commit().is_err() && log.is_poisoned());
    drop(log);
    let (log, _) = open(&device);
    assert!(files(&device, "quarantine/").is_empty(), "it is still needed");
    let retired = give_back(&log);
    assert!(retired.recycled > 0 && retired.quarantined == 1, "{retired:?}");
    assert_eq!(files(&device, "quarantine/"), ["quarantine/seg-0000000000000001.log"]);
}

#[test]
fn a_spare_that_saw_an_error_is_set_aside_at_once() {
    let device = disk();
    let (log, _) = open(&device);
    fail_after(&device, 0);
    assert!(log.make_spare().is_err() && log.is_poisoned());
    assert_eq!(files(&device, "quarantine/").len(), 1);
    assert!(files(&device, "wal/spare-").is_empty());
    drop(log);
    open(&device).0.make_spare().unwrap();
}

#[test]
fn a_segment_is_used_again_after_a_clean_end_and_removed_after_another() {
    for clean in [true, false] {
        let device = disk();
        let (log, _) = open(&device);
        frame(&log, 3, 100);
        if clean {
            log.close().unwrap();
        }
        drop(log);
        let (log, _) = open(&device);
        let Retired { segments, recycled, quarantined, left } = give_back(&log);
        assert_eq!((quarantined, left), (0, 0));
        assert_eq!(segments - recycled, u64::from(!clean), "clean: {clean}");
    }
}
