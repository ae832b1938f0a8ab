use std::sync::Arc;

use super::*;
use crate::Log;
use crate::device::sim::{Fate, SimDevice};
use crate::testing::{FORMAT, append, disk, frame, open, rotate, snapshot};

/// A log whose last segment lives in a file full of frames of `count` records, and `frames` frames
/// of its own in it.
fn recycled(count: usize, frames: usize) -> (SimDevice, Log) {
    let device = disk();
    let (log, _) = open(&device);
    let mut recycled = 0;
    while recycled == 0 {
        rotate(&log, count);
        snapshot(&log);
        recycled = log.retire().unwrap().recycled;
    }
    let spares = log.metrics().spares;
    // The file that was given back is the last of the spares to be taken.
    for _ in 0..spares {
        rotate(&log, count);
    }
    for number in 0..frames {
        frame(&log, 1 + 7 * number, 90);
    }
    (device, log)
}

#[test]
fn an_unclean_end_in_a_used_file_is_no_torn_tail() {
    let mut without_head = 0;
    for count in [1, 30, 60, 100] {
        for frames in 0..6 {
            let (device, log) = recycled(count, frames);
            drop(log);
            let (_, report) = open(&SimDevice::new(device.image().killed()));
            assert_eq!(report.torn_tail, None, "{count} records a frame, {frames} frames");
            without_head += usize::from(count > 30);
        }
    }
    assert!(without_head > 0, "frames of several blocks were written into");
}

#[test]
fn a_write_that_was_cut_in_a_used_file_is_a_torn_tail() {
    for persisted in [0b1, 0b10, 0b1000, 0b1_1110, 0b1111_1110] {
        let (device, log) = recycled(100, 3);
        let cut = Arc::new(std::sync::Mutex::new(None));
        let seen = Arc::clone(&cut);
        device.observe(Some(Box::new(move |op, image| {
            if op == crate::device::sim::Op::Sync {
                let fate = |sector| match persisted >> sector & 1 {
                    1 => Fate::New,
                    _ => Fate::Old,
                };
                let fate = |sector: usize| if sector < 8 { fate(sector) } else { Fate::Old };
                *seen.lock().unwrap() = Some(image.power_cut(fate, |_| true));
            }
        })));
        append(&log, 20, 100);
        log.commit().unwrap();
        device.observe(None);
        drop(log);
        let image = cut.lock().unwrap().take().unwrap();
        let (_, report) = open(&SimDevice::new(image));
        assert!(report.torn_tail.is_some(), "sectors {persisted:b}");
    }
}

#[test]
fn only_what_this_log_has_passed_counts_as_left_over() {
    let mut payload = Vec::new();
    for seq in 5..9 {
        record::append(&mut payload, (1, 1), 0, seq, |out| out.extend_from_slice(&[9; 100]));
    }
    payload.resize(payload.len().next_multiple_of(BLOCK_BYTES), 0);
    let is = |bytes: &[u8], last_seq: u64| {
        is_end_of_frame(bytes, &Passed { format: &FORMAT, shard_seqs: &[last_seq, 0, 0] })
    };
    assert!(is(&payload, 8) && is(&payload[40..], 8), "whole, and from within a record");
    assert!(!is(&payload, 7), "a record that this log has not reached");
    let mut torn = payload.clone();
    torn[..200].fill(0xEE);
    assert!(!is(&torn, 8), "more is foreign than the end of a record");
    payload[300] ^= 0xFF;
    assert!(is(&payload, 8), "a body may hold anything");
    assert!(!is(&[0; BLOCK_BYTES], 8), "zeros are no frame's");
}
