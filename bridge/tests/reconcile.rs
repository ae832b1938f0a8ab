//! Engine and SQL held against each other: what differs is told and mended, what is behind is not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge::lag::{Cause, State};
use bridge::reconcile::{Kind, Reconciler, Report, Scope, Side, Uncompared};
use bridge::redis::layouts::Layout;
use bridge::redis::stocks::Stocks;
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::{BridgeHandle, Drained, Options, start};
use engine::core::event::{Actor, Definition, Front, RestoreReason};
use engine::core::ids::{ReservationId, UserId};
use engine::{Engine, EngineOptions};

use support::history::{ACTOR, DEFINITION, activity_id};
use support::place::Place;

on_each_database!(
    what_was_sold_is_no_difference,
    what_somebody_changed_is_told_and_mended_and_only_then,
    a_sink_that_is_behind_is_no_difference,
    a_foreign_row_that_halts_the_sink_is_set_aside,
    a_mirror_that_stands_still_is_told_and_costs_sql_nothing,
);

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

struct Shop {
    engine: Engine,
    bridge: Option<BridgeHandle>,
    place: Place,
    _directory: tempfile::TempDir,
}

fn open(directory: &Path) -> Engine {
    let mut options = EngineOptions::new(directory.join("data"));
    options.segment_bytes = 4 << 20;
    options.accept_file_system = true;
    Engine::open(options).unwrap().0
}

impl Shop {
    /// A sale with thirty reservations: ten paid, ten given back.
    fn new(place: Place) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(directory.path());
        let definition = Definition { end_ms: engine.now_ms() + 3_600_000, ..DEFINITION };
        let id = activity_id(0);
        engine.create(Some(id), ACTOR, 100, definition).unwrap().wait().unwrap().unwrap();
        engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
        let mut shop = Self { engine, bridge: None, place, _directory: directory };
        for number in 1..=30 {
            let it = shop.buy(number);
            match number % 3 {
                0 => drop(shop.engine.confirm(it, "P").unwrap().wait().unwrap().unwrap()),
                1 => {
                    let (reason, actor) = (RestoreReason::Cancelled, Actor::NONE);
                    let back = shop.engine.restore(it, None, reason, actor).unwrap();
                    back.wait().unwrap().unwrap();
                }
                _ => {}
            }
        }
        shop.follow();
        shop
    }

    fn follow(&mut self) {
        let options = Options { database_url: self.place.url(), orders: OrderOptions::default() };
        self.bridge = Some(start(Arc::new(self.engine.clone()), &options).unwrap());
    }

    fn buy(&self, user: u64) -> ReservationId {
        let (user, request) = (UserId::new(user).unwrap(), format!("request-{user}"));
        let bought = self.engine.reserve(activity_id(0), user, &request, 1, Front::Api).unwrap();
        bought.wait().unwrap().unwrap().reservation.reservation.id
    }

    fn drain(&mut self) {
        assert_eq!(self.bridge.take().unwrap().stop(PATIENCE), Drained::Yes);
    }

    fn order_no(&self, id: ReservationId) -> String {
        self.engine.order_prefix().order_no(id)
    }

    async fn reconcile(&self, repair: bool) -> Report {
        let sink = self.bridge.as_ref().unwrap().watcher();
        let reconciler = Reconciler::new(&self.engine, self.place.database(), Split::ONE, sink);
        reconciler.repairing(repair).run(Scope::Everything).await.unwrap()
    }

    async fn repairs(&self) -> u64 {
        self.place.number("SELECT COUNT(*) FROM stock_flows WHERE change_type = 'REPAIR'").await
    }
}

async fn what_was_sold_is_no_difference(place: Place) {
    let shop = Shop::new(place);
    let report = shop.reconcile(false).await;
    assert_eq!(report.mismatches, []);
    assert_eq!((report.activities, report.reservations, report.in_flight), (1, 30, 0));
    assert!(report.is_clean());
}

async fn what_somebody_changed_is_told_and_mended_and_only_then(place: Place) {
    let shop = Shop::new(place);
    assert!(shop.reconcile(false).await.is_clean());
    let ordinal = u64::from(shop.engine.activity(activity_id(0)).unwrap().ordinal.get());
    let id = |position: u64| ordinal << 32 | position;
    let prefix = shop.engine.order_prefix();
    let order = |position| prefix.order_no(ReservationId::new(id(position)).unwrap());
    let all = "id, user_id, activity_id, client_request_id, request_hash, sku_id, price, \
               quantity, purchase_slot, order_no, status, reason, attempts, last_error, \
               ordered_at, rolled_back_at, created_at, updated_at";
    let copied = all.replacen("id, user_id", "id + 1000, 77", 1).replacen(
        "purchase_slot, order_no",
        "purchase_slot + 1000, 'stray'",
        1,
    );
    let changes = [
        "UPDATE flashsale_activities SET stock = stock + 1, sold_stock = sold_stock - 1".to_owned(),
        format!("DELETE FROM flashsale_pre_deductions WHERE id = {}", id(2)),
        format!("DELETE FROM orders WHERE order_no = '{}'", order(2)),
        format!("DELETE FROM order_items WHERE order_no = '{}'", order(2)),
        format!("UPDATE orders SET status = 'cancelled' WHERE order_no = '{}'", order(3)),
        format!("DELETE FROM orders WHERE order_no = '{}'", order(5)),
        format!("DELETE FROM order_items WHERE order_no = '{}'", order(5)),
        format!("UPDATE orders SET user_activity_key = 'x' WHERE order_no = '{}'", order(4)),
        format!("UPDATE flashsale_pre_deductions SET user_id = 99 WHERE id = {}", id(6)),
        format!("UPDATE flashsale_pre_deductions SET status = 'ordered' WHERE id = {}", id(7)),
        format!(
            "INSERT INTO flashsale_pre_deductions ({all}) SELECT {copied} \
             FROM flashsale_pre_deductions WHERE id = {}",
            id(8)
        ),
    ];
    for change in &changes {
        shop.place.execute(change).await;
    }
    let expected = BTreeSet::from([
        Kind::Activity,
        Kind::Missing,
        Kind::OrderStatus,
        Kind::OrderMissing,
        Kind::Slot,
        Kind::Foreign,
        Kind::Status,
        Kind::Stray,
    ]);
    for _ in 0..2 {
        let report = shop.reconcile(false).await;
        let kinds: BTreeSet<Kind> = report.mismatches.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, expected, "{:?}", report.mismatches);
        assert_eq!((report.differences, report.repaired), (8, 0));
        assert_eq!(shop.repairs().await, 0, "a look changes nothing");
    }
    let report = shop.reconcile(true).await;
    assert_eq!((report.differences, report.repaired), (8, 8), "{:?}", report.mismatches);
    assert!(shop.repairs().await >= 8);
    let aside =
        "SELECT COUNT(*) FROM stock_flows WHERE remark LIKE 'set aside: %order_no=\"stray\"%'";
    assert_eq!(shop.place.number(aside).await, 1, "what was set aside can be read there");
    let report = shop.reconcile(true).await;
    assert_eq!(report.mismatches, []);
    // The sink goes on where it was.
    let mut shop = shop;
    shop.buy(40);
    shop.engine.confirm(ReservationId::new(id(2)).unwrap(), "P2").unwrap().wait().unwrap().unwrap();
    assert!(shop.reconcile(false).await.is_clean());
    shop.drain();
}

