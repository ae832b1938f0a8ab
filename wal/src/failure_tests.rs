use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::Device as _;
use crate::device::sim::{Fault, FaultKind, Op, SimDevice};
use crate::ids::SegmentId;
use crate::limits::SPARES;
use crate::names;
use crate::retire::Retired;
use crate::testing::{append, disk, frame, open, options, rotate, snapshot};
use crate::{Busy, Class, Log, SpareMade, Ticket};

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

/// An I/O error may have ended a run that no one could note: the disk refused that, too.
#[test]
fn a_used_spare_is_taken_over_after_a_clean_end_alone() {
    for clean in [true, false] {
        let device = disk();
        let (log, _) = open(&device);
        // The only spares are those that were segments.
        (0..4).for_each(|_| rotate(&log, 30));
        give_back(&log);
        let recycled = log.metrics().spares;
        assert!(recycled >= SPARES as u64, "one is taken by the next start");
        if clean {
            log.close().unwrap();
        }
        drop(log);
        let left = open(&device).0.metrics().spares;
        assert_eq!(left, if clean { recycled - 1 } else { 0 }, "clean: {clean}");
    }
}

/// A panic in a commit leaves it half done: the log fails as for an I/O error, whoever holds it.
#[test]
fn a_panic_in_a_commit_fails_the_log_and_is_told_to_all() {
    let device = disk();
    let told = Arc::new(AtomicU64::new(0));
    let tell = Arc::clone(&told);
    let options = options(Box::new(move |fatal| {
        assert!(fatal.is_panic() && fatal.to_string().contains("wal"), "{fatal}");
        tell.fetch_add(1, Ordering::Relaxed);
    }));
    let (log, _) = Log::open(Arc::new(device.clone()), options, &mut |_| Ok(())).unwrap();
    frame(&log, 3, 100);
    let durable = log.durable_lsn();
    append(&log, 1, 100);
    let ticket = Ticket { shard: 0, shard_seq: log.last_seq(0) };
    device.observe(Some(Box::new(|op, _| assert!(op != Op::Sync, "planted"))));
    assert!(log.commit().is_err() && log.is_poisoned());
    device.observe(None);
    assert!(matches!(log.begin(0, 64, Class::Reserved).map(drop), Err(Busy::LogUnavailable)));
    assert!(log.wait_durable(ticket).is_err() && log.commit().is_err() && log.close().is_err());
    assert_eq!((told.load(Ordering::Relaxed), log.durable_lsn()), (1, durable));
    drop(log);
    assert!(open(&device).0.durable_lsn() >= durable);
}

/// A start does not wait until its spares are read: one that a disk has changed is found beside it.
#[test]
fn a_spare_with_anything_but_zeros_in_it_becomes_no_segment_once_it_was_read() {
    let device = disk();
    let (log, _) = open(&device);
    while log.make_spare().unwrap() == SpareMade::Made {}
    drop(log);
    let mut image = device.image();
    let spares: Vec<_> = files(&device, "wal/spare-");
    for path in &spares[..2] {
        let mut bytes = image.content(path).unwrap();
        *bytes.last_mut().unwrap() = 1;
        image.set_content(path, &bytes);
    }
    let device = SimDevice::new(image);
    let (log, _) = open(&device);
    let ends_with_zero = |path: &String| device.image().content(path).unwrap().ends_with(&[0]);
    // The first is in use: the start took it, and its frames go over whatever is there.
    assert!(!ends_with_zero(&names::segment(SegmentId(2))));
    while log.check_spare() {}
    assert!(files(&device, "wal/spare-").iter().all(ends_with_zero));
    rotate(&log, 30);
    assert_eq!(files(&device, "wal/seg-").len(), 3);
    assert!(files(&device, "wal/").iter().all(ends_with_zero));
}

/// What a crash leaves of a spare that was not finished has no spare's name.
#[test]
fn a_spare_that_was_never_finished_is_removed() {
    let device = disk();
    let (log, _) = open(&device);
    assert_eq!(log.make_spare().unwrap(), SpareMade::Made);
    assert!(files(&device, "wal/").iter().all(|path| !path.ends_with(".tmp")), "it was finished");
    drop(log);
    let draft = names::draft_of_spare(&names::spare(9));
    device.create_zeroed(&draft, 64 << 10).unwrap();
    drop(open(&device));
    assert!(!files(&device, "wal/").contains(&draft));
}
