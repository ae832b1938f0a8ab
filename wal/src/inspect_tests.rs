//! What those who look at a log are told where its disk fails, at any operation of it.

use std::error::Error;
use std::sync::Arc;

use super::*;
use crate::Log;
use crate::device::sim::{FaultKind, Image, SimDevice};
use crate::testing::{
    Call, Refusing, at_each_operation, disk, edited, frame, names_the_file, open, rotate, same,
    snapshot,
};

/// A log of several segments and two snapshots, whose every record is still there.
fn written(device: &SimDevice) -> Log {
    // A simulated disk holds its lock in no file.
    device.create_zeroed("LOCK", 0).unwrap();
    let (log, _) = open(device);
    for _ in 0..2 {
        rotate(&log, 5);
        frame(&log, 2, 100);
        snapshot(&log);
    }
    frame(&log, 3, 100);
    log
}

fn at_rest() -> Image {
    let device = disk();
    let log = written(&device);
    log.close().unwrap();
    drop(log);
    device.image()
}

/// The records that were read, and what was found.
type Told = (Vec<Lsn>, Inspection);

/// All that an inspection has to tell, from each of its places on.
fn inspected(device: &SimDevice) -> Result<Vec<Told>, Box<dyn Error>> {
    let mut inspecting = Inspecting::begin(device)?;
    let mut places = vec![None];
    for snapshot in inspecting.snapshots() {
        while snapshot.next_piece()?.is_some() {}
        places.push(Some(snapshot.lsn()));
    }
    if let Some(what) = inspecting.damaged_snapshots().first() {
        return Err(what.clone().into());
    }
    let mut told = Vec::new();
    for place in places {
        let mut lsns = Vec::new();
        let found = inspecting.read(place, &mut |record| {
            lsns.push(record.lsn);
            Ok(())
        })?;
        told.push((lsns, found));
    }
    Ok(told)
}

#[test]
fn an_inspection_whose_disk_fails_names_the_file_and_changes_nothing() {
    let image = at_rest();
    let whole = inspected(&SimDevice::new(image.clone())).unwrap();
    assert_eq!(whole.len(), 3, "from the first record and from each snapshot");
    let mut refused = 0;
    let io = (&image, FaultKind::ErrorOldContent, false);
    at_each_operation(
        io,
        |_| (),
        |device, ()| inspected(device),
        |op, told, device, ()| {
            match told {
                Err(error) => {
                    assert!(error.to_string().contains("sim:"), "{op:?}: {error}");
                    refused += 1;
                }
                Ok(told) => assert!(told == whole, "{op:?}: as if nothing had failed, or nothing"),
            }
            assert!(same(&image, &device.image()), "{op:?}");
            assert_eq!(inspected(device).unwrap(), whole, "{op:?}: looked at again");
        },
    );
    assert!(refused > 20, "{refused}");
}

/// All frames that one who follows gets, and why he got no more.
fn followed(device: &SimDevice) -> (Vec<Lsn>, Option<Box<dyn Error>>) {
    let mut lsns = Vec::new();
    let mut follow = || {
        let mut reader = follow(Arc::new(device.clone()))?;
        while let Some(frame) = reader.next_frame()? {
            lsns.push(frame.last_lsn);
        }
        Ok(())
    };
    let told = follow().err();
    (lsns, told)
}

#[test]
fn one_who_follows_gets_frames_in_order_until_the_disk_fails_and_is_told_the_file_then() {
    let image = at_rest();
    let (all, told) = followed(&SimDevice::new(image.clone()));
    assert!(told.is_none() && all.len() > 5);
    let mut refused = 0;
    let io = (&image, FaultKind::ErrorOldContent, false);
    at_each_operation(
        io,
        |_| (),
        |device, ()| followed(device),
        |op, (lsns, told), device, ()| {
            assert!(all.starts_with(&lsns), "{op:?}: {lsns:?}");
            match told {
                Some(error) => assert!(names_the_file(&*error), "{op:?}: {error}"),
                None => assert_eq!(lsns, all, "{op:?}"),
            }
            refused += usize::from(lsns != all);
            assert!(same(&image, &device.image()), "{op:?}");
        },
    );
    assert!(refused > 10, "{refused}");
}

/// Beside a server its own reads fail, and the server's log is nothing to them.
#[test]
fn a_bystander_s_failing_reads_are_told_to_him_and_promise_nothing_more() {
    let image = disk().image();
    let beside = disk();
    let log = written(&beside);
    let (promised, told) = followed(&beside);
    assert!(told.is_none() && promised.last() < Some(&log.durable_lsn()), "the last is not");
    let io = (&image, FaultKind::ErrorOldContent, false);
    at_each_operation(
        io,
        written,
        |device, _| followed(device),
        |op, (lsns, told), _, log| {
            assert!(promised.starts_with(&lsns), "{op:?}: {lsns:?}");
            if let Some(error) = told {
                assert!(names_the_file(&*error), "{op:?}: {error}");
            }
            assert!(!log.is_poisoned(), "{op:?}");
            frame(&log, 1, 100);
        },
    );
}

