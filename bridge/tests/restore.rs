//! The data directory is lost, SQL is not: a new one is made of it, and nothing is sold, paid, or
//! numbered twice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge::lag::{Cause, State};
use bridge::reconcile::{Reconciler, Scope};
use bridge::restore::{RestoreError, Restored, Source};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::{BridgeHandle, Drained, Options, start};
use engine::core::command::{Refusal, RequestRefund};
use engine::core::event::{Actor, DeadLetterPolicy, Definition, Front, RestoreReason};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::side::RefundStatus;
use engine::{
    Callback, Engine, EngineOptions, ORDERS_SINK, PublicStatus, ReservationView, SinkClass,
};

use support::history::{ACTOR, DEFINITION, activity_id};
use support::place::Place;

on_each_database!(
    a_lost_directory_is_built_anew_and_the_sale_goes_on,
    a_server_on_the_old_directory_is_fenced_off,
    a_database_that_is_still_written_to_or_empty_is_left_alone,
    a_reservation_of_which_only_a_dead_letter_is_left_keeps_its_units,
    a_refunded_one_of_which_only_a_dead_letter_is_left_stays_refunded,
);

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

const SHOPPERS: u64 = 40;

fn open(directory: &Path, key: Option<[u8; 16]>) -> Engine {
    let mut options = EngineOptions::new(directory);
    options.segment_bytes = 4 << 20;
    options.accept_file_system = true;
    options.request_hash_key = key;
    options.sinks.push((ORDERS_SINK.to_owned(), SinkClass::MustDeliver));
    Engine::open(options).unwrap().0
}

fn follow(engine: &Engine, place: &Place) -> BridgeHandle {
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    start(Arc::new(engine.clone()), &options).unwrap()
}

fn request(user: u64) -> String {
    format!("request-{user}")
}

fn buy(engine: &Engine, id: ActivityId, user: u64) -> Result<(ReservationView, bool), Refusal> {
    let request = request(user);
    let user = UserId::new(user).unwrap();
    let bought = engine.reserve(id, user, &request, 1, Front::Api).unwrap().wait().unwrap();
    bought.map(|it| (it.reservation, it.replayed)).map_err(|it| it.refusal)
}

fn view(engine: &Engine, id: ReservationId) -> ReservationView {
    engine.reservation(id).unwrap().wait().unwrap().unwrap()
}

/// Pays through a channel, as a provider tells it.
fn pay(engine: &Engine, id: ReservationId, user: u64) {
    let user = UserId::new(user).unwrap();
    let opened = engine.open_payment(id, user, "mock", 60_000).unwrap();
    let opened = opened.wait().unwrap().unwrap();
    let transaction = format!("t-{id}");
    let callback = Callback {
        channel: "mock",
        payment_no: &opened.payment_no,
        transaction: &transaction,
        amount: opened.amount,
        paid: true,
        body: b"{}",
        archived: None,
    };
    engine.record_payment(&callback).unwrap().wait().unwrap().unwrap();
}

fn refund(engine: &Engine, id: ReservationId, restock: bool, settle: bool) {
    let of = view(engine, id).reservation.activity;
    let request = RequestRefund {
        reservation: id,
        refund_no: "f-1",
        restock,
        free_limit: restock,
        note: "",
        actor: ACTOR,
        archived: None,
    };
    engine.refund_request(&request).unwrap().wait().unwrap().unwrap();
    if settle {
        engine.refund_settled(of, id, "f-1").unwrap().wait().unwrap().unwrap();
    }
}

/// Sold out, and then: a third paid, a third given back, one refunded and sold again, one being
/// refunded, one activity paused.
fn sell(engine: &Engine) -> Vec<ReservationId> {
    let definition = Definition { end_ms: engine.now_ms() + 3_600_000, ..DEFINITION };
    let made = |index: u64, total| {
        let id = activity_id(index);
        engine.create(Some(id), ACTOR, total, definition).unwrap().wait().unwrap().unwrap();
        engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
        id
    };
    let total = u32::try_from(SHOPPERS).unwrap();
    let (id, other) = (made(0, total), made(1, 5));
    // With their keys, and an edit that took units without one.
    operate(engine);
    engine.edit(id, ACTOR, None, total, definition).unwrap().wait().unwrap().unwrap();
    engine.pause(other, ACTOR).unwrap().wait().unwrap().unwrap();
    let bought: Vec<_> =
        (1..=SHOPPERS).map(|user| buy(engine, id, user).unwrap().0.reservation.id).collect();
    for (user, it) in (1..).zip(&bought) {
        match user % 3 {
            0 => pay(engine, *it, user),
            1 => {
                let (reason, actor) = (RestoreReason::Cancelled, Actor::NONE);
                engine.restore(*it, None, reason, actor).unwrap().wait().unwrap().unwrap();
            }
            _ => {}
        }
    }
    refund(engine, bought[2], true, true);
    refund(engine, bought[5], false, true);
    refund(engine, bought[8], false, false);
    // Every unit is somebody's again.
    let free = engine.activity(id).unwrap().figures.available;
    for user in 100..100 + u64::from(free) {
        buy(engine, id, user).unwrap();
    }
    assert_eq!(engine.activity(id).unwrap().figures.available, 0);
    bought
}

