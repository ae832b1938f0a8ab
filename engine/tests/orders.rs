//! Payments, refunds, dead letters and controls through the engine over its log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::core::command::{ArchivedOrder, ArchivedPayment, Refusal, RequestRefund};
use engine::core::control::keys;
use engine::core::event::{
    Actor, DeadLetterPolicy, Definition, Front, PaymentVerdict, RefundScope, RestoreReason,
};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::limits::TIME_MS_MAX;
use engine::core::side::{PaymentStatus, RefundStatus};
use engine::{
    Callback, Engine, EngineOptions, ORDERS_SINK, Pending, PublicStatus, Recorded, ReservationView,
    SinkClass,
};
use sale::{ACTOR, PHONE};
use wal::device::sim::{Image, SimDevice};
use wal::{CONTROL_SHARD, Lsn};

const DEFINITION: Definition<'static> = Definition { payment_ttl_ms: 600_000, ..PHONE };

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

/// An engine without threads: nothing is durable, and no time passes, by itself.
struct Shop {
    engine: Engine,
    device: SimDevice,
}

impl Shop {
    fn open(image: Image) -> Self {
        let device = SimDevice::new(image);
        let mut options = EngineOptions::new("sim");
        options.on_fatal = Box::new(|_| ());
        options.threads = false;
        let (engine, _) = Engine::open_on(Arc::new(device.clone()), options).unwrap();
        Self { engine, device }
    }

    /// The shop again, from what is on its disk, with the digest it had.
    fn reopened(self) -> Self {
        let digest = self.engine.digest();
        self.engine.close().unwrap();
        let image = self.device.image();
        drop(self);
        let shop = Self::open(image);
        assert_eq!(shop.engine.digest(), digest, "W14");
        shop
    }

    fn told<T>(&self, pending: Pending<T>) -> T {
        while self.engine.commit().unwrap() != wal::Committed::Nothing {}
        pending.wait().unwrap()
    }

    fn on_sale(&self, stock: u32, definition: Definition<'_>) -> ActivityId {
        sale::on_sale(&self.engine, stock, definition)
    }

    fn buy(&self, id: ActivityId, buyer: u64) -> ReservationView {
        let bought = self.engine.reserve(id, user(buyer), "a", 1, Front::Api).unwrap();
        self.told(bought).unwrap().reservation
    }

    fn view(&self, id: ReservationId) -> ReservationView {
        let found = self.engine.reservation(id).unwrap();
        self.told(found).unwrap()
    }

    fn open_payment(&self, it: &ReservationView) -> String {
        let (id, buyer) = (it.reservation.id, it.reservation.user);
        let opened = self.engine.open_payment(id, buyer, "mock", 60_000).unwrap();
        self.told(opened).unwrap().payment_no
    }

    fn call_back(&self, payment_no: &str, transaction: &str, amount: u64) -> Recorded {
        let callback = Callback {
            channel: "mock",
            payment_no,
            transaction,
            amount,
            paid: true,
            body: b"{}",
            archived: None,
        };
        let recorded = self.engine.record_payment(&callback).unwrap();
        self.told(recorded).unwrap()
    }

    fn cancel(&self, id: ReservationId) {
        let reason = RestoreReason::Cancelled;
        let cancelled = self.engine.restore(id, None, reason, Actor::NONE).unwrap();
        self.told(cancelled).unwrap();
    }

    fn set(&self, key: &str, value: &[u8], expires_ms: u64) -> Result<bool, Refusal> {
        let pending = self.engine.control_set(ACTOR, key, value, expires_ms).unwrap();
        self.engine.commit().unwrap();
        pending.wait().unwrap()
    }

    fn clear(&self, key: &str) -> Result<bool, Refusal> {
        let pending = self.engine.control_clear(ACTOR, key).unwrap();
        self.engine.commit().unwrap();
        pending.wait().unwrap()
    }
}

fn refund(reservation: ReservationId, refund_no: &str) -> RequestRefund<'_> {
    let (restock, free_limit, note, archived) = (true, true, "", None);
    let actor = ACTOR;
    RequestRefund { reservation, refund_no, restock, free_limit, note, actor, archived }
}

