//! H8: the log's whole protocol under drawn schedules: two shards whose callers append, one waiter
//! for each, both threads of the log, a reader of what is durable; on a disk that is well, that
//! fails at some operation, or under a log that is closed meanwhile.
//!
//! In each schedule the power is cut behind one of the moments at which somebody was told that a
//! record is durable. Whatever the scheduler does, nobody waits for ever (it would find all threads
//! blocked), and what was told survives the cut.

#![cfg(shuttle)]

mod disk;
mod drive;
mod told;

use std::sync::Arc;

use shuttle::rand::Rng;
use shuttle::sync::mpsc;
use shuttle::{future, thread};
use wal::device::sim::{Fault, FaultKind, Image, SimDevice};
use wal::planted::Bug;
use wal::{
    Busy, Class, Format, Log, LogUnavailable, OWNER_BYTES, OpenOptions, ReadError, Ticket,
    record_bytes,
};

use disk::Disk;
use drive::{Way, explore, hunt};
use told::Told;

/// Two frames fill a segment, so that every schedule meets rotations.
const FORMAT: Format = Format {
    shard_count: 2,
    frame_bytes_max: 4 << 10,
    in_flight_bytes_max: 8 << 10,
    segment_bytes: 12 << 10,
    owner: [0; OWNER_BYTES],
};

const SHARDS: u16 = 2;
/// Records of a shard.
const RECORDS: u64 = 2;
/// Body of a record.
const BODY_BYTES: usize = 8;
/// Records share a chunk up to so much, a quarter of a frame.
const CHUNK_BYTES: usize = FORMAT.frame_bytes_max as usize / 4;
/// The committing thread does not wait for a batch that has room for so much, a quarter of a chunk.
const LONG_BYTES: usize = CHUNK_BYTES / 4;
/// Operations of the disk within which a fault is drawn: about as many as a schedule needs.
const FAULT_WITHIN: u64 = 40;

/// What befalls the log beside its callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    Fair,
    DiskFails,
    Closes,
}

fn open(sim: &SimDevice) -> Log {
    let options = OpenOptions {
        format: FORMAT,
        accept_file_system: false,
        companions: Vec::new(),
        on_fatal: Box::new(|_| {}),
    };
    let device = Arc::new(Disk::new(sim.clone()));
    Log::open(device, options, &mut |_| Ok(())).expect("an empty disk takes a log").0
}

/// Draws the next batch where `left` records are: the room it reserves, and how many it appends.
/// More than one never share a chunk.
fn draw_batch(left: u64) -> (usize, u64) {
    let drawn = shuttle::rand::thread_rng().gen_range(0..3);
    match drawn {
        0 => (record_bytes(BODY_BYTES), 1),
        1 => (LONG_BYTES, 1),
        _ => (LONG_BYTES, left),
    }
}

/// Appends a shard's records and hands each ticket to the shard's waiter.
fn call(log: &Log, shard: u16, tickets: &mpsc::Sender<Ticket>, told: &Told) {
    let mut next = 1;
    while next <= RECORDS {
        let (room, count) = draw_batch(RECORDS + 1 - next);
        match log.begin(shard, room, Class::Reserved) {
            Ok(mut batch) => {
                let seqs = next..next + count;
                for seq in seqs.clone() {
                    batch.command(if count > 1 { CHUNK_BYTES } else { room });
                    let body = (u64::from(shard) << 32 | seq).to_le_bytes();
                    let shard_seq = batch.append((1, 1), |out| out.extend_from_slice(&body));
                    assert_eq!(shard_seq, seq, "W4");
                }
                drop(batch);
                next += count;
                for shard_seq in seqs {
                    told.asked((shard, shard_seq));
                    // A waiter that was told of a failure waits for nothing more.
                    let _ = tickets.send(Ticket { shard, shard_seq });
                }
            }
            Err(Busy::LogUnavailable) => return,
            Err(Busy::Overloaded) => told.wrong("there is room, and the log was busy".to_owned()),
        }
    }
}

/// Waits for a shard's records: shard 0's as a thread that may commit by itself.
fn wait(log: &Log, ticket: Ticket) -> Result<(), LogUnavailable> {
    match ticket.shard {
        0 => log.wait_durable(ticket),
        _ => future::block_on(log.durable(ticket)),
    }
}

/// Reads durable frames until it has all, or the log has failed or ended.
fn read(log: &Log, expected: u64, weather: Weather, told: &Told) {
    let mut reader = log.reader();
    let mut read = 0;
    while read < expected {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                for record in frame.records() {
                    let Ok(record) = record else { return told.wrong("W3: a torn record".into()) };
                    read += 1;
                    told.read((record.shard, record.shard_seq));
                }
            }
            Ok(None) => {
                let beyond = log.wait_durable_beyond(wal::Lsn(read), std::time::Duration::MAX);
                if !beyond {
                    return;
                }
            }
            // The fault is of one operation, which may be the reader's own.
            Err(ReadError::Io { .. }) if weather == Weather::DiskFails => return,
            Err(error) => return told.wrong(format!("a reader of a log that is well: {error}")),
        }
    }
}

