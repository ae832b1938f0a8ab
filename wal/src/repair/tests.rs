//! A repair gives up what its operator named and nothing else, and may itself be cut short.

use std::sync::Arc;

use super::*;
use crate::control::{Format, OWNER_BYTES};
use crate::device::sim::{Fate, Image, SimDevice};
use crate::intake::{Class, Committed};
use crate::log::Log;
use crate::open::OpenOptions;
use crate::record::record_bytes;

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
    let after = device.image();
    assert!(before.paths() == after.paths());
    assert!(before.paths().iter().all(|path| before.same_content(&after, path)));
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