#[test]
fn a_payment_is_opened_once_and_pays_its_order_once() {
    let shop = Shop::open(Image::empty(1));
    let id = shop.on_sale(5, DEFINITION);
    let bought = shop.buy(id, 1);
    let payment_no = shop.open_payment(&bought);
    assert_eq!(payment_no, format!("{}01", bought.order_no));
    assert_eq!(shop.open_payment(&bought), payment_no, "one live payment an order");
    let stranger = shop.engine.open_payment(bought.reservation.id, user(2), "mock", 60_000);
    assert_eq!(shop.told(stranger.unwrap()), Err(Refusal::UnknownReservation));

    assert_eq!(shop.call_back(&payment_no, "t0", 99).verdict, PaymentVerdict::WrongAmount);
    let paid = shop.call_back(&payment_no, "t1", 100);
    assert_eq!(paid.verdict, PaymentVerdict::Accepted);
    assert_eq!(paid.reservation.unwrap().reservation.payment_no, payment_no);
    assert_eq!(shop.call_back(&payment_no, "t1", 100).verdict, PaymentVerdict::Repeated);
    let second = shop.call_back(&payment_no, "t2", 100);
    assert_eq!(second.verdict, PaymentVerdict::SecondPayment);
    assert_eq!(shop.call_back("1999", "t3", 100).verdict, PaymentVerdict::Unknown);
    assert_eq!(shop.call_back("nobody's", "t3", 100).verdict, PaymentVerdict::Unknown);

    let shop = shop.reopened();
    let found = shop.engine.payment(&payment_no).unwrap();
    assert_eq!(shop.told(found).unwrap().status, PaymentStatus::Paid);
    let pending = shop.engine.pending_refunds(10);
    assert_eq!(pending.len(), 1, "{pending:?}");
    assert_eq!(Some(&pending[0].refund_no), second.refund_no.as_ref());
    assert_eq!((pending[0].scope, &*pending[0].transaction), (RefundScope::Payment, "t2"));
    let settled = |shop: &Shop| {
        let it = &pending[0];
        let told = shop.engine.refund_settled(it.activity, it.reservation, &it.refund_no).unwrap();
        shop.told(told).unwrap().status
    };
    assert_eq!([settled(&shop), settled(&shop)], [RefundStatus::Settled; 2]);
    assert_eq!(shop.engine.pending_refunds(10), []);
    let view = shop.view(bought.reservation.id);
    assert_eq!(view.refund, None, "the order stays paid");
    assert_eq!(shop.engine.activity(id).unwrap().figures.sold, 1);
    shop.reopened();
}

#[test]
fn late_money_is_honoured_where_it_may_and_else_goes_back() {
    let shop = Shop::open(Image::empty(2));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1);
    let payment_no = shop.open_payment(&bought);
    shop.cancel(bought.reservation.id);
    let other = shop.buy(id, 2);
    let late = shop.call_back(&payment_no, "t1", 100);
    assert_eq!(late.verdict, PaymentVerdict::Late, "its unit is another buyer's now");
    assert_eq!(late.refund_no.as_deref(), Some(&*shop.engine.pending_refunds(1)[0].refund_no));
    shop.cancel(other.reservation.id);
    assert_eq!(shop.call_back(&payment_no, "t1", 100).verdict, PaymentVerdict::Repeated);
    let honoured = shop.call_back(&payment_no, "t2", 100);
    assert_eq!(honoured.verdict, PaymentVerdict::Accepted);
    assert_eq!(shop.engine.activity(id).unwrap().figures.sold, 1);
    shop.reopened();
}

#[test]
fn a_back_ends_word_never_reinstates() {
    let shop = Shop::open(Image::empty(3));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1);
    shop.cancel(bought.reservation.id);
    let confirmed = shop.engine.confirm(bought.reservation.id, "p1").unwrap();
    assert_eq!(shop.told(confirmed), Err(Refusal::RolledBack));
}

