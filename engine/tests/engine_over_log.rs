//! The engine over its log: answers held until durable, restarts, time-outs, batches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::core::command::Refusal;
use engine::core::event::{Definition, Front, RestoreReason};
use engine::core::ids::{ActivityId, UserId};
use engine::{
    BatchAnswer, BatchRequest, Busy, DerivedState, Engine, EngineOptions, ORDERS_SINK, OpenError,
    PublicStatus, Purchase, Refused,
};
use sale::{ACTOR, PHONE};
use wal::device::sim::{Fate, Fault, FaultKind, Image, SimDevice};

fn definition(limit: u32, payment_ttl_ms: u64) -> Definition<'static> {
    Definition { per_user_limit: limit, payment_ttl_ms, ..PHONE }
}

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

fn options(dir: &std::path::Path) -> EngineOptions {
    let mut options = EngineOptions::new(dir);
    options.segment_bytes = 2 << 20;
    options.frame_bytes_max = 256 << 10;
    options.accept_file_system = true;
    options.on_fatal = Box::new(|_| ());
    options
}

/// An engine without threads on a simulated disk: nothing is durable before `commit`.
fn simulated(image: Image) -> Result<(Engine, SimDevice), OpenError> {
    let device = SimDevice::new(image);
    let mut options = options(std::path::Path::new("sim"));
    options.threads = false;
    let (engine, _) = Engine::open_on(Arc::new(device.clone()), options)?;
    Ok((engine, device))
}

fn on_sale(engine: &Engine, stock: u32, limit: u32, payment_ttl_ms: u64) -> ActivityId {
    sale::on_sale(engine, stock, definition(limit, payment_ttl_ms))
}

fn buy(engine: &Engine, id: ActivityId, buyer: u64, request: &str) -> Result<Purchase, Refused> {
    let pending = engine.reserve(id, user(buyer), request, 1, Front::Api).unwrap();
    engine.commit().unwrap();
    pending.wait().unwrap()
}

#[test]
fn no_answer_is_told_before_what_it_rests_on_is_durable() {
    let (engine, device) = simulated(Image::empty(1)).unwrap();
    let id = on_sale(&engine, 1, 1, 60_000);
    let bought = engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    // These rest on the record before them, which is not durable: they wait with it (W1).
    let replay = engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    let sold_out = engine.reserve(id, user(2), "b", 1, Front::Api).unwrap();
    let query = engine.reservation(engine::core::ids::ReservationId::new(1 << 32 | 1).unwrap());
    let held = engine.held(id, user(1));
    let mut waits = [
        Box::pin(async { bought.durable().await.map(|told| told.is_ok()) })
            as std::pin::Pin<Box<dyn Future<Output = _>>>,
        Box::pin(async { replay.durable().await.map(|told| told.is_ok_and(|it| it.replayed)) }),
        Box::pin(async {
            let told = sold_out.durable().await;
            told.map(|told| told.is_err_and(|it| it.refusal == Refusal::SoldOut))
        }),
        Box::pin(async { query.unwrap().durable().await.map(|found| found.is_some()) }),
        Box::pin(async { held.unwrap().durable().await.map(|held| held == 1) }),
    ];
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(engine.activity(id).unwrap().figures.available, 1, "lists show what is durable");
    let crashed = device.image().power_cut(|_| Fate::Old, |_| true);
    engine.commit().unwrap();
    for wait in &mut waits {
        assert_eq!(wait.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(true)));
    }
    assert_eq!(engine.activity(id).unwrap().figures.available, 0);
    // Nobody was told before: after a crash then, the unit is still there.
    let (engine, _) = simulated(crashed).unwrap();
    assert_eq!(engine.activity(id).unwrap().figures.available, 1);
}

