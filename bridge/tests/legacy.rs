//! Reservations of an older system: each is taken over once, none takes a unit twice, and what
//! can't be taken over is named.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge::legacy::{LegacyError, Report, Source};
use bridge::reconcile::{Reconciler, Scope};
use bridge::redis::layouts::Layout;
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::{BridgeHandle, Drained, Options, restore, start};
use engine::core::command::Refusal;
use engine::core::control::keys::ADOPTING;
use engine::core::event::{Actor, Figures, Front, RestoreReason, Status};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::side::RefundStatus;
use engine::{Engine, EngineOptions, ORDERS_SINK, ReservationView, SinkClass};

use support::older::{Older, PRICE, at, now_ms};
use support::place::Place;

on_each_database!(
    every_status_comes_over_once_and_units_are_taken_once,
    what_is_new_comes_over_at_the_next_start,
    hostile_rows_are_named_and_the_rows_behind_them_go_on,
    figures_that_do_not_add_up_sell_no_unit_twice,
    a_unit_of_a_refused_reservation_is_nobody_elses,
    in_a_restored_directory_nothing_comes_over_twice,
    more_reservations_than_units_go_in_order_of_what_was_paid,
    an_unpaid_order_ends_when_its_buyer_was_told,
    a_database_that_is_none_of_the_older_systems_is_refused,
);

const PATIENCE: Duration = Duration::from_secs(60);
const OPERATOR: Actor<'static> = Actor { name: "operator", request_id: "" };
const ID: ActivityId = ActivityId::new(5).unwrap();

fn open(directory: &Path) -> Engine {
    open_with(directory, None)
}

fn open_with(directory: &Path, request_hash_key: Option<[u8; 16]>) -> Engine {
    let mut options = EngineOptions::new(directory);
    options.request_hash_key = request_hash_key;
    options.segment_bytes = 4 << 20;
    options.accept_file_system = true;
    options.sinks.push((ORDERS_SINK.to_owned(), SinkClass::MustDeliver));
    Engine::open(options).unwrap().0
}

fn follow(engine: &Engine, place: &Place) -> BridgeHandle {
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    start(Arc::new(engine.clone()), &options).unwrap()
}

async fn adopt(engine: &Engine, older: &Older) -> Report {
    let source = Source::at(&older.url()).unwrap();
    let report = source.adopt(engine, None).await.unwrap();
    source.close().await;
    assert!(engine.control(ADOPTING).is_none());
    report
}

fn figures(engine: &Engine, id: ActivityId) -> [u32; 3] {
    let Figures { available, locked, sold } = engine.activity(id).unwrap().figures;
    [available, locked, sold]
}

fn view(engine: &Engine, id: ReservationId) -> ReservationView {
    engine.reservation(id).unwrap().wait().unwrap().unwrap()
}

fn older_number(engine: &Engine, number: u64) -> ReservationView {
    view(engine, engine.adopted_as_number(number).unwrap())
}

fn of_order(engine: &Engine, order_no: &str) -> ReservationView {
    view(engine, engine.reservation_of_order(order_no).unwrap())
}

fn buy(engine: &Engine, user: u64, request: &str) -> Result<(ReservationView, bool), Refusal> {
    let user = UserId::new(user).unwrap();
    let bought = engine.reserve(ID, user, request, 1, Front::Api).unwrap().wait().unwrap();
    bought.map(|it| (it.reservation, it.replayed)).map_err(|it| it.refusal)
}

/// SQL says what the engine says.
async fn projected(engine: &Engine, place: &Place) {
    let bridge = follow(engine, place);
    let reconciler = Reconciler::new(engine, place.database(), Split::ONE, bridge.watcher());
    let report = reconciler.run(Scope::Everything).await.unwrap();
    assert_eq!(report.mismatches, []);
    assert_eq!(bridge.stop(PATIENCE), Drained::Yes);
}