#[test]
fn a_refund_is_carried_out_by_its_number_alone() {
    let shop = Shop::open(Image::empty(4));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1);
    let reservation = bought.reservation.id;
    let ask = |shop: &Shop, request: &RequestRefund<'_>| {
        let told = shop.engine.refund_request(request).unwrap();
        shop.told(told).map(|refund| refund.status)
    };
    assert_eq!(ask(&shop, &refund(reservation, "f1")), Err(Refusal::NotPaid));
    let payment_no = shop.open_payment(&bought);
    shop.call_back(&payment_no, "t1", 100);
    let requested = shop.engine.refund_request(&refund(reservation, "f1")).unwrap();
    assert_eq!(shop.engine.pending_refunds(10), [], "not before it is durable");
    shop.told(requested).unwrap();
    assert_eq!(ask(&shop, &refund(reservation, "f1")), Ok(RefundStatus::Requested));
    assert_eq!(ask(&shop, &refund(reservation, "f2")), Err(Refusal::RefundInProgress));
    let other = RequestRefund { restock: false, ..refund(reservation, "f1") };
    assert_eq!(ask(&shop, &other), Err(Refusal::RequestIdReused));

    let shop = shop.reopened();
    let pending = shop.engine.pending_refunds(10);
    let it = &pending[0];
    let told = (&*it.channel, &*it.payment_no, &*it.transaction, it.amount);
    assert_eq!(told, ("mock", &*payment_no, "t1", 100));
    let failed = shop.engine.refund_failed(id, reservation, "f1", "no").unwrap();
    assert_eq!(shop.told(failed).unwrap().status, RefundStatus::Failed);
    assert_eq!(ask(&shop, &refund(reservation, "f1")), Ok(RefundStatus::Requested));
    let settled = shop.engine.refund_settled(id, reservation, "f1").unwrap();
    assert_eq!(shop.told(settled).unwrap().status, RefundStatus::Settled);
    assert_eq!(ask(&shop, &refund(reservation, "f3")), Err(Refusal::AlreadyRefunded));
    assert_eq!(shop.view(reservation).refund, Some(RefundStatus::Settled));
    let figures = shop.engine.activity(id).unwrap().figures;
    assert_eq!((figures.available, figures.sold), (1, 0));
    let again = shop.engine.reserve(id, user(1), "b", 1, Front::Api).unwrap();
    assert!(shop.told(again).is_ok(), "the limit is free again");
    shop.reopened();
}

#[test]
fn a_dead_letter_is_given_back_at_once_where_the_policy_says_so() {
    let shop = Shop::open(Image::empty(5));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1).reservation;
    let payment_no = shop.open_payment(&shop.view(bought.id));
    let report = |shop: &Shop| {
        let note = "no address: ".repeat(100);
        let told = shop.engine.dead_lettered(bought.id, bought.shard_seq, &note).unwrap();
        shop.told(told).unwrap().status
    };
    let given_back = PublicStatus::RolledBack(RestoreReason::DeadLetter);
    assert_eq!([report(&shop), report(&shop)], [given_back; 2], "a sink says it again");
    let retried = shop.engine.dead_letter_retry(bought.id, ACTOR).unwrap();
    assert_eq!(shop.told(retried), Err(Refusal::RolledBack));
    assert_eq!(shop.engine.dead_letters(10), []);
    assert_eq!(shop.engine.activity(id).unwrap().figures.available, 1);
    let late = shop.call_back(&payment_no, "t1", 100);
    assert_eq!(late.verdict, PaymentVerdict::Late, "it is never reinstated");
    shop.reopened();
}

#[test]
fn a_dead_letter_that_is_held_is_pending_until_an_operator_decides() {
    let shop = Shop::open(Image::empty(6));
    let hold = Definition { dead_letter: DeadLetterPolicy::Hold, ..DEFINITION };
    let id = shop.on_sale(3, hold);
    let bought = shop.buy(id, 1).reservation;
    let report = |shop: &Shop, failed_seq| {
        let told = shop.engine.dead_lettered(bought.id, failed_seq, "no address").unwrap();
        shop.told(told).unwrap().status
    };
    assert_eq!(report(&shop, bought.shard_seq), PublicStatus::PendingOrder);
    let shop = shop.reopened();
    let listed = shop.engine.dead_letters(10);
    assert_eq!((listed.len(), &*listed[0].note), (1, "no address"));
    for _ in 0..2 {
        let retried = shop.engine.dead_letter_retry(bought.id, ACTOR).unwrap();
        assert_eq!(shop.told(retried).unwrap().status, PublicStatus::PendingOrder);
    }
    assert_eq!(shop.engine.dead_letters(10), []);
    // A sink that died before it heard of the retry reports the old failure once more.
    report(&shop, bought.shard_seq);
    assert_eq!(shop.engine.dead_letters(10), []);
    // It fails again at the retry itself.
    report(&shop, u64::MAX);
    assert_eq!(shop.engine.dead_letters(10).len(), 1);
    for _ in 0..2 {
        let rolled_back = shop.engine.dead_letter_rollback(bought.id, ACTOR).unwrap();
        let status = PublicStatus::RolledBack(RestoreReason::DeadLetter);
        assert_eq!(shop.told(rolled_back).unwrap().status, status);
    }
    shop.reopened();
}