#[test]
fn a_segment_that_was_given_back_since_is_no_failure_and_any_other_is() {
    let io = |kind: io::ErrorKind| OpenError::Io {
        op: "open",
        path: "sim:wal".to_owned(),
        source: kind.into(),
    };
    let refused = |case| OpenError::Refused {
        path: "sim:wal".to_owned(),
        offset: 0,
        case,
        first_lost_lsn: Lsn(1),
        until: String::new(),
    };
    for (error, moved) in [
        (refused(Case::SegmentMissing), true),
        (refused(Case::NoSnapshot), false),
        (io(io::ErrorKind::NotFound), true),
        (io(io::ErrorKind::PermissionDenied), false),
        (OpenError::NoLog { dir: "sim:".to_owned() }, false),
    ] {
        assert_eq!(has_moved(&error), moved, "{error}");
    }
}

/// The log is given back under one who follows it: he sees it as it is then.
#[test]
fn one_who_follows_a_log_that_moves_meanwhile_waits_for_the_next_look() {
    let device = disk();
    let log = written(&device);
    let mut reader = follow(Arc::new(device.clone())).unwrap();
    let last = names::segment(listing_of(&device).pop().unwrap());
    // What a look meets that comes between two steps of a server.
    device.rename(&last, "wal/away.tmp").unwrap();
    assert!(reader.next_frame().unwrap().is_none());
    device.rename("wal/away.tmp", &last).unwrap();
    assert!(reader.next_frame().unwrap().is_some());
    drop(log);
}

fn listing_of(device: &SimDevice) -> Vec<SegmentId> {
    let (control, _) = read_control(device).unwrap();
    listing::list_segments(device, &control).unwrap()
}

#[test]
fn what_is_no_log_is_told_apart_from_one_that_can_t_be_looked_at() {
    let empty = disk();
    assert!(matches!(read_format(&empty), Err(OpenError::NoLog { .. })));
    let device = SimDevice::new(at_rest());
    let locked = Refusing::new(&device, Call::Lock);
    let told = Inspecting::begin(&locked).map(drop).unwrap_err();
    assert!(names_the_file(&told), "{told}");
    // A snapshot whose length can't be told is one that can't be read.
    let unmeasured = Refusing::new(&device, Call::Length);
    let inspecting = Inspecting::begin(&unmeasured).unwrap();
    assert_eq!(inspecting.damaged_snapshots().len(), 2);
    let told = inspecting.read(None, &mut |_| Ok(())).unwrap_err();
    assert!(names_the_file(&told), "{told}");
}

#[test]
fn a_snapshot_of_a_newer_version_is_not_passed_over_and_a_damaged_one_is_named() {
    let image = at_rest();
    let snapshots: Vec<_> =
        image.paths().into_iter().filter(|path| path.starts_with("snap/snap-")).collect();
    let mut newer = image.clone();
    let mut bytes = newer.content(&snapshots[1]).unwrap();
    bytes[8] = 9;
    let crc = crate::checksum::plain(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    newer.set_content(&snapshots[1], &bytes);
    let told = Inspecting::begin(&SimDevice::new(newer)).map(drop).unwrap_err();
    assert!(matches!(told, OpenError::TooNew { format_version: 9, .. }), "{told}");
    let mut damaged = image.clone();
    bytes[124] ^= 1;
    damaged.set_content(&snapshots[1], &bytes);
    let device = SimDevice::new(damaged);
    let inspecting = Inspecting::begin(&device).unwrap();
    let [what] = inspecting.damaged_snapshots() else { panic!("one is damaged") };
    assert!(what.contains(&snapshots[1]), "{what}");
    let newest = inspecting.newest_snapshot().unwrap();
    assert!(newest.path().contains(&snapshots[0]), "the one before");
}

/// The owner's word ends a reading, whoever reads.
#[test]
fn a_record_that_its_owner_can_t_take_ends_an_inspection() {
    let device = SimDevice::new(at_rest());
    let told = inspect(&device, &mut |record| match record.lsn {
        Lsn(4) => Err("no such state".into()),
        _ => Ok(()),
    });
    let error = told.unwrap_err();
    assert!(matches!(error, OpenError::Rejected { lsn: Lsn(4), .. }), "{error}");
    // Damage before that is found first.
    let device = edited(&device, SegmentId(1), |bytes, _| bytes[4096 + 70] ^= 1);
    let error = inspect(&device, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
}