/// A row of each kind: six living orders have left `stock`, three reservations have not.
async fn of_every_status(older: &Older) {
    older.activity(5, 90).await;
    for (id, status) in [
        ("1", "preparing"),
        ("2", "pending_publish"),
        ("3", "pending_order"),
        ("8", "pending_rollback"),
        ("9", "rolled_back"),
    ] {
        older.reservation(id, id, "5", status).await;
    }
    older.order(4, 4, 5, ("ordered", "pending_payment")).await;
    older.order(6, 6, 5, ("ordered", "paid")).await;
    older.order(7, 7, 5, ("ordered", "refunded")).await;
    older.order(10, 10, 5, ("pending_rollback", "cancelled")).await;
    older.order(11, 11, 5, ("rolled_back", "timeout")).await;
    older.order(1 << 40, 12, 5, ("ordered", "shipped")).await;
    older.order(1 << 60, 13, 5, ("ordered", "pending_payment")).await;
    older.order_alone("before-rows", 14, 5, "completed", 0).await;
    // What is no sale's is left alone.
    older.order_alone("shop-1", 15, 5, "paid", 0).await;
    let shop = "UPDATE orders SET order_type = 'normal' WHERE order_no = 'shop-1'";
    older.place.execute(shop).await;
}

async fn every_status_comes_over_once_and_units_are_taken_once(place: Place) {
    let older = Older::beside(&place).await;
    of_every_status(&older).await;
    let was = older.digest().await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let report = adopt(&engine, &older).await;
    assert_eq!(report.refused.lines, Vec::<String>::new());
    assert_eq!(report.doubtful.lines, Vec::<String>::new());
    let Report { activities, unpaid, paid, refunded, given_back, known, .. } = report;
    assert_eq!((activities, unpaid, paid, refunded, given_back, known), (1, 5, 4, 1, 4, 0));
    assert_eq!(figures(&engine, ID), [87, 5, 4]);
    let terms = engine.activity(ID).unwrap().terms;
    assert_eq!((terms.price, terms.per_user_limit, terms.payment_ttl_ms), (PRICE, 3, 600_000));

    let gone = |reason| Status::RolledBack(reason);
    for (id, status) in [
        (1, Status::Reserved),
        (3, Status::Reserved),
        (4, Status::Reserved),
        (6, Status::Confirmed),
        (8, gone(RestoreReason::Api)),
        (10, gone(RestoreReason::Cancelled)),
        (11, gone(RestoreReason::Timeout)),
        (1 << 40, Status::Confirmed),
        (1 << 60, Status::Reserved),
    ] {
        assert_eq!(older_number(&engine, id).reservation.status, status, "{id}");
    }
    assert_eq!(older_number(&engine, 7).refund, Some(RefundStatus::Settled));
    assert_eq!(view(&engine, ReservationId::new(4).unwrap()).order_no, "O-4", "its own id");
    assert!(older_number(&engine, 1 << 40).reservation.id.get() < 1 << 32);
    assert_eq!(of_order(&engine, "before-rows").reservation.user.get(), 14);
    assert_eq!(engine.reservation_of_order("shop-1"), None);

    // A repeated request is one; the limit counts what came over.
    let (replayed, is_replay) = buy(&engine, 4, "r-4").unwrap();
    assert!(is_replay && replayed.order_no == "O-4");
    buy(&engine, 4, "a").unwrap();
    buy(&engine, 4, "b").unwrap();
    assert_eq!(buy(&engine, 4, "c"), Err(Refusal::LimitReached));
    buy(&engine, 8, "again").unwrap();
    let before = figures(&engine, ID);
    let log_end = engine.durable_lsn();
    let again = adopt(&engine, &older).await;
    assert!(again.is_empty() && again.known == 13, "{again:?}");
    assert_eq!(engine.durable_lsn(), log_end, "nothing new: nothing is written");
    projected(&engine, &place).await;
    engine.close().unwrap();
    drop(engine);
    let engine = open(directory.path());
    assert!(adopt(&engine, &older).await.is_empty());
    assert_eq!(figures(&engine, ID), before);
    projected(&engine, &place).await;
    engine.close().unwrap();
    assert_eq!(older.digest().await, was, "it is only read");
}

