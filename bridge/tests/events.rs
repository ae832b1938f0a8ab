//! Every event, one after the other, and the rows that it leaves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bridge::follow::{Follower, Step};
use bridge::sql::sink::OrderOptions;
use engine::core::command::{Command, Reserve};
use engine::core::event::{
    Actor, Body, DeadLetterResolution, Definition, Event, Front, PaymentVerdict, Pool, RefundScope,
    RestoreReason, Status,
};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, UserId};
use engine::core::request::RequestHasher;
use wal::CONTROL_SHARD;

use support::history::{ACTOR, DEFINITION, History, activity_id, shard_of};
use support::place::Place;
use support::{HASH_KEY, MemoryHost};

on_each_database!(
    every_event_of_an_activity_is_in_its_tables,
    every_event_of_a_reservation_is_in_its_tables,
    every_event_of_money_is_in_its_tables,
    controls_are_the_blacklist_and_the_audit,
    what_was_taken_over_is_in_its_tables,
);

struct Shop {
    place: Place,
    host: MemoryHost,
    history: History,
    control_seq: u64,
}

impl Shop {
    fn new(place: Place) -> Self {
        let host = MemoryHost::new();
        let history = History::new(host.clone(), 1);
        Self { place, host, history, control_seq: 1_000 }
    }

    /// Follows what has happened, and compares what the rows of each query say.
    async fn shows(&mut self, what: &str, rows: &[(&str, &str)]) {
        self.history.end_frame();
        let options = OrderOptions::default();
        let store = self.place.database().store();
        let mut follower = Follower::meet(&self.host, store, options).await.unwrap();
        while follower.step().await.unwrap() != Step::CaughtUp {}
        for (sql, expected) in rows {
            let found = self.place.rows(sql).await;
            let row = |record: &bridge::sql::store::Record| {
                let texts = record.0.iter().enumerate().map(|(index, value)| {
                    // A dialect may keep text as bytes.
                    record.text(index).map_or_else(|_| value.to_string(), str::to_owned)
                });
                texts.collect::<Vec<_>>().join(" ")
            };
            let found: Vec<_> = found.iter().map(row).collect();
            assert_eq!(found.join("; "), *expected, "{what}: {sql}");
        }
    }

    fn control(&mut self, body: Body<'_>) {
        self.history.end_frame();
        self.control_seq += 1;
        self.host.append(&[(CONTROL_SHARD, self.control_seq, Event { at_ms: 77, body })]);
    }

    fn buy(&mut self, buyer: u64) -> ReservationId {
        let request_id = format!("r{buyer}");
        let (user, request_id) = (UserId::new(buyer).unwrap(), request_id.as_str());
        let request_hash = RequestHasher::new(&HASH_KEY).hash(request_id);
        let front = Front::Http;
        let reserve = Reserve { user, request_id, request_hash, quantity: 2, front };
        self.history.command(0, Command::Reserve(reserve));
        self.history.reservations.last().unwrap().1
    }

    /// An event that moves a reservation's units, made by hand.
    fn moved(
        &mut self,
        id: ReservationId,
        (from, to): (Pool, Pool),
        body: impl FnOnce(Moved) -> Body<'static>,
    ) {
        let activity = activity_id(0);
        let it = self.history.reservation(activity, id);
        let row = self.history.shards[shard_of(activity)].activity(activity).unwrap();
        let figures = row.figures().moved(from, to, it.quantity).unwrap();
        let (held, version) = (row.held(it.user), row.version());
        let moved = Moved { user: it.user, quantity: it.quantity, held, version, figures };
        assert!(self.history.event(body(moved)));
    }
}

struct Moved {
    user: UserId,
    quantity: u32,
    held: u32,
    version: u32,
    figures: engine::core::event::Figures,
}

const FIGURES: &str = "SELECT stock, locked_stock, sold_stock, total_stock \
                       FROM flashsale_activities WHERE id = 30001";
const SWITCHES: &str = "SELECT status, paused, drained FROM flashsale_activities WHERE id = 30001";
const LAST_FLOW: &str = "SELECT change_type, change_qty, before_qty, after_qty, biz_type, biz_id \
                         FROM stock_flows ORDER BY flow_no DESC LIMIT 1";
