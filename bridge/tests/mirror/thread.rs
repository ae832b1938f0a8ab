//! The running mirror of a running engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge::Drained;
use bridge::lag::{Cause, State};
use bridge::redis::run::{MirrorWatcher, Options, start};
use engine::core::event::{Actor, DeadLetterPolicy, Definition, Front, LatePayment, RestoreReason};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::{Engine, EngineOptions};

use crate::keys;
use crate::library::Library;
use crate::sale::HOUR_MS;
use crate::valkey::{Valkey, say, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "req-1" };
const SHOPPERS: u64 = 500;

pub fn open(directory: &Path) -> Engine {
    let mut options = EngineOptions::new(directory.join("data"));
    options.segment_bytes = 8 << 20;
    options.accept_file_system = true;
    Engine::open(options).unwrap().0
}

pub fn create(engine: &Engine) -> ActivityId {
    let definition = Definition {
        sku: SkuId::new(20_001).unwrap(),
        title: "sneaker",
        price: 1_999,
        per_user_limit: 3,
        start_ms: engine.now_ms(),
        end_ms: engine.now_ms() + HOUR_MS,
        payment_ttl_ms: 600_000,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Hold,
        publish_at_ms: 0,
    };
    let view = engine.create(None, ACTOR, 10_000, definition).unwrap().wait().unwrap().unwrap();
    engine.publish(view.id, ACTOR).unwrap().wait().unwrap().unwrap();
    view.id
}

/// Shoppers buy; every fifth gives back.
pub fn sell(engine: &Engine, activity: ActivityId, first: u64) {
    let pending: Vec<_> = (first..first + SHOPPERS)
        .map(|user| {
            let request = format!("request-{user}");
            engine.reserve(activity, UserId::new(user).unwrap(), &request, 1, Front::Http).unwrap()
        })
        .collect();
    for (index, pending) in pending.into_iter().enumerate() {
        let id = pending.wait().unwrap().unwrap().reservation.reservation.id;
        if index % 5 == 0 {
            let back = engine.restore(id, None, RestoreReason::Cancelled, Actor::NONE).unwrap();
            back.wait().unwrap().unwrap();
        }
    }
}

pub fn assert_same(engine: &Engine, server: &Valkey) {
    let mut library = Library::load(server.connect(3));
    let () = say(&mut library.connection, "FLUSHDB");
    library.replay(engine, engine.durable_lsn());
    let expected = keys::present(&mut library.connection, "flashsale:*");
    let found = keys::present(&mut server.connect(0), "flashsale:*");
    keys::assert_same(&found, &expected, "the running mirror");
}

fn options(server: &Valkey) -> Options {
    let mut options = Options::new(server.url(0));
    options.scrub_interval = Duration::from_millis(5);
    options
}

pub fn wait_caught_up(engine: &Engine, watcher: &MirrorWatcher) {
    wait_for(|| {
        let status = watcher.status();
        status.sink.state == State::Running
            && status.sink.applied_lsn == engine.durable_lsn()
            && !status.is_stale
    });
}

#[test]
fn redis_comes_and_goes_and_the_sale_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut server = Valkey::start_with(&["--port", "0", "--appendonly", "yes"]);
    let mirror = start(Arc::new(engine.clone()), &options(&server)).unwrap();
    let watcher = mirror.watcher();
    let activity = create(&engine);
    sell(&engine, activity, 1);
    wait_caught_up(&engine, &watcher);
    assert_same(&engine, &server);
    wait_for(|| watcher.status().confirmed_lsn == Some(engine.durable_lsn()));

    server.kill();
    sell(&engine, activity, 10_001);
    wait_for(|| matches!(watcher.status().sink.state, State::Retrying { .. }));
    assert!(watcher.status().sink.lag_records > 0);
    let confirmed = watcher.status().confirmed_lsn.unwrap();
    assert!(confirmed <= watcher.status().sink.applied_lsn);
    server.resume();
    wait_caught_up(&engine, &watcher);
    assert_same(&engine, &server);

    // Emptied while nothing is sold.
    let resyncs = watcher.status().resyncs;
    let () = say(&mut server.connect(0), "FLUSHDB");
    wait_for(|| watcher.status().resyncs > resyncs);
    wait_caught_up(&engine, &watcher);
    assert_same(&engine, &server);

    // Somebody thinks that he knows better.
    let () = say(&mut server.connect(0), &format!("SET flashsale:stock:{activity} 1000000"));
    wait_for(|| watcher.status().repairs > 0);
    let repairs = watcher.repairs();
    assert!(repairs.iter().any(|it| it.found == "1000000"), "{repairs:?}");
    assert_same(&engine, &server);

    sell(&engine, activity, 20_001);
    assert_eq!(mirror.stop(PATIENCE), Drained::Yes);
    assert_eq!(watcher.status().sink.state, State::Stopped);
    assert_same(&engine, &server);
    engine.close().unwrap();
}

#[test]
fn a_restarted_server_goes_on_where_the_mirror_stands_and_a_fork_halts_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Valkey::start();
    let engine = open(directory.path());
    let mirror = start(Arc::new(engine.clone()), &options(&server)).unwrap();
    let activity = create(&engine);
    sell(&engine, activity, 1);
    assert_eq!(mirror.stop(PATIENCE), Drained::Yes);
    sell(&engine, activity, 10_001);
    engine.close().unwrap();
    drop(engine);

    let engine = open(directory.path());
    let mirror = start(Arc::new(engine.clone()), &options(&server)).unwrap();
    let watcher = mirror.watcher();
    wait_caught_up(&engine, &watcher);
    assert_eq!(watcher.status().resyncs, 0);
    assert_same(&engine, &server);
    assert_eq!(mirror.stop(PATIENCE), Drained::Yes);
    engine.close().unwrap();
    drop(engine);

    let elsewhere = tempfile::tempdir().unwrap();
    let other = open(elsewhere.path());
    let mirror = start(Arc::new(other.clone()), &options(&server)).unwrap();
    let watcher = mirror.watcher();
    wait_for(|| matches!(watcher.status().sink.state, State::Halted { .. }));
    let State::Halted { why, cause } = watcher.status().sink.state else { unreachable!() };
    assert_eq!(cause, Cause::Fork);
    assert!(why.contains("Redis") && !why.contains('\n'), "{why}");
    other.close().unwrap();
}

#[test]
fn a_url_that_names_no_redis_is_refused_without_being_told() {
    let error = bridge::redis::run::check("http://user:hunter2@host").unwrap_err().to_string();
    assert!(error.contains("no URL of a Redis") && !error.contains("hunter2"), "{error}");
}
