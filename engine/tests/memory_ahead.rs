//! Memory for a sale is made before its first purchase, within a bound, and goes back after it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::path::Path;

use engine::core::event::{Definition, Front};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::core::limits::{MEMORY_AHEAD_BYTES_MAX, UNITS_MAX};
use engine::core::stock::{RESERVATION_BYTES, RESERVATIONS_MIN};
use engine::{BatchAnswer, BatchRequest, Engine, EngineOptions};
use sale::{ACTOR, PHONE};

/// Units of a sale that memory is made for.
const UNITS: u32 = 100_000;

fn open(dir: &Path, memory_ahead_bytes_max: u64) -> Engine {
    let options = EngineOptions { memory_ahead_bytes_max, ..EngineOptions::new(dir) };
    Engine::open(EngineOptions { accept_file_system: true, ..options }).unwrap().0
}

fn create(engine: &Engine, sku: u64, units: u32) -> ActivityId {
    let sku = SkuId::new(sku).unwrap();
    sale::on_sale(engine, units, Definition { sku, per_user_limit: 5, ..PHONE })
}

fn ahead(engine: &Engine) -> u64 {
    engine.prepare_sales();
    let stats = engine.stats();
    assert!(stats.memory_ahead_ready);
    stats.memory_ahead_bytes
}

fn buy(engine: &Engine, id: ActivityId, users: std::ops::Range<u64>) {
    let request = |user| BatchRequest {
        user: UserId::new(user).unwrap(),
        request_id: "request",
        quantity: 1,
    };
    let requests: Vec<_> = users.map(request).collect();
    for requests in requests.chunks(1_000) {
        let answers = engine.reserve_batch(id, requests, Front::Api).unwrap().wait().unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, BatchAnswer::Reserved(_))));
    }
}

#[test]
fn a_large_sale_has_its_memory_before_it_opens_and_after_a_restart_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), MEMORY_AHEAD_BYTES_MAX);
    assert_eq!(ahead(&engine), 0);
    let small = create(&engine, 1, u32::try_from(RESERVATIONS_MIN).unwrap() - 1);
    assert_eq!(ahead(&engine), 0, "a small one costs nothing");
    let id = create(&engine, 2, UNITS);
    assert!(ahead(&engine) >= u64::from(UNITS) * RESERVATION_BYTES);
    buy(&engine, id, 1..50_001);
    buy(&engine, small, 1..1_001);
    engine.close().unwrap();
    drop(engine);

    let engine = open(dir.path(), MEMORY_AHEAD_BYTES_MAX);
    let left = ahead(&engine);
    assert!(left >= 50_000 * RESERVATION_BYTES, "{left}");
    buy(&engine, id, 50_001..80_001);
    engine.close().unwrap();
    drop(engine);

    let engine = open(dir.path(), MEMORY_AHEAD_BYTES_MAX);
    let left = ahead(&engine);
    assert!(left >= 20_000 * RESERVATION_BYTES, "the rest of a large sale is one: {left}");
    buy(&engine, id, 80_001..90_001);
    engine.drain(id, ACTOR).unwrap().wait().unwrap().unwrap();
    // A drain is found out at the next look, which an engine without its threads makes when asked.
    engine.close().unwrap();
    assert_eq!(ahead(&engine), 0, "nothing is for sale");
    assert_eq!(engine.activity(id).unwrap().figures.available, 10_000);
}

#[test]
fn a_sale_that_grows_gets_more_and_what_is_huge_gets_half_of_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let bytes_max = 400_000 * RESERVATION_BYTES;
    let engine = open(dir.path(), bytes_max);
    let grows = create(&engine, 1, 1_000);
    assert_eq!(ahead(&engine), 0);
    engine.restock(grows, ACTOR, "more", UNITS).unwrap().wait().unwrap().unwrap();
    let before = ahead(&engine);
    assert!(before >= u64::from(UNITS) * RESERVATION_BYTES);
    for sku in 2..40 {
        create(&engine, sku, UNITS_MAX);
        let bytes = ahead(&engine);
        assert!(bytes <= bytes_max, "{bytes}");
        assert!(bytes > before);
    }
    engine.close().unwrap();
}