/// Starts a caller for each shard and, beside it, who waits for what it has appended.
fn callers(log: &Log, told: &Arc<Told>) -> Vec<thread::JoinHandle<()>> {
    let start = |shard| {
        let (log, told) = (log.clone(), Arc::clone(told));
        thread::spawn(move || {
            let (tickets, waiting) = mpsc::channel();
            let waiter = {
                let (log, told) = (log.clone(), Arc::clone(&told));
                thread::spawn(move || {
                    for ticket in waiting {
                        match wait(&log, ticket) {
                            Ok(()) => told.acked((ticket.shard, ticket.shard_seq)),
                            Err(LogUnavailable) => return,
                        }
                    }
                })
            };
            call(&log, shard, &tickets, &told);
            drop(tickets);
            waiter.join().expect("a waiter does not panic");
        })
    };
    (0..SHARDS).map(start).collect()
}

/// One schedule. What was wrong is found when all threads have ended: a panic within a commit would
/// end the process instead of showing its schedule.
fn run(weather: Weather) -> Result<(), String> {
    let sim = SimDevice::new(Image::empty(1));
    let log = open(&sim);
    let told = Arc::new(Told::new(sim.clone(), shuttle::rand::thread_rng().gen_range(0..8)));
    if weather == Weather::DiskFails {
        let mut random = shuttle::rand::thread_rng();
        let kind = [FaultKind::ErrorOldContent, FaultKind::ErrorNewContent][random.gen_range(0..2)];
        let at = sim.counts().0 + random.gen_range(1..=FAULT_WITHIN);
        sim.set_fault(Some(Fault { at, lasting: random.gen_bool(0.5), kind }));
    }
    let started = log.start();
    let Ok(threads) = started else { return Err("the log's threads do not start".to_owned()) };
    let others = callers(&log, &told);
    let reader = {
        let (log, told) = (log.clone(), Arc::clone(&told));
        thread::spawn(move || read(&log, u64::from(SHARDS) * RECORDS, weather, &told))
    };
    let closed = (weather == Weather::Closes).then(|| log.close());
    for other in others {
        other.join().expect("a caller does not panic");
    }
    threads.stop();
    let closed = closed.unwrap_or_else(|| log.close());
    if weather != Weather::Fair {
        // A log that has ended gives the reader no more: its wait ends as every other.
        log.abandon();
    }
    reader.join().expect("the reader does not panic");
    if weather != Weather::DiskFails && closed.is_err() {
        return Err("a disk that is well, and the log did not end".to_owned());
    }
    let whole = weather != Weather::DiskFails;
    told.verdict(whole.then(|| [log.durable_seq(0), log.durable_seq(1)]), |image, names| {
        let recovered = SimDevice::new(disk::worst_cut(image));
        let options = OpenOptions {
            format: FORMAT,
            accept_file_system: false,
            companions: Vec::new(),
            on_fatal: Box::new(|_| {}),
        };
        let opened = Log::open(Arc::new(recovered), options, &mut |record| {
            names.push((record.shard, record.shard_seq));
            Ok(())
        });
        opened.map(drop).map_err(|error| error.to_string())
    })
}

#[test]
fn what_was_told_survives_in_every_random_schedule() {
    explore(Way::Random, 4, || run(Weather::Fair));
}

#[test]
fn what_was_told_survives_in_schedules_of_three_preemptions() {
    explore(Way::Pct, 4, || run(Weather::Fair));
}

#[test]
fn a_disk_that_fails_leaves_nobody_waiting_and_nothing_told_is_lost() {
    explore(Way::Random, 1, || run(Weather::DiskFails));
    explore(Way::Pct, 1, || run(Weather::DiskFails));
}

#[test]
fn a_log_closed_beside_its_callers_keeps_what_it_let_in() {
    explore(Way::Random, 1, || run(Weather::Closes));
    explore(Way::Pct, 1, || run(Weather::Closes));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wait_that_nobody_ends_is_found() {
    explore(Way::Random, 1, || {
        let sim = SimDevice::new(Image::empty(1));
        let log = open(&sim);
        let (tickets, waiting) = mpsc::channel();
        call(&log, 1, &tickets, &Told::new(sim, 0));
        drop(tickets);
        for ticket in waiting {
            wait(&log, ticket).map_err(|error| error.to_string())?;
        }
        Ok(())
    });
}

#[test]
fn a_mark_that_is_published_too_early_is_caught() {
    for bug in [Bug::AckBeforeSync, Bug::PublishOneFrameEarly, Bug::SkipDirectorySync] {
        for way in [Way::Random, Way::Pct] {
            hunt(bug, way, || run(Weather::Fair));
        }
    }
}

#[test]
fn a_failed_sync_that_is_passed_over_is_caught() {
    hunt(Bug::RetryAfterFailedSync, Way::Random, || run(Weather::DiskFails));
}
