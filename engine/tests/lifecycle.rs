//! The life of an order: every stage against every step, and all of them at once from many threads.
//!
//! `SLUICE_RACES` says how many commands race; the floor of a full run is 1,000,000.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../sim/src/counts.rs"]
mod counts;

use std::collections::BTreeMap;

use engine::core::apply::apply;
use engine::core::command::{
    Command, OpenPayment, RecordPayment, Refusal, RequestRefund, Reserve, Status,
};
use engine::core::decide::{Outcome, decide};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Front, LatePayment, PaymentVerdict, RefundScope,
    RestoreReason,
};
use engine::core::ids::{ActivityId, Ordinal, Position, ReservationId, SkuId, UserId};
use engine::core::lifecycle::Stage;
use engine::core::limits::TIME_MS_MAX;
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use engine::core::side::RefundStatus;
use engine::{Busy, Callback, Engine, EngineOptions, Pending, Recorded};

const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "r" };
const NOW_MS: u64 = 1_000_000;

const DEFINITION: Definition<'static> = Definition {
    sku: SkuId::new(20_001).unwrap(),
    title: "Sale",
    price: 100,
    per_user_limit: 2,
    start_ms: 0,
    end_ms: TIME_MS_MAX,
    payment_ttl_ms: 60_000,
    late_payment: LatePayment::ReinstateOrRefund,
    dead_letter: DeadLetterPolicy::Rollback,
    publish_at_ms: 0,
};

const ACTIVITY: ActivityId = ActivityId::new(1).unwrap();
const BUYER: UserId = UserId::new(1).unwrap();

fn reservation() -> ReservationId {
    ReservationId::compose(Ordinal::new(1).unwrap(), Position::new(1).unwrap())
}

fn confirm(payment_no: &str) -> Command<'_> {
    Command::Confirm { reservation: reservation(), payment_no }
}

fn give_back(reason: RestoreReason) -> Command<'static> {
    let (owner, actor) = (None, Actor::NONE);
    Command::Restore { reservation: reservation(), owner, reason, actor }
}

fn open() -> Command<'static> {
    let (channel, ttl_ms) = ("mock", 1_000);
    Command::OpenPayment(OpenPayment { reservation: reservation(), owner: BUYER, channel, ttl_ms })
}

fn pay<'a>(payment_no: &'a str, transaction: &'a str) -> Command<'a> {
    Command::RecordPayment(RecordPayment {
        reservation: reservation(),
        channel: "mock",
        payment_no,
        transaction,
        amount: 100,
        paid: true,
        body: b"",
        refund_no: "auto-1",
        archived: None,
    })
}

fn refund(refund_no: &str) -> Command<'_> {
    let (restock, free_limit, note, actor, archived) = (true, true, "", ACTOR, None);
    let reservation = reservation();
    Command::RequestRefund(RequestRefund {
        reservation,
        refund_no,
        restock,
        free_limit,
        note,
        actor,
        archived,
    })
}

fn settle(refund_no: &str) -> Command<'_> {
    Command::SettleRefund { reservation: reservation(), refund_no }
}

fn fail(refund_no: &str) -> Command<'_> {
    Command::FailRefund { reservation: reservation(), refund_no, note: "no" }
}

fn run(shard: &mut Shard, command: &Command<'_>) -> Vec<&'static str> {
    match decide(shard, ACTIVITY, command, NOW_MS) {
        Outcome::Accepted { events } => {
            let mut told = Vec::new();
            for event in events.iter() {
                let seq = shard.applied_seq() + 1;
                apply(shard, event, seq).unwrap();
                told.push(name(&event.body));
            }
            told
        }
        Outcome::Repeated(_) => vec!["repeat"],
        Outcome::Refused(refusal) => vec![refused(refusal)],
        Outcome::NothingDue(_) => vec!["nothing due"],
    }
}

fn name(body: &Body<'_>) -> &'static str {
    match body {
        Body::Confirmed { .. } => "confirmed",
        Body::Restored { .. } => "restored",
        Body::Reinstated { .. } => "reinstated",
        Body::PaymentOpened { .. } => "opened",
        Body::RefundRequested { scope: RefundScope::Order, .. } => "refund asked",
        Body::RefundRequested { scope: RefundScope::Payment, .. } => "money back",
        Body::RefundSettled { .. } => "settled",
        Body::RefundFailed { .. } => "failed",
        Body::DeadLettered { .. } => "dead",
        Body::DeadLetterResolved { .. } => "closed",
        Body::PaymentRecorded { verdict, .. } => match verdict {
            PaymentVerdict::Accepted => "accepted",
            PaymentVerdict::Late => "late",
            PaymentVerdict::SecondPayment => "second",
            _ => "other verdict",
        },
        _ => "set up",
    }
}

fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::PaidByAnother => "paid by another",
        Refusal::AlreadyPaid => "already paid",
        Refusal::RolledBack => "rolled back",
        Refusal::NotPaid => "not paid",
        Refusal::RefundInProgress => "refund in progress",
        Refusal::AlreadyRefunded => "already refunded",
        Refusal::UnknownRefund => "no refund",
        _ => "other refusal",
    }
}

