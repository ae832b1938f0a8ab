//! A repair gives up what its operator named and nothing else, and may itself be cut short.

use std::sync::Arc;

use super::*;
use crate::control::{Format, OWNER_BYTES};
use crate::device::sim::{Fate, FaultKind, Image, SimDevice};
use crate::intake::{Class, Committed};
use crate::log::Log;
use crate::open::OpenOptions;
use crate::record::record_bytes;
use crate::testing::{Call, Refusing, at_each_operation, names_the_file, same};

/// A segment of four blocks: three frames, of one record each.
const FORMAT: Format = Format {
    shard_count: 1,
    frame_bytes_max: 4096,
    in_flight_bytes_max: 8192,
    segment_bytes: 4 * 4096,
    owner: [0; OWNER_BYTES],
};

fn open(device: &SimDevice) -> Result<(Log, Vec<u8>), OpenError> {
    let mut bodies = Vec::new();
    let options = OpenOptions {
        format: FORMAT,
        accept_file_system: false,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    };
    let opened = Log::open(Arc::new(device.clone()), options, &mut |record| {
        bodies.push(record.body[0]);
        Ok(())
    });
    opened.map(|(log, _)| (log, bodies))
}

/// A log of `count` records, each in a frame of its own.
fn log_of(count: u8) -> SimDevice {
    let device = SimDevice::new(Image::empty(7));
    let (log, _) = open(&device).unwrap();
    for body in 1..=count {
        let room = record_bytes(1);
        let mut batch = log.begin(0, room, Class::Reserved).unwrap();
        batch.command(room);
        batch.append((1, 1), |out| out.push(body));
        drop(batch);
        assert!(matches!(log.commit().unwrap(), Committed::Frame { .. }));
    }
    drop(log);
    device
}

/// The same with a byte of the frame of record `lsn` changed.
fn damaged(count: u8, lsn: u8) -> SimDevice {
    let mut image = log_of(count).image();
    let path = names::segment(SegmentId(u64::from((lsn - 1) / 3) + 1));
    let mut bytes = image.content(&path).unwrap();
    bytes[4096 * (usize::from((lsn - 1) % 3) + 1) + 100] ^= 1;
    image.set_content(&path, &bytes);
    SimDevice::new(image)
}

fn run(device: &SimDevice, lsn: u64) -> (Result<Repaired, RepairError>, Vec<u8>) {
    let mut salvaged = Vec::new();
    let repaired = repair(device, Lsn(lsn), false, &Progress::default(), &mut |frame| {
        salvaged.extend(frame.records().map(|record| record.unwrap().body[0]));
    });
    (repaired, salvaged)
}

#[test]
fn the_log_ends_before_what_was_given_up_and_what_can_still_be_read_is_told() {
    for lost in 1..=7 {
        let device = damaged(8, lost);
        let before = device.image();
        assert!(matches!(open(&device).map(drop), Err(OpenError::Refused { .. })));
        let (repaired, salvaged) = run(&device, u64::from(lost));
        let Repaired::Cut(loss) = repaired.unwrap() else { panic!("nothing was cut") };
        assert_eq!(salvaged, (lost + 1..=8).collect::<Vec<_>>());
        assert_eq!((loss.first_lsn, loss.last_lsn), (Lsn(u64::from(lost)), Some(Lsn(8))));
        let after = device.image();
        for name in &loss.originals {
            let kept = format!("quarantine/repair-{lost:016x}/{name}");
            let was = if name == CONTROL_PATH { name.clone() } else { format!("wal/{name}") };
            assert_eq!(before.content(&was), after.content(&kept), "{kept}");
        }
        let (log, bodies) = open(&device).unwrap();
        assert_eq!(bodies, (1..lost).collect::<Vec<_>>());
        drop(log);
    }
}

#[test]
fn a_last_frame_that_nothing_vouches_for_needs_no_repair() {
    let device = damaged(7, 7);
    assert!(matches!(run(&device, 7).0, Ok(Repaired::Whole(Lsn(6)))));
}