#[test]
fn a_paid_dead_letter_is_held_whatever_the_policy_and_rolled_back_by_a_refund() {
    let shop = Shop::open(Image::empty(7));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1).reservation;
    let confirmed = shop.engine.confirm(bought.id, "p1").unwrap();
    shop.told(confirmed).unwrap();
    let told = shop.engine.dead_lettered(bought.id, bought.shard_seq, "no address").unwrap();
    assert_eq!(shop.told(told).unwrap().status, PublicStatus::PendingOrder);
    for _ in 0..2 {
        let rolled_back = shop.engine.dead_letter_rollback(bought.id, ACTOR).unwrap();
        let view = shop.told(rolled_back).unwrap();
        assert_eq!(view.refund, Some(RefundStatus::Requested));
    }
    assert_eq!(shop.engine.dead_letters(10).len(), 1, "until the money is back");
    let refund_no = shop.engine.pending_refunds(10)[0].refund_no.clone();
    let settled = shop.engine.refund_settled(id, bought.id, &refund_no).unwrap();
    shop.told(settled).unwrap();
    assert_eq!(shop.engine.dead_letters(10), []);
    assert_eq!(shop.engine.activity(id).unwrap().figures.available, 1);
    shop.reopened();
}

#[test]
fn a_redelivered_order_shows_only_once_a_sink_has_covered_the_retry() {
    let shop = Shop::open(Image::empty(8));
    let hold = Definition { dead_letter: DeadLetterPolicy::Hold, ..DEFINITION };
    let id = shop.on_sale(3, hold);
    let bought = shop.buy(id, 1).reservation;
    let told = shop.engine.dead_lettered(bought.id, bought.shard_seq, "no address").unwrap();
    shop.told(told).unwrap();
    let retried = shop.engine.dead_letter_retry(bought.id, ACTOR).unwrap();
    shop.told(retried).unwrap();
    let mut reader = shop.engine.reader();
    let mut shard = 0;
    while let Some(frame) = reader.next_frame().unwrap() {
        for record in frame.records().map(Result::unwrap) {
            if record.shard_seq == bought.shard_seq && record.kind == 16 {
                shard = record.shard;
            }
        }
    }
    let advance = |seq| {
        let (engine, lsn) = (shop.engine.clone(), shop.engine.durable_lsn());
        let sink =
            std::thread::spawn(move || engine.sink_advanced(ORDERS_SINK, lsn, &[(shard, seq)]));
        while !sink.is_finished() {
            shop.engine.commit().unwrap();
            std::thread::yield_now();
        }
        sink.join().unwrap().unwrap();
    };
    advance(bought.shard_seq + 1);
    assert_eq!(shop.view(bought.id).status, PublicStatus::PendingOrder);
    advance(bought.shard_seq + 2);
    assert_eq!(shop.view(bought.id).status, PublicStatus::Ordered);
}

#[test]
fn the_kill_switch_stops_new_purchases_across_restarts_and_nothing_else() {
    let shop = Shop::open(Image::empty(9));
    let id = shop.on_sale(5, DEFINITION);
    let bought = shop.buy(id, 1);
    let heard = Arc::new(AtomicU32::new(0));
    let ear = Arc::clone(&heard);
    shop.engine.on_controls(Box::new(move || {
        ear.fetch_add(1, Ordering::SeqCst);
    }));
    let before = shop.engine.controls_generation();
    let pending = shop.engine.control_set(ACTOR, keys::STOP, b"{}", 0).unwrap();
    assert!(!shop.engine.is_stopped(), "not before it is durable");
    shop.engine.commit().unwrap();
    assert_eq!(pending.wait().unwrap(), Ok(true));
    assert!(shop.engine.is_stopped() && shop.engine.controls_generation() > before);
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    assert_eq!(shop.set(keys::STOP, b"{}", 0), Ok(false), "it is set already");

    let shop = shop.reopened();
    let refused = shop.engine.reserve(id, user(2), "a", 1, Front::Api).unwrap();
    assert_eq!(shop.told(refused).unwrap_err().refusal, Refusal::Paused);
    let nowhere = ActivityId::new(99).unwrap();
    let refused = shop.engine.reserve(nowhere, user(2), "a", 1, Front::Api).unwrap();
    assert_eq!(shop.told(refused).unwrap_err().refusal, Refusal::Paused);
    let replayed = shop.engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    assert!(shop.told(replayed).unwrap().replayed);
    let payment_no = shop.open_payment(&bought);
    assert_eq!(shop.call_back(&payment_no, "t1", 100).verdict, PaymentVerdict::Accepted);
    assert_eq!([shop.clear(keys::STOP), shop.clear(keys::STOP)], [Ok(true), Ok(false)]);
    shop.buy(id, 2);
    shop.reopened();
}