async fn what_is_new_comes_over_at_the_next_start(place: Place) {
    let older = Older::beside(&place).await;
    older.activity(5, 10).await;
    older.order(1, 1, 5, ("ordered", "paid")).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    adopt(&engine, &older).await;
    assert_eq!(figures(&engine, ID), [10, 0, 1]);
    older.order(2, 2, 5, ("ordered", "pending_payment")).await;
    older.activity(6, 3).await;
    older.reservation("3", "3", "6", "pending_order").await;
    // What is here is ruled by this log: its rows there mean nothing any more.
    older.place.execute("UPDATE orders SET status = 'cancelled' WHERE order_no = 'O-1'").await;
    let report = adopt(&engine, &older).await;
    assert_eq!((report.activities, report.unpaid, report.known), (1, 2, 1));
    assert_eq!(figures(&engine, ID), [9, 1, 1]);
    assert_eq!(figures(&engine, ActivityId::new(6).unwrap()), [2, 1, 0]);
    // Another activity here has the id of one there.
    let sku = "UPDATE flashsale_activities SET sku_id = 77 WHERE id = 6";
    older.place.execute(sku).await;
    older.reservation("4", "4", "6", "pending_order").await;
    let report = adopt(&engine, &older).await;
    assert!(report.is_empty() && report.refused.count == 3, "{report:?}");
    projected(&engine, &place).await;
    engine.close().unwrap();
}

/// Rows that hold what they can't, and rows that only look like it.
async fn hostile(older: &Older) {
    older.activity(5, 50).await;
    older.activity(7, 1).await;
    older.place.execute("UPDATE flashsale_activities SET price = -1 WHERE id = 7").await;
    let set = async |id: u64, what: &str| {
        let sql = format!("UPDATE flashsale_pre_deductions SET {what} WHERE id = {id}");
        older.place.execute(&sql).await;
    };
    let big = (1u64 << 53).to_string();
    let rows: [(u64, &str, &str); 9] = [
        (1, "-4", "pending_order"),
        (2, &big, "pending_order"),
        (3, "NULL", "pending_order"),
        (4, "4", "ordered OR 1=1"),
        (5, "5", "pending_order"),
        (6, "6", "pending_order"),
        (7, "7", "pending_order"),
        (8, "8", "pending_order"),
        (9, "9", "pending_order"),
    ];
    for (id, user, status) in rows {
        older.reservation(&id.to_string(), user, "5", status).await;
    }
    set(5, "quantity = -1").await;
    set(6, "quantity = 2147483648").await;
    set(7, "order_no = '\u{1F600}'").await;
    set(8, "price = 1").await;
    set(9, "activity_id = 7").await;
    // Taken over all the same: a repeat of what no client could send can't come.
    older.reservation("20", "20", "5", "pending_order").await;
    set(20, "client_request_id = '\u{1F600}'';DROP TABLE orders;--'").await;
    older.reservation("21", "21", "5", "pending_order").await;
    set(21, "client_request_id = NULL, created_at = NULL, updated_at = NULL").await;
    older.reservation("22", "20", "5", "pending_order").await;
    set(22, "client_request_id = '\u{1F600}'';DROP TABLE orders;--'").await;
    older.reservation("23", "23", "5", "pending_order").await;
    let long = "x".repeat(200);
    set(23, &format!("client_request_id = '{long}'")).await;
    older.order(24, 24, 5, ("ordered", "paid")).await;
    older.order(25, 25, 5, ("ordered", "paid")).await;
    set(25, "order_no = 'O-24'").await;
}

