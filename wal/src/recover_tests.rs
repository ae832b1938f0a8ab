use super::*;
use crate::device::sim::{Fault, FaultKind, SimDevice};
use crate::ids::SegmentId;
use crate::limits::BLOCK_BYTES;
use crate::testing::{
    FORMAT, append, disk, edited, frame, open, open_into, options, refusal, reseal, rotate,
    skim_snapshots, snapshot,
};
use crate::{Inspecting, Opening};

const FIRST: SegmentId = SegmentId(1);
/// Where the payload of a segment's first frame begins.
const PAYLOAD_AT: usize = BLOCK_BYTES + 64;
/// What the first of three records of about a hundred bytes takes, each of its fellows as well.
const RECORD_BYTES: usize = 120;

/// A log of one frame of three records, one byte string of it edited, its checksums right.
fn forged(at: usize, with: &[u8]) -> SimDevice {
    let device = disk();
    frame(&open(&device).0, 3, 100);
    edited(&device, FIRST, |bytes, stamp| {
        bytes[at..at + with.len()].copy_from_slice(with);
        reseal(bytes, BLOCK_BYTES, stamp);
    })
}

/// The case, the offset and the range of a refusal.
fn told(device: &SimDevice) -> (Case, u64, Lsn, String) {
    match refusal(device) {
        OpenError::Refused { case, offset, first_lost_lsn, until, .. } => {
            (case, offset, first_lost_lsn, until)
        }
        other => panic!("{other}"),
    }
}

