//! What is given back, and what its owner is told, where the disk fails at any operation of it.

use crate::device::sim::{Fault, FaultKind, Image, Op, SimDevice};
use crate::device::{Device as _, FileSystem};
use crate::features::{KNOWN, Upgraded, upgrade};
use crate::ids::{Lsn, SegmentId};
use crate::names;
use crate::open::read_control;
use crate::retention::{SinkClass, SinkError};
use crate::retire::drop_sink;
use crate::testing::{
    Call, Refusing, append, at_each_operation, disk, frame, names_the_file, open, open_into,
    rotate, same, snapshot,
};
use crate::{Lane, Log, OpenError, SpareMade};

/// A log of which some segments are not needed any more.
fn with_surplus(device: &SimDevice) -> Log {
    let (log, _) = open(device);
    for _ in 0..2 {
        rotate(&log, 30);
        rotate(&log, 30);
        snapshot(&log);
    }
    log
}

/// The segments whose files have their names.
fn segments(device: &SimDevice) -> Vec<SegmentId> {
    let paths = device.image().paths();
    paths.iter().filter_map(|path| names::parse_segment(path.strip_prefix("wal/")?)).collect()
}

/// The disk of a log whose first segment saw an error that was noted of it.
fn condemned() -> Image {
    let device = disk();
    let (log, _) = open(&device);
    append(&log, 3, 100);
    let at = device.counts().0 + 2;
    device.set_fault(Some(Fault { at, lasting: false, kind: FaultKind::ErrorNewContent }));
    assert!(log.commit().is_err(), "its sync failed");
    device.set_fault(None);
    drop(log);
    device.image()
}

/// What a start makes of a disk on which segments were given back while it failed.
fn assert_tidied(op: Op, device: &SimDevice, durable: Lsn) {
    let (log, report) = open(device);
    assert_eq!(report.last_lsn, durable, "{op:?}");
    let needed = read_control(device).unwrap().0.oldest_needed_segment;
    assert_eq!(segments(device).first(), Some(&needed), "{op:?}: what was left is dealt with");
    rotate(&log, 30);
    let image = device.image();
    let reused = image.renamed_after_error().iter().find(|it| it.starts_with("wal/"));
    assert_eq!(reused, None, "{op:?}: W7");
}

#[test]
fn what_is_given_back_while_the_disk_fails_is_told_and_no_file_that_saw_it_is_used_again() {
    for (image, condemned) in [(disk().image(), 0), (condemned(), 1)] {
        let whole = with_surplus(&SimDevice::new(image.clone())).retire().unwrap();
        assert!(whole.segments > 1 && whole.quarantined == condemned, "{whole:?}");
        let (mut poisoned, mut aside, mut left) = (0, 0, None);
        for kind in [FaultKind::ErrorOldContent, FaultKind::ErrorNewContent, FaultKind::Full] {
            for lasting in [false, true] {
                let io = (&image, kind, lasting);
                let give_back = |_: &SimDevice, log: &Log| log.retire();
                at_each_operation(io, with_surplus, give_back, |op, told, device, log| {
                    let durable = log.durable_lsn();
                    match told {
                        Ok(told) => {
                            let accounted = told.recycled + told.quarantined + told.left;
                            assert!(accounted <= told.segments, "{op:?}: {told:?}");
                            assert_eq!(told.segments, whole.segments, "{op:?}");
                            assert!(!log.is_poisoned(), "{op:?}: files fail nothing");
                            aside += told.quarantined;
                            if told.left == told.segments {
                                left = Some((device.image(), durable));
                            }
                        }
                        Err(_) => {
                            assert!(log.is_poisoned() && log.retire().is_err(), "{op:?}");
                            poisoned += 1;
                        }
                    }
                    drop(log);
                    assert_tidied(op, device, durable);
                });
            }
        }
        assert!(poisoned > 0 && aside > 0, "{poisoned} {aside}");
        // The start that has to deal with all of it may meet a disk that fails, too.
        let (image, durable) = left.unwrap();
        let io = (&image, FaultKind::ErrorOldContent, false);
        let start = |device: &SimDevice, (): &()| open_into(device, &mut |_| Ok(())).map(drop);
        at_each_operation(
            io,
            |_| (),
            start,
            |op, _, device, ()| {
                assert_tidied(op, device, durable);
            },
        );
    }
}

