//! The bridge over a real engine and its log on disk.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge::lag::State;
use bridge::sql::queries::{OrderStatus, Queries};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::{BridgeHandle, Drained, Options, start};
use engine::core::event::{Actor, Definition, Front, RestoreReason};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::{Engine, EngineOptions, PublicStatus};

use support::history::{ACTOR, DEFINITION, activity_id};

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(60);
const SHOPPERS: u64 = 300;

fn open(directory: &Path) -> Engine {
    let segment_bytes = 4 << 20;
    let mut options = EngineOptions::new(directory.join("data"));
    options.segment_bytes = segment_bytes;
    options.accept_file_system = true;
    let (engine, _) = Engine::open(options).unwrap();
    engine
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn bridge(engine: &Engine, database: &Path) -> BridgeHandle {
    let options = Options { database_url: url(database), orders: OrderOptions::default() };
    start(Arc::new(engine.clone()), &options).unwrap()
}

/// An activity open now, and what the shoppers got.
fn sell(engine: &Engine) -> (ActivityId, Vec<ReservationId>) {
    let definition = Definition { end_ms: engine.now_ms() + 3_600_000, ..DEFINITION };
    let id = activity_id(0);
    engine.create(Some(id), ACTOR, 1_000, definition).unwrap().wait().unwrap().unwrap();
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    let pending: Vec<_> = (1..=SHOPPERS)
        .map(|user| {
            let (user, request) = (UserId::new(user).unwrap(), format!("request-{user}"));
            engine.reserve(id, user, &request, 1, Front::Http).unwrap()
        })
        .collect();
    let bought = pending
        .into_iter()
        .map(|pending| pending.wait().unwrap().unwrap().reservation.reservation.id)
        .collect();
    (id, bought)
}

fn status(engine: &Engine, id: ReservationId) -> PublicStatus {
    engine.reservation(id).unwrap().wait().unwrap().unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_bought_is_ordered_once_and_stays_so_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    let engine = open(directory.path());
    let first = bridge(&engine, &database);
    assert_eq!(first.watcher().first_contact().await, State::Running);
    let (activity, bought) = sell(&engine);
    let drained = tokio::task::spawn_blocking(move || first.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    for id in &bought {
        assert_eq!(status(&engine, *id), PublicStatus::Ordered);
    }

    // Cancelled while nobody delivers.
    for id in &bought[..100] {
        let cancelled = engine.restore(*id, None, RestoreReason::Cancelled, Actor::NONE).unwrap();
        cancelled.wait().unwrap().unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    let engine = open(directory.path());
    assert_eq!(status(&engine, bought[200]), PublicStatus::Ordered, "it never goes back");

    let second = bridge(&engine, &database);
    let drained = tokio::task::spawn_blocking(move || second.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    let queries = Queries::open(&url(&database), Split::ONE).unwrap();
    let counts = queries.order_counts(activity).await.unwrap();
    assert_eq!(
        counts,
        [(OrderStatus::Cancelled, 100), (OrderStatus::PendingPayment, SHOPPERS - 100)]
    );
    queries.close().await;
    engine.close().unwrap();
}