#[test]
fn a_failed_log_tells_no_one_anything_more() {
    let (engine, device) = simulated(Image::empty(1)).unwrap();
    let id = on_sale(&engine, 5, 1, 60_000);
    buy(&engine, id, 1, "a").unwrap();
    let pending = engine.reserve(id, user(2), "b", 1, Front::Api).unwrap();
    let at = device.counts().0 + 1;
    device.set_fault(Some(Fault { at, lasting: false, kind: FaultKind::ErrorOldContent }));
    engine.commit().unwrap_err();
    pending.wait().unwrap_err();
    assert!(engine.is_poisoned());
    let refused = engine.reserve(id, user(1), "a", 1, Front::Api).map(drop);
    assert_eq!(refused, Err(Busy::LogUnavailable), "not even a replay: W16");
    assert_eq!(engine.find_request(id, user(1), "a", 1).map(drop), Err(Busy::LogUnavailable));
}

#[test]
fn live_state_equals_replayed_state() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    let created = engine.create(None, ACTOR, 500, definition(2, 60_000)).unwrap();
    let id = created.wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    let mut bought = Vec::new();
    for buyer in 1..=300u64 {
        let pending = engine.reserve(id, user(buyer), "first", 1, Front::Http).unwrap();
        bought.push(pending.wait().unwrap().unwrap().reservation.reservation.id);
    }
    for (index, reservation) in bought.iter().enumerate() {
        let told = match index % 3 {
            0 => engine.confirm(*reservation, "p").unwrap(),
            1 => engine.restore(*reservation, None, RestoreReason::Admin, ACTOR).unwrap(),
            _ => continue,
        };
        told.wait().unwrap().unwrap();
    }
    engine.restock(id, ACTOR, "op", 7).unwrap().wait().unwrap().unwrap();
    let (digest, view) = (engine.digest(), engine.activity(id).unwrap());
    engine.close().unwrap();
    drop(engine);

    let (engine, report) = Engine::open(options(dir.path())).unwrap();
    assert_eq!(engine.digest(), digest, "W14");
    assert_eq!(engine.activity(id).unwrap(), view);
    assert_eq!((report.log.torn_tail, report.activities), (None, 1));
    // What was answered stays answered.
    let again = engine.reserve(id, user(3), "first", 1, Front::Http).unwrap().wait().unwrap();
    let again = again.unwrap();
    assert!(again.replayed);
    assert_eq!(again.reservation.reservation.id, bought[2]);
    let restocked = engine.restock(id, ACTOR, "op", 7).unwrap().wait().unwrap().unwrap();
    assert_eq!(restocked.figures, view.figures);
    drop(engine);
    let report = engine::verify(dir.path()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.activities[0].sold, report.activities[0].rolled_back), (100, 100));
    assert_eq!(engine::entries(dir.path(), wal::Lsn(1)).unwrap().count() as u64, 503);
}

#[test]
fn many_threads_sell_exactly_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    let created = engine.create(None, ACTOR, 1_000, definition(1, 60_000)).unwrap();
    let id = created.wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    let sold: usize = std::thread::scope(|scope| {
        let sellers = (0..4u64).map(|seller| {
            let engine = &engine;
            scope.spawn(move || {
                let mut pendings = Vec::new();
                for buyer in 0..500 {
                    let buyer = user(1 + seller * 500 + buyer);
                    for request in ["one", "one", "two"] {
                        let told = engine.reserve(id, buyer, request, 1, Front::Api);
                        pendings.push(told.unwrap());
                    }
                }
                let told = pendings.into_iter().map(|pending| pending.wait().unwrap());
                told.filter(|told| told.as_ref().is_ok_and(|it| !it.replayed)).count()
            })
        });
        let sellers: Vec<_> = sellers.collect();
        sellers.into_iter().map(|seller| seller.join().unwrap()).sum()
    });
    assert_eq!(sold, 1_000);
    let view = engine.activity(id).unwrap();
    assert_eq!((view.figures.available, view.figures.locked), (0, 1_000));
    assert_eq!(view.state(engine.now_ms()), DerivedState::SoldOut);
}

