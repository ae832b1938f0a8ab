//! Appending beside committing, closing and failing, on a whole log over a simulated disk.

#![cfg(loom)]

use std::sync::Arc;

use loom::thread::{self, JoinHandle};
use wal::device::sim::{Fault, FaultKind, Image, SimDevice};
use wal::model::{commit_passing_on, stop_waiting, wait_for_work};
use wal::{
    Busy, Class, Committed, Format, Log, LogUnavailable, Lsn, OWNER_BYTES, OpenOptions, Ticket,
};

const FORMAT: Format = Format {
    shard_count: 1,
    frame_bytes_max: 4 << 10,
    in_flight_bytes_max: 4 << 10,
    segment_bytes: 20 << 10,
    owner: [0; OWNER_BYTES],
};

fn open(device: &SimDevice) -> Log {
    let options = OpenOptions {
        format: FORMAT,
        accept_file_system: false,
        companions: Vec::new(),
        on_fatal: Box::new(|_| {}),
    };
    let opened = Log::open(Arc::new(device.clone()), options, &mut |_| Ok(()));
    opened.expect("an empty disk takes a log").0
}

fn log() -> Log {
    open(&SimDevice::new(Image::empty(1)))
}

fn append(log: &Log) -> Result<Ticket, Busy> {
    append_with_room(log, 24)
}

/// Commands share a chunk up to so much.
const CHUNK_BYTES: usize = FORMAT.frame_bytes_max as usize / 4;
/// A quarter of a chunk: the committing thread does not wait for a batch with room for so much.
const LONG_BYTES: usize = CHUNK_BYTES / 4;

fn append_long(log: &Log) -> Ticket {
    append_with_room(log, LONG_BYTES).expect("there is room")
}

fn append_with_room(log: &Log, bytes: usize) -> Result<Ticket, Busy> {
    let mut batch = log.begin(0, bytes, Class::Reserved)?;
    batch.command(24);
    Ok(Ticket { shard: 0, shard_seq: batch.append((1, 1), |out| out.extend_from_slice(b"body")) })
}

/// Does `work` on `log` on a thread of its own.
fn beside<T: 'static>(log: &Log, work: impl FnOnce(&Log) -> T + 'static) -> JoinHandle<T> {
    let log = log.clone();
    thread::spawn(move || work(&log))
}

/// What the committing thread does, until `records` are durable.
fn commit_until(log: &Log, records: u64) {
    while log.durable_lsn() < Lsn(records) {
        if wait_for_work(log) {
            while let Ok(Committed::Frame { .. }) = log.commit() {}
        }
    }
}

#[test]
fn no_append_is_left_waiting_for_the_committer() {
    loom::model(|| {
        let log = log();
        let committer = beside(&log, |log| commit_until(log, 2));
        let other = beside(&log, |log| append(log).expect("there is room"));
        let ticket = append(&log).expect("there is room");
        assert_eq!(log.wait_durable(ticket), Ok(()));
        let other = other.join().expect("appending does not panic");
        assert_eq!(log.wait_durable(other), Ok(()));
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(2), 2));
    });
}

/// What the log's own committing thread does, until `records` are durable.
fn pass_on_until(log: &Log, records: u64) {
    while log.durable_lsn() < Lsn(records) {
        if wait_for_work(log) {
            while let Ok(Committed::Frame { .. }) = commit_passing_on(log) {}
        }
    }
}

#[test]
fn a_long_batch_that_was_not_waited_for_is_not_forgotten() {
    loom::model(|| {
        let log = log();
        let committer = beside(&log, |log| pass_on_until(log, 2));
        append_long(&log);
        let ticket = append_long(&log);
        assert_eq!(log.wait_for_commit(ticket), Ok(()));
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(2), 2));
    });
}

#[test]
fn what_waits_below_a_long_batch_that_comes_to_nothing_is_not_forgotten() {
    loom::model(|| {
        let log = log();
        let committer = beside(&log, |log| pass_on_until(log, 1));
        let ticket = append(&log).expect("there is room");
        drop(log.begin(0, LONG_BYTES, Class::Reserved).expect("there is room"));
        assert_eq!(log.wait_for_commit(ticket), Ok(()));
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(1), 1));
    });
}