/// With as many spares as there should be nothing becomes one.
#[test]
fn a_segment_that_is_not_wanted_is_removed_or_set_aside_where_it_can_t_be() {
    let image = disk().image();
    let prepare = |device: &SimDevice| {
        let log = with_surplus(device);
        while log.make_spare().unwrap() == SpareMade::Made {}
        log
    };
    let give_back = |_: &SimDevice, log: &Log| log.retire();
    let mut aside = 0;
    let io = (&image, FaultKind::ErrorOldContent, false);
    at_each_operation(io, prepare, give_back, |op, told, device, log| {
        let durable = log.durable_lsn();
        if let Ok(told) = told {
            assert_eq!(told.recycled, 0, "{op:?}");
            aside += told.quarantined;
        }
        drop(log);
        assert_tidied(op, device, durable);
    });
    assert!(aside > 0, "a removal failed");
}

/// The disk has changed the head of a segment since: nobody can tell where it was sealed.
#[test]
fn a_segment_without_a_head_is_set_aside() {
    let device = disk();
    let log = with_surplus(&device);
    let file = device.open(&names::segment(SegmentId(2))).unwrap();
    file.write_at(&[0; 512], 0).unwrap();
    let told = log.retire().unwrap();
    // The one before it is sealed by that head.
    assert_eq!((told.quarantined, told.left), (2, 0), "{told:?}");
    let aside = names::quarantined(&names::segment(SegmentId(2)));
    assert!(device.image().paths().contains(&aside));
}

#[test]
fn a_snapshot_that_its_owner_can_t_load_is_passed_over_for_the_one_before() {
    let device = disk();
    let log = with_surplus(&device);
    let newest = log.snapshot().unwrap();
    let reader = log.read_snapshot().unwrap().unwrap();
    assert_eq!((reader.lsn(), reader.bytes()), (newest.lsn, newest.bytes));
    assert!(reader.created_unix_ms() >= 1_700_000_000_000, "the clock of the disk");
    log.pass_over_snapshot();
    let before = log.snapshot().unwrap();
    assert!(before.lsn < newest.lsn);
    let aside = names::quarantined(&names::snapshot(newest.lsn));
    assert!(device.image().paths().contains(&aside));
    log.pass_over_snapshot();
    log.pass_over_snapshot();
    assert!(log.snapshot().is_none() && log.read_snapshot().unwrap().is_none());
    drop(log);
    assert_eq!(open(&device).1.snapshot_lsn, Lsn(0), "all of the log is still there");
}

#[test]
fn a_snapshot_that_is_given_up_leaves_nothing() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    let mut writer = log.begin_snapshot(Lsn(3)).unwrap();
    writer.lane(Lane { shard: 0, seq: 2, digest: 7 }).unwrap();
    let drafts = || device.image().paths().iter().filter(|it| it.starts_with("snap/")).count();
    assert_eq!(drafts(), 1);
    writer.give_up();
    assert_eq!(drafts(), 0);
    assert!(log.snapshot().is_none());
}

#[test]
#[should_panic = "an item of 65540 bytes"]
fn an_item_that_its_length_field_can_t_say_is_a_bug_of_its_owner() {
    let (log, _) = open(&disk());
    frame(&log, 3, 100);
    let mut writer = log.begin_snapshot(Lsn(3)).unwrap();
    writer.lane(Lane { shard: 0, seq: 2, digest: 7 }).unwrap();
    let _ = writer.item((1, 1), |out| out.resize(out.len() + 65_536, 9));
}