#[test]
fn a_batch_answers_as_its_purchases_would_one_by_one() {
    let (engine, _) = simulated(Image::empty(3)).unwrap();
    let id = on_sale(&engine, 2, 1, 60_000);
    let request = |buyer, request_id| BatchRequest { user: user(buyer), request_id, quantity: 1 };
    let batch =
        [request(1, "a"), request(1, "a"), request(1, "b"), request(2, "a"), request(3, "a")];
    let pending = engine.reserve_batch(id, &batch, Front::Api).unwrap();
    engine.commit().unwrap();
    let answers = pending.wait().unwrap();
    let BatchAnswer::Reserved(first) = answers[0] else { panic!("{answers:?}") };
    assert_eq!(answers[1], BatchAnswer::Replayed(first));
    assert_eq!(answers[2], BatchAnswer::Refused(Refusal::LimitReached));
    assert!(matches!(answers[3], BatchAnswer::Reserved(_)));
    assert_eq!(answers[4], BatchAnswer::Refused(Refusal::SoldOut));
    let counted = engine.reserve_batch_counted(id, &batch[..2], Front::Api).unwrap();
    engine.commit().unwrap();
    let remaining: Vec<_> = counted.wait().unwrap().iter().map(|it| it.remaining).collect();
    assert_eq!(remaining, [0, 0]);
}

#[test]
fn an_unpaid_reservation_is_given_back_and_its_buyer_may_buy_again() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    let created = engine.create(None, ACTOR, 1, definition(1, 1_000)).unwrap();
    let id = created.wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    engine.serving();
    for round in 0..2 {
        let request = format!("round {round}");
        let pending = engine.reserve(id, user(1), &request, 1, Front::Api).unwrap();
        let bought = pending.wait().unwrap().unwrap().reservation.reservation;
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            let view = engine.reservation(bought.id).unwrap().wait().unwrap().unwrap();
            if view.status != PublicStatus::PendingOrder || Instant::now() > deadline {
                break (view.status, view.reservation.updated_ms);
            }
            std::thread::yield_now();
        };
        assert_eq!(status.0, PublicStatus::RolledBack(RestoreReason::Timeout));
        assert!(status.1 >= bought.pay_before_ms, "not before its time");
    }
    assert_eq!(engine.activity(id).unwrap().figures.available, 1);
}

#[test]
fn a_reservation_shows_as_ordered_once_the_mark_is_durable_and_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    let created = engine.create(None, ACTOR, 5, definition(1, 60_000)).unwrap();
    let id = created.wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    let mut bought = Vec::new();
    for buyer in 1..=2 {
        let pending = engine.reserve(id, user(buyer), "a", 1, Front::Api).unwrap();
        bought.push(pending.wait().unwrap().unwrap().reservation);
    }
    let told = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let heard = Arc::clone(&told);
    engine.on_ordered(Box::new(move || {
        heard.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }));
    let mut reader = engine.reader();
    let mut frame_end = wal::Lsn(0);
    let mut shard = 0;
    while let Some(frame) = reader.next_frame().unwrap() {
        let last = frame.records().last().unwrap().unwrap();
        if last.shard_seq == bought[0].reservation.shard_seq {
            (frame_end, shard) = (frame.last_lsn, last.shard);
        }
    }
    let mark = [(shard, bought[0].reservation.shard_seq)];
    engine.sink_advanced(ORDERS_SINK, frame_end, &mark).unwrap();
    let status = |engine: &Engine, index: usize| {
        let id = bought[index].reservation.id;
        engine.reservation(id).unwrap().wait().unwrap().unwrap().status
    };
    assert_eq!(told.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(status(&engine, 0), PublicStatus::Ordered);
    assert_eq!(status(&engine, 1), PublicStatus::PendingOrder);
    // A reader keeps the log, and so the directory, open.
    drop((engine, reader));
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    assert_eq!(engine.announced_lsn(ORDERS_SINK), frame_end);
    assert_eq!(status(&engine, 0), PublicStatus::Ordered, "it never goes back");
    assert_eq!(status(&engine, 1), PublicStatus::PendingOrder);
}