#[test]
fn controls_hold_until_they_end_and_are_listed_by_prefix() {
    let shop = Shop::open(Image::empty(10));
    let far = TIME_MS_MAX;
    shop.set("blacklist/user/7", b"{}", 0).unwrap();
    shop.set("blacklist/ip/::1", b"{}", far).unwrap();
    shop.set("token/abc", b"{}", shop.engine.now_ms() + 1).unwrap();
    let past = shop.set("token/old", b"{}", 1);
    assert!(matches!(past, Err(Refusal::Invalid(_))), "{past:?}");
    let shop = shop.reopened();
    let listed: Vec<_> = shop.engine.controls(keys::BLACKLIST_PREFIX).into_iter().collect();
    assert_eq!(listed.len(), 2);
    assert_eq!(shop.engine.control("blacklist/ip/::1").unwrap().expires_ms, far);
    let end_ms = shop.engine.now_ms() + 1;
    while shop.engine.now_ms() <= end_ms {
        std::thread::yield_now();
    }
    assert_eq!(shop.engine.control("token/abc"), None);
}

#[test]
fn ordinals_and_ids_used_elsewhere_are_not_given() {
    let shop = Shop::open(Image::empty(11));
    shop.set("ordinals/70", b"", 0).unwrap();
    shop.set("activities/30001", b"", 0).unwrap();
    let shop = shop.reopened();
    let id = shop.on_sale(1, DEFINITION);
    assert_eq!(id.get(), 30_001);
    assert_eq!(shop.engine.activity(id).unwrap().ordinal.get(), 70);
    assert!(shop.clear("ordinals/70").is_err());
}

#[test]
fn facts_about_an_archived_order_are_no_use_while_it_lives() {
    let shop = Shop::open(Image::empty(12));
    let id = shop.on_sale(1, DEFINITION);
    let bought = shop.buy(id, 1).reservation;
    let (payment_no, transaction, amount) = ("p", "t", 1);
    let (activity, user, channel) = (id, user(1), "mock");
    let order = ArchivedOrder { activity, user, channel, payment_no, transaction, amount };
    let request = RequestRefund { archived: Some(order), ..refund(bought.id, "f1") };
    let told = shop.engine.refund_request(&request).unwrap();
    assert_eq!(shop.told(told), Err(Refusal::NotPaid));
}

/// What a sink says that holds everything.
fn all_durable(engine: &Engine) -> Vec<(u16, u64)> {
    let mut marks = BTreeMap::new();
    let mut reader = engine.reader();
    while let Some(frame) = reader.next_frame().unwrap() {
        let records = frame.records().map(Result::unwrap);
        marks.extend(records.map(|record| (record.shard, record.shard_seq)));
    }
    marks.remove(&CONTROL_SHARD);
    marks.into_iter().collect()
}

