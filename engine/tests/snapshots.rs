//! Snapshots and what the log gives back for them: restarts, damage, sinks, the bound on what is
//! undelivered.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::core::decide::{AdoptActivity, AdoptReservation};
use engine::core::event::{Actor, Definition, Front, RestoreReason, Status};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::request::RequestHasher;
use engine::core::snapshot::Image;
use engine::{Busy, Engine, EngineOptions, ORDERS_SINK, OldId, OpenError, SinkClass, verify};
use sale::{PHONE, on_sale};
use wal::device::sim::{Image as Disk, SimDevice};
use wal::{CONTROL_SHARD, Case, Lsn, ReadError};

const SEGMENT_BYTES: u64 = 112 << 10;

fn options(dir: &Path) -> EngineOptions {
    let mut options = EngineOptions::new(dir);
    options.segment_bytes = SEGMENT_BYTES;
    options.frame_bytes_max = 48 << 10;
    options.in_flight_bytes_max = 48 << 10;
    options.shard_count = 4;
    options.accept_file_system = true;
    options.on_fatal = Box::new(|_| ());
    options.threads = false;
    // Tests say themselves when.
    options.snapshot_after_bytes = u64::MAX;
    options
}

fn simulated(disk: Disk) -> Result<(Engine, SimDevice), OpenError> {
    let device = SimDevice::new(disk);
    let (engine, _) = Engine::open_on(Arc::new(device.clone()), options(Path::new("sim")))?;
    Ok((engine, device))
}

fn sale(engine: &Engine) -> ActivityId {
    on_sale(engine, 100_000, Definition { per_user_limit: 3, ..PHONE })
}

fn buy(engine: &Engine, id: ActivityId, buyer: u64) -> Result<ReservationId, Busy> {
    let user = UserId::new(buyer).unwrap();
    while engine.make_spare().unwrap() == wal::SpareMade::Made {}
    let pending = engine.reserve(id, user, &format!("r{buyer}"), 1, Front::Api)?;
    engine.commit().unwrap();
    Ok(pending.wait().unwrap().unwrap().reservation.reservation.id)
}

/// Buys, pays every second and cancels every third, until `segments` more were sealed.
fn trade(engine: &Engine, id: ActivityId, buyer: &mut u64, segments: u64) {
    let until = engine.stats().log.rotations + segments;
    while engine.stats().log.rotations < until {
        *buyer += 1;
        let reservation = buy(engine, id, *buyer).unwrap();
        if buyer.is_multiple_of(2) {
            engine.confirm(reservation, &format!("p{buyer}")).map(drop).unwrap();
        } else if buyer.is_multiple_of(3) {
            let reason = RestoreReason::Cancelled;
            engine.restore(reservation, None, reason, Actor::NONE).map(drop).unwrap();
        }
        engine.commit().unwrap();
    }
}

fn files(device: &SimDevice, prefix: &str) -> Vec<String> {
    device.image().paths().into_iter().filter(|path| path.starts_with(prefix)).collect()
}

#[test]
fn snapshot_and_suffix_lead_to_the_state_that_was_live() {
    let (engine, device) = simulated(Disk::empty(1)).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    let mut retired = 0;
    for _ in 0..4 {
        trade(&engine, id, &mut buyer, 3);
        let made = engine.snapshot().unwrap().unwrap();
        assert!(made.lsn <= engine.durable_lsn() && made.records > 0);
        retired += made.segments_retired;
        let live = engine.digest();
        let (again, _) = simulated(device.image()).unwrap();
        assert_eq!(again.digest(), live, "W14");
        assert_eq!(again.activities(), engine.activities());
    }
    assert!(retired > 0);
    assert!(engine.snapshot().unwrap().is_none(), "nothing was sealed since");
    assert_eq!(files(&device, "snap/snap-").len(), 2);
    assert!(files(&device, "wal/seg-").len() < 12, "{:?}", files(&device, "wal/"));
    // The log goes on in files that had a life before, and is found again.
    let (engine, device) = simulated(device.image()).unwrap();
    trade(&engine, id, &mut buyer, 8);
    engine.snapshot().unwrap().unwrap();
    trade(&engine, id, &mut buyer, 2);
    let live = engine.digest();
    let (again, _) = simulated(device.image()).unwrap();
    assert_eq!(again.digest(), live);
}