/// A long batch of two commands that do not share a chunk, whose caller may commit.
fn append_two_chunks(log: &Log, caller_commits: bool) -> Ticket {
    let mut batch = log.begin(0, LONG_BYTES, Class::Reserved).expect("there is room");
    if caller_commits {
        batch.caller_commits();
    }
    let mut append = || {
        batch.command(CHUNK_BYTES);
        batch.append((1, 1), |out| out.extend_from_slice(b"body"))
    };
    append();
    Ticket { shard: 0, shard_seq: append() }
}

fn a_record_beside_a_batch_of_two_chunks(caller_commits: bool) {
    loom::model(move || {
        let log = log();
        let committer = beside(&log, |log| pass_on_until(log, 3));
        let other = beside(&log, move |log| {
            let ticket = append_two_chunks(log, caller_commits);
            if caller_commits {
                while let Ok(Committed::Frame { .. }) = log.commit() {}
                assert!(log.durable_seq(0) >= ticket.shard_seq, "W1: its records are nowhere");
            } else {
                assert_eq!(log.wait_for_commit(ticket), Ok(()));
            }
        });
        let ticket = append(&log).expect("there is room");
        assert_eq!(log.wait_for_commit(ticket), Ok(()));
        other.join().expect("the other caller does not panic");
        // Nobody rings for what a caller commits.
        stop_waiting(&log);
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(3), 3));
    });
}

#[test]
fn a_record_beside_a_long_batch_is_not_forgotten() {
    a_record_beside_a_batch_of_two_chunks(false);
}

#[test]
fn a_record_beside_a_long_batch_whose_caller_commits_is_not_forgotten() {
    a_record_beside_a_batch_of_two_chunks(true);
}

#[test]
fn a_lone_caller_needs_no_committer() {
    loom::model(|| {
        let log = log();
        let ticket = append(&log).expect("there is room");
        assert_eq!(log.wait_durable(ticket), Ok(()));
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(1), 1));
    });
}

#[test]
fn callers_that_commit_by_themselves_leave_no_one_waiting() {
    loom::model(|| {
        let log = log();
        let committer = beside(&log, |log| commit_until(log, 2));
        let other = beside(&log, move |log| {
            let ticket = append(log).expect("there is room");
            assert_eq!(log.wait_durable(ticket), Ok(()));
        });
        let ticket = append(&log).expect("there is room");
        assert_eq!(log.wait_durable(ticket), Ok(()));
        other.join().expect("the other caller does not panic");
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(2), 2));
    });
}

#[test]
fn two_committers_at_once_lose_and_repeat_nothing() {
    loom::model(|| {
        let log = log();
        let committer = beside(&log, |log| commit_until(log, 2));
        for _ in 0..2 {
            let ticket = append(&log).expect("there is room");
            log.commit().expect("the disk is well");
            assert_eq!(log.wait_durable(ticket), Ok(()));
        }
        committer.join().expect("the committer does not panic");
        assert_eq!((log.durable_lsn(), log.durable_seq(0)), (Lsn(2), 2));
    });
}

#[test]
fn closing_takes_along_whatever_was_let_in() {
    loom::model(|| {
        let log = log();
        let appending = beside(&log, append);
        log.close().expect("the disk is well");
        let let_in = match appending.join().expect("appending does not panic") {
            Ok(ticket) => ticket.shard_seq,
            Err(busy) => {
                assert_eq!(busy, Busy::LogUnavailable);
                0
            }
        };
        assert_eq!((log.durable_seq(0), log.durable_lsn()), (let_in, Lsn(let_in)));
        assert_eq!(append(&log), Err(Busy::LogUnavailable));
    });
}

#[test]
fn a_log_that_fails_beside_an_append_answers_nobody() {
    loom::model(|| {
        let device = SimDevice::new(Image::empty(1));
        let log = open(&device);
        let fault = Fault { at: 1, lasting: true, kind: FaultKind::ErrorOldContent };
        device.set_fault(Some(fault));
        append(&log).expect("there is room");
        let caller = beside(&log, |log| append(log).map(|ticket| log.wait_durable(ticket)));
        assert_eq!(log.commit(), Err(LogUnavailable));
        assert_eq!(append(&log), Err(Busy::LogUnavailable));
        let told = caller.join().expect("the caller does not panic");
        assert!(
            matches!(told, Ok(Err(LogUnavailable)) | Err(Busy::LogUnavailable)),
            "W16: {told:?}"
        );
        assert_eq!(log.durable_lsn(), Lsn(0));
    });
}