#[test]
fn another_record_than_the_first_lost_is_not_accepted_and_nothing_changes() {
    let device = damaged(8, 5);
    let before = device.image();
    for asked in [1, 4, 6, 99] {
        let error = run(&device, asked).0.unwrap_err();
        let named = matches!(error, RepairError::OtherLsn { first_lost: Lsn(5), .. });
        assert!(named, "{asked}: {error}");
    }
    let dry = repair(&device, Lsn(5), true, &Progress::default(), &mut |_| {}).unwrap();
    assert!(matches!(dry, Repaired::Cut(_)));
    assert!(same(&before, &device.image()));
}

#[test]
fn a_missing_segment_gives_up_what_was_in_it_and_behind_it() {
    let mut image = log_of(8).image();
    image.remove(&names::segment(SegmentId(2)));
    let device = SimDevice::new(image);
    let (repaired, salvaged) = run(&device, 4);
    assert!(matches!(repaired.unwrap(), Repaired::Cut(_)));
    assert_eq!(salvaged, [7, 8]);
    assert_eq!(open(&device).unwrap().1, [1, 2, 3]);
}

#[test]
fn a_log_that_is_whole_is_left_alone() {
    let device = log_of(4);
    let before = device.image();
    assert!(matches!(run(&device, 2).0, Ok(Repaired::Whole(Lsn(4)))));
    assert!(before.paths() == device.image().paths());
}

/// The power is cut before every operation of a repair; what was not synced is kept or lost. The
/// log is then refused or rightly repaired, and a second repair ends well.
#[test]
fn a_repair_cut_short_anywhere_is_done_again() {
    let device = damaged(8, 5);
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    device.observe(Some(Box::new(move |_, image| seen.lock().unwrap().push(image.clone()))));
    run(&device, 5).0.unwrap();
    device.observe(None);
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 40, "{} operations", images.len());
    for image in images {
        for (fate, name) in [(Fate::Old, false), (Fate::New, true), (Fate::New, false)] {
            let device = SimDevice::new(image.power_cut(|_| fate, |_| name));
            match open(&device) {
                Ok((_, bodies)) => assert_eq!(bodies, [1, 2, 3, 4], "repaired, or refused"),
                Err(_) => {
                    run(&device, 5).0.unwrap();
                    assert_eq!(open(&device).unwrap().1, [1, 2, 3, 4]);
                }
            }
        }
    }
}

/// The disk fails at every operation of a repair, once and from then on: the operator is told the
/// file, or that nothing was done, and gets what he asked for once the disk is well.
#[test]
fn a_repair_whose_disk_fails_says_so_and_is_done_again() {
    let image = damaged(8, 5).image();
    let (mut refused, mut untouched) = (0, 0);
    for (kind, lasting) in [
        (FaultKind::ErrorOldContent, false),
        (FaultKind::ErrorOldContent, true),
        (FaultKind::ErrorNewContent, false),
        (FaultKind::Full, false),
        (FaultKind::ShortWrite, true),
        (FaultKind::Interrupted, false),
    ] {
        let repair = |device: &SimDevice, (): &()| run(device, 5).0;
        at_each_operation(
            (&image, kind, lasting),
            |_| (),
            repair,
            |op, told, device, ()| {
                match told {
                    Ok(Repaired::Cut(loss)) => assert_eq!(loss.first_lsn, Lsn(5), "{op:?}"),
                    Ok(Repaired::Whole(lsn)) => {
                        panic!("{op:?}: a damaged log is whole up to {lsn}")
                    }
                    Err(RepairError::Open(error)) => {
                        let text = error.to_string();
                        assert!(
                            text.contains("sim:") && text.contains("os error"),
                            "{op:?}: {text}"
                        );
                        refused += 1;
                    }
                    Err(error) => {
                        assert!(same(&image, &device.image()), "{op:?}: {error}");
                        untouched += 1;
                    }
                }
                match open(device) {
                    Ok((_, bodies)) => {
                        assert_eq!(bodies, [1, 2, 3, 4], "{op:?}: repaired, or refused")
                    }
                    Err(_) => {
                        run(device, 5).0.unwrap();
                        assert_eq!(open(device).unwrap().1, [1, 2, 3, 4], "{op:?}");
                    }
                }
            },
        );
    }
    assert!(refused > 60 && untouched > 0, "{refused} {untouched}");
}