/// What operators do beside a sale, with the same keys each time.
fn operate(engine: &Engine) {
    engine.restock(activity_id(0), ACTOR, "more'1", 9).unwrap().wait().unwrap().unwrap();
    engine.decrease(activity_id(0), ACTOR, "less", 4).unwrap().wait().unwrap().unwrap();
}

async fn restore(place: &Place, directory: &Path) -> Result<(Engine, Restored), RestoreError> {
    let source = Source::open(place.database(), Split::ONE).await?;
    let engine = open(directory, Some(source.request_hash_key()));
    let restored = source.rebuild(&engine).await?;
    engine.close().unwrap();
    drop(engine);
    Ok((open(directory, None), restored))
}

async fn a_lost_directory_is_built_anew_and_the_sale_goes_on(place: Place) {
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory.path().join("old"), None);
    let bought = sell(&old);
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    let figures = |engine: &Engine| {
        let all = engine.activities();
        all.iter().map(|it| (it.id, it.figures, it.on_sale, it.paused)).collect::<Vec<_>>()
    };
    let was: Vec<_> = bought.iter().map(|id| view(&old, *id)).collect();
    let (old_figures, old_ordinals) = (figures(&old), old.activities());
    old.close().unwrap();
    drop(old);

    let (new, restored) = restore(&place, &directory.path().join("new")).await.unwrap();
    assert_eq!(restored.unknown.rows, Vec::<String>::new());
    assert_eq!(restored.activities, 2);
    assert_eq!(figures(&new), old_figures);
    assert!(new.timers_held(), "nothing happens by itself");
    for (was, id) in was.iter().zip(&bought) {
        let is = view(&new, *id);
        assert_eq!((&is.order_no, is.refund), (&was.order_no, was.refund));
        let facts = |it: &ReservationView| {
            let it = &it.reservation;
            (it.user, it.quantity, it.status, it.created_ms, it.payment_no.clone())
        };
        assert_eq!(facts(&is), facts(was));
    }
    assert_eq!(view(&new, bought[8]).refund, Some(RefundStatus::Requested));
    assert_eq!(new.pending_refunds(10).len(), 1);

    // A repeated request answers what it was answered; nobody gets a unit that is gone.
    let bridge = follow(&new, &place);
    let (replayed, is_replay) = buy(&new, activity_id(0), 2).unwrap();
    assert!(is_replay);
    assert_eq!(replayed.reservation.id, bought[1]);
    assert_eq!(buy(&new, activity_id(0), 999), Err(Refusal::SoldOut));
    operate(&new);
    assert_eq!(figures(&new), old_figures, "what operators did is done once");
    // No number is given again: not a reservation's, not a payment's.
    new.restock(activity_id(0), ACTOR, "more", 3).unwrap().wait().unwrap().unwrap();
    let (fresh, _) = buy(&new, activity_id(0), 999).unwrap();
    let ordinal = fresh.reservation.id.ordinal();
    assert!(old_ordinals.iter().all(|it| it.ordinal < ordinal));
    pay(&new, bought[1], 2);
    let again = Callback {
        channel: "mock",
        payment_no: &format!("{}01", view(&new, bought[11]).order_no),
        transaction: &format!("t-{}", bought[11]),
        amount: 1,
        paid: true,
        body: b"{}",
        archived: None,
    };
    let before = figures(&new);
    new.record_payment(&again).unwrap().wait().unwrap().unwrap();
    assert_eq!(figures(&new), before, "a callback told again has no effect");
    let report = Reconciler::new(&new, place.database(), Split::ONE, bridge.watcher())
        .run(Scope::Everything)
        .await
        .unwrap();
    assert_eq!(report.mismatches, []);
    assert_eq!(report.in_flight, 0);
    assert_eq!(view(&new, bought[4]).status, PublicStatus::Ordered, "it never goes back");
    assert_eq!(bridge.stop(PATIENCE), Drained::Yes);
    let kept = "SELECT COUNT(*) FROM bridge_cursor WHERE sink LIKE 'sql@%'";
    assert_eq!(place.number(kept).await, 1, "the old log is recorded");
    new.close().unwrap();
}

async fn a_server_on_the_old_directory_is_fenced_off(place: Place) {
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory.path().join("old"), None);
    sell(&old);
    let bridge = follow(&old, &place);
    let watcher = bridge.watcher();
    while watcher.status().lag_records > 0 || watcher.status().applied_lsn.0 == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (new, _) = restore(&place, &directory.path().join("new")).await.unwrap();
    // It still sells, and its next batch finds the new log's cursor.
    old.restock(activity_id(0), ACTOR, "old", 1).unwrap().wait().unwrap().unwrap();
    let mut states = watcher.subscribe();
    let forked = |state: &State| matches!(state, State::Halted { cause: Cause::Fork, .. });
    tokio::time::timeout(PATIENCE, states.wait_for(forked)).await.unwrap().unwrap();
    assert_eq!(follow(&new, &place).stop(PATIENCE), Drained::Yes);
    let again = follow(&old, &place);
    assert!(forked(&again.watcher().first_contact().await));
}

