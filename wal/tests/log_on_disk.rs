//! The log on a real file system: what is written is read back, by the next start, by readers and
//! by bystanders.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use wal::device::AppendChoice;
use wal::{
    Class, Committed, Format, Log, Lsn, OWNER_BYTES, OpenError, OpenOptions, OpenReport,
    PosixDevice, ReadError, Ticket, record_bytes,
};

const FORMAT: Format = Format {
    shard_count: 4,
    frame_bytes_max: 64 << 10,
    in_flight_bytes_max: 256 << 10,
    segment_bytes: 256 << 10,
    owner: [5; OWNER_BYTES],
};

fn options() -> OpenOptions {
    OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: vec!["orders.db".to_owned()],
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    }
}

fn open(dir: &Path) -> Result<(Log, OpenReport, Vec<Vec<u8>>), OpenError> {
    let mut bodies = Vec::new();
    let device = Arc::new(PosixDevice::new(dir));
    let (log, report) = Log::open(device, options(), &mut |record| {
        bodies.push(record.body.to_vec());
        Ok(())
    })?;
    Ok((log, report, bodies))
}

fn put(log: &Log, shard: u16, body: &[u8]) -> Ticket {
    let room = record_bytes(body.len());
    let mut batch = log.begin(shard, room, Class::Reserved).unwrap();
    batch.command(room);
    Ticket { shard, shard_seq: batch.append((1, 1), |out| out.extend_from_slice(body)) }
}

fn read_all(reader: &mut wal::Reader) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        bodies.extend(frame.records().map(|record| record.unwrap().body.to_vec()));
    }
    bodies
}

#[test]
fn every_durable_record_is_read_back_by_the_next_start_and_by_readers() {
    let dir = tempfile::tempdir().unwrap();
    let (log, report, bodies) = open(dir.path()).unwrap();
    assert!(report.formatted && bodies.is_empty());
    let threads = log.start().unwrap();
    let mut written = Vec::new();
    let mut last = None;
    for index in 0..5_000u32 {
        let body = [&index.to_le_bytes()[..], &[7; 90]].concat();
        let ticket = put(&log, (index % 4) as u16, &body);
        if index % 64 == 0 {
            log.wait_durable(ticket).unwrap();
        }
        written.push(body);
        last = Some(ticket);
    }
    log.wait_durable(last.unwrap()).unwrap();
    written.sort();
    threads.stop();
    assert_ne!(log.metrics().rotations, 1, "several segments");
    drop(log);

    let (log, report, mut bodies) = open(dir.path()).unwrap();
    bodies.sort();
    assert_eq!(bodies, written);
    assert_eq!((report.last_lsn, report.torn_tail), (Lsn(5_000), None));
    let mut read = read_all(&mut log.reader());
    read.sort();
    assert_eq!(read, written);
}

/// Every other run writes past the page cache: readers through it, the next start, and a run that
/// writes through it again see one log.
#[test]
fn a_log_written_past_the_page_cache_is_a_log_like_any_other() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut written = Vec::new();
    for run in 0..4u8 {
        let choice = [AppendChoice::Direct, AppendChoice::Buffered][usize::from(run % 2)];
        let device = Arc::new(PosixDevice::new(dir.path()).with_appends(choice));
        let mut bodies = Vec::new();
        let opened = Log::open(device, options(), &mut |record| {
            bodies.push(record.body.to_vec());
            Ok(())
        });
        let (log, report) = match opened {
            Err(OpenError::Io { source, .. }) if source.kind() == ErrorKind::Unsupported => return,
            opened => opened.unwrap(),
        };
        assert_eq!((bodies, report.appends.direct), (written.clone(), run % 2 == 0));
        let mut reader = log.reader();
        reader.seek(report.last_lsn).unwrap();
        for index in 0..100u8 {
            let body = [&[run, index][..], &[9; 3_000]].concat();
            put(&log, 0, &body);
            log.commit().unwrap();
            written.push(body);
            assert_eq!(read_all(&mut reader), written[written.len() - 1..]);
        }
    }
}

#[test]
fn a_reader_resumes_at_the_end_of_any_frame_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path()).unwrap();
    let mut ends = Vec::new();
    for index in 0..40u8 {
        put(&log, 0, &[index; 10]);
        put(&log, 1, &[index; 10]);
        let Committed::Frame { last_lsn, records: 2 } = log.commit().unwrap() else { panic!() };
        log.seal_idle().unwrap();
        ends.push(last_lsn);
    }
    drop(log);
    let (log, ..) = open(dir.path()).unwrap();
    let mut reader = log.reader();
    for (index, end) in ends.iter().enumerate() {
        reader.seek(*end).unwrap();
        assert_eq!(read_all(&mut reader).len(), 2 * (39 - index));
        let middle = reader.seek(Lsn(end.0 - 1));
        assert!(matches!(middle, Err(ReadError::NotAFrameEnd(_))) || end.0 == 1, "{middle:?}");
    }
    assert!(matches!(reader.seek(Lsn(81)), Err(ReadError::BeyondEnd { .. })));
    assert_eq!(reader.seek(Lsn(0)).unwrap(), 0);
    assert_eq!(read_all(&mut reader).len(), 80);
}

