//! The pool of spares: the thread that makes them beside the commit that takes them, on a whole log
//! over a simulated disk.

#![cfg(loom)]

use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use wal::device::Device;
use wal::device::sim::{Image, SimDevice};
use wal::model::{stop_waiting, wait_for_spare};
use wal::{Class, Committed, Format, Log, OWNER_BYTES, OpenOptions, SpareMade};

/// Two frames fill a segment.
const FORMAT: Format = Format {
    shard_count: 1,
    frame_bytes_max: 4 << 10,
    in_flight_bytes_max: 4 << 10,
    segment_bytes: 12 << 10,
    owner: [0; OWNER_BYTES],
};

fn log() -> (Log, SimDevice) {
    let device = SimDevice::new(Image::empty(1));
    let options = OpenOptions {
        format: FORMAT,
        accept_file_system: false,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    };
    let opened = Log::open(Arc::new(device.clone()), options, &mut |_| Ok(()));
    (opened.expect("an empty disk takes a log").0, device)
}

fn commit(log: &Log, frames: usize) {
    for _ in 0..frames {
        let mut batch = log.begin(0, 24, Class::Reserved).expect("there is room");
        batch.command(24);
        batch.append((1, 1), |out| out.extend_from_slice(b"body"));
        drop(batch);
        assert!(matches!(log.commit(), Ok(Committed::Frame { .. })));
    }
}

fn make(log: &Log) -> SpareMade {
    log.make_spare().expect("the disk is well")
}

fn fill(log: &Log) {
    while make(log) == SpareMade::Made {}
}

/// What the thread that makes spares does, until it is told to end or has made `count`.
fn maker(log: &Log, count: usize) -> JoinHandle<usize> {
    let log = log.clone();
    thread::spawn(move || {
        let mut made = 0;
        while made < count {
            match make(&log) {
                SpareMade::Made => made += 1,
                SpareMade::Enough if wait_for_spare(&log) => {}
                SpareMade::Enough | SpareMade::NoRoom => break,
            }
        }
        made
    })
}

/// Every spare on the disk is in the pool, and the segments are those that were begun.
fn assert_none_lost(log: &Log, device: &SimDevice) {
    let names = device.list("wal").expect("it is there");
    let count = |start| names.iter().filter(|entry| entry.name.starts_with(start)).count() as u64;
    let metrics = log.metrics();
    assert_eq!((count("spare-"), count("seg-")), (metrics.spares, metrics.rotations));
}

#[test]
fn a_spare_made_beside_a_rotation_is_neither_lost_nor_taken_twice() {
    loom::model(|| {
        let (log, device) = log();
        commit(&log, 1);
        let maker = maker(&log, 2);
        commit(&log, 2);
        assert_eq!(maker.join().expect("it does not panic"), 2);
        assert_none_lost(&log, &device);
    });
}

#[test]
fn a_rotation_wakes_the_maker() {
    loom::model(|| {
        let (log, device) = log();
        fill(&log);
        commit(&log, 2);
        let before = log.metrics().spares;
        let maker = maker(&log, 1);
        commit(&log, 1);
        assert_eq!(maker.join().expect("it does not panic"), 1, "what was taken is made again");
        assert_eq!(log.metrics().spares, before);
        assert_none_lost(&log, &device);
    });
}

#[test]
fn an_end_wakes_the_maker_for_good() {
    loom::model(|| {
        let (log, _) = log();
        fill(&log);
        let maker = maker(&log, 1);
        stop_waiting(&log);
        assert_eq!(maker.join().expect("it does not panic"), 0);
    });
}

/// The committer finds no room for a spare and closes the log to all work, while the maker finds
/// room again and opens it: whichever comes last, what is let in must follow from the pool. A
/// closed log with spares in it would stay closed: nothing is committed, so nothing rotates.
#[test]
fn room_that_comes_back_beside_a_committer_that_found_none_lets_new_work_in() {
    loom::model(|| {
        let (log, device) = log();
        device.set_free_bytes(Some(0));
        let emptied = {
            let log = log.clone();
            thread::spawn(move || {
                device.set_free_bytes(None);
                fill(&log);
            })
        };
        commit(&log, 1);
        emptied.join().expect("it does not panic");
        assert!(log.metrics().new_admitted, "there are {} spares", log.metrics().spares);
    });
}
