//! What a start says of a disk that fails it, and that the next one finds all that there was.

use std::sync::Mutex;

use super::*;
use crate::device::sim::{FaultKind, Image, SimDevice};
use crate::testing::{
    Call, Refusing, at_each_operation, disk, frame, open, open_into, options, rotate, same,
    snapshot,
};
use crate::{CONTROL_SHARD, Lane, SnapshotWriter};

/// A log of two snapshots, with frames after them, and an end that was not clean.
fn killed() -> Image {
    let device = disk();
    let (log, _) = open(&device);
    for _ in 0..3 {
        rotate(&log, 20);
        snapshot(&log);
        log.retire().unwrap();
    }
    log.make_spare().unwrap();
    frame(&log, 3, 100);
    drop(log);
    device.image()
}

/// The same, whose newest snapshot does not read.
fn with_a_damaged_snapshot() -> Image {
    let mut image = killed();
    let newest = image.paths().into_iter().rfind(|path| path.starts_with("snap/snap-")).unwrap();
    let mut bytes = image.content(&newest).unwrap();
    bytes[4096 + 64] ^= 1;
    image.set_content(&newest, &bytes);
    image
}

#[test]
fn a_start_whose_disk_fails_names_the_file_and_the_next_one_finds_all() {
    for image in [disk().image(), killed(), with_a_damaged_snapshot()] {
        let last_lsn = open(&SimDevice::new(image.clone())).1.last_lsn;
        let mut refused = 0;
        for kind in [FaultKind::ErrorOldContent, FaultKind::ErrorNewContent, FaultKind::Full] {
            let start = |device: &SimDevice, (): &()| open_into(device, &mut |_| Ok(())).map(drop);
            at_each_operation(
                (&image, kind, false),
                |_| (),
                start,
                |op, told, device, ()| {
                    if let Err(error) = told {
                        assert!(error.to_string().contains("sim:"), "{op:?}: {error}");
                        refused += 1;
                    }
                    let report = open(device).1;
                    assert_eq!(report.last_lsn, last_lsn, "{op:?}");
                },
            );
        }
        assert!(refused > 30, "{refused}");
    }
}

#[test]
fn a_call_that_the_system_refuses_is_told_with_what_it_was_about() {
    let device = disk();
    frame(&open(&device).0, 3, 100);
    let short = device.image();
    for (call, fresh, written) in [
        (Call::FileSystem, "look at sim:", "look at sim:"),
        (Call::Lock, "lock sim:LOCK", "lock sim:LOCK"),
        (Call::Note, "write sim:LOCK", "write sim:LOCK"),
        (Call::Settle, "probe writes in sim:wal", "probe writes in sim:wal"),
        (Call::Random, "draw an identity for sim:", "begin a segment in sim:wal"),
        (Call::Length, "", "read sim:wal/seg-"),
    ] {
        for (image, expected) in [(disk().image(), fresh), (short.clone(), written)] {
            let device = SimDevice::new(image);
            let told = Arc::new(Mutex::new(String::new()));
            let tell = Arc::clone(&told);
            let on_fatal = Box::new(move |fatal: &crate::Fatal| {
                *tell.lock().unwrap() = fatal.to_string();
            });
            let refusing = Arc::new(Refusing::new(&device, call));
            let opened = Log::open(refusing, options(on_fatal), &mut |_| Ok(()));
            match opened.map(drop) {
                Ok(()) => assert_eq!(expected, "", "{call:?}"),
                Err(error) => {
                    let line = error.to_string();
                    assert!(!expected.is_empty() && line.starts_with(expected), "{call:?}: {line}");
                    // The line before it is the owner's to print.
                    let before = told.lock().unwrap();
                    assert_eq!(before.is_empty(), call != Call::Random || fresh == expected);
                }
            }
            drop(open(&device));
        }
    }
}

#[test]
fn a_directory_that_another_process_has_is_waited_for_and_then_told() {
    let device = disk();
    let (log, _) = open(&device);
    let told = open_into(&device, &mut |_| Ok(())).map(drop).unwrap_err();
    assert!(matches!(told, OpenError::Locked { .. }), "{told}");
    drop(log);
    drop(open(&device));
}

#[test]
fn a_control_that_no_log_wrote_is_left_as_it_is() {
    let image = killed();
    for (what, edit) in
        [("is damaged", (|bytes| bytes.fill(7)) as fn(&mut Vec<u8>)), ("is damaged", Vec::clear)]
    {
        let mut image = image.clone();
        let mut bytes = image.content(CONTROL_PATH).unwrap();
        edit(&mut bytes);
        image.set_content(CONTROL_PATH, &bytes);
        let device = SimDevice::new(image.clone());
        let told = open_into(&device, &mut |_| Ok(())).map(drop).unwrap_err();
        assert!(matches!(told, OpenError::NotOurs { .. }), "{told}");
        assert!(told.to_string().contains(what), "{told}");
        assert!(same(&image, &device.image()));
    }
}