const LAST_AUDIT: &str = "SELECT action, actor, request_id, subject, quantity \
                          FROM audit ORDER BY audit_no DESC LIMIT 1";
const LAST_CHANGE: &str = "SELECT before_value, after_value, control_key \
                           FROM audit ORDER BY audit_no DESC LIMIT 1";
const ORDER: &str = "SELECT status, user_activity_key, payment_no, paid_at > 0, cancelled_at > 0 \
                     FROM orders";
const PRE_DEDUCTION: &str = "SELECT status, reason, attempts, last_error, ordered_at > 0, \
                             rolled_back_at > 0 FROM flashsale_pre_deductions";
const DEAD_LETTER: &str = "SELECT status, reason, order_status, resolved_at > 0 FROM dead_letters";

async fn every_event_of_an_activity_is_in_its_tables(place: Place) {
    let mut shop = Shop::new(place);
    shop.shows(
        "created, published",
        &[
            (FIGURES, "40 0 0 40"),
            (SWITCHES, "on_sale 0 0"),
            ("SELECT COUNT(*) FROM stock_flows WHERE change_type = 'INIT'", "4"),
            ("SELECT action FROM audit ORDER BY audit_no LIMIT 2", "create; publish"),
        ],
    )
    .await;
    let actor = ACTOR;
    let (paused, running) = (r#"{"paused":true}"#, r#"{"paused":false}"#);
    let (drained, flowing) = (r#"{"drained":true}"#, r#"{"drained":false}"#);
    let (on, off) = (r#"{"status":"on_sale"}"#, r#"{"status":"off_sale"}"#);
    for (command, switches, action, before, after) in [
        (Command::Pause { actor }, "on_sale 1 0", "pause", running, paused),
        (Command::Resume { actor }, "on_sale 0 0", "resume", paused, running),
        (Command::Drain { actor }, "on_sale 0 1", "drain", flowing, drained),
        (Command::Resume { actor }, "on_sale 0 0", "resume", drained, flowing),
        (Command::Unpublish { actor }, "off_sale 0 0", "unpublish", on, off),
        (Command::Publish { actor }, "on_sale 0 0", "publish", off, on),
    ] {
        shop.history.command(0, command);
        let audit = format!("{action} ops req-1 NULL NULL");
        let change = format!("{before} {after} NULL");
        let shown = [(SWITCHES, switches), (LAST_AUDIT, &audit), (LAST_CHANGE, &change)];
        shop.shows(action, &shown).await;
    }
    units_are_added_taken_and_edited(&mut shop).await;
    let activity = activity_id(1);
    assert!(shop.history.event(Body::Archived { activity }));
    let archived = "SELECT id FROM flashsale_activities WHERE archived_at > 0";
    shop.shows("archived", &[(archived, "30002")]).await;
}

async fn units_are_added_taken_and_edited(shop: &mut Shop) {
    let actor = ACTOR;
    shop.history.command(0, Command::Restock { actor, op: "o'p", quantity: 5 });
    shop.shows(
        "restocked",
        &[
            (FIGURES, "45 0 0 45"),
            (LAST_FLOW, "ADJUST 5 40 45 restock 30001:o'p"),
            (LAST_AUDIT, "restock ops req-1 o'p 5"),
            (LAST_CHANGE, r#"{"available":40,"total":40} {"available":45,"total":45} NULL"#),
        ],
    )
    .await;
    shop.history.command(0, Command::Decrease { actor, op: "o'p2", quantity: 3 });
    shop.shows(
        "decreased",
        &[
            (FIGURES, "42 0 0 42"),
            (LAST_FLOW, "ADJUST -3 45 42 decrease 30001:o'p2"),
            (LAST_AUDIT, "decrease ops req-1 o'p2 3"),
        ],
    )
    .await;
    // Before the first sale the units themselves may be edited.
    let ordinal = Ordinal::new(5).unwrap();
    let definition = Definition { start_ms: 1 << 40, ..DEFINITION };
    shop.history.command(4, Command::Create { actor, ordinal, total: 10, definition });
    let definition = Definition { title: "'; --", price: 7, ..definition };
    let edit = Command::Edit { actor, version: None, total: 50, definition };
    shop.history.command(4, edit);
    shop.shows(
        "edited",
        &[
            (
                "SELECT title, price, stock, total_stock FROM flashsale_activities \
                 WHERE id = 30005",
                "'; -- 7 50 50",
            ),
            (LAST_FLOW, "ADJUST 40 10 50 edit 30005:2"),
            (LAST_AUDIT, "edit ops req-1 NULL NULL"),
            (
                "SELECT before_value FROM audit WHERE action = 'edit'",
                &format!(
                    r#"{{"available":10,"price":1999,"title":"{}","total":10,"version":1}}"#,
                    DEFINITION.title
                ),
            ),
            (
                "SELECT after_value FROM audit WHERE action = 'edit'",
                r#"{"available":50,"price":7,"title":"'; --","total":50,"version":2}"#,
            ),
            (
                "SELECT COUNT(*) FROM audit WHERE action = 'create' AND before_value IS NULL \
                 AND after_value LIKE '%\"total\":10,%'",
                "1",
            ),
        ],
    )
    .await;
    shop.buy(1);
    let edit = Command::Edit { actor, version: None, total: 30, definition: DEFINITION };
    shop.history.command(0, edit);
    shop.shows(
        "edited to a lower total",
        &[(FIGURES, "28 2 0 30"), (LAST_FLOW, "ADJUST -12 40 28 edit_decrease 30001:2")],
    )
    .await;
}

async fn every_event_of_a_reservation_is_in_its_tables(place: Place) {
    let mut shop = Shop::new(place);
    let id = shop.buy(1);
    reserved_and_a_dead_letter_for_a_while(&mut shop, id).await;
    given_back_and_reinstated(&mut shop, id).await;
    let timed_out = shop.buy(2);
    let (reason, actor) = (RestoreReason::Timeout, Actor::NONE);
    let restore = Command::Restore { reservation: timed_out, owner: None, reason, actor };
    shop.history.command(0, restore);
    let order = format!("SELECT status FROM orders WHERE purchase_slot = {timed_out}");
    shop.shows("timed out", &[(&order, "timeout"), (FIGURES, "38 0 2 40")]).await;
}

async fn reserved_and_a_dead_letter_for_a_while(shop: &mut Shop, id: ReservationId) {
    let key = format!("1:30001:{id}");
    shop.shows(
        "reserved",
        &[
            (FIGURES, "38 2 0 40"),
            (ORDER, &format!("pending_payment {key} NULL NULL NULL")),
            (PRE_DEDUCTION, "ordered NULL 1 NULL 1 NULL"),
            (LAST_FLOW, &format!("DEDUCT -2 40 38 reservation {id}")),
            (
                "SELECT quantity, amount, title FROM order_items",
                &format!("2 3998 {}", DEFINITION.title),
            ),
        ],
    )
    .await;
    let activity = activity_id(0);
    let note = "no or\\der";
    assert!(shop.history.event(Body::DeadLettered { activity, reservation: id, note }));
    shop.shows(
        "dead-lettered",
        &[
            (ORDER, ""),
            (PRE_DEDUCTION, "dead_letter NULL 1 no or\\der NULL NULL"),
            (DEAD_LETTER, "open no or\\der pending_payment NULL"),
            (FIGURES, "38 2 0 40"),
        ],
    )
    .await;
    let (reservation, actor) = (id, ACTOR);
    let resolution = DeadLetterResolution::Delivered;
    let resolved = Body::DeadLetterResolved { activity, reservation, resolution, actor };
    assert!(shop.history.event(resolved));
    shop.shows(
        "retried",
        &[
            (ORDER, &format!("pending_payment {key} NULL NULL NULL")),
            (PRE_DEDUCTION, "ordered NULL 2 NULL 1 NULL"),
            (DEAD_LETTER, "delivered no or\\der pending_payment 1"),
            (LAST_AUDIT, &format!("dead_letter_delivered ops req-1 {id} NULL")),
            (
                LAST_CHANGE,
                concat!(
                    r#"{"dead_letter":"open","status":"dead_letter"}"#,
                    " ",
                    r#"{"dead_letter":"delivered","status":"ordered"} NULL"#
                ),
            ),
        ],
    )
    .await;
}

async fn given_back_and_reinstated(shop: &mut Shop, id: ReservationId) {
    let activity = activity_id(0);
    let key = format!("1:30001:{id}");
    let (reason, actor) = (RestoreReason::Admin, ACTOR);
    let restore = Command::Restore { reservation: id, owner: None, reason, actor };
    shop.history.command(0, restore);
    shop.shows(
        "restored",
        &[
            (FIGURES, "40 0 0 40"),
            (ORDER, "cancelled NULL NULL NULL 1"),
            (PRE_DEDUCTION, "rolled_back admin 2 NULL 1 1"),
            (LAST_FLOW, &format!("RECOVER 2 38 40 restore {id}")),
            (LAST_AUDIT, &format!("release ops req-1 {id} 2")),
            (
                LAST_CHANGE,
                concat!(
                    r#"{"order_status":"pending_payment","reason":null,"status":"ordered"}"#,
                    " ",
                    r#"{"order_status":"cancelled","reason":"admin","status":"rolled_back"} NULL"#
                ),
            ),
        ],
    )
    .await;
    shop.moved(id, (Pool::Available, Pool::Sold), |it| Body::Reinstated {
        activity,
        reservation: id,
        user: it.user,
        quantity: it.quantity,
        held: it.held + it.quantity,
        version: it.version,
        figures: it.figures,
        payment_no: "P-late",
    });
    shop.shows(
        "reinstated",
        &[
            (FIGURES, "38 0 2 40"),
            (ORDER, &format!("paid {key} P-late 1 NULL")),
            (PRE_DEDUCTION, "ordered NULL 2 NULL 1 NULL"),
            (LAST_FLOW, &format!("DEDUCT -2 40 38 reinstate {id}")),
        ],
    )
    .await;
}

async fn every_event_of_money_is_in_its_tables(place: Place) {
    let mut shop = Shop::new(place);
    let id = shop.buy(1);
    let payment_no = format!("1{:017}01", id.get());
    paid(&mut shop, id, &payment_no).await;
    refused_and_refunded(&mut shop, id, &payment_no).await;
}

async fn paid(shop: &mut Shop, id: ReservationId, payment_no: &str) {
    let (activity, reservation) = (activity_id(0), id);
    let payments = "SELECT payment_no, status, amount, channel, paid_at > 0 FROM payments";
    let (attempt, channel, amount, expires_ms) = (1, "mock", 3_998, 9_000_000);
    let opened =
        Body::PaymentOpened { activity, reservation, attempt, channel, amount, expires_ms };
    assert!(shop.history.event(opened));
    let pending = format!("{payment_no} pending 3998 mock NULL");
    shop.shows("payment opened", &[(payments, &pending)]).await;
    let recorded = |verdict, transaction| Body::PaymentRecorded {
        activity: Some(activity),
        reservation: Some(reservation),
        channel,
        payment_no,
        transaction,
        amount,
        verdict,
        body: b"{\"a\":\"\xff\0'\"}",
    };
    let callbacks = "SELECT verdict, transaction_no, amount, LENGTH(body) FROM payment_callbacks \
                     ORDER BY callback_no";
    assert!(shop.history.event(recorded(PaymentVerdict::Failed, "T1")));
    let failed = format!("{payment_no} failed 3998 mock NULL");
    shop.shows("failed", &[(payments, &failed), (callbacks, "failed T1 3998 11")]).await;
    assert!(shop.history.event(recorded(PaymentVerdict::Accepted, "T2")));
    shop.history.command(0, Command::Confirm { reservation, payment_no });
    let key = format!("1:30001:{id}");
    shop.shows(
        "confirmed",
        &[
            (payments, &format!("{payment_no} paid 3998 mock 1")),
            (callbacks, "failed T1 3998 11; accepted T2 3998 11"),
            (ORDER, &format!("paid {key} {payment_no} 1 NULL")),
            (FIGURES, "38 0 2 40"),
        ],
    )
    .await;
    // One that fits no payment is the control shard's.
    shop.control(Body::PaymentRecorded {
        activity: None,
        reservation: None,
        channel,
        payment_no: "stranger",
        transaction: "T3",
        amount: u64::from(u32::MAX),
        verdict: PaymentVerdict::Unknown,
        body: b"",
    });
    let strangers = "SELECT payment_no, verdict FROM payment_callbacks WHERE activity_id IS NULL";
    shop.shows("a stranger's money", &[(strangers, "stranger unknown")]).await;
}

async fn refused_and_refunded(shop: &mut Shop, id: ReservationId, payment_no: &str) {
    let (activity, reservation) = (activity_id(0), id);
    let key = format!("1:30001:{id}");
    let refunds = "SELECT refund_no, status, scope, amount, restock, free_limit, reason, \
                   last_error, requested_by FROM refunds";
    let user = UserId::new(1).unwrap();
    let requested = |refund_no, restock, free_limit| Body::RefundRequested {
        activity,
        actor: ACTOR,
        reservation,
        user,
        refund_no,
        scope: RefundScope::Order,
        restock,
        free_limit,
        channel: "mock",
        payment_no,
        transaction: "T2",
        amount: 3_998,
        note: "why 限",
    };
    assert!(shop.history.event(requested("R'1", false, false)));
    shop.shows(
        "refund requested",
        &[
            (refunds, "R'1 PENDING order 3998 0 0 why 限 NULL ops"),
            (ORDER, &format!("refunding {key} {payment_no} 1 NULL")),
            (LAST_AUDIT, "refund ops req-1 R'1 NULL"),
            (
                LAST_CHANGE,
                concat!(
                    r#"{"order_status":"paid","refund":null}"#,
                    " ",
                    r#"{"order_status":"refunding","refund":"PENDING"} NULL"#
                ),
            ),
        ],
    )
    .await;
    let (refund_no, note) = ("R'1", "no");
    assert!(shop.history.event(Body::RefundFailed { activity, reservation, refund_no, note }));
    shop.shows(
        "refund failed",
        &[
            (refunds, "R'1 FAILED order 3998 0 0 why 限 no ops"),
            (ORDER, &format!("paid {key} {payment_no} 1 NULL")),
        ],
    )
    .await;
    assert!(shop.history.event(requested("R'1", true, true)));
    shop.moved(id, (Pool::Sold, Pool::Available), |it| Body::RefundSettled {
        activity,
        reservation,
        user,
        held: it.held - it.quantity,
        version: it.version,
        figures: it.figures,
        refund_no: "R'1",
    });
    shop.shows(
        "refund settled",
        &[
            (refunds, "R'1 SETTLED order 3998 1 1 why 限 NULL ops"),
            (ORDER, &format!("refunded NULL {payment_no} 1 NULL")),
            (FIGURES, "40 0 0 40"),
            (LAST_FLOW, &format!("RECOVER 2 38 40 refund {id}:R'1")),
        ],
    )
    .await;
}

async fn controls_are_the_blacklist_and_the_audit(place: Place) {
    let mut shop = Shop::new(place);
    let list = "SELECT kind, value, reason, created_by, expires_at FROM blacklist \
                ORDER BY kind, value";
    let set = |key, value: &'static [u8], expires_ms| Body::ControlSet {
        actor: ACTOR,
        key,
        value,
        expires_ms,
    };
    shop.control(set("blacklist/user/7", "{\"reason\":\"bot's 👟\"}".as_bytes(), 0));
    shop.control(set("blacklist/device/a/b ", b"{}", 99));
    shop.control(set("blacklist/ip/::1", b"not json", 0));
    for other in ["blacklist/account/7", "blacklist/user/", "kill", "limits/rules"] {
        shop.control(set(other, b"{}", 0));
    }
    shop.shows(
        "set",
        &[
            (list, "device a/b   ops 99; ip ::1  ops NULL; user 7 bot's 👟 ops NULL"),
            (LAST_AUDIT, "control_set ops req-1 limits/rules NULL"),
            (LAST_CHANGE, r#"NULL {"value":{}} limits/rules"#),
        ],
    )
    .await;
    // Twice in one batch, then once more in the next: each finds what the one before it left.
    shop.control(set("limits/rules", b"{\"user\":\"1/1s\"}", 0));
    shop.control(set("limits/rules", b"no json", 0));
    let two = "SELECT before_value, after_value, control_key FROM audit \
               WHERE subject = 'limits/rules' ORDER BY audit_no DESC LIMIT 2";
    let last = r#"{"value":{"user":"1/1s"}} {"value":"no json"} limits/rules"#;
    let first = r#"{"value":{}} {"value":{"user":"1/1s"}} NULL"#;
    shop.shows("set twice", &[(two, &format!("{last}; {first}"))]).await;
    shop.control(Body::ControlCleared { actor: ACTOR, key: "limits/rules" });
    let cleared = r#"{"value":"no json"} NULL limits/rules"#;
    shop.shows("cleared", &[(LAST_CHANGE, cleared)]).await;
    shop.control(set("limits/rules", b"1", 0));
    shop.shows("set anew", &[(LAST_CHANGE, r#"NULL {"value":1} limits/rules"#)]).await;
    shop.control(set("blacklist/user/7", b"{\"reason\":\"still\"}", 5));
    shop.control(Body::ControlCleared { actor: ACTOR, key: "blacklist/ip/::1" });
    shop.control(Body::ControlCleared { actor: ACTOR, key: "blacklist/ip/never" });
    shop.shows(
        "changed",
        &[
            (list, "device a/b   ops 99; user 7 still ops 5"),
            (LAST_AUDIT, "control_clear ops req-1 blacklist/ip/never NULL"),
            (LAST_CHANGE, "NULL NULL blacklist/ip/never"),
            (
                "SELECT before_value, after_value FROM audit \
                 WHERE control_key = 'blacklist/user/7'",
                r#"{"value":{"reason":"bot's 👟"}} {"expires_at":5,"value":{"reason":"still"}}"#,
            ),
        ],
    )
    .await;
}

async fn what_was_taken_over_is_in_its_tables(place: Place) {
    let mut shop = Shop::new(place);
    let activity = ActivityId::new(40_000).unwrap();
    let figures =
        |available, locked, sold| engine::core::event::Figures { available, locked, sold };
    assert!(shop.history.event(Body::ActivityAdopted {
        activity,
        ordinal: Ordinal::new(9).unwrap(),
        version: 3,
        figures: figures(20, 0, 5),
        on_sale: true,
        definition: DEFINITION,
    }));
    let statuses = [
        (Status::Reserved, figures(18, 2, 5)),
        (Status::Confirmed, figures(16, 2, 7)),
        (Status::RolledBack(RestoreReason::Timeout), figures(16, 2, 7)),
    ];
    for (index, (status, figures)) in (1u64..).zip(statuses) {
        let order_no = format!("old-{index}");
        let request_id = format!("q{index}");
        let held = if matches!(status, Status::RolledBack(_)) { 0 } else { 2 };
        assert!(
            shop.history.event(Body::ReservationAdopted {
                activity,
                reservation: ReservationId::new(index).unwrap(),
                old_id: 1 << 40,
                order_no: &order_no,
                status,
                user: UserId::new(index).unwrap(),
                quantity: 2,
                created_ms: 5,
                updated_ms: 6,
                held,
                figures,
                request_id: &request_id,
                request_hash: u128::from(index),
                payment_no: if status == Status::Confirmed { "P-old" } else { "" },
            }),
            "{status:?}"
        );
    }
    let orders = "SELECT order_no, status, payment_no FROM orders ORDER BY order_no";
    let units = "SELECT stock, locked_stock, sold_stock, total_stock, status, version \
                 FROM flashsale_activities WHERE id = 40000";
    shop.shows(
        "adopted",
        &[
            (orders, "old-1 pending_payment NULL; old-2 paid P-old; old-3 timeout NULL"),
            (units, "16 2 7 25 on_sale 3"),
            (
                "SELECT status FROM flashsale_pre_deductions ORDER BY id",
                "ordered; ordered; rolled_back",
            ),
        ],
    )
    .await;
}