#[test]
fn a_full_log_refuses_new_purchases_and_answers_the_rest() {
    let (engine, _) = simulated(Image::empty(4)).unwrap();
    let id = on_sale(&engine, 1_000_000, 1, 60_000);
    let mut pendings = Vec::new();
    let busy = (1..1_000_000).find_map(|buyer| {
        match engine.reserve(id, user(buyer), "a", 1, Front::Api) {
            Ok(pending) => {
                pendings.push(pending);
                None
            }
            Err(busy) => Some((buyer, busy)),
        }
    });
    let (buyer, busy) = busy.unwrap();
    assert_eq!(busy, Busy::Overloaded);
    let replay = engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    engine.pause(id, ACTOR).map(drop).expect("there is room kept for a pause");
    while engine.commit().unwrap() != wal::Committed::Nothing {}
    assert!(replay.wait().unwrap().unwrap().replayed);
    assert!(pendings.into_iter().all(|pending| pending.wait().unwrap().is_ok()));
    let view = engine.activity(id).unwrap();
    assert_eq!(u64::from(view.figures.locked), buyer - 1, "nothing was decided for the refused");
}

/// No bit of a kind lets a reader pass it over.
#[test]
fn a_record_of_an_unknown_kind_stops_the_start() {
    for kind in [127, 128, 255] {
        let (engine, device) = simulated(Image::empty(1)).unwrap();
        drop(engine);
        let options = wal::OpenOptions {
            // For an empty disk: this one has its own.
            format: wal::Format {
                shard_count: 1,
                frame_bytes_max: 4 << 10,
                in_flight_bytes_max: 4 << 10,
                segment_bytes: 64 << 10,
                owner: [0; wal::OWNER_BYTES],
            },
            accept_file_system: false,
            companions: Vec::new(),
            on_fatal: Box::new(|_| ()),
        };
        let opened = wal::Log::open(Arc::new(device.clone()), options, &mut |_| Ok(()));
        let (log, _) = opened.unwrap();
        let mut batch = log.begin(0, 24, wal::Class::Reserved).unwrap();
        batch.command(24);
        batch.append((kind, 1), |out| out.extend_from_slice(b"later"));
        drop(batch);
        log.commit().unwrap();
        drop(log);
        let refused = simulated(device.image()).map(drop).unwrap_err();
        let mut told = refused.to_string();
        let mut cause = std::error::Error::source(&refused);
        while let Some(error) = cause {
            told += &format!(": {error}");
            cause = error.source();
        }
        assert!(told.contains(&format!("kind {kind}")), "{told}");
    }
}

#[test]
fn constants_that_would_fit_no_command_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let small: [fn(&mut EngineOptions); 2] =
        [|options| options.frame_bytes_max = 32 << 10, |options| options.shard_count = 513];
    for change in small {
        let mut options = options(dir.path());
        change(&mut options);
        let error = Engine::open(options).map(drop).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_answer_still_waited_for_ends_with_its_engine() {
    let (engine, _) = simulated(Image::empty(5)).unwrap();
    let id = on_sale(&engine, 1, 1, 60_000);
    let pending = engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    drop(engine);
    assert!(pending.wait().is_err(), "nobody commits any more");
}

#[test]
fn on_a_full_disk_the_log_waits_for_room_instead_of_failing() {
    let device = SimDevice::new(Image::empty(6));
    let mut options = options(std::path::Path::new("sim"));
    (options.threads, options.segment_bytes) = (false, 2 << 20);
    options.in_flight_bytes_max = 256 << 10;
    let (engine, _) = Engine::open_on(Arc::new(device.clone()), options).unwrap();
    let id = on_sale(&engine, 1_000_000, 1, 60_000);
    device.set_free_bytes(Some(0));
    let mut sold = 0;
    // Pauses and resumes are let in when purchases are not: they too stop in time.
    let refused = (1..100_000u64).find_map(|round| {
        let bought = engine.reserve(id, user(round), "a", 1, Front::Api).map(drop);
        sold += u64::from(bought.is_ok());
        let switched = match round % 2 {
            0 => engine.pause(id, ACTOR).map(drop),
            _ => engine.resume(id, ACTOR).map(drop),
        };
        engine.commit().unwrap();
        switched.err()
    });
    assert_eq!(refused, Some(Busy::Overloaded));
    assert!(!engine.is_poisoned() && sold > 0);
    let replay = engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    assert!(replay.wait().unwrap().is_ok(), "what needs no room is answered");
    device.set_free_bytes(None);
    engine.make_spare().unwrap();
    engine.resume(id, ACTOR).map(drop).expect("room is back, and with it the service");
    engine.commit().unwrap();
}