fn rejected(device: &SimDevice) -> (Lsn, String) {
    match refusal(device) {
        OpenError::Rejected { lsn, why } => (lsn, why.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_record_out_of_its_shards_order_is_refused_though_its_checksums_are_right() {
    let third = PAYLOAD_AT + 2 * RECORD_BYTES;
    let (shard, seq) = (third + 4, third + 8);
    // The third is the first of shard 1: a frame takes one lane after another.
    let unchanged = open_into(&forged(seq, &[1]), &mut |_| Ok(()));
    assert_eq!(unchanged.unwrap().durable_lsn(), Lsn(3));
    for (at, with, why) in [
        (seq, 2, "shard sequence 2 after 0"),
        (seq, 0, "shard sequence 0 after 0"),
        (shard, 0, "shard sequence 1 after 2"),
        (shard, 2, "its shard does not exist"),
    ] {
        assert_eq!(rejected(&forged(at, &[with])), (Lsn(3), why.to_owned()));
    }
}

#[test]
fn a_frame_that_counts_other_records_than_it_holds_is_refused() {
    for count in [2, 4] {
        let forged = forged(BLOCK_BYTES + 12, &[count]);
        let expected = (Lsn(u64::from(count)), format!("its frame names {count}"));
        assert_eq!(rejected(&forged), expected);
    }
    for length in [0, 8, u16::MAX] {
        let forged = forged(PAYLOAD_AT + RECORD_BYTES, &length.to_le_bytes());
        assert_eq!(rejected(&forged).0, Lsn(2), "a record of {length} bytes");
    }
}

#[test]
fn what_the_owner_refuses_is_told_with_its_place() {
    let device = disk();
    frame(&open(&device).0, 3, 100);
    let error = open_into(&device, &mut |record| match record.lsn {
        Lsn(2) => Err("no".into()),
        _ => Ok(()),
    });
    let told = error.map(drop).unwrap_err().to_string();
    assert!(told.contains("LSN 2") && told.ends_with(": no"), "{told}");
}

struct Pieces(Vec<usize>, u64);

impl Replaying for Pieces {
    fn take(&mut self, records: &[Record<'_>]) -> Result<(), Rejection> {
        self.0.push(records.len());
        for record in records {
            assert_eq!(record.lsn, Lsn(self.1 + 1), "in order, each once");
            self.1 += 1;
        }
        Ok(())
    }
}

#[test]
fn records_come_together_as_far_as_they_share_a_frame_and_are_not_too_many() {
    let device = disk();
    let (log, _) = open(&device);
    for count in [1, RECORDS_TOGETHER - 1, RECORDS_TOGETHER, RECORDS_TOGETHER + 1] {
        frame(&log, count, 0);
    }
    drop(log);
    let mut pieces = Pieces(Vec::new(), 0);
    let opening = Opening::begin(Arc::new(device), options(Box::new(|_| ()))).unwrap();
    opening.replay_into(&mut pieces).unwrap();
    assert!(pieces.0.iter().all(|count| *count <= RECORDS_TOGETHER), "{:?}", pieces.0);
    assert_eq!(pieces.1, 3 * RECORDS_TOGETHER as u64 + 1);
    let full = pieces.0.iter().filter(|count| **count == RECORDS_TOGETHER).count();
    assert_eq!(full, 2, "{:?}", pieces.0);
}

/// The log behind one frame, and where that ends.
fn one_frame() -> (SimDevice, u64) {
    let device = disk();
    frame(&open(&device).0, 3, 100);
    (device, 2 * BLOCK)
}

#[test]
fn damage_as_long_as_what_can_be_in_flight_is_a_torn_tail_and_a_block_more_is_refused() {
    let (device, end) = one_frame();
    let in_flight = FORMAT.in_flight_bytes_max;
    for (bytes, expected) in [(BLOCK, true), (in_flight, true), (in_flight + BLOCK, false)] {
        let last_block = usize::try_from(end + bytes - BLOCK).unwrap();
        let torn = edited(&device, FIRST, |content, _| content[last_block + 9] = 1);
        if expected {
            let (_, report) = open(&torn);
            let tail = report.torn_tail.unwrap();
            assert_eq!(tail.path, torn.display(&names::segment(FIRST)));
            assert_eq!((tail.offset, tail.bytes), (end, bytes));
            assert_eq!(report.last_lsn, Lsn(3));
        } else {
            assert_eq!(told(&torn), (Case::TooMuchDamage, end, Lsn(4), String::new()));
        }
    }
}

#[test]
fn in_a_used_file_a_frame_of_its_earlier_life_may_follow_what_was_in_flight() {
    let (device, end) = one_frame();
    let longest = FORMAT.in_flight_bytes_max + u64::from(FORMAT.frame_bytes_max);
    for (bytes, expected) in [(longest, true), (longest + BLOCK, false)] {
        let last_block = usize::try_from(end + bytes - BLOCK).unwrap();
        let torn = edited(&device, FIRST, |content, _| {
            let mut header = SegmentHeader::parse(&content[..BLOCK_BYTES]).unwrap();
            header.stale_stamp = 77;
            content[..BLOCK_BYTES].copy_from_slice(header.encode().bytes());
            content[last_block + 9] = 1;
        });
        if expected {
            assert_eq!(open(&torn).1.torn_tail.unwrap().bytes, bytes);
        } else {
            assert_eq!(told(&torn).0, Case::TooMuchDamage);
        }
    }
}

#[test]
fn a_frame_behind_damage_that_promises_more_is_told_with_the_last_record_it_names() {
    let device = disk();
    let (log, _) = open(&device);
    for _ in 0..3 {
        frame(&log, 3, 100);
    }
    drop(log);
    let damaged = edited(&device, FIRST, |bytes, _| bytes[PAYLOAD_AT] ^= 1);
    assert_eq!(told(&damaged), (Case::PromisedDamage, BLOCK, Lsn(1), " to LSN 9".to_owned()));
}

#[test]
fn a_sealed_segment_that_ends_before_or_behind_its_seal_is_refused() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    frame(&log, 3, 100);
    log.close().unwrap();
    drop(log);
    drop(open(&device));
    let damaged = edited(&device, FIRST, |bytes, _| bytes[2 * BLOCK_BYTES..].fill(0));
    assert_eq!(told(&damaged), (Case::SealedDamage, 2 * BLOCK, Lsn(4), " to LSN 6".to_owned()));
}

#[test]
fn a_log_that_ends_before_its_snapshot_is_refused_with_what_is_missing() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    frame(&log, 3, 100);
    snapshot(&log);
    drop(log);
    let cut = edited(&device, FIRST, |bytes, _| bytes[2 * BLOCK_BYTES..].fill(0));
    assert_eq!(told(&cut), (Case::EndBeforeSnapshot, 0, Lsn(4), " to LSN 6".to_owned()));
}

#[test]
fn a_snapshot_beside_a_log_with_another_past_is_refused() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    snapshot(&log);
    drop(log);
    let other = edited(&device, FIRST, |bytes, stamp| {
        bytes[PAYLOAD_AT + 20] ^= 1;
        reseal(bytes, BLOCK_BYTES, stamp);
    });
    let error = refusal(&other);
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    assert!(error.to_string().contains("no snapshot of the log beside it"), "{error}");
}

/// A snapshot names the frame that it ends with: one with records, whatever promise follows it.
#[test]
fn the_last_frame_with_records_is_known_though_a_watermark_follows_it() {
    let device = disk();
    let (log, _) = open(&device);
    assert_eq!(log.reader().seek(Lsn(0)).unwrap(), 0);
    frame(&log, 3, 100);
    frame(&log, 3, 100);
    let chain = log.reader().seek(Lsn(6)).unwrap();
    log.close().unwrap();
    drop(log);
    let (log, _) = open(&device);
    assert_eq!(log.quiesce().unwrap(), Some(chain));
    drop(log);
    let (log, _) = open(&disk());
    assert_eq!(log.quiesce().unwrap(), None, "nothing was ever written");
}

#[test]
fn a_clean_end_that_was_moved_is_refused() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    log.close().unwrap();
    drop(log);
    // The watermark is gone, and the frame that it vouched for is whole.
    let cut = edited(&device, FIRST, |bytes, _| bytes[2 * BLOCK_BYTES..].fill(0));
    assert_eq!(told(&cut).0, Case::CleanEndMoved);
}