#[test]
fn a_damaged_snapshot_is_passed_over_for_the_one_before_and_without_any_the_start_is_refused() {
    let (engine, device) = simulated(Disk::empty(1)).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    for _ in 0..4 {
        trade(&engine, id, &mut buyer, 3);
        engine.snapshot().unwrap().unwrap();
    }
    let live = engine.digest();
    let snapshots = files(&device, "snap/snap-");
    let mut disk = device.image();
    let damage = |disk: &mut Disk, path: &str| {
        let mut bytes = disk.content(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        disk.set_content(path, &bytes);
    };
    damage(&mut disk, &snapshots[1]);
    let device = SimDevice::new(disk.clone());
    let options = options(Path::new("sim"));
    let (again, report) = Engine::open_on(Arc::new(device.clone()), options).unwrap();
    assert_eq!(again.digest(), live);
    assert_eq!(report.log.damaged_snapshots.len(), 1, "{report}");
    assert_eq!(files(&device, "quarantine/").len(), 1, "it is kept as evidence");
    damage(&mut disk, &snapshots[0]);
    match simulated(disk).map(drop) {
        Err(OpenError::Log(wal::OpenError::Refused { case: Case::NoSnapshot, .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sink_holds_the_log_until_it_has_confirmed_or_is_dropped() {
    let (engine, _device) = simulated(Disk::empty(1)).unwrap();
    engine.register_sink(ORDERS_SINK, SinkClass::MustDeliver).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    let mut reader = engine.reader();
    for _ in 0..3 {
        trade(&engine, id, &mut buyer, 3);
        assert_eq!(engine.snapshot().unwrap().unwrap().segments_retired, 0);
    }
    assert_eq!(reader.seek(Lsn(0)).unwrap(), 0);
    let mut cursor = Lsn(0);
    for _ in 0..100 {
        cursor = reader.next_frame().unwrap().unwrap().last_lsn;
    }
    engine.sink_confirmed(ORDERS_SINK, cursor);
    trade(&engine, id, &mut buyer, 1);
    assert!(engine.snapshot().unwrap().unwrap().segments_retired > 0);
    // Its own place is there, what lies far behind it is not.
    reader.seek(cursor).unwrap();
    let gone = reader.seek(Lsn(0)).unwrap_err();
    assert!(matches!(gone, ReadError::Retired { asked: Lsn(0), .. }), "{gone}");
    engine.drop_sink(ORDERS_SINK).unwrap();
    trade(&engine, id, &mut buyer, 1);
    assert!(engine.snapshot().unwrap().unwrap().segments_retired > 0);
    assert!(matches!(reader.seek(cursor), Err(ReadError::Retired { .. })));
    assert!(reader.seek_oldest().unwrap() > cursor);
}

#[test]
fn past_the_bound_purchases_wait_and_cancels_go_on_until_the_sink_has_caught_up() {
    let (engine, device) = simulated(Disk::empty(1)).unwrap();
    engine.register_sink(ORDERS_SINK, SinkClass::MustDeliver).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    let first = buy(&engine, id, 500_000).unwrap();
    trade(&engine, id, &mut buyer, 3);
    let (mut options, disk) = (options(Path::new("sim")), device.image());
    (options.retention.soft_bytes, options.retention.hard_bytes) =
        (SEGMENT_BYTES, 2 * SEGMENT_BYTES);
    let (engine, _) = Engine::open_on(Arc::new(SimDevice::new(disk)), options).unwrap();
    assert!(engine.stats().log.backlog_late && !engine.stats().log.new_admitted);
    assert_eq!(buy(&engine, id, 500_001), Err(Busy::Overloaded));
    let reason = RestoreReason::Cancelled;
    let back = engine.restore(first, None, reason, Actor::NONE).unwrap();
    engine.commit().unwrap();
    back.wait().unwrap().unwrap();
    engine.sink_confirmed(ORDERS_SINK, engine.durable_lsn());
    assert!(engine.stats().log.new_admitted && !engine.stats().log.backlog_late);
    buy(&engine, id, 500_001).unwrap();
}

#[test]
fn the_content_of_a_snapshot_is_every_activity_and_reservation_at_its_lsn() {
    let (engine, _device) = simulated(Disk::empty(1)).unwrap();
    assert!(engine.snapshot_contents().unwrap().is_none());
    let (id, mut buyer) = (sale(&engine), 0);
    trade(&engine, id, &mut buyer, 3);
    let made = engine.snapshot().unwrap().unwrap();
    let mut contents = engine.snapshot_contents().unwrap().unwrap();
    // The cursor that goes with it: the log is read on from there.
    assert_eq!(engine.reader().seek(contents.lsn()).unwrap(), contents.chain());
    // It reads on though others take its place.
    for _ in 0..3 {
        trade(&engine, id, &mut buyer, 1);
        engine.snapshot().unwrap().unwrap();
    }
    assert_eq!((contents.lsn(), contents.log_uuid()), (made.lsn, engine.identity().uuid));
    let (mut locked, mut sold, mut back, mut figures) = (0, 0, 0, None);
    while let Some((_, image)) = contents.next().unwrap() {
        match image {
            Image::Activity { activity, figures: units, .. } => {
                assert_eq!(activity, id);
                figures = Some(units);
            }
            Image::Reservation { status, quantity, .. } => match status {
                Status::Reserved => locked += quantity,
                Status::Confirmed => sold += quantity,
                Status::RolledBack(_) => back += quantity,
            },
            _ => {}
        }
    }
    let figures = figures.unwrap();
    assert_eq!((figures.locked, figures.sold), (locked, sold));
    assert!(locked > 0 && sold > 0 && back > 0);
}

#[test]
fn a_clean_end_leaves_a_snapshot_where_it_saves_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let mut some = options(dir.path());
    some.snapshot_after_bytes = 4 * SEGMENT_BYTES;
    let (engine, _) = Engine::open(some).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    trade(&engine, id, &mut buyer, 2);
    let (live, last) = (engine.digest(), engine.durable_lsn());
    engine.close().unwrap();
    drop(engine);
    let (engine, report) = Engine::open(options(dir.path())).unwrap();
    assert_eq!((report.log.snapshot_lsn, report.records), (last, 0));
    assert_eq!(engine.digest(), live);
    trade(&engine, id, &mut buyer, 1);
}

#[test]
fn a_log_that_is_not_kept_whole_is_checked_from_its_older_snapshot_on() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    for round in 0..4 {
        trade(&engine, id, &mut buyer, 3);
        engine.snapshot().unwrap().unwrap();
        let report = verify(dir.path()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert!(report.beside_running_server);
        assert_eq!(report.snapshot_lsn.is_some(), round > 1, "then segments were given back");
    }
    engine.close().unwrap();
    let view = engine.activity(id).unwrap();
    drop(engine);
    let report = verify(dir.path()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let [told] = report.activities.as_slice() else { panic!("{:?}", report.activities) };
    let figures = view.figures;
    assert_eq!(
        (told.available, told.locked, told.sold),
        (figures.available, figures.locked, figures.sold)
    );
    assert!(told.rolled_back > 0 && told.reservations == buyer);
    // A snapshot that the log does not come to, and one that is damaged, are told.
    let snapshots: Vec<_> = std::fs::read_dir(dir.path().join("snap")).unwrap().collect();
    let newest = snapshots.into_iter().map(|it| it.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[9000] ^= 4;
    std::fs::write(&newest, bytes).unwrap();
    assert_eq!(verify(dir.path()).unwrap().problems.len(), 1);
}

#[test]
fn a_full_disk_still_takes_the_snapshot_that_makes_room() {
    let (engine, device) = simulated(Disk::empty(1)).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    for _ in 0..3 {
        trade(&engine, id, &mut buyer, 3);
        engine.snapshot().unwrap().unwrap();
    }
    trade(&engine, id, &mut buyer, 3);
    let before = files(&device, "wal/seg-").len();
    engine.reserve_room();
    device.set_free_bytes(Some(0));
    assert!(engine.snapshot().unwrap().unwrap().segments_retired > 0);
    assert!(files(&device, "wal/seg-").len() < before);
}

#[test]
fn a_log_that_grows_makes_its_snapshots_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut some = options(dir.path());
    some.threads = true;
    some.snapshot_after_bytes = 3 * SEGMENT_BYTES;
    let (engine, _) = Engine::open(some).unwrap();
    let (id, mut buyer) = (sale(&engine), 0);
    while engine.stats().snapshots_made < 2 {
        buyer += 1;
        let user = UserId::new(buyer).unwrap();
        // Segments this small are filled faster than they are made: then it asks again.
        match engine.reserve(id, user, &format!("r{buyer}"), 1, Front::Api) {
            Ok(pending) => drop(pending.wait().unwrap().unwrap()),
            Err(busy) => assert_eq!(busy, Busy::Overloaded),
        }
        assert_eq!(engine.stats().snapshot_failure, None);
    }
    let live = engine.digest();
    engine.close().unwrap();
    drop(engine);
    let (engine, report) = Engine::open(options(dir.path())).unwrap();
    assert!(report.log.snapshot_lsn > Lsn(0));
    assert_eq!(engine.digest(), live);
}

/// A reservation of an older system that had no id.
fn adopt_nameless(engine: &Engine, id: ActivityId, order_no: &str) -> ReservationId {
    let adopted = AdoptReservation {
        old_id: 0,
        order_no,
        status: Status::RolledBack(RestoreReason::Cancelled),
        user: UserId::new(1).unwrap(),
        quantity: 1,
        created_ms: 1,
        updated_ms: 1,
        request_id: order_no,
        request_hash: RequestHasher::new(&engine.request_hash_key()).hash(order_no),
        payment_no: "",
    };
    let told = engine.adopt_reservation(id, OldId::None, &adopted).unwrap();
    told.wait().unwrap().unwrap().id
}

#[test]
fn an_id_given_to_what_had_none_is_not_given_again_once_it_is_archived_and_snapshotted() {
    let scratch = tempfile::tempdir().unwrap();
    let open = || {
        let mut options = options(scratch.path());
        options.threads = true;
        Engine::open(options).unwrap().0
    };
    let definition = Definition { per_user_limit: 3, end_ms: 2, ..PHONE };
    let over = AdoptActivity { version: 1, available: 10, sold: 0, on_sale: true, definition };
    let (first, second) = (ActivityId::new(1).unwrap(), ActivityId::new(2).unwrap());
    let engine = open();
    engine.adopt_activity(first, None, &over).unwrap().wait().unwrap().unwrap();
    let given = adopt_nameless(&engine, first, "OLD-1");
    let mut marks = BTreeMap::new();
    let mut reader = engine.reader();
    while let Some(frame) = reader.next_frame().unwrap() {
        let records = frame.records().map(Result::unwrap);
        marks.extend(records.map(|record| (record.shard, record.shard_seq)));
    }
    drop(reader);
    marks.remove(&CONTROL_SHARD);
    let marks: Vec<(u16, u64)> = marks.into_iter().collect();
    engine.sink_advanced(ORDERS_SINK, engine.durable_lsn(), &marks).unwrap();
    assert_eq!(engine.archive_ended(), Ok(1));
    engine.close().unwrap();
    drop(engine);
    // The log of it is sealed by the next start: a snapshot stands for it.
    let engine = open();
    assert!(engine.snapshot().unwrap().is_some());
    engine.close().unwrap();
    drop(engine);
    let engine = open();
    assert!(engine.archived(first).is_some());
    engine.adopt_activity(second, None, &over).unwrap().wait().unwrap().unwrap();
    let next = adopt_nameless(&engine, second, "OLD-2");
    assert!(next < given, "{next} was given before {given}");
    engine.close().unwrap();
}