#[test]
fn a_reader_never_sees_what_is_not_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path()).unwrap();
    let mut reader = log.reader();
    put(&log, 0, b"waiting");
    assert!(reader.next_frame().unwrap().is_none());
    log.commit().unwrap();
    assert_eq!(reader.next_frame().unwrap().unwrap().last_lsn, Lsn(1));
    assert!(reader.next_frame().unwrap().is_none());
}

/// Broke once: the reader kept what it had read ahead of the mark, from before the next frame was
/// written, and took those zeros for damage where the mark had moved on in the meantime.
#[test]
fn a_reader_that_is_overtaken_by_the_mark_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path()).unwrap();
    let mut reader = log.reader();
    for lsn in 1..=3 {
        put(&log, 0, b"one more");
        log.commit().unwrap();
        assert_eq!(reader.next_frame().unwrap().unwrap().last_lsn, Lsn(lsn));
    }
}

#[test]
fn a_clean_end_is_found_where_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5u64 {
        let (log, report, bodies) = open(dir.path()).unwrap();
        assert_eq!(report.identity.epoch.0, round + 1, "W11: every open is an incarnation");
        assert_eq!(bodies.len() as u64, round);
        put(&log, 0, b"left for close to commit");
        log.close().unwrap();
    }
}

#[test]
fn two_processes_never_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (_log, ..) = open(dir.path()).unwrap();
    assert!(matches!(open(dir.path()).map(drop), Err(OpenError::Locked { .. })), "W12");
}

#[test]
fn a_bystander_reads_what_is_promised_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path()).unwrap();
    put(&log, 0, b"promised");
    log.commit().unwrap();
    put(&log, 0, b"not yet");
    log.commit().unwrap();
    let device = PosixDevice::new(dir.path());
    let mut count = 0;
    let mut counting = |_: &wal::Record<'_>| {
        count += 1;
        Ok(())
    };
    let inspection = wal::inspect(&device, &mut counting).unwrap();
    assert!(inspection.beside_running_server);
    assert_eq!((inspection.last_lsn, count), (Lsn(1), 1));
    log.seal_idle().unwrap();
    assert_eq!(wal::inspect(&device, &mut |_| Ok(())).unwrap().last_lsn, Lsn(2));
    let mut follower = wal::follow(Arc::new(device.clone())).unwrap();
    assert_eq!(read_all(&mut follower).len(), 2);
    put(&log, 0, b"later");
    log.commit().unwrap();
    log.seal_idle().unwrap();
    assert_eq!(read_all(&mut follower), [b"later".to_vec()]);
    drop(log);
    assert!(!wal::inspect(&device, &mut |_| Ok(())).unwrap().beside_running_server);
}

#[test]
fn a_follower_says_what_keeps_it_from_reading() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = open(dir.path()).unwrap();
    put(&log, 0, b"durable");
    log.commit().unwrap();
    drop(log);
    let segment = dir.path().join("wal/seg-0000000000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let mut follower = wal::follow(Arc::new(PosixDevice::new(dir.path()))).unwrap();
    let error = follower.next_frame().map(drop).unwrap_err();
    assert!(matches!(error, ReadError::NoEnd(_)), "{error}");
    assert!(error.to_string().contains("seg-0000000000000001.log"), "{error}");
}

#[test]
fn a_directory_that_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("orders.db"), b"a companion").unwrap();
    std::fs::write(dir.path().join("thesis.tex"), b"precious").unwrap();
    assert!(matches!(open(dir.path()).map(drop), Err(OpenError::Foreign { .. })));
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["orders.db", "thesis.tex"]);
}

#[test]
fn a_segment_that_is_missing_or_another_logs_is_refused() {
    let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [ours.path(), other.path()] {
        for _ in 0..3 {
            let (log, ..) = open(dir).unwrap();
            put(&log, 0, b"x");
            log.commit().unwrap();
        }
    }
    let second = ours.path().join("wal/seg-0000000000000002.log");
    let saved = std::fs::read(&second).unwrap();
    std::fs::copy(other.path().join("wal/seg-0000000000000002.log"), &second).unwrap();
    assert!(matches!(open(ours.path()).map(drop), Err(OpenError::NotOurs { .. })));
    std::fs::remove_file(&second).unwrap();
    let missing = open(ours.path()).map(drop).unwrap_err();
    assert!(missing.to_string().contains("seg-0000000000000002.log"), "{missing}");
    std::fs::write(&second, saved).unwrap();
    open(ours.path()).unwrap();
}