#[test]
fn a_tail_that_the_disk_does_not_give_back_is_served_without_and_its_file_condemned() {
    let (device, end) = one_frame();
    let mut image = device.image();
    image.make_unreadable(&names::segment(FIRST), end / BLOCK);
    let (log, report) = open(&SimDevice::new(image.clone()));
    assert_eq!(report.torn_tail.map(|tail| tail.offset), Some(end));
    drop(log);
    let device = SimDevice::new(image);
    drop(open(&device));
    let control = crate::open::read_control(&device).unwrap().0;
    assert_eq!(control.never_recycle, [FIRST], "W7");
}

/// After a failed sync the page is clean, and the cache may hold what the disk never got.
#[test]
fn a_tail_is_judged_by_the_disk_and_not_by_the_cache() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    append(&log, 3, 100);
    let at = device.counts().0 + 2;
    let kind = FaultKind::ErrorNewContent;
    device.set_fault(Some(Fault { at, lasting: false, kind }));
    assert!(log.commit().is_err());
    drop(log);
    let (log, report) = open(&device);
    assert_eq!((log.durable_lsn(), report.torn_tail), (Lsn(3), None));
}

#[test]
fn what_the_disk_does_not_give_back_below_a_promise_is_refused() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    frame(&log, 3, 100);
    drop(log);
    let mut image = device.image();
    image.make_unreadable(&names::segment(FIRST), 1);
    let (case, offset, ..) = told(&SimDevice::new(image));
    assert_eq!((case, offset), (Case::UnreadablePromised, BLOCK));
}

#[test]
fn a_report_counts_what_was_read_and_progress_comes_to_its_end() {
    let device = disk();
    let (log, _) = open(&device);
    (0..3).for_each(|_| rotate(&log, 30));
    drop(log);
    for with_snapshot in [false, true] {
        if with_snapshot {
            let (log, _) = open(&device);
            snapshot(&log);
            drop(log);
        }
        let mut opening =
            Opening::begin(Arc::new(device.clone()), options(Box::new(|_| ()))).unwrap();
        let progress = Progress::default();
        opening.watch(&progress);
        let snapshot = skim_snapshots(&mut opening).unwrap();
        assert_eq!(snapshot, with_snapshot);
        let (_, report) = opening.replay(&mut |_| Ok(())).unwrap().finish().unwrap();
        // Two starts have each begun a segment since, and the snapshot's last record lies before.
        assert_eq!(report.segments, if snapshot { 3 } else { 4 });
        if !snapshot {
            assert_eq!(progress.done_bytes(), progress.total_bytes());
        }
    }
}

