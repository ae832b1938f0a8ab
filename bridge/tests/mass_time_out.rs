//! A whole sale is left unpaid, and all of it times out at once: in SQL each order ends once, each
//! unit comes back once, every place in the limit is free, and whoever lost a unit may buy again.
//!
//! `SLUICE_TIMED_OUT_ORDERS` says how many there are; the floor of a full run is 100,000.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../sim/src/counts.rs"]
mod counts;
#[path = "../../engine/tests/support/crowd.rs"]
mod crowd;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bridge::sql::sink::OrderOptions;
use bridge::{Drained, Options, start};
use engine::core::activity::Activity;
use engine::core::event::Definition;
use engine::{Engine, EngineOptions, TimeSource};
use sqlx::{Connection as _, SqliteConnection};

use crowd::{Clock, buy};
use support::history::{ACTOR, DEFINITION, activity_id};

/// A million rows take minutes.
const PATIENCE: Duration = Duration::from_secs(1_800);

const PAYMENT_TTL_MS: u64 = 600_000;

/// Buyers who come back.
const COMING_BACK: u64 = 1_000;

fn count() -> u64 {
    std::env::var("SLUICE_TIMED_OUT_ORDERS").map_or(20_000, |it| it.parse().unwrap())
}

fn open(directory: &Path, clock: &Arc<Clock>) -> Engine {
    let mut options = EngineOptions::new(directory.join("data"));
    options.accept_file_system = true;
    options.time = Some(Arc::clone(clock) as Arc<dyn TimeSource>);
    Engine::open(options).unwrap().0
}

async fn number(database: &mut SqliteConnection, statement: &'static str) -> u64 {
    let found: i64 = sqlx::query_scalar(statement).fetch_one(database).await.unwrap();
    u64::try_from(found).unwrap()
}

#[test]
fn all_at_once_each_order_ends_once_and_every_place_is_free_again() {
    let count = count();
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    let url = format!("sqlite:{}", database.display());
    let options = Options { database_url: url.clone(), orders: OrderOptions::default() };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    let clock = Arc::new(Clock(AtomicU64::new(now_ms)));
    let engine = open(directory.path(), &clock);
    engine.serving();
    let definition = Definition {
        per_user_limit: 1,
        start_ms: now_ms,
        end_ms: now_ms + 10 * PAYMENT_TTL_MS,
        payment_ttl_ms: PAYMENT_TTL_MS,
        ..DEFINITION
    };
    let (id, total) = (activity_id(0), u32::try_from(count).unwrap());
    engine.create(Some(id), ACTOR, total, definition).unwrap().wait().unwrap().unwrap();
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();

    let bridge = start(Arc::new(engine.clone()), &options).unwrap();
    buy(&engine, id, 1..=count, "first");
    let began = Instant::now();
    clock.0.fetch_add(PAYMENT_TTL_MS, Ordering::Relaxed);
    while engine.peek(id, Activity::figures).unwrap().locked > 0 {
        std::thread::yield_now();
    }
    counts::note("mass_time_out, bridge", &[("reservations", count)]);
    println!("{count} units came back in {:.2} s", began.elapsed().as_secs_f64());
    buy(&engine, id, 1..=COMING_BACK, "second");
    assert_eq!(bridge.stop(PATIENCE), Drained::Yes);
    println!("SQL had it all {:.2} s after the time-out", began.elapsed().as_secs_f64());
    engine.close().unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare(&url, count));
}

/// What SQL must say of it.
async fn compare(url: &str, count: u64) {
    let mut database = SqliteConnection::connect(url).await.unwrap();
    let expected = [
        ("SELECT count(*) FROM orders", count + COMING_BACK),
        ("SELECT count(*) FROM order_items", count + COMING_BACK),
        ("SELECT count(*) FROM dead_letters", 0),
        (
            "SELECT count(*) FROM orders WHERE status = 'timeout' AND user_activity_key IS NULL \
             AND cancelled_at IS NOT NULL",
            count,
        ),
        (
            "SELECT count(*) FROM orders WHERE status = 'pending_payment' AND user_activity_key \
             IS NOT NULL",
            COMING_BACK,
        ),
        (
            "SELECT count(*) FROM flashsale_pre_deductions WHERE status = 'rolled_back' AND \
             reason = 'timeout'",
            count,
        ),
        ("SELECT count(*) FROM stock_flows WHERE change_type = 'RECOVER'", count),
        ("SELECT count(DISTINCT biz_id) FROM stock_flows WHERE change_type = 'RECOVER'", count),
        ("SELECT sum(change_qty) FROM stock_flows", count - COMING_BACK),
        (
            "SELECT count(*) FROM stock_flows WHERE before_qty + change_qty <> after_qty \
             OR after_qty < 0",
            0,
        ),
        ("SELECT stock FROM flashsale_activities", count - COMING_BACK),
        ("SELECT locked_stock FROM flashsale_activities", COMING_BACK),
        ("SELECT sold_stock FROM flashsale_activities", 0),
    ];
    for (statement, expected) in expected {
        assert_eq!(number(&mut database, statement).await, expected, "{statement}");
    }
    database.close().await.unwrap();
}