#[test]
fn an_activity_is_archived_once_every_sink_covers_it_and_sql_answers_from_then_on() {
    let shop = Shop::open(Image::empty(13));
    let over = Definition { end_ms: 1, ..DEFINITION };
    let created = shop.engine.create(None, ACTOR, 5, over).unwrap();
    let id = shop.told(created).unwrap().id;
    let live = shop.on_sale(1, DEFINITION);
    assert_eq!(shop.engine.archive_ended(), Ok(0), "no sink holds it");
    let marks = all_durable(&shop.engine);
    let (engine, lsn) = (shop.engine.clone(), shop.engine.durable_lsn());
    let sink = std::thread::spawn(move || engine.sink_advanced(ORDERS_SINK, lsn, &marks));
    while !sink.is_finished() {
        shop.engine.commit().unwrap();
        std::thread::yield_now();
    }
    sink.join().unwrap().unwrap();
    assert_eq!(shop.engine.archive_ended(), Ok(1));
    shop.engine.commit().unwrap();
    let shop = shop.reopened();
    assert_eq!(shop.engine.activity(id), None);
    assert_eq!(shop.engine.archived(id).map(|it| it.end_ms), Some(1));
    assert!(shop.engine.activity(live).is_some());
    let refused = shop.engine.reserve(id, user(1), "a", 1, Front::Api).unwrap();
    assert_eq!(shop.told(refused).unwrap_err().refusal, Refusal::Ended);

    // Money and refunds of its orders rest on what SQL says.
    let reservation = ReservationId::new(1 << 32 | 1).unwrap();
    assert_eq!(shop.engine.archived_with(reservation).map(|it| it.id), Some(id));
    let asked = shop.engine.refund_request(&refund(reservation, "f1")).unwrap();
    assert_eq!(shop.told(asked), Err(Refusal::Archived));
    let (payment_no, transaction, amount) = ("p", "t", 100);
    let (activity, buyer, channel) = (id, user(1), "mock");
    let order = ArchivedOrder { activity, user: buyer, channel, payment_no, transaction, amount };
    let request = RequestRefund { archived: Some(order), ..refund(reservation, "f1") };
    let asked = shop.engine.refund_request(&request).unwrap();
    assert_eq!(shop.told(asked).unwrap().status, RefundStatus::Requested);
    let again = shop.engine.refund_request(&refund(reservation, "f1")).unwrap();
    assert_eq!(shop.told(again).unwrap().status, RefundStatus::Requested, "known by its number");
    let known = ArchivedPayment {
        activity,
        reservation,
        user: buyer,
        channel,
        amount,
        order_paid: false,
        transaction_known: false,
    };
    let mut callback = Callback {
        channel,
        payment_no: "10000000429496729701",
        transaction: "t9",
        amount,
        paid: true,
        body: b"{}",
        archived: None,
    };
    let recorded = shop.engine.record_payment(&callback).unwrap();
    assert_eq!(shop.told(recorded), Err(Refusal::Archived));
    callback.archived = Some(known);
    for verdict in [PaymentVerdict::Late, PaymentVerdict::Repeated] {
        let recorded = shop.engine.record_payment(&callback).unwrap();
        assert_eq!(shop.told(recorded).unwrap().verdict, verdict);
    }
    assert_eq!(shop.engine.pending_refunds(10).len(), 2);
    let shop = shop.reopened();
    for it in shop.engine.pending_refunds(10) {
        let told = shop.engine.refund_settled(it.activity, it.reservation, &it.refund_no).unwrap();
        assert_eq!(shop.told(told).unwrap().status, RefundStatus::Settled);
    }
    shop.reopened();
}

#[test]
fn time_outs_that_are_held_hold_no_publication() {
    let shop = Shop::open(Image::empty(15));
    shop.set(keys::TIMERS_HELD, b"", 0).unwrap();
    shop.engine.serving();
    let publish_at_ms = shop.engine.now_ms() + 50;
    let definition = Definition { publish_at_ms, ..DEFINITION };
    let created = shop.engine.create(None, ACTOR, 1, definition).unwrap();
    let id = shop.told(created).unwrap().id;
    while !shop.engine.activity(id).unwrap().on_sale {
        assert!(shop.engine.now_ms() < publish_at_ms + 10_000, "it is not published");
        shop.engine.pass_time();
        shop.engine.commit().unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn the_log_is_kept_from_further_back_before_a_nearer_place_is_let_go() {
    let shop = Shop::open(Image::empty(14));
    // Each its own record: what is set already is not set again.
    for user in 1..=8 {
        shop.set(&format!("blacklist/user/{user}"), b"{}", 0).unwrap();
    }
    let kept = |engine: &Engine| -> Vec<u64> {
        let sinks = engine.sinks().into_iter();
        sinks.filter(|it| it.name.starts_with("sql-behind")).map(|it| it.confirmed_lsn.0).collect()
    };
    for lsn in [5, 6, 2, 3, 1] {
        shop.engine.keep_for_orders(Lsn(lsn)).unwrap();
        assert_eq!(kept(&shop.engine), [lsn]);
    }
    // As a crash between the two leaves it.
    for (name, lsn) in [("sql-behind", 4), ("sql-behind-2", 5)] {
        shop.engine.register_sink(name, SinkClass::MustDeliver).unwrap();
        shop.engine.sink_confirmed(name, Lsn(lsn));
    }
    shop.engine.keep_for_orders(Lsn(1)).unwrap();
    assert_eq!(kept(&shop.engine), [1]);
    shop.engine.orders_caught_up().unwrap();
    assert_eq!(kept(&shop.engine), [0; 0]);
}