/// A shard whose one order is at `stage`. A payment of it was opened first.
fn at(stage: Stage) -> Shard {
    let requests = RequestHasher::new(&[3; 16]);
    let mut shard = Shard::new(ShardSeed { table_seed: 11, requests });
    let (ordinal, total, definition) = (Ordinal::new(1).unwrap(), 2, DEFINITION);
    run(&mut shard, &Command::Create { actor: ACTOR, ordinal, total, definition });
    run(&mut shard, &Command::Publish { actor: ACTOR });
    let request_hash = requests.hash("a");
    let (request_id, quantity, front) = ("a", 1, Front::Api);
    let reserve = Reserve { user: BUYER, request_id, request_hash, quantity, front };
    run(&mut shard, &Command::Reserve(reserve));
    run(&mut shard, &open());
    let way: &[Command<'_>] = match stage {
        Stage::Reserved => &[],
        Stage::Paid => &[pay("x01", "t0")],
        Stage::Refunding => &[pay("x01", "t0"), refund("f1")],
        Stage::Refunded => &[pay("x01", "t0"), refund("f1"), settle("f1")],
        Stage::RolledBack => &[give_back(RestoreReason::Cancelled)],
        Stage::Dead => &[give_back(RestoreReason::DeadLetter)],
    };
    for command in way {
        run(&mut shard, command);
    }
    assert_eq!(stage_of(&shard), stage);
    shard
}

fn stage_of(shard: &Shard) -> Stage {
    let status = shard.reservation(ACTIVITY, reservation()).unwrap().status;
    Stage::of(shard.activity(ACTIVITY).unwrap(), reservation(), status)
}

/// For each stage, what each of the steps comes to, and where it leads.
#[test]
fn every_stage_takes_every_step_as_the_table_says() {
    use Stage::{Dead, Paid, Refunded, Refunding, Reserved, RolledBack};
    let steps = [
        confirm("x01"),
        confirm("other"),
        pay("x01", "t1"),
        open(),
        give_back(RestoreReason::Api),
        refund("f1"),
        refund("f2"),
        settle("f1"),
        fail("f1"),
    ];
    let (late, second): (&[&str], &[&str]) = (&["late", "money back"], &["second", "money back"]);
    type Cell = (&'static [&'static str], Stage);
    #[rustfmt::skip]
    let table: [(Stage, [Cell; 9]); 6] = [
        (Reserved, [(&["confirmed"], Paid), (&["confirmed"], Paid),
            (&["accepted", "confirmed"], Paid), (&["repeat"], Reserved),
            (&["restored"], RolledBack), (&["not paid"], Reserved), (&["not paid"], Reserved),
            (&["no refund"], Reserved), (&["no refund"], Reserved)]),
        (Paid, [(&["repeat"], Paid), (&["paid by another"], Paid), (second, Paid),
            (&["already paid"], Paid), (&["already paid"], Paid), (&["refund asked"], Refunding),
            (&["refund asked"], Refunding), (&["no refund"], Paid), (&["no refund"], Paid)]),
        (Refunding, [(&["repeat"], Refunding), (&["paid by another"], Refunding),
            (second, Refunding), (&["already paid"], Refunding), (&["already paid"], Refunding),
            (&["repeat"], Refunding), (&["refund in progress"], Refunding),
            (&["settled"], Refunded), (&["failed"], Paid)]),
        (Refunded, [(&["repeat"], Refunded), (&["paid by another"], Refunded), (second, Refunded),
            (&["already paid"], Refunded), (&["already paid"], Refunded), (&["repeat"], Refunded),
            (&["already refunded"], Refunded), (&["repeat"], Refunded),
            (&["already refunded"], Refunded)]),
        (RolledBack, [(&["rolled back"], RolledBack), (&["rolled back"], RolledBack),
            (&["accepted", "reinstated"], Paid), (&["rolled back"], RolledBack),
            (&["repeat"], RolledBack), (&["not paid"], RolledBack), (&["not paid"], RolledBack),
            (&["no refund"], RolledBack), (&["no refund"], RolledBack)]),
        (Dead, [(&["rolled back"], Dead), (&["rolled back"], Dead), (late, Dead),
            (&["rolled back"], Dead), (&["repeat"], Dead), (&["not paid"], Dead),
            (&["not paid"], Dead), (&["no refund"], Dead), (&["no refund"], Dead)]),
    ];
    assert_eq!(table.map(|(stage, _)| stage), Stage::ALL);
    for (stage, cells) in table {
        for (step, (told, leads_to)) in steps.iter().zip(cells) {
            let mut shard = at(stage);
            assert_eq!(run(&mut shard, step), told, "{stage:?}: {step:?}");
            assert_eq!(stage_of(&shard), leads_to, "{stage:?}: {step:?}");
            shard.activity(ACTIVITY).unwrap().audit().unwrap();
        }
    }
}