#[test]
fn a_sink_that_can_t_be_noted_fails_the_log_and_one_that_can_t_be_is_refused_before() {
    let image = disk().image();
    let io = (&image, FaultKind::ErrorOldContent, false);
    let opened = |device: &SimDevice| open(device).0;
    let register = |_: &SimDevice, log: &Log| log.register_sink("sql", SinkClass::MustDeliver);
    let mut failed = 0;
    at_each_operation(io, opened, register, |op, told, _, log| {
        assert!(matches!(told, Err(SinkError::LogUnavailable(_))) && log.is_poisoned(), "{op:?}");
        failed += 1;
    });
    let registered = |device: &SimDevice| {
        let (log, _) = open(device);
        log.register_sink("sql", SinkClass::MustDeliver).unwrap();
        log
    };
    let forget = |_: &SimDevice, log: &Log| log.drop_sink("sql");
    at_each_operation(io, registered, forget, |op, told, _, log| {
        assert!(matches!(told, Err(SinkError::LogUnavailable(_))) && log.is_poisoned(), "{op:?}");
        failed += 1;
    });
    assert!(failed >= 4, "a write and a sync of CONTROL each");
    let log = registered(&disk());
    assert!(
        log.drop_sink("another").is_err() && log.register_sink("", SinkClass::Rebuildable).is_err()
    );
    assert!(!log.is_poisoned() && log.sinks().len() == 1);
}

/// A log that was closed, with a sink.
fn at_rest() -> SimDevice {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    log.register_sink("sql", SinkClass::MustDeliver).unwrap();
    log.close().unwrap();
    drop(log);
    device
}

#[test]
fn a_sink_of_a_log_at_rest_is_dropped_or_the_file_is_named_that_keeps_it_from_that() {
    let image = at_rest().image();
    let io = (&image, FaultKind::ErrorOldContent, false);
    let mut told = 0;
    at_each_operation(
        io,
        |_| (),
        |device, ()| drop_sink(device, "sql"),
        |op, dropped, device, ()| {
            let error = dropped.expect_err("every operation is needed");
            assert!(names_the_file(&error), "{op:?}: {error}");
            // Done again it is as if nothing had been.
            drop_sink(device, "sql").unwrap();
            assert!(open(device).0.sinks().is_empty(), "{op:?}");
            told += 1;
        },
    );
    assert!(told >= 5, "{told}");
}

#[test]
fn a_log_is_upgraded_once_or_the_file_is_named_that_keeps_it_from_that() {
    assert!(matches!(upgrade(&disk()), Err(OpenError::NoLog { .. })));
    let image = at_rest().image();
    let io = (&image, FaultKind::ErrorOldContent, false);
    at_each_operation(
        io,
        |_| (),
        |device, ()| upgrade(device),
        |op, upgraded, device, ()| {
            let error = upgraded.expect_err("every operation is needed");
            assert!(names_the_file(&error), "{op:?}: {error}");
            upgrade(device).unwrap();
            assert_eq!(upgrade(device).unwrap(), Upgraded::Already, "{op:?}");
        },
    );
    let device = SimDevice::new(image);
    assert_eq!(upgrade(&device).unwrap(), Upgraded::Now { from: 0, to: KNOWN });
    assert_eq!(open(&device).1.last_lsn.0, 3);
}

#[test]
fn a_lock_that_the_system_refuses_is_told_before_anything_is_written() {
    let device = at_rest();
    let before = device.image();
    let refusing = Refusing::new(&device, Call::Lock);
    assert_eq!(refusing.kind, FileSystem::Suitable);
    for told in [drop_sink(&refusing, "sql").map(drop), upgrade(&refusing).map(drop)] {
        let error = told.unwrap_err();
        assert!(names_the_file(&error) && error.to_string().contains("LOCK"), "{error}");
    }
    assert!(same(&before, &device.image()));
}
