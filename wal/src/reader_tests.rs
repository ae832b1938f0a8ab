//! A reader where the disk fails, and where the log moves under it: what it gives is in order and
//! without a gap, whatever happens, and what it can't give it names.

use super::*;
use crate::device::sim::{FaultKind, Image, SimDevice};
use crate::testing::{at_each_operation, disk, frame, names_the_file, open, rotate, snapshot};
use crate::{Log, SinkClass};

/// A log of several segments and runs, one of them without a frame.
fn written(device: &SimDevice) -> Log {
    for _ in 0..2 {
        let (log, _) = open(device);
        rotate(&log, 10);
        frame(&log, 2, 100);
        log.seal_idle().unwrap();
    }
    drop(open(device));
    let (log, _) = open(device);
    frame(&log, 3, 100);
    log
}

/// Goes to `from`, and gives the ends of all frames from there on, as far as they can be read.
fn read(log: &Log, from: Lsn) -> (Vec<Lsn>, Option<ReadError>) {
    let mut reader = log.reader();
    let mut ends = Vec::new();
    let mut go = || {
        reader.seek(from)?;
        while let Some(frame) = reader.next_frame()? {
            ends.push(frame.last_lsn);
        }
        Ok(())
    };
    let told = go().err();
    (ends, told)
}

#[test]
fn a_reader_whose_disk_fails_names_the_file_and_goes_on_where_it_stopped() {
    let image = disk().image();
    let all = read(&written(&disk()), Lsn(0)).0;
    let mut refused = 0;
    for from in [Lsn(0), all[all.len() / 2]] {
        let expected: Vec<_> = all.iter().copied().filter(|end| *end > from).collect();
        for kind in [FaultKind::ErrorOldContent, FaultKind::Interrupted] {
            let act = |_: &SimDevice, log: &Log| read(log, from);
            at_each_operation((&image, kind, false), written, act, |op, (ends, told), _, log| {
                assert!(expected.starts_with(&ends), "{op:?}: {ends:?}");
                match told {
                    None => assert_eq!(ends, expected, "{op:?}"),
                    Some(error) => {
                        assert!(names_the_file(&error), "{op:?}: {error}");
                        refused += 1;
                    }
                }
                let stopped = ends.last().copied().unwrap_or(from);
                let (rest, told) = read(&log, stopped);
                assert!(told.is_none() && [ends, rest].concat() == expected, "{op:?}");
            });
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn the_oldest_frame_is_found_or_the_file_is_named_that_hides_it() {
    let image = disk().image();
    let seek = |_: &SimDevice, log: &Log| log.reader().seek_oldest();
    at_each_operation(
        (&image, FaultKind::ErrorOldContent, false),
        written,
        seek,
        |op, told, _, log| {
            match told {
                Ok(before) => assert_eq!(before, Lsn(0), "{op:?}"),
                Err(error) => assert!(names_the_file(&error), "{op:?}: {error}"),
            }
            assert_eq!(log.reader().seek_oldest().unwrap(), Lsn(0));
        },
    );
}

/// Begins segments and makes snapshots until those from before are given back.
fn given_back(log: &Log) {
    for _ in 0..3 {
        rotate(log, 30);
        rotate(log, 30);
        snapshot(log);
        log.retire().unwrap();
    }
}

#[test]
fn a_place_that_was_given_back_is_told_with_the_oldest_that_is_left() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    given_back(&log);
    let mut reader = log.reader();
    let before = reader.seek_oldest().unwrap();
    assert!(before > Lsn(3));
    for asked in [Lsn(0), Lsn(3), Lsn(before.0 - 1)] {
        let told = reader.seek(asked);
        let Err(ReadError::Retired { asked: it, oldest }) = told else { panic!("{told:?}") };
        assert_eq!((it, oldest), (asked, before.plus(1)));
    }
    // Where it stands, a frame can be asked for that was given back meanwhile.
    assert!(matches!(reader.next_frame().map(drop), Err(ReadError::Retired { .. })));
    let first = reader.seek_oldest().unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().first_lsn, first.plus(1));
}

/// A reader that holds nothing back is overtaken: its segment has another life.
#[test]
fn a_reader_that_is_overtaken_is_told_so_and_reads_nothing_of_the_life_after() {
    let device = disk();
    let (log, _) = open(&device);
    for _ in 0..5 {
        frame(&log, 3, 100);
    }
    let mut reader = log.reader();
    assert_eq!(reader.next_frame().unwrap().unwrap().first_lsn, Lsn(1));
    given_back(&log);
    // What the reader has read ahead of its segment is its own.
    let mut last = Lsn(3);
    let told = loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert_eq!(frame.first_lsn, last.plus(1), "in order");
                last = frame.last_lsn;
            }
            Ok(None) => panic!("it did not catch up"),
            Err(told) => break told,
        }
    };
    let Err(oldest) = log.reader().seek(Lsn(1)) else { panic!("it is gone") };
    let (ReadError::Retired { asked, oldest: told }, ReadError::Retired { oldest, .. }) =
        (told, oldest)
    else {
        panic!("both are gone")
    };
    assert_eq!((asked, told), (last.plus(1), oldest));
}