/// Late money in every state that decides on it.
#[test]
fn late_money_is_honoured_only_where_units_limit_policy_and_pause_allow() {
    let others = |shard: &mut Shard, user: u64, quantity: u32, request_id: &str| {
        let request_hash = shard.requests().hash(request_id);
        let (user, front) = (UserId::new(user).unwrap(), Front::Api);
        let reserve = Reserve { user, request_id, request_hash, quantity, front };
        run(shard, &Command::Reserve(reserve));
    };
    let honoured: &[&str] = &["accepted", "reinstated"];
    let late: &[&str] = &["late", "money back"];
    type Before<'a> = &'a dyn Fn(&mut Shard);
    let cases: [(&str, Before<'_>, &[&str]); 7] = [
        ("nothing", &|_| (), honoured),
        ("sold out", &|shard| others(shard, 2, 2, "b"), late),
        ("limit", &|shard| others(shard, 1, 2, "b"), late),
        ("paused", &|shard| drop(run(shard, &Command::Pause { actor: ACTOR })), late),
        ("drained", &|shard| drop(run(shard, &Command::Drain { actor: ACTOR })), honoured),
        ("off sale", &|shard| drop(run(shard, &Command::Unpublish { actor: ACTOR })), honoured),
        (
            "a dead letter",
            &|shard| {
                let (reservation, failed_seq, note) = (reservation(), 1, "");
                run(shard, &Command::DeadLetter { reservation, failed_seq, note });
            },
            late,
        ),
    ];
    for (name, before, told) in cases {
        let mut shard = at(Stage::RolledBack);
        before(&mut shard);
        assert_eq!(run(&mut shard, &pay("x01", "t1")), told, "{name}");
    }
}

/// A generator that needs no more than a seed: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (it ^ (it >> 31)) % bound
    }
}

const THREADS: u64 = 4;
const ORDERS: u64 = 2_000;

/// What is not yet durable of the answers that count.
const WAITING_MAX: usize = 256;

/// What a thread was told, by reservation: payments that were accepted, and such that go back.
#[derive(Default)]
struct Told {
    accepted: BTreeMap<ReservationId, u64>,
    money_back: u64,
    waiting: Vec<(ReservationId, Pending<Result<Recorded, Refusal>>)>,
}

impl Told {
    fn hear(&mut self) {
        for (id, pending) in self.waiting.drain(..) {
            let recorded = pending.wait().unwrap().unwrap();
            if recorded.verdict == PaymentVerdict::Accepted {
                *self.accepted.entry(id).or_default() += 1;
            }
            self.money_back += u64::from(recorded.refund_no.is_some());
        }
    }
}

/// One command of the race; `Busy` where there is no room for it now.
fn race(
    engine: &Engine,
    random: &mut Random,
    orders: &[(ReservationId, UserId, String)],
    told: &mut Told,
) -> Result<(), Busy> {
    let index = usize::try_from(random.below(orders.len() as u64)).unwrap();
    let (id, user, order_no) = &orders[index];
    let id = *id;
    let refund_no = format!("f{}", random.below(2));
    match random.below(10) {
        0 | 1 => drop(engine.open_payment(id, *user, "mock", 600_000)?),
        2..=4 => {
            let payment_no = &format!("{order_no}{:02}", 1 + random.below(2));
            let transaction = &format!("t{}", random.below(4));
            let amount = if random.below(20) == 0 { 99 } else { 100 };
            let (channel, paid, body) = ("mock", random.below(10) > 0, &b"{}"[..]);
            let archived = None;
            let callback =
                Callback { channel, payment_no, transaction, amount, paid, body, archived };
            told.waiting.push((id, engine.record_payment(&callback)?));
            if told.waiting.len() == WAITING_MAX {
                told.hear();
            }
        }
        5 => drop(engine.restore(id, Some(*user), RestoreReason::Cancelled, Actor::NONE)?),
        6 => {
            let stranger = UserId::new(user.get() + 1);
            drop(engine.restore(id, stranger, RestoreReason::Cancelled, Actor::NONE)?);
        }
        7 => {
            let restock = random.below(2) == 0;
            let (free_limit, note, actor, archived) = (restock, "", ACTOR, None);
            let reservation = id;
            let request = RequestRefund {
                reservation,
                refund_no: &refund_no,
                restock,
                free_limit,
                note,
                actor,
                archived,
            };
            drop(engine.refund_request(&request)?);
        }
        8 => drop(engine.refund_settled(activity_of(engine, id), id, &refund_no)?),
        _ => drop(engine.refund_failed(activity_of(engine, id), id, &refund_no, "no")?),
    }
    Ok(())
}