async fn hostile_rows_are_named_and_the_rows_behind_them_go_on(place: Place) {
    let older = Older::beside(&place).await;
    hostile(&older).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let report = adopt(&engine, &older).await;
    let named = |text: &str| report.refused.lines.iter().filter(|it| it.contains(text)).count();
    for (text, count) in [
        ("flashsale_activities \"7\": price is \"-1\"", 1),
        ("user_id is", 3),
        ("status \"ordered OR 1=1\" with no order", 1),
        ("quantity is", 2),
        ("order_no is", 1),
        ("another price", 1),
        ("there is no activity 7", 1),
        ("is of another buyer", 1),
    ] {
        assert_eq!(named(text), count, "{text}: {:#?}", report.refused.lines);
    }
    assert_eq!(report.refused.count, 11, "{:#?}", report.refused.lines);
    assert!(report.refused.lines.iter().all(|it| it.len() < 200 && it.lines().count() == 1));
    assert_eq!(report.doubtful.count, 1, "{:#?}", report.doubtful.lines);
    // The order O-25, whose row names another, is taken by its own number.
    assert_eq!((report.unpaid, report.paid), (4, 2));
    assert_eq!(report.kept.count, 1, "{:?}", report.kept.lines);
    let [available, locked, sold] = figures(&engine, ID);
    assert_eq!(locked, 4);
    let title = &engine.activity(ID).unwrap().terms.title;
    assert_eq!(&**title, "\u{624B}\u{673A}\u{1F600}");
    let replay = buy(&engine, 20, "\u{1F600}';DROP TABLE orders;--").unwrap();
    assert!(replay.1);
    projected(&engine, &place).await;
    let again = adopt(&engine, &older).await;
    assert!(again.is_empty(), "{again:?}");
    assert_eq!(figures(&engine, ID), [available, locked, sold]);
    engine.close().unwrap();
}

async fn figures_that_do_not_add_up_sell_no_unit_twice(place: Place) {
    let older = Older::beside(&place).await;
    for column in ["total_stock", "locked_stock", "sold_stock"] {
        let sql = format!("ALTER TABLE flashsale_activities ADD COLUMN {column} BIGINT");
        older.place.execute(&sql).await;
    }
    let figures_of = async |id: u64, all: [u64; 4]| {
        let [stock, total, locked, sold] = all;
        older.activity(id, stock).await;
        let sql = format!(
            "UPDATE flashsale_activities SET total_stock = {total}, locked_stock = {locked}, \
             sold_stock = {sold} WHERE id = {id}"
        );
        older.place.execute(&sql).await;
    };
    figures_of(5, [7, 10, 2, 1]).await;
    figures_of(6, [3, 10, 0, 0]).await;
    figures_of(7, [10, 10, 0, 0]).await;
    figures_of(8, [7, 10, 3, 0]).await;
    older.order(1, 1, 5, ("ordered", "paid")).await;
    older.order(2, 2, 5, ("ordered", "pending_payment")).await;
    older.reservation("3", "3", "5", "pending_order").await;
    older.reservation("4", "4", "7", "pending_publish").await;
    older.reservation("5", "5", "8", "pending_rollback").await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let report = adopt(&engine, &older).await;
    let of = |id| figures(&engine, ActivityId::new(id).unwrap());
    assert_eq!(of(5), [7, 2, 1], "all are known");
    assert_eq!(of(6), [3, 0, 7], "seven units are nowhere");
    assert_eq!(of(7), [9, 1, 0], "one is on its way to an order");
    assert_eq!(of(8), [8, 0, 2], "one is given back once, two are nobody's");
    assert_eq!((report.doubtful.count, report.kept.count), (1, 2), "{report:#?}");
    projected(&engine, &place).await;
    engine.close().unwrap();
}