async fn a_database_that_is_still_written_to_or_empty_is_left_alone(place: Place) {
    let empty = Source::open(place.database(), Split::ONE).await;
    assert!(matches!(empty, Err(RestoreError::Empty)));
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory.path().join("old"), None);
    sell(&old);
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    let source = Source::open(place.database(), Split::ONE).await.unwrap();
    // The old server goes on after all.
    old.restock(activity_id(0), ACTOR, "more", 1).unwrap().wait().unwrap().unwrap();
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    let new = open(&directory.path().join("new"), Some(source.request_hash_key()));
    assert!(matches!(source.rebuild(&new).await, Err(RestoreError::Moved)));
    old.restock(activity_id(0), ACTOR, "yet more", 1).unwrap().wait().unwrap().unwrap();
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes, "it was not fenced off");
}

/// A sale of ten units, and a reservation of three of them by user 5 whose own row the database
/// refuses.
async fn sell_to_a_lone_letter(old: &Engine, place: &Place) -> ReservationId {
    let dead_letter = DeadLetterPolicy::Hold;
    let end_ms = old.now_ms() + 3_600_000;
    let definition = Definition { end_ms, per_user_limit: 5, dead_letter, ..DEFINITION };
    let id = activity_id(0);
    old.create(Some(id), ACTOR, 10, definition).unwrap().wait().unwrap().unwrap();
    old.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    place.poison("flashsale_pre_deductions", 5).await;
    let bought = old.reserve(id, UserId::new(5).unwrap(), &request(5), 3, Front::Api).unwrap();
    bought.wait().unwrap().unwrap().reservation.reservation.id
}

async fn a_reservation_of_which_only_a_dead_letter_is_left_keeps_its_units(place: Place) {
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory.path().join("old"), None);
    let lone = sell_to_a_lone_letter(&old, &place).await;
    let (id, user, quantity) = (activity_id(0), UserId::new(5).unwrap(), 3);
    buy(&old, id, 6).unwrap();
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    let rows = "SELECT COUNT(*) FROM flashsale_pre_deductions";
    assert_eq!(place.number(rows).await, 1);
    let (was, figures) = (view(&old, lone), old.activity(id).unwrap().figures);
    old.close().unwrap();
    drop(old);
    place.cure().await;

    let (new, restored) = restore(&place, &directory.path().join("new")).await.unwrap();
    assert_eq!(restored.unknown.rows, Vec::<String>::new());
    assert_eq!(new.activity(id).unwrap().figures, figures);
    let is = view(&new, lone);
    assert_eq!(is.reservation.quantity, quantity);
    assert_eq!(is.reservation.created_ms, was.reservation.created_ms);
    // Its request is known, too: by the hash that the dead letter kept.
    let again = new.reserve(id, user, &request(5), quantity, Front::Api).unwrap();
    let again = again.wait().unwrap().unwrap();
    assert!(again.replayed);
    assert_eq!(again.reservation.reservation.id, lone);
    new.close().unwrap();
}

async fn a_refunded_one_of_which_only_a_dead_letter_is_left_stays_refunded(place: Place) {
    let directory = tempfile::tempdir().unwrap();
    let old = open(&directory.path().join("old"), None);
    let lone = sell_to_a_lone_letter(&old, &place).await;
    pay(&old, lone, 5);
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    old.dead_letter_rollback(lone, ACTOR).unwrap().wait().unwrap().unwrap();
    let refund_no = old.pending_refunds(1).remove(0).refund_no;
    old.refund_settled(activity_id(0), lone, &refund_no).unwrap().wait().unwrap().unwrap();
    // All units are somebody's again: those that went back with the money, too.
    (100..110).for_each(|user| drop(buy(&old, activity_id(0), user).unwrap()));
    assert_eq!(follow(&old, &place).stop(PATIENCE), Drained::Yes);
    let closed = "SELECT COUNT(*) FROM dead_letters WHERE status = 'rolled_back'";
    assert_eq!(place.number(closed).await, 1);
    let (was, figures) = (view(&old, lone), old.activity(activity_id(0)).unwrap().figures);
    assert_eq!(was.refund, Some(RefundStatus::Settled));
    old.close().unwrap();
    drop(old);
    place.cure().await;

    let (new, restored) = restore(&place, &directory.path().join("new")).await.unwrap();
    assert_eq!(restored.unknown.rows, Vec::<String>::new());
    assert_eq!(new.activity(activity_id(0)).unwrap().figures, figures);
    let is = view(&new, lone);
    let money = |it: &ReservationView| {
        (it.refund, it.reservation.status, it.reservation.payment_no.clone())
    };
    assert_eq!(money(&is), money(&was));
    assert!(new.dead_letters(1).is_empty(), "nobody has to decide anything");
    new.close().unwrap();
}