#[test]
fn what_is_no_log_or_is_held_is_told_before_anything_is_looked_at() {
    let empty = SimDevice::new(Image::empty(1));
    let told = run(&empty, 1).0.unwrap_err();
    assert!(matches!(told, RepairError::Open(OpenError::NoLog { .. })), "{told}");
    let device = damaged(8, 5);
    let held = device.lock().unwrap();
    let told = run(&device, 5).0.unwrap_err();
    assert!(matches!(told, RepairError::Open(OpenError::Locked { .. })), "{told}");
    drop(held);
    let refusing = Refusing::new(&device, Call::Lock);
    let told = repair(&refusing, Lsn(5), false, &Progress::default(), &mut |_| {}).unwrap_err();
    assert!(names_the_file(&told), "{told}");
}

/// Damage that names no record: the head of a segment, which no start can see past.
#[test]
fn a_segment_without_a_head_is_given_up_with_all_behind_it_unless_it_is_the_first() {
    let headless = |id: u64| {
        let mut image = log_of(8).image();
        let path = names::segment(SegmentId(id));
        let mut bytes = image.content(&path).unwrap();
        bytes[9] ^= 1;
        image.set_content(&path, &bytes);
        SimDevice::new(image)
    };
    let device = headless(2);
    assert!(matches!(open(&device).map(drop), Err(OpenError::NotOurs { .. })));
    let (repaired, salvaged) = run(&device, 4);
    let Repaired::Cut(loss) = repaired.unwrap() else { panic!("nothing was cut") };
    // Without its head nobody knows the seed of its frames.
    assert_eq!((loss.last_lsn, salvaged), (Some(Lsn(8)), vec![7, 8]));
    assert_eq!(open(&device).unwrap().1, [1, 2, 3]);
    let device = headless(1);
    let before = device.image();
    let told = run(&device, 1).0.unwrap_err();
    assert!(matches!(told, RepairError::NothingLeft { asked: Lsn(1) }), "{told}");
    assert!(same(&before, &device.image()));
}

#[test]
fn a_segment_of_another_log_gives_nothing_to_salvage() {
    let other = SimDevice::new(Image::empty(1_234));
    drop(open(&other).unwrap());
    let foreign = other.image().content(&names::segment(SegmentId(1))).unwrap();
    let mut image = log_of(8).image();
    image.set_content(&names::segment(SegmentId(3)), &foreign);
    let device = SimDevice::new(image);
    let (repaired, salvaged) = run(&device, 7);
    let Repaired::Cut(loss) = repaired.unwrap() else { panic!("nothing was cut") };
    assert_eq!((loss.last_lsn, salvaged.len()), (None, 0));
    assert_eq!(open(&device).unwrap().1, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_log_of_a_newer_version_is_not_cut() {
    let mut image = damaged(8, 5).image();
    let mut bytes = image.content(CONTROL_PATH).unwrap();
    for slot in [0, 4096] {
        bytes[slot + 8] = 9;
    }
    image.set_content(CONTROL_PATH, &bytes);
    let device = SimDevice::new(image);
    let before = device.image();
    assert!(matches!(run(&device, 5).0.unwrap_err(), RepairError::Open(_)));
    assert!(same(&before, &device.image()));
}

#[test]
fn an_interrupted_repair_finds_another_name_for_what_is_kept_already() {
    let device = damaged(8, 5);
    let dir = names::quarantined("repair-0000000000000005");
    device.create_dir(&dir).unwrap();
    for name in [CONTROL_PATH, "seg-0000000000000002.log", "seg-0000000000000002.log.2"] {
        device.create_zeroed(&format!("{dir}/{name}"), 1).unwrap();
    }
    let Repaired::Cut(loss) = run(&device, 5).0.unwrap() else { panic!("nothing was cut") };
    assert!(loss.originals.contains(&format!("{CONTROL_PATH}.2")), "{:?}", loss.originals);
    assert!(loss.originals.contains(&"seg-0000000000000002.log.3".to_owned()));
    assert_eq!(device.image().content(&format!("{dir}/{CONTROL_PATH}")).unwrap(), [0]);
}