fn activity_of(engine: &Engine, id: ReservationId) -> ActivityId {
    engine.activities().first().filter(|it| it.ordinal == id.ordinal()).unwrap().id
}

#[test]
fn all_that_can_happen_to_orders_at_once_ends_in_one_allowed_state() {
    let commands: u64 = std::env::var("SLUICE_RACES").map_or(20_000, |it| it.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::new(dir.path());
    options.on_fatal = Box::new(|_| ());
    let (engine, _) = Engine::open(options).unwrap();
    let total = u32::try_from(ORDERS).unwrap();
    let id = engine.create(None, ACTOR, total, DEFINITION).unwrap().wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    let orders: Vec<_> = (1..=ORDERS)
        .map(|buyer| {
            let user = UserId::new(buyer).unwrap();
            let bought = engine.reserve(id, user, "a", 1, Front::Api).unwrap().wait().unwrap();
            let view = bought.unwrap().reservation;
            (view.reservation.id, user, view.order_no.to_string())
        })
        .collect();
    let told: Vec<Told> = std::thread::scope(|scope| {
        let racers = (0..THREADS).map(|thread| {
            let (engine, orders) = (&engine, &orders);
            scope.spawn(move || {
                let (mut random, mut told) = (Random(thread), Told::default());
                for _ in 0..commands / THREADS {
                    match race(engine, &mut random, orders, &mut told) {
                        Ok(()) => {}
                        Err(Busy::Overloaded) => std::thread::yield_now(),
                        Err(busy) => panic!("{busy}"),
                    }
                }
                told.hear();
                told
            })
        });
        let racers: Vec<_> = racers.collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let (mut sold, mut locked) = (0, 0);
    for (reservation, ..) in &orders {
        let view = engine.reservation(*reservation).unwrap().wait().unwrap().unwrap();
        let times: u64 = told.iter().filter_map(|it| it.accepted.get(reservation)).sum();
        let paid = view.reservation.status == Status::Confirmed;
        assert_eq!(times, u64::from(paid), "an order is paid once, and stays paid");
        locked += u32::from(view.reservation.status == Status::Reserved);
        sold += u32::from(paid);
    }
    counts::note("lifecycle", &[("racing commands", commands)]);
    let figures = engine.activity(id).unwrap().figures;
    assert_eq!((figures.total(), figures.locked), (ORDERS, locked));
    assert!(figures.sold <= sold, "a refund may have put units back on sale");
    // Nobody settles those: each payment that paid nothing goes back once, under its own number.
    let strays = engine.pending_refunds(usize::MAX);
    let strays = strays.iter().filter(|it| it.scope == RefundScope::Payment).count();
    assert_eq!(strays as u64, told.iter().map(|it| it.money_back).sum::<u64>());
    let digest = engine.digest();
    engine.close().unwrap();
    drop(engine);
    let report = engine::verify(dir.path()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let (engine, _) = Engine::open(EngineOptions::new(dir.path())).unwrap();
    assert_eq!(engine.digest(), digest, "W14");
}

#[test]
fn a_refund_refused_and_asked_again_is_settled_once() {
    let mut shard = at(Stage::Refunding);
    for (step, told) in [
        (fail("f1"), "failed"),
        (fail("f1"), "repeat"),
        (settle("f1"), "other refusal"),
        (refund("f1"), "refund asked"),
        (settle("f1"), "settled"),
        (settle("f1"), "repeat"),
    ] {
        assert_eq!(run(&mut shard, &step), [told], "{step:?}");
    }
    let refund = shard.refund(ACTIVITY, reservation(), "f1").unwrap();
    assert_eq!(refund.status, RefundStatus::Settled);
}
