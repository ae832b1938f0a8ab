//! Starts that are long enough for a second thread to help: they lead where a short one would, and
//! fail as one would.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::path::Path;
use std::sync::Arc;

use engine::core::event::{Definition, Front};
use engine::core::ids::{ActivityId, ReservationId, SkuId, UserId};
use engine::{BatchAnswer, BatchRequest, Engine, EngineOptions, OpenError, OpenReport};
use sale::PHONE;
use wal::device::sim::{Image, SimDevice};
use wal::{Class, Format, Log, Lsn, OWNER_BYTES, record_bytes};

/// More than one thread does by itself: see `BATCHES_ALONE`.
const BATCHES: u64 = 48;
const BATCH: u64 = 1_024;

fn open(device: &SimDevice) -> Result<(Engine, OpenReport), OpenError> {
    let options = EngineOptions {
        segment_bytes: 2 << 20,
        frame_bytes_max: 256 << 10,
        in_flight_bytes_max: 512 << 10,
        shard_count: 4,
        accept_file_system: true,
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
        threads: false,
        snapshot_after_bytes: 1 << 20,
        ..EngineOptions::new(Path::new("sim"))
    };
    Engine::open_on(Arc::new(device.clone()), options)
}

fn on_sale(engine: &Engine, sku: u64) -> ActivityId {
    let sku = SkuId::new(sku).unwrap();
    sale::on_sale(engine, 1_000_000, Definition { sku, per_user_limit: 40, ..PHONE })
}

/// One batch of `activity`: buyers of whom some have bought before, one of them very often. Every
/// hundredth pays.
fn trade(engine: &Engine, activity: ActivityId, number: u64) {
    while engine.make_spare().unwrap() == wal::SpareMade::Made {}
    let request_id = format!("request {number}");
    let buyer = |index| UserId::new(if index == 7 { 7 } else { 1 + number * 700 + index }).unwrap();
    let requests: Vec<_> = (0..BATCH)
        .map(|index| BatchRequest { user: buyer(index), request_id: &request_id, quantity: 1 })
        .collect();
    let pending = engine.reserve_batch(activity, &requests, Front::Api).unwrap();
    engine.commit().unwrap();
    for answer in pending.wait().unwrap().iter().step_by(100) {
        let BatchAnswer::Reserved(id) = answer else { panic!("{answer:?}") };
        let id: ReservationId = *id;
        engine.confirm(id, &format!("p{id}")).map(drop).unwrap();
    }
    engine.commit().unwrap();
}

/// A directory with a long log, and the digest of what was live.
fn sold() -> (SimDevice, u128) {
    let device = SimDevice::new(Image::empty(1));
    let (engine, _) = open(&device).unwrap();
    let activities = [on_sale(&engine, 20_001), on_sale(&engine, 20_002)];
    for number in 0..BATCHES {
        // Long runs of one activity, and some turns of both.
        let in_turn = if number % 8 < 6 { number / 8 } else { number };
        trade(&engine, activities[usize::from(in_turn % 2 == 1)], number);
    }
    let digest = engine.digest();
    (device, digest)
}

#[test]
fn the_state_is_the_one_that_was_live_by_the_log_and_by_a_snapshot() {
    let (device, live) = sold();
    let (engine, report) = open(&device).unwrap();
    assert_eq!(engine.digest(), live, "W14");
    assert!(report.records > BATCHES * BATCH);
    // A clean end makes a snapshot.
    engine.close().unwrap();
    drop(engine);
    let (engine, report) = open(&device).unwrap();
    assert_eq!(engine.digest(), live, "W14");
    assert!(report.records < 10 && report.log.snapshot_lsn > Lsn(BATCHES * BATCH), "{report}");
    // What is replayed on top of it finds the users that it brought.
    let activity = engine.activities()[0].id;
    trade(&engine, activity, BATCHES);
    let live = engine.digest();
    drop(engine);
    assert_eq!(open(&device).unwrap().0.digest(), live, "W14");
}

#[test]
fn a_record_that_cannot_have_happened_is_told_of_whatever_stands_behind_it() {
    let (device, _) = sold();
    let options = wal::OpenOptions {
        // Of no account: the directory has its own.
        format: Format {
            shard_count: 4,
            frame_bytes_max: 256 << 10,
            in_flight_bytes_max: 512 << 10,
            segment_bytes: 2 << 20,
            owner: [0; OWNER_BYTES],
        },
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    };
    let (log, _) = Log::open(Arc::new(device.clone()), options, &mut |_| Ok(())).unwrap();
    let mut reader = log.reader();
    let frame = std::iter::from_fn(|| {
        let frame = reader.next_frame().unwrap()?;
        let purchase = frame.records().map(Result::unwrap).find(|record| record.kind == 16);
        Some(purchase.map(|it| (it.shard, it.body.to_vec())))
    });
    let (shard, body) = frame.flatten().next().unwrap();
    drop(reader);
    let append = |kind: (u8, u8), body: &[u8]| {
        let mut batch = log.begin(shard, record_bytes(body.len()), Class::Reserved).unwrap();
        batch.command(record_bytes(body.len()));
        batch.append(kind, |out| out.extend_from_slice(body));
        drop(batch);
        log.commit().unwrap();
        log.durable_lsn()
    };
    // The first purchase once more; behind it bytes that are no event at all.
    let wrong = append((16, 1), &body);
    append((16, 1), b"no event");
    drop(log);
    let refused = open(&device).map(drop).unwrap_err();
    let OpenError::Log(wal::OpenError::Rejected { lsn, why }) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(*lsn, wrong);
    assert!(why.to_string().ends_with("is out of place"), "{why}");
}

#[test]
fn damage_behind_a_long_log_is_told_of_as_behind_a_short_one() {
    let (device, _) = sold();
    let mut image = device.image();
    let segments = image.paths().into_iter().filter(|path| path.starts_with("wal/seg-"));
    let sealed = segments.min().unwrap();
    let mut bytes = image.content(&sealed).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    image.set_content(&sealed, &bytes);
    let refused = open(&SimDevice::new(image)).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Log(wal::OpenError::Refused { .. })), "{refused}");
}

#[test]
fn a_large_snapshot_with_a_rotten_block_is_passed_over() {
    let (device, live) = sold();
    let (engine, _) = open(&device).unwrap();
    engine.snapshot().unwrap().unwrap();
    drop(engine);
    let mut image = device.image();
    let snapshots = image.paths().into_iter().filter(|path| path.starts_with("snap/snap-"));
    let path = snapshots.max().unwrap();
    let mut bytes = image.content(&path).unwrap();
    let at = bytes.len() - (64 << 10);
    bytes[at] ^= 1;
    image.set_content(&path, &bytes);
    // The log is whole still: it takes a second snapshot to let it go.
    let (engine, report) = open(&SimDevice::new(image)).unwrap();
    assert_eq!(engine.digest(), live);
    assert_eq!(report.log.damaged_snapshots.len(), 1, "{report}");
    assert!(report.records > BATCHES * BATCH);
}