async fn more_reservations_than_units_go_in_order_of_what_was_paid(place: Place) {
    let older = Older::beside(&place).await;
    older.place.execute("ALTER TABLE flashsale_activities ADD COLUMN total_stock BIGINT").await;
    older.activity(5, 0).await;
    older.place.execute("UPDATE flashsale_activities SET total_stock = 3").await;
    for id in 1..=3 {
        older.reservation(&id.to_string(), &id.to_string(), "5", "pending_order").await;
    }
    older.order(4, 4, 5, ("ordered", "pending_payment")).await;
    older.order(5, 5, 5, ("ordered", "paid")).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let report = adopt(&engine, &older).await;
    assert_eq!(figures(&engine, ID), [0, 2, 1]);
    assert_eq!((report.paid, report.unpaid, report.refused.count), (1, 2, 2));
    for (number, is_here) in [(5, true), (4, true), (1, true), (2, false), (3, false)] {
        assert_eq!(engine.adopted_as_number(number).is_some(), is_here, "{number}");
    }
    assert_eq!(buy(&engine, 9, "a"), Err(Refusal::SoldOut));
    // That was decided: another start needs no Redis for it, writes nothing, and says what to do.
    let source = Source::at(&older.url()).unwrap();
    let without_redis = async || {
        let lsn = engine.durable_lsn();
        let nowhere = Some(("redis://127.0.0.1:1", Layout::Flashsale));
        let report = source.adopt(&engine, nowhere).await.unwrap();
        assert_eq!((report.refused.count, engine.durable_lsn()), (2, lsn), "{report:?}");
        let told = |line: &String| line.contains("restock activity 5 by 1 and start again");
        assert!(report.refused.lines.iter().all(told), "{:?}", report.refused.lines);
    };
    without_redis().await;
    // Given back here, the unit is the next one's: at a later start as well.
    let first = older_number(&engine, 1).reservation.id;
    let restored = engine.restore(first, None, RestoreReason::Cancelled, Actor::NONE).unwrap();
    restored.wait().unwrap().unwrap();
    without_redis().await;
    adopt(&engine, &older).await;
    assert_eq!(figures(&engine, ID), [0, 2, 1]);
    assert!(engine.adopted_as_number(2).is_some());
    // And an operator may make room for the last one.
    engine.restock(ID, OPERATOR, "for 3", 1).unwrap().wait().unwrap().unwrap();
    assert_eq!(adopt(&engine, &older).await.refused.count, 0);
    assert_eq!(figures(&engine, ID), [0, 3, 1]);
    projected(&engine, &place).await;
    engine.close().unwrap();
}

async fn an_unpaid_order_ends_when_its_buyer_was_told(place: Place) {
    let older = Older::beside(&place).await;
    older.activity(5, 5).await;
    for id in 1..=3 {
        older.order(id, id, 5, ("ordered", "pending_payment")).await;
    }
    let begun = now_ms();
    older.order_until(4, 4, 5, ("ordered", "pending_payment"), 42_000).await;
    // Nobody says until when: as long as others have, from its row's time on.
    older.reservation("5", "5", "5", "pending_order").await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    adopt(&engine, &older).await;
    let ttl_ms = engine.activity(ID).unwrap().terms.payment_ttl_ms;
    assert_eq!(ttl_ms, 600_000);
    let ends = |number| {
        let created_ms = older_number(&engine, number).reservation.created_ms;
        i64::try_from(created_ms + ttl_ms).unwrap() - begun
    };
    assert!((42_000..102_000).contains(&ends(4)), "{}", ends(4));
    assert!((480_000..600_000).contains(&ends(5)), "{}", ends(5));
    engine.close().unwrap();
}

async fn a_unit_of_a_refused_reservation_is_nobody_elses(place: Place) {
    let older = Older::beside(&place).await;
    older.activity(5, 0).await;
    older.order(7, 30, 5, ("ordered", "paid")).await;
    older.order(8, 30, 5, ("ordered", "paid")).await;
    older.place.execute("DELETE FROM orders WHERE order_no = 'O-8'").await;
    let twin = "UPDATE flashsale_pre_deductions SET order_no = 'O-7' WHERE id = 8";
    older.place.execute(twin).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for kept in [1, 0] {
        let report = adopt(&engine, &older).await;
        assert_eq!((report.refused.count, report.kept.count), (1, kept), "{report:?}");
        assert_eq!(figures(&engine, ID), [0, 0, 1]);
    }
    // It is no work for another start, which needs no Redis and writes nothing,
    let lsn = engine.durable_lsn();
    let source = Source::at(&older.url()).unwrap();
    let nowhere = Some(("redis://127.0.0.1:1", Layout::Flashsale));
    let report = source.adopt(&engine, nowhere).await.unwrap();
    assert_eq!((report.refused.count, engine.durable_lsn()), (1, lsn), "{report:?}");
    // until it is another row.
    let other = "UPDATE flashsale_pre_deductions SET client_request_id = 'x' WHERE id = 8";
    older.place.execute(other).await;
    let unread = source.adopt(&engine, nowhere).await;
    assert!(matches!(unread, Err(LegacyError::Keys(_))), "{unread:?}");
    adopt(&engine, &older).await;
    assert!(engine.durable_lsn() > lsn, "it was tried again");
    engine.close().unwrap();
}

