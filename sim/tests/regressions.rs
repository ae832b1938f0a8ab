//! What a campaign once found, told as the shortest case of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sim::crash::survives;
use sim::fates::Cut;
use sim::process::Process;
use sim::truth::Truth;
use sim::workload::Step;
use wal::device::sim::{Fault, FaultKind, Image, Op};

/// Every sector that is not synced, of whatever file, is garbage.
const ALL_GARBAGE: Cut = Cut::Power { new: 0, garbage: u128::MAX, names: u128::MAX };

/// A process that has written a record, on a disk of its own.
fn served() -> Process {
    let mut process = Process::new(Image::empty(1), Truth::default(), 1);
    process.step(Step::Block).unwrap();
    process
}

/// Starts on `image` and cuts the power at every operation of the start.
fn cut_every_start(image: Image, truth: &Truth) {
    let mut process = Process::new(image, truth.clone(), 2);
    process.observe();
    process.open().unwrap();
    for point in process.points() {
        let after = ALL_GARBAGE.of(&point.image);
        assert_eq!(survives(after, truth, point.acked), Ok(()), "before {:?}", point.op);
    }
}

/// A process killed between writing CONTROL and syncing it left one slot in the cache; the next
/// start wrote the other one beside it, synced both at once, and a power cut in that sync tore
/// both: no start after it.
#[test]
fn a_kill_and_a_cut_never_tear_both_slots_of_control() {
    let mut process = served();
    process.observe();
    process.step(Step::Close).unwrap();
    let truth = process.truth.clone();
    for point in process.points().iter().filter(|point| point.op == Some(Op::Sync)) {
        cut_every_start(point.image.killed(), &truth);
    }
}

/// A failed sync left a slot of CONTROL in the cache that the disk never got; the next start
/// believed it, wrote its own over the only slot that was on the disk, and a power cut tore that.
#[test]
fn a_slot_of_control_that_the_disk_never_got_is_not_believed() {
    let begun = served().ops();
    for at in begun + 1.. {
        let mut process = served();
        let kind = FaultKind::ErrorNewContent;
        process.persist_fault(Some(Fault { at, lasting: false, kind }));
        let _ = process.step(Step::Reopen);
        if process.ops() < at {
            break;
        }
        process.drop_log();
        cut_every_start(process.device().image().killed(), &process.truth);
    }
}

/// After a failed sync and a new start a reader that used the page cache handed out a record that
/// the disk never got, under an LSN that belonged to another record by then: a ghost order.
#[test]
fn a_reader_does_not_see_what_a_failed_sync_left_in_the_cache() {
    let begun = served().ops();
    let mut process = served();
    let kind = FaultKind::ErrorNewContent;
    process.persist_fault(Some(Fault { at: begun + 2, lasting: false, kind }));
    assert!(process.step(Step::Block).is_err(), "the sync failed");
    process.drop_log();
    let left = process.device().image().killed();
    assert_eq!(survives(left, &process.truth, process.truth.acked), Ok(()));
}