/// The disk changes a sealed frame that was durable: the file and the place are named.
#[test]
fn a_durable_frame_that_does_not_read_back_is_named_with_its_place() {
    let device = disk();
    let log = written(&device);
    let path = names::segment(SegmentId(1));
    let file = device.open(&path).unwrap();
    file.write_at(&[1], 2 * 4096 + 70).unwrap();
    let mut reader = log.reader();
    let first = reader.next_frame().unwrap().unwrap().last_lsn;
    let told = reader.next_frame().map(drop).unwrap_err();
    let ReadError::Damaged { path: at, offset: 8192 } = &told else { panic!("{told}") };
    assert!(at.contains(&path), "{told}");
    assert!(matches!(reader.seek(first.plus(1)), Err(ReadError::Damaged { .. })));
    // A head that is gone is none of a segment.
    file.write_at(&[0; 512], 0).unwrap();
    let told = log.reader().seek(Lsn(0)).unwrap_err();
    assert!(matches!(told, ReadError::Damaged { offset: 0, .. }), "{told}");
}

/// Two segments that do not follow one another are no log, wherever the second one came from.
#[test]
fn a_segment_that_does_not_seal_the_one_before_it_ends_the_reading() {
    let image = {
        let device = disk();
        drop(written(&device));
        device.image()
    };
    let device = SimDevice::new(image);
    let (log, _) = open(&device);
    let [one, two, three] = [1, 2, 3].map(|id| names::segment(SegmentId(id)));
    device.rename(&two, "wal/away.tmp").unwrap();
    let (ends, told) = read(&log, Lsn(0));
    assert!(!ends.is_empty(), "the first segment is there");
    let Some(ReadError::Damaged { path, .. }) = told else { panic!("{told:?}") };
    assert!(path.contains(&one), "it has no successor: {path}");
    device.link(&three, &two).unwrap();
    let told = read(&log, Lsn(0)).1;
    let Some(ReadError::Damaged { path, .. }) = told else { panic!("{told:?}") };
    assert!(path.contains(&one), "{path}");
}

#[test]
fn a_log_without_a_segment_has_nothing_to_read() {
    let mut image = Image::empty(3);
    image.set_content("wal/other", &[0; 9]);
    let device = SimDevice::new(image);
    device.create_dir("wal").unwrap();
    let format = crate::testing::FORMAT;
    let mut reader = Reader::new(Arc::new(device), format, Box::new(|| Ok(Lsn(0))));
    assert_eq!(reader.seek(Lsn(0)).unwrap(), 0);
    assert_eq!(reader.seek_oldest().unwrap(), Lsn(0));
    assert!(reader.next_frame().unwrap().is_none());
    assert!(matches!(reader.seek(Lsn(1)), Err(ReadError::BeyondEnd { .. })));
}

#[test]
fn a_sink_that_must_deliver_finds_its_place_whatever_was_given_back() {
    let device = disk();
    let (log, _) = open(&device);
    log.register_sink("sql", SinkClass::MustDeliver).unwrap();
    frame(&log, 3, 100);
    given_back(&log);
    let (ends, told) = read(&log, Lsn(0));
    assert!(told.is_none() && ends[0] == Lsn(3), "{told:?}");
}