async fn in_a_restored_directory_nothing_comes_over_twice(place: Place) {
    let older = Older::beside(&place).await;
    older.activity(5, 5).await;
    older.order(7, 30, 5, ("ordered", "paid")).await;
    older.order(1 << 40, 31, 5, ("ordered", "paid")).await;
    older.order(1 << 60, 32, 5, ("ordered", "pending_payment")).await;
    let directory = tempfile::tempdir().unwrap();
    let lost = open(&directory.path().join("lost"));
    assert_eq!(adopt(&lost, &older).await.paid, 2);
    projected(&lost, &place).await;
    let was = figures(&lost, ID);
    lost.close().unwrap();

    let source = restore::Source::open(place.database(), Split::ONE).await.unwrap();
    let new = open_with(&directory.path().join("new"), Some(source.request_hash_key()));
    source.rebuild(&new).await.unwrap();
    let report = adopt(&new, &older).await;
    assert!(report.is_empty(), "{report:?}");
    assert_eq!((report.known, report.refused.count), (3, 0), "{report:?}");
    assert_eq!(figures(&new, ID), was);
    new.close().unwrap();
}

async fn a_database_that_is_none_of_the_older_systems_is_refused(place: Place) {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let refused = async |url: &str| {
        let source = Source::at(url).unwrap();
        let error = source.adopt(&engine, None).await.unwrap_err();
        source.close().await;
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        error
    };
    let older = Older::beside(&place).await;
    for (table, column) in [("flashsale_pre_deductions", "order_no"), ("orders", "purchase_slot")] {
        older.place.execute(&format!("ALTER TABLE {table} RENAME COLUMN {column} TO was")).await;
    }
    let LegacyError::Schema { why, .. } = refused(&older.url()).await else { panic!() };
    assert!(why.contains("(order_no)") && why.contains("(purchase_slot)"), "{why}");
    older.place.execute("ALTER TABLE flashsale_pre_deductions RENAME COLUMN was TO order_no").await;
    older.place.execute("ALTER TABLE orders RENAME COLUMN status TO state").await;
    let LegacyError::Schema { why, .. } = refused(&older.url()).await else { panic!() };
    assert_eq!(why, "orders has no column status");
    older.place.execute("DROP TABLE orders").await;
    let LegacyError::Schema { why, .. } = refused(&older.url()).await else { panic!() };
    assert_eq!(why, "it has no table orders");
    let nowhere = older.url().replace("older", "nowhere");
    assert!(matches!(refused(&nowhere).await, LegacyError::Unreadable { .. }));
    // Sluice's own, once a server has written to it.
    let bridge = follow(&engine, &place);
    engine
        .control_set(Actor { name: "a", request_id: "" }, "canary", b"1", 0)
        .unwrap()
        .wait()
        .unwrap()
        .unwrap();
    assert_eq!(bridge.stop(PATIENCE), Drained::Yes);
    assert!(matches!(refused(&place.url()).await, LegacyError::Own { .. }));
    assert!(engine.activities().is_empty());
    engine.close().unwrap();
}

#[tokio::test]
async fn times_are_read_in_the_servers_own_zone() {
    let place = Place::mariadb().await;
    let older = Older::beside(&place).await;
    older.activity(5, 5).await;
    older.place.execute("UPDATE flashsale_activities SET end_at = '2100-06-01 08:00:00'").await;
    older.place.execute("SET GLOBAL time_zone = '+08:00'").await;
    let start = at(0);
    let set = format!("UPDATE flashsale_activities SET start_at = '{start}'");
    older.place.execute(&set).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let source = Source::at(&older.place.url()).unwrap();
    source.adopt(&engine, None).await.unwrap();
    source.close().await;
    let terms = engine.activity(ID).unwrap().terms;
    assert_eq!(terms.end_ms, 4_115_491_200_000, "beyond 2038 as well");
    let ago_ms = now_ms() - i64::try_from(terms.start_ms).unwrap();
    assert!((8 * 3_600_000..9 * 3_600_000).contains(&ago_ms), "{ago_ms}");
    engine.close().unwrap();
}
