//! What tools do with a log that is at rest, or that a server writes beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use wal::{
    Class, Format, Inspecting, Log, Lsn, OWNER_BYTES, OpenError, OpenOptions, Opening, PosixDevice,
    ReadError, Reader, SinkClass, SnapshotError, record_bytes,
};

const FORMAT: Format = Format {
    shard_count: 2,
    frame_bytes_max: 64 << 10,
    in_flight_bytes_max: 256 << 10,
    segment_bytes: 256 << 10,
    owner: [5; OWNER_BYTES],
};

fn options() -> OpenOptions {
    OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    }
}

fn open(dir: &Path) -> Log {
    Log::open(Arc::new(PosixDevice::new(dir)), options(), &mut |_| Ok(())).unwrap().0
}

/// Appends `count` records, each in a frame of its own.
fn put(log: &Log, count: u64) {
    for _ in 0..count {
        let mut batch = log.begin(0, record_bytes(8), Class::Reserved).unwrap();
        batch.command(record_bytes(8));
        batch.append((1, 1), |out| out.extend_from_slice(&[7; 8]));
        drop(batch);
        log.commit().unwrap();
    }
}

fn read_to_end(reader: &mut Reader) -> Lsn {
    let mut last = Lsn(0);
    while let Some(frame) = reader.next_frame().unwrap() {
        last = frame.last_lsn;
    }
    last
}

#[test]
fn a_bystander_reads_what_is_promised_beside_a_server_and_all_of_a_log_at_rest() {
    let dir = tempfile::tempdir().unwrap();
    let device = || Arc::new(PosixDevice::new(dir.path()));
    assert!(matches!(wal::follow(device()), Err(OpenError::NoLog { .. })));
    let log = open(dir.path());
    put(&log, 5);
    let mut bystander = wal::follow(device()).unwrap();
    // Nothing promises the last frame before another one, or a watermark, does.
    assert_eq!(read_to_end(&mut bystander), Lsn(4));
    log.seal_idle().unwrap();
    assert_eq!(read_to_end(&mut bystander), Lsn(5));
    put(&log, 2);
    assert_eq!(read_to_end(&mut bystander), Lsn(6));
    log.close().unwrap();
    drop(log);
    assert_eq!(read_to_end(&mut bystander), Lsn(7));
    let mut again = wal::follow(device()).unwrap();
    assert_eq!(again.seek_oldest().unwrap(), Lsn(0));
    assert_eq!(read_to_end(&mut again), Lsn(7));
}

#[test]
fn a_reader_goes_to_ends_of_frames_that_are_there_and_to_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let mut batch = log.begin(1, 3 * record_bytes(8), Class::Reserved).unwrap();
    for _ in 0..3 {
        batch.command(record_bytes(8));
        batch.append((1, 1), |out| out.extend_from_slice(&[7; 8]));
    }
    drop(batch);
    log.commit().unwrap();
    let mut reader = log.reader();
    assert!(matches!(reader.seek(Lsn(2)), Err(ReadError::NotAFrameEnd(Lsn(2)))));
    let beyond = reader.seek(Lsn(4));
    assert!(matches!(beyond, Err(ReadError::BeyondEnd { asked: Lsn(4), end: Lsn(3) })));
    assert_ne!(reader.seek(Lsn(3)).unwrap(), 0, "the chain of the frame");
    assert!(reader.next_frame().unwrap().is_none());
    assert_eq!(reader.seek(Lsn(0)).unwrap(), 0);
    assert_eq!(read_to_end(&mut reader), Lsn(3));
}

#[test]
fn an_inspection_tells_of_a_log_without_touching_it() {
    let dir = tempfile::tempdir().unwrap();
    let device = PosixDevice::new(dir.path());
    let log = open(dir.path());
    put(&log, 3);
    log.seal_idle().unwrap();
    assert_eq!(wal::read_format(&device).unwrap(), FORMAT);
    let inspecting = Inspecting::begin(&device).unwrap();
    assert!(inspecting.beside_running_server() && inspecting.is_whole());
    assert_eq!((inspecting.uuid(), *inspecting.format()), (log.identity().uuid, FORMAT));
    assert_eq!(inspecting.read(None, &mut |_| Ok(())).unwrap().last_lsn, Lsn(3));
    assert!(inspecting.damaged_snapshots().is_empty() && inspecting.newest_snapshot().is_none());
    log.close().unwrap();
    drop(log);
    let mut records = 0;
    let report = wal::inspect(&device, &mut |_| {
        records += 1;
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!((records, report.last_lsn, report.beside_running_server), (3, Lsn(3), false));
}

#[test]
fn a_sink_is_dropped_from_a_log_at_rest_once_and_from_no_log_that_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let device = PosixDevice::new(dir.path());
    assert!(matches!(wal::drop_sink(&device, "sql"), Err(OpenError::NoLog { .. })));
    let log = open(dir.path());
    log.register_sink("sql", SinkClass::MustDeliver).unwrap();
    assert!(matches!(wal::drop_sink(&device, "sql"), Err(OpenError::Locked { .. })));
    log.close().unwrap();
    drop(log);
    assert!(!wal::drop_sink(&device, "another").unwrap());
    assert_eq!([0, 1].map(|_| wal::drop_sink(&device, "sql").unwrap()), [true, false]);
    assert!(open(dir.path()).sinks().is_empty());
}

#[test]
fn what_recovery_found_can_be_read_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    put(&log, 4);
    let before = log.identity();
    log.close().unwrap();
    drop(log);
    let mut opening = Opening::begin(Arc::new(PosixDevice::new(dir.path())), options()).unwrap();
    let loaded = opening.load_snapshot(&mut |_| Ok::<_, SnapshotError>(())).unwrap();
    assert_eq!((*opening.format(), loaded), (FORMAT, false));
    let judged = opening.replay(&mut |_| Ok(())).unwrap();
    assert_eq!(
        (judged.identity().uuid, judged.identity().epoch),
        (before.uuid, before.epoch.plus(1))
    );
    assert_eq!(read_to_end(&mut judged.reader()), Lsn(4));
    let (log, report) = judged.finish().unwrap();
    assert_eq!((report.last_lsn, log.identity()), (Lsn(4), report.identity));
}
