//! Everybody's time to pay is up at the same millisecond: each unit comes back exactly once, in
//! the order of acceptance, and whoever buys meanwhile is answered.
//!
//! `SLUICE_TIME_OUTS` says how many there are; the floor of a full run is 1,000,000.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../sim/src/counts.rs"]
mod counts;
#[path = "support/crowd.rs"]
mod crowd;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::core::activity::Activity;
use engine::core::codec;
use engine::core::command::Status;
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Figures, Front, LatePayment, RestoreReason,
};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::{Engine, EngineOptions, TimeSource};

use crowd::{Clock, buy};

const ACTOR: Actor<'static> = Actor { name: "operator", request_id: "test" };

/// 2026-11-29T00:00:00Z.
const START_MS: u64 = 1_795_910_400_000;

/// The time to pay.
const PAYMENT_TTL_MS: u64 = 600_000;

/// Other sales, so many that one of them shares the shard of the large one.
const OTHERS: u64 = 256;

/// Buyers who come back for what was given back.
const COMING_BACK: u64 = 1_000;

fn count() -> u64 {
    std::env::var("SLUICE_TIME_OUTS").map_or(50_000, |it| it.parse().unwrap())
}

fn put_on_sale(engine: &Engine, total: u64) -> ActivityId {
    let definition = Definition {
        sku: SkuId::new(20_001).unwrap(),
        title: "sneaker",
        price: 1_999,
        per_user_limit: 1,
        start_ms: START_MS,
        end_ms: START_MS + 10 * PAYMENT_TTL_MS,
        payment_ttl_ms: PAYMENT_TTL_MS,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Hold,
        publish_at_ms: 0,
    };
    let total = u32::try_from(total).unwrap();
    let view = engine.create(None, ACTOR, total, definition).unwrap().wait().unwrap().unwrap();
    engine.publish(view.id, ACTOR).unwrap().wait().unwrap().unwrap();
    view.id
}

fn figures(engine: &Engine, id: ActivityId) -> Figures {
    engine.peek(id, Activity::figures).unwrap()
}

/// Reads what the log says of `activity`: purchases and give-backs, each in its place.
fn assert_exact_in_log(engine: &Engine, activity: ActivityId, total: u64, expected: u64) {
    let (mut reserved, mut restored) = (Vec::new(), Vec::new());
    let mut available = total;
    let mut reader = engine.reader();
    while let Some(frame) = reader.next_frame().unwrap() {
        for record in frame.records() {
            let record = record.unwrap();
            let event = codec::decode(record.kind, record.kind_version, record.body).unwrap();
            let figures = match event.body {
                Body::Reserved { activity: of, reservation, figures, .. } if of == activity => {
                    reserved.push(reservation);
                    available -= 1;
                    figures
                }
                Body::Restored { activity: of, reservation, figures, reason, .. }
                    if of == activity =>
                {
                    assert_eq!(reason, RestoreReason::Timeout);
                    restored.push(reservation);
                    available += 1;
                    figures
                }
                _ => continue,
            };
            assert_eq!(u64::from(figures.available), available);
            assert_eq!(u64::from(figures.available + figures.locked), total);
        }
    }
    assert_eq!(restored.len() as u64, expected);
    // Each once, in the order of acceptance; those who came back are behind them.
    assert_eq!(restored[..], reserved[..restored.len()]);
    assert_eq!(reserved.len() as u64, expected + COMING_BACK);
}

/// Asks every other sale in turn, waiting for each purchase, until `done`; how many were answered
/// while units of `large` came back.
fn buy_elsewhere(
    engine: &Engine,
    large: ActivityId,
    others: &[ActivityId],
    done: &AtomicBool,
) -> u64 {
    let mut during = 0;
    for user in 1.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let before = figures(engine, large).locked;
        let id = others[usize::try_from(user % OTHERS).unwrap()];
        let (user, request) = (UserId::new(user).unwrap(), format!("other-{user}"));
        let told = engine.reserve(id, user, &request, 1, Front::Http).unwrap();
        told.wait().unwrap().unwrap();
        let after = figures(engine, large).locked;
        during += u64::from(0 < after && after < before);
    }
    during
}

#[test]
fn all_at_once_each_unit_comes_back_once_and_other_buyers_are_answered() {
    let count = count();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(START_MS)));
    let open = || {
        let mut options = EngineOptions::new(dir.path());
        options.on_fatal = Box::new(|_| ());
        options.accept_file_system = true;
        options.time = Some(Arc::clone(&clock) as Arc<dyn TimeSource>);
        Engine::open(options).unwrap().0
    };
    let engine = open();
    engine.serving();
    let activity = put_on_sale(&engine, count);
    let others: Vec<_> = (0..OTHERS).map(|_| put_on_sale(&engine, 1_000_000)).collect();
    buy(&engine, activity, 1..=count, "first");
    engine.all_durable().unwrap();
    assert_eq!(u64::from(figures(&engine, activity).locked), count);

    let done = AtomicBool::new(false);
    let during = std::thread::scope(|threads| {
        let buyer = threads.spawn(|| buy_elsewhere(&engine, activity, &others, &done));
        clock.0.fetch_add(PAYMENT_TTL_MS, Ordering::Relaxed);
        while figures(&engine, activity).locked > 0 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        buyer.join().unwrap()
    });
    assert!(during > 0, "nobody else was answered while units came back");
    counts::note("mass_time_out, engine", &[("reservations", count)]);
    println!("{count} came back; {during} purchases of others were answered meanwhile");

    let back = Figures { available: u32::try_from(count).unwrap(), locked: 0, sold: 0 };
    assert_eq!(figures(&engine, activity), back);
    buy(&engine, activity, 1..=COMING_BACK, "second");
    engine.all_durable().unwrap();
    assert_exact_in_log(&engine, activity, count, count);

    let digest = engine.digest();
    engine.close().unwrap();
    drop(engine);
    let engine = open();
    assert_eq!(engine.digest(), digest);
    for user in [1, count] {
        let (user, request) = (UserId::new(user).unwrap(), format!("first-{user}"));
        let found = engine.find_request(activity, user, &request, 1).unwrap().unwrap();
        let status = found.wait().unwrap().unwrap().reservation.reservation.status;
        assert_eq!(status, Status::RolledBack(RestoreReason::Timeout));
    }
    engine.close().unwrap();
}