#[test]
fn beside_a_writer_what_is_promised_is_read_and_damage_to_it_told() {
    let device = disk();
    let (log, _) = open(&device);
    for _ in 0..3 {
        frame(&log, 3, 100);
    }
    let inspect = |device: &SimDevice| {
        let _lock = device.lock().unwrap();
        let inspection = Inspecting::under(device, None, &Progress::default())?;
        inspection.read(None, &mut |_| Ok(())).map(|inspection| inspection.last_lsn)
    };
    drop(log);
    // The third frame promises the two before it, and nothing promises the third.
    assert_eq!(inspect(&device).unwrap(), Lsn(6));
    let damaged = edited(&device, FIRST, |bytes, _| bytes[PAYLOAD_AT] ^= 1);
    match inspect(&damaged).unwrap_err() {
        OpenError::Refused { case, offset, .. } => {
            assert_eq!((case, offset), (Case::PromisedDamage, BLOCK));
        }
        other => panic!("{other}"),
    }
    let unpromised = edited(&device, FIRST, |bytes, _| bytes[3 * BLOCK_BYTES + 64] ^= 1);
    assert_eq!(inspect(&unpromised).unwrap(), Lsn(6));
}

/// The disk with another CONTROL, whatever it says.
fn controlled(device: &SimDevice, change: impl FnOnce(&mut Control)) -> SimDevice {
    let device = SimDevice::new(device.image());
    let (mut control, file) = crate::open::read_control(&device).unwrap();
    change(&mut control);
    control.write(&*file).unwrap();
    device
}

#[test]
fn a_directory_without_the_segments_that_control_needs_is_refused() {
    let device = disk();
    let (log, _) = open(&device);
    frame(&log, 3, 100);
    log.close().unwrap();
    drop(log);
    device.remove(&names::segment(FIRST)).unwrap();
    for (oldest, active) in [(1, 1), (1, 2), (5, 0), (5, 3), (5, 5)] {
        let without = controlled(&device, |control| {
            control.oldest_needed_segment = SegmentId(oldest);
            control.active_segment = SegmentId(active);
            control.clean_end = None;
        });
        assert_eq!(told(&without).0, Case::SegmentMissing, "{oldest} {active}");
    }
}

#[test]
fn what_was_recovered_and_names_two_ends_is_a_bug() {
    let recovered = |offset, end_lsn, last_lsn, torn_at: Option<u64>| Recovered {
        end: Some(LogEnd { segment: FIRST, offset, last_lsn: Lsn(end_lsn), chain: 1 }),
        last_lsn: Lsn(last_lsn),
        shard_seqs: vec![0; 3],
        torn_tail: torn_at.map(|offset| TornTail { path: String::new(), offset, bytes: 1 }),
        unreadable_tail: false,
        segments: 1,
        data_chain: None,
        headers: Vec::new(),
    };
    let breaks = |recovered: Recovered| {
        let check = std::panic::AssertUnwindSafe(|| recovered.assert_coherent(&FORMAT));
        std::panic::catch_unwind(check).is_err()
    };
    assert!(!breaks(recovered(BLOCK, 3, 3, None)));
    assert!(!breaks(recovered(FORMAT.segment_bytes, 3, 3, Some(FORMAT.segment_bytes))));
    assert!(breaks(recovered(BLOCK, 3, 4, None)));
    assert!(breaks(recovered(BLOCK + 1, 3, 3, None)));
    assert!(breaks(recovered(0, 3, 3, None)));
    assert!(breaks(recovered(FORMAT.segment_bytes + BLOCK, 3, 3, None)));
    assert!(breaks(recovered(2 * BLOCK, 3, 3, Some(BLOCK))));
    assert!(breaks(Recovered { shard_seqs: vec![0; 2], ..recovered(BLOCK, 3, 3, None) }));
}

#[test]
fn a_lane_is_a_shards_or_that_of_control() {
    assert_eq!([0, 1].map(|shard| lane(shard, 2)), [Some(0), Some(1)]);
    assert_eq!((lane(2, 2), lane(CONTROL_SHARD, 2)), (None, Some(2)));
}