async fn a_sink_that_is_behind_is_no_difference(place: Place) {
    let mut shop = Shop::new(place);
    let bridge = shop.bridge.take().unwrap();
    let watcher = bridge.watcher();
    assert_eq!(bridge.stop(PATIENCE), Drained::Yes);
    for user in 50..60 {
        shop.buy(user);
    }
    let reconciler = Reconciler::new(&shop.engine, shop.place.database(), Split::ONE, watcher);
    let report = reconciler.repairing(true).run(Scope::Everything).await.unwrap();
    assert_eq!(report.mismatches, []);
    assert_eq!((report.in_flight, shop.repairs().await), (41, 0));
    shop.follow();
    assert!(shop.reconcile(false).await.is_clean());
}

async fn a_foreign_row_that_halts_the_sink_is_set_aside(place: Place) {
    let shop = Shop::new(place);
    assert!(shop.reconcile(false).await.is_clean());
    let ordinal = u64::from(shop.engine.activity(activity_id(0)).unwrap().ordinal.get());
    let next = ReservationId::new((ordinal << 32) + 31).unwrap();
    let foreign = format!(
        "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, purchase_slot, \
         total_amount, pay_amount, expire_at, created_at, updated_at) \
         VALUES ('{}', 1, 'seckill', 'paid', {}, 1, 1, 1, 1, 1, 1)",
        shop.order_no(next),
        activity_id(0)
    );
    shop.place.execute(&foreign).await;
    assert_eq!(shop.buy(31), next);
    let watcher = shop.bridge.as_ref().unwrap().watcher();
    let deadline = Instant::now() + PATIENCE;
    let is_halted = |state: &State| matches!(state, State::Halted { cause: Cause::Content, .. });
    while !is_halted(&watcher.status().state) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = shop.reconcile(false).await;
    assert_eq!((report.differences, report.repaired), (1, 0), "{:?}", report.mismatches);
    let report = shop.reconcile(true).await;
    assert_eq!((report.differences, report.repaired), (1, 1), "{:?}", report.mismatches);
    let mut states = watcher.subscribe();
    let going_on = states.wait_for(|state| *state == State::Running);
    tokio::time::timeout(PATIENCE, going_on).await.unwrap().unwrap();
    let report = shop.reconcile(false).await;
    assert_eq!(report.mismatches, []);
    assert_eq!(report.reservations, 31);
}

async fn a_mirror_that_stands_still_is_told_and_costs_sql_nothing(place: Place) {
    let mut shop = Shop::new(place);
    let stopped = shop.bridge.take().unwrap();
    let mirror = stopped.watcher();
    assert_eq!(stopped.stop(PATIENCE), Drained::Yes);
    shop.follow();
    for user in 50..60 {
        shop.buy(user);
    }
    // Nobody listens there, and nobody is asked: the mirror never comes so far.
    let prefix = shop.engine.order_prefix();
    let stocks = Stocks::open("redis://127.0.0.1:1", Layout::Flashsale, prefix).unwrap();
    let sink = shop.bridge.as_ref().unwrap().watcher();
    let reconciler = Reconciler::new(&shop.engine, shop.place.database(), Split::ONE, sink.clone())
        .with_redis(stocks.clone(), mirror);
    let report = reconciler.run(Scope::Everything).await.unwrap();
    assert_eq!((report.activities, report.reservations), (1, 40), "{report:?}");
    assert_eq!((report.in_flight, report.differences), (1, 0), "its one activity in Redis");
    let why = "it was stopped".to_owned();
    assert_eq!(report.uncompared, [Uncompared { side: Side::Redis, why }]);
    // One that is up to date, and whose Redis does not answer.
    let reconciler = Reconciler::new(&shop.engine, shop.place.database(), Split::ONE, sink.clone())
        .with_redis(stocks, sink);
    let report = reconciler.run(Scope::Sums).await.unwrap();
    assert_eq!(report.uncompared.iter().map(|it| it.side).collect::<Vec<_>>(), [Side::Redis]);
}