/// An owner that takes a snapshot which it has not read to its end would serve half of a state.
#[test]
#[should_panic = "was taken before it was read to its end"]
fn a_snapshot_that_was_not_read_to_its_end_is_not_taken() {
    let device = Arc::new(SimDevice::new(killed()));
    let mut opening = Opening::begin(device, options(Box::new(|_| ()))).unwrap();
    let _ = opening.load_snapshot(&mut |_| Ok::<_, String>(()));
}

#[test]
fn a_snapshot_that_its_owner_refuses_is_set_aside_and_the_one_before_is_begun_from() {
    let image = killed();
    let device = SimDevice::new(image);
    let mut opening = Opening::begin(Arc::new(device.clone()), options(Box::new(|_| ()))).unwrap();
    let mut offered = Vec::new();
    let loaded = opening.load_snapshot(&mut |snapshot| {
        offered.push(snapshot.lsn());
        while snapshot.next_piece().unwrap().is_some() {}
        if offered.len() == 1 { Err("no such kind of item") } else { Ok(()) }
    });
    assert!(loaded.unwrap() && offered.len() == 2 && offered[0] > offered[1]);
    let (_, report) = opening.replay(&mut |_| Ok(())).unwrap().finish().unwrap();
    assert_eq!(report.snapshot_lsn, offered[1]);
    let [why] = report.damaged_snapshots.as_slice() else { panic!("{report:?}") };
    assert!(why.contains("no such kind of item") && why.starts_with("sim:snap/"), "{why}");
    let aside = names::quarantined(&names::snapshot(offered[0]));
    assert!(device.image().paths().contains(&aside));
}

#[test]
fn a_snapshot_whose_disk_fails_is_no_snapshot_and_leaves_the_log_as_it_was() {
    let image = disk().image();
    let prepare = |device: &SimDevice| {
        let (log, _) = open(device);
        frame(&log, 3, 100);
        let chain = log.reader().seek(log.durable_lsn()).unwrap();
        (log, chain)
    };
    let act = |_: &SimDevice, (log, chain): &(Log, u32)| -> io::Result<()> {
        let lsn = log.durable_lsn();
        let mut writer = log.begin_snapshot(lsn)?;
        for shard in [0, 1, CONTROL_SHARD] {
            writer.lane(Lane { shard, seq: log.last_seq(shard), digest: 7 })?;
            if shard == 0 {
                // Over more than one piece, so that it is synced as it grows.
                for _ in 0..40 {
                    writer.item((1, 1), |out| out.resize(out.len() + 60_000, 9))?;
                }
            }
        }
        log.finish_snapshot(writer, *chain).map(drop)
    };
    let mut refused = 0;
    for kind in [FaultKind::ErrorOldContent, FaultKind::Full] {
        at_each_operation((&image, kind, false), prepare, act, |op, told, device, (log, _)| {
            if told.is_err() {
                refused += 1;
                // Where CONTROL could not be written the log has failed as well.
                assert_eq!(log.snapshot().is_some(), log.is_poisoned(), "{op:?}");
            }
            drop(log);
            assert_eq!(open(device).1.last_lsn, Lsn(3), "{op:?}");
        });
    }
    assert!(refused > 12, "{refused}");
}

#[test]
fn room_is_set_aside_as_far_as_there_is_any_and_a_disk_that_fails_is_told() {
    let image = disk().image();
    let (needed, wished) = (64 << 10, 256 << 10);
    let opened = |device: &SimDevice| open(device).0;
    let reserve = |_: &SimDevice, log: &Log| log.reserve_room(needed, wished);
    let mut refused = 0;
    for lasting in [false, true] {
        let io = (&image, FaultKind::ErrorOldContent, lasting);
        at_each_operation(io, opened, reserve, |op, told, _, log| {
            refused += u32::from(told.is_err());
            assert!(!log.is_poisoned(), "{op:?}: the log needs none of it");
            log.reserve_room(needed, wished).unwrap();
            assert!(log.give_room() && !log.give_room(), "{op:?}: once");
        });
    }
    assert!(refused > 1, "{refused}");
    let device = disk();
    let log = opened(&device);
    for (room, set_aside) in [(wished, wished), (needed, needed), (needed - 1, 0)] {
        device.set_free_bytes(Some(room));
        assert_eq!(log.reserve_room(needed, wished).is_ok(), set_aside > 0, "{room}");
        assert_eq!(device.free_bytes().unwrap(), room - set_aside);
        // What is there is enough, and is left as it is.
        assert_eq!(log.reserve_room(needed, wished).is_ok(), set_aside > 0);
        assert_eq!(log.give_room(), set_aside > 0);
    }
}

#[test]
fn a_snapshot_without_a_stamp_is_not_begun() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    let refusing: Arc<dyn Device> = Arc::new(Refusing::new(&device, Call::Random));
    let told = SnapshotWriter::create(refusing, log.identity(), 2, Lsn(3)).map(drop);
    assert_eq!(told.unwrap_err().raw_os_error(), Some(5));
}
