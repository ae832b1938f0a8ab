//! Every kind of event, applied: what it moves, what it refuses, what it leaves alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use engine::core::apply::{ApplyError, apply};
use engine::core::codec;
use engine::core::command::{Answer, Command, Refusal, Reserve};
use engine::core::control::{Control, ControlError};
use engine::core::decide::{Outcome, Purchase, decide, reserve};
use engine::core::digest::digest;
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, DeadLetterResolution, DecreaseKey, Definition, Event, Figures,
    Front, LatePayment, PaymentVerdict, RefundScope, RestoreReason, ShardMarks, Status,
};
use engine::core::ids::{ActivityId, Ordinal, Position, ReservationId, SkuId, UserId};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use engine::core::side::RefundStatus;
use proptest::prelude::*;
use proptest::sample::Index;

const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "req" };
const NOW_MS: u64 = 1_000_000;
const TTL_MS: u64 = 60_000;

const DEFINITION: Definition<'static> = Definition {
    sku: SkuId::new(20_001).unwrap(),
    title: "Sale",
    price: 100,
    per_user_limit: 2,
    start_ms: 0,
    end_ms: 10_000_000,
    payment_ttl_ms: TTL_MS,
    late_payment: LatePayment::ReinstateOrRefund,
    dead_letter: DeadLetterPolicy::Rollback,
    publish_at_ms: 0,
};

fn activity() -> ActivityId {
    ActivityId::new(30_001).unwrap()
}

fn user(number: u64) -> UserId {
    UserId::new(number).unwrap()
}

/// The reservation accepted at `position`.
fn own(position: u32) -> ReservationId {
    ReservationId::compose(Ordinal::new(5).unwrap(), Position::new(position).unwrap())
}

/// A reservation that an older system numbered.
fn old(number: u64) -> ReservationId {
    ReservationId::new(number).unwrap()
}

const fn units(available: u32, locked: u32, sold: u32) -> Figures {
    Figures { available, locked, sold }
}

/// A shard with its log.
struct Sale {
    shard: Shard,
    log: Vec<(u8, Vec<u8>)>,
    now_ms: u64,
}

impl Sale {
    /// An activity of ten units, on sale.
    fn new() -> Self {
        let mut sale = Self::empty();
        let (ordinal, total) = (Ordinal::new(5).unwrap(), 10);
        sale.run(&Command::Create { actor: ACTOR, ordinal, total, definition: DEFINITION });
        sale.run(&Command::Publish { actor: ACTOR });
        sale
    }

    fn empty() -> Self {
        let shard = Shard::new(ShardSeed { table_seed: 11, requests: requests() });
        Self { shard, log: Vec::new(), now_ms: NOW_MS }
    }

    fn decide<'a>(&self, command: &Command<'a>) -> Outcome<'a> {
        decide(&self.shard, activity(), command, self.now_ms)
    }

    /// Runs a command that must be accepted.
    fn run(&mut self, command: &Command<'_>) {
        let Outcome::Accepted { events } = self.decide(command) else {
            panic!("{command:?}: {:?}", self.decide(command));
        };
        for event in events.iter() {
            self.append(event).unwrap();
        }
    }

    fn append(&mut self, event: &Event<'_>) -> Result<(), ApplyError> {
        let next_seq = self.shard.applied_seq() + 1;
        apply(&mut self.shard, event, next_seq)?;
        // Every test goes on from what a snapshot would hold: nothing in it may be missing. (One
        // test appends tens of thousands.)
        if next_seq < 100 {
            self.shard = support::reloaded(&self.shard, next_seq);
        }
        let mut bytes = Vec::new();
        codec::encode(event, &mut bytes);
        self.log.push((codec::kind(&event.body), bytes));
        Ok(())
    }

    fn event(&mut self, body: Body<'_>) -> Result<(), ApplyError> {
        self.append(&Event { at_ms: self.now_ms, body })
    }

    fn purchase<'a>(&self, buyer: u64, request_id: &'a str, quantity: u32) -> Purchase<'a> {
        let request_hash = self.shard.requests().hash(request_id);
        let (user, front) = (user(buyer), Front::Http);
        let command = Reserve { user, request_id, request_hash, quantity, front };
        reserve(&self.shard, activity(), &command, self.now_ms)
    }

    fn buy(&mut self, buyer: u64, request_id: &str, quantity: u32) {
        let Purchase::Accepted(_, event) = self.purchase(buyer, request_id, quantity) else {
            panic!("{:?}", self.purchase(buyer, request_id, quantity));
        };
        self.append(&event).unwrap();
    }

    fn figures(&self) -> Figures {
        self.shard.activity(activity()).unwrap().figures()
    }

    fn held(&self, buyer: u64) -> u32 {
        self.shard.activity(activity()).unwrap().held(user(buyer))
    }

    fn status(&self, id: ReservationId) -> Status {
        self.shard.reservation(activity(), id).unwrap().status
    }

    fn refund_status(&self, id: ReservationId) -> RefundStatus {
        self.shard.activity(activity()).unwrap().refund(id).unwrap().1.status
    }

    fn audit(&self) {
        for (_, activity) in self.shard.activities() {
            activity.audit().unwrap();
        }
    }
}

fn confirm(reservation: ReservationId, payment_no: &str) -> Command<'_> {
    Command::Confirm { reservation, payment_no }
}

fn cancel(reservation: ReservationId) -> Command<'static> {
    restore(reservation, RestoreReason::Cancelled)
}

fn restore(reservation: ReservationId, reason: RestoreReason) -> Command<'static> {
    Command::Restore { reservation, owner: None, reason, actor: Actor::NONE }
}

fn refund_requested(restock: bool, free_limit: bool) -> Body<'static> {
    Body::RefundRequested {
        activity: activity(),
        actor: ACTOR,
        reservation: own(1),
        user: user(1),
        refund_no: "f1",
        scope: RefundScope::Order,
        restock,
        free_limit,
        channel: "",
        payment_no: "",
        transaction: "",
        amount: 100,
        note: "",
    }
}

fn refund_settled(held: u32, figures: Figures) -> Body<'static> {
    Body::RefundSettled {
        activity: activity(),
        reservation: own(1),
        user: user(1),
        held,
        version: 1,
        figures,
        refund_no: "f1",
    }
}

/// The requests of adopted reservations, by number.
const REQUESTS: [&str; 4] = ["", "old-1", "old-2", "old-3"];

fn requests() -> RequestHasher {
    RequestHasher::new(&[3; 16])
}

fn adopted(number: u64, status: Status, held: u32, figures: Figures) -> Body<'static> {
    Body::ReservationAdopted {
        activity: activity(),
        reservation: old(number),
        old_id: number,
        order_no: "OLD-1",
        status,
        user: user(9),
        quantity: 1,
        created_ms: NOW_MS - 5_000 + number,
        updated_ms: NOW_MS,
        held,
        figures,
        request_id: REQUESTS[usize::try_from(number).unwrap()],
        request_hash: requests().hash(REQUESTS[usize::try_from(number).unwrap()]),
        payment_no: if status == Status::Confirmed { "p-old" } else { "" },
    }
}

#[test]
fn a_refund_moves_units_and_limit_only_as_asked_and_only_once_settled() {
    let cases = [
        ((false, false), 1, units(9, 0, 1)),
        ((false, true), 0, units(9, 0, 1)),
        ((true, false), 1, units(10, 0, 0)),
        ((true, true), 0, units(10, 0, 0)),
    ];
    for ((restock, free_limit), held, figures) in cases {
        let mut sale = Sale::new();
        sale.buy(1, "r1", 1);
        sale.run(&confirm(own(1), "p1"));
        sale.event(refund_requested(restock, free_limit)).unwrap();
        assert_eq!((sale.held(1), sale.figures()), (1, units(9, 0, 1)));
        sale.event(refund_settled(held, figures)).unwrap();
        assert_eq!((sale.held(1), sale.figures()), (held, figures));
        assert_eq!(sale.refund_status(own(1)), RefundStatus::Settled);
        assert_eq!(sale.status(own(1)), Status::Confirmed);
        sale.audit();
    }
}

#[test]
fn a_refund_is_asked_again_only_after_it_failed() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let unpaid = ApplyError::Status { reservation: own(1), status: Status::Reserved };
    assert_eq!(sale.event(refund_requested(true, true)), Err(unpaid));
    sale.run(&confirm(own(1), "p1"));
    sale.event(refund_requested(true, true)).unwrap();
    assert_eq!(sale.event(refund_requested(true, true)), Err(ApplyError::Refund(own(1))));
    let failed =
        Body::RefundFailed { activity: activity(), reservation: own(1), refund_no: "f1", note: "" };
    sale.event(failed).unwrap();
    assert_eq!(sale.event(failed), Err(ApplyError::Refund(own(1))));
    assert_eq!(sale.figures(), units(9, 0, 1));
    sale.event(refund_requested(true, true)).unwrap();
    sale.event(refund_settled(0, units(10, 0, 0))).unwrap();
    assert_eq!(sale.event(refund_requested(true, true)), Err(ApplyError::Refund(own(1))));
}

fn reinstated(held: u32, figures: Figures) -> Body<'static> {
    Body::Reinstated {
        activity: activity(),
        reservation: own(1),
        user: user(1),
        quantity: 1,
        held,
        version: 1,
        figures,
        payment_no: "p1",
    }
}

#[test]
fn late_money_takes_the_units_again_and_the_reservation_is_paid() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    sale.run(&cancel(own(1)));
    sale.event(reinstated(1, units(9, 0, 1))).unwrap();
    assert_eq!((sale.held(1), sale.figures()), (1, units(9, 0, 1)));
    assert_eq!(sale.status(own(1)), Status::Confirmed);
    assert_eq!(
        sale.event(reinstated(2, units(8, 0, 2))),
        Err(ApplyError::Status { reservation: own(1), status: Status::Confirmed })
    );
    sale.audit();
}

#[test]
fn late_money_is_not_honoured_above_the_limit_or_for_a_dead_letter() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    sale.run(&cancel(own(1)));
    sale.buy(1, "r2", 2);
    let above = sale.event(reinstated(3, units(7, 2, 1))).unwrap_err();
    assert!(matches!(above, ApplyError::Held { present: 2, carried: 3, .. }));

    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let reason = RestoreReason::DeadLetter;
    sale.run(&restore(own(1), reason));
    let status = Status::RolledBack(reason);
    let dead = ApplyError::Status { reservation: own(1), status };
    assert_eq!(sale.event(reinstated(1, units(9, 0, 1))), Err(dead));
}

#[test]
fn a_dead_letter_is_opened_once_and_closed_once() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let opened =
        Body::DeadLettered { activity: activity(), reservation: own(1), note: "no address" };
    let closed = |resolution| Body::DeadLetterResolved {
        activity: activity(),
        reservation: own(1),
        resolution,
        actor: Actor::NONE,
    };
    let delivered = closed(DeadLetterResolution::Delivered);
    let rolled_back = closed(DeadLetterResolution::RolledBack);
    assert_eq!(sale.event(delivered), Err(ApplyError::DeadLetter(own(1))));
    sale.event(opened).unwrap();
    assert!(sale.shard.activity(activity()).unwrap().dead_letter(own(1)).unwrap().is_open());
    assert_eq!(sale.event(opened), Err(ApplyError::DeadLetter(own(1))));
    let reserved = ApplyError::Status { reservation: own(1), status: Status::Reserved };
    assert_eq!(sale.event(rolled_back), Err(reserved), "its units are still locked");
    let reason = RestoreReason::DeadLetter;
    sale.run(&restore(own(1), reason));
    assert_eq!(sale.event(rolled_back), Err(ApplyError::DeadLetter(own(1))), "it went with them");
    assert_eq!(sale.event(opened), Err(ApplyError::DeadLetter(own(1))), "that stays so");
    assert!(!sale.shard.activity(activity()).unwrap().dead_letter(own(1)).unwrap().is_open());
}

/// An activity of four adoptable units, one sold long ago, with two adopted reservations.
fn adopting() -> Sale {
    let mut sale = Sale::empty();
    sale.event(Body::ActivityAdopted {
        activity: activity(),
        ordinal: Ordinal::new(5).unwrap(),
        version: 3,
        figures: units(4, 0, 1),
        on_sale: true,
        definition: Definition { per_user_limit: 3, ..DEFINITION },
    })
    .unwrap();
    sale.event(adopted(1, Status::Reserved, 1, units(3, 1, 1))).unwrap();
    sale.event(adopted(2, Status::Confirmed, 2, units(2, 1, 2))).unwrap();
    sale.event(adopted(3, Status::RolledBack(RestoreReason::Admin), 2, units(2, 1, 2))).unwrap();
    sale.audit();
    sale
}

#[test]
fn adopted_reservations_live_on_under_their_own_ids() {
    let mut sale = adopting();
    assert_eq!(sale.purchase(9, "old-1", 1), Purchase::Replayed(old(1)));
    assert_eq!(sale.purchase(9, "old-1", 2), Purchase::Refused(Refusal::RequestIdReused));
    assert_eq!(sale.purchase(9, "new", 2), Purchase::Refused(Refusal::LimitReached));
    sale.buy(9, "new", 1);
    sale.run(&confirm(own(1), "p1"));
    assert_eq!(sale.purchase(9, "new", 1), Purchase::Replayed(own(1)));
    assert_eq!(sale.shard.reservation(activity(), old(2)).unwrap().payment_no, "p-old");
    sale.run(&cancel(old(1)));
    assert_eq!(sale.held(9), 2);
    assert_eq!(sale.figures(), units(2, 0, 3));
    sale.audit();
}

#[test]
fn what_was_accepted_first_expires_first_adopted_or_not() {
    let mut sale = adopting();
    sale.buy(1, "r1", 1);
    let adopted_due_ms = NOW_MS - 5_000 + 1 + TTL_MS;
    let expire = Command::Expire { serving_since_ms: 0 };
    assert_eq!(sale.decide(&expire), Outcome::NothingDue(Some(adopted_due_ms)));
    sale.now_ms = adopted_due_ms;
    sale.run(&expire);
    assert_eq!(sale.status(old(1)), Status::RolledBack(RestoreReason::Timeout));
    assert_eq!(sale.decide(&expire), Outcome::NothingDue(Some(NOW_MS + TTL_MS)));
    sale.now_ms = NOW_MS + TTL_MS;
    sale.run(&expire);
    assert_eq!(sale.status(own(1)), Status::RolledBack(RestoreReason::Timeout));
    assert_eq!(sale.decide(&expire), Outcome::NothingDue(None));
    sale.audit();
}

#[test]
fn nothing_expires_within_the_grace_after_a_start() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let serving_since_ms = NOW_MS + 10 * TTL_MS;
    sale.now_ms = serving_since_ms + TTL_MS - 1;
    let expire = Command::Expire { serving_since_ms };
    assert_eq!(sale.decide(&expire), Outcome::NothingDue(Some(serving_since_ms + TTL_MS)));
    assert_eq!(
        sale.shard.next_due(serving_since_ms),
        Some((serving_since_ms + TTL_MS, activity()))
    );
    sale.now_ms += 1;
    sale.run(&expire);
    assert_eq!(sale.shard.next_due(serving_since_ms), None);
    assert_eq!(sale.shard.due_ms_min(), u64::MAX);
}

#[test]
fn an_archived_activity_leaves_a_tombstone_that_answers_ended() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let archived = Body::Archived { activity: activity() };
    assert_eq!(sale.event(archived), Err(ApplyError::Unsettled(activity())));
    sale.run(&confirm(own(1), "p1"));
    sale.event(refund_requested(true, true)).unwrap();
    assert_eq!(sale.event(archived), Err(ApplyError::Unsettled(activity())), "a refund is open");
    sale.event(refund_settled(0, units(10, 0, 0))).unwrap();
    sale.event(archived).unwrap();

    assert!(sale.shard.activity(activity()).is_none());
    assert_eq!(sale.shard.tombstone(activity()).unwrap().end_ms, DEFINITION.end_ms);
    assert_eq!(sale.purchase(1, "r1", 1), Purchase::Refused(Refusal::Ended));
    let (ordinal, total) = (Ordinal::new(6).unwrap(), 1);
    let create = Command::Create { actor: ACTOR, ordinal, total, definition: DEFINITION };
    assert_eq!(sale.decide(&create), Outcome::Refused(Refusal::ActivityExists));
    assert_eq!(sale.decide(&Command::Publish { actor: ACTOR }), Outcome::Refused(Refusal::Ended));

    let before = digest(&sale.shard);
    let nothing_moves = ApplyError::Refund(own(1));
    assert_eq!(sale.event(refund_requested(true, true)), Err(nothing_moves));
    sale.event(refund_requested(false, false)).unwrap();
    assert_eq!(sale.shard.open_refunds().count(), 1);
    assert_ne!(digest(&sale.shard), before, "the sequence moved");
    let paused = Body::Paused { activity: activity(), actor: ACTOR };
    assert_eq!(sale.event(paused), Err(ApplyError::Archived(activity())));
}

#[test]
fn an_activity_publishes_itself_once() {
    let mut sale = Sale::empty();
    let (ordinal, total) = (Ordinal::new(5).unwrap(), 1);
    let definition = Definition { publish_at_ms: NOW_MS + 5, ..DEFINITION };
    sale.run(&Command::Create { actor: ACTOR, ordinal, total, definition });
    let due_ms = |sale: &Sale| sale.shard.activity(activity()).unwrap().publish_due_ms();
    assert_eq!(due_ms(&sale), Some(NOW_MS + 5));
    sale.run(&Command::Publish { actor: ACTOR });
    sale.run(&Command::Unpublish { actor: ACTOR });
    assert_eq!(due_ms(&sale), None);
}

#[test]
fn a_new_date_ahead_is_a_new_schedule() {
    let mut sale = Sale::new();
    sale.run(&Command::Unpublish { actor: ACTOR });
    let due_ms = |sale: &Sale| sale.shard.activity(activity()).unwrap().publish_due_ms();
    for (publish_at_ms, due) in [(NOW_MS, None), (NOW_MS + 5, Some(NOW_MS + 5)), (0, None)] {
        let definition = Definition { publish_at_ms, ..DEFINITION };
        sale.run(&Command::Edit { actor: ACTOR, version: None, total: 10, definition });
        assert_eq!(due_ms(&sale), due);
    }
}

#[test]
fn an_activity_unpublished_before_its_schedule_stays_off_sale() {
    let mut sale = Sale::empty();
    let (ordinal, total) = (Ordinal::new(5).unwrap(), 1);
    let definition = Definition { publish_at_ms: NOW_MS + 5, ..DEFINITION };
    sale.run(&Command::Create { actor: ACTOR, ordinal, total, definition });
    let before = digest(&sale.shard);
    let unpublish = Command::Unpublish { actor: ACTOR };
    sale.run(&unpublish);
    assert_eq!(sale.shard.activity(activity()).unwrap().publish_due_ms(), None);
    assert_ne!(digest(&sale.shard), before);
    assert!(matches!(sale.decide(&unpublish), Outcome::Repeated(_)), "once is enough");
    sale.run(&Command::Publish { actor: ACTOR });
    sale.buy(1, "r1", 1);
}

#[test]
fn a_release_says_which_operator_made_it_and_no_other_give_back_names_one() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let nameless = Actor { name: "", request_id: "req" };
    for reason in RestoreReason::ALL.iter().copied() {
        for actor in [Actor::NONE, nameless, ACTOR] {
            let command = Command::Restore { reservation: own(1), owner: None, reason, actor };
            let right = actor == if reason == RestoreReason::Admin { ACTOR } else { Actor::NONE };
            match sale.decide(&command) {
                Outcome::Accepted { events } => {
                    assert!(right, "{command:?}");
                    let Body::Restored { actor: told, .. } = events.iter().next().unwrap().body
                    else {
                        panic!("{events:?}");
                    };
                    assert_eq!(told, actor);
                }
                Outcome::Refused(Refusal::Invalid(_)) => assert!(!right, "{command:?}"),
                other => panic!("{command:?}: {other:?}"),
            }
            let restored = Body::Restored {
                activity: activity(),
                reservation: own(1),
                user: user(1),
                quantity: 1,
                held: 0,
                version: 1,
                figures: units(10, 0, 0),
                reason,
                actor,
            };
            if !right {
                assert_eq!(sale.event(restored), Err(ApplyError::Actor(own(1))));
            }
        }
    }
}

#[test]
fn an_operation_is_done_once_and_answered_as_the_first_time() {
    let mut sale = Sale::new();
    let restock = Command::Restock { actor: ACTOR, op: "k1", quantity: 5 };
    sale.run(&restock);
    sale.buy(1, "r1", 1);
    let Outcome::Repeated(Answer::Activity(first)) = sale.decide(&restock) else { panic!() };
    assert_eq!(first.figures, units(15, 0, 0));
    let other = Outcome::Refused(Refusal::RequestIdReused);
    assert_eq!(sale.decide(&Command::Restock { actor: ACTOR, op: "k1", quantity: 6 }), other);
    assert_eq!(sale.decide(&Command::Decrease { actor: ACTOR, op: "k1", quantity: 5 }), other);
}

#[test]
fn the_memory_of_operations_is_bounded() {
    let mut sale = Sale::new();
    for number in 0..engine::core::limits::OPERATIONS_PER_ACTIVITY_MAX {
        let op = &number.to_string();
        sale.run(&Command::Restock { actor: ACTOR, op, quantity: 1 });
    }
    let one_more = Command::Restock { actor: ACTOR, op: "one more", quantity: 1 };
    assert_eq!(sale.decide(&one_more), Outcome::Refused(Refusal::TooManyOperations));
    let known = Command::Restock { actor: ACTOR, op: "0", quantity: 1 };
    assert!(matches!(sale.decide(&known), Outcome::Repeated(_)));
}

#[test]
fn buy_cancel_buy_ends_sixteen_reservations_beyond_the_limit() {
    let mut sale = Sale::new();
    for number in 1..=18 {
        sale.buy(1, &format!("r{number}"), 1);
        sale.run(&cancel(own(number)));
        sale.audit();
    }
    assert_eq!(sale.purchase(1, "r19", 1), Purchase::Refused(Refusal::LimitReached));
    for number in 1..=18 {
        let request_id = &format!("r{number}");
        assert_eq!(sale.purchase(1, request_id, 1), Purchase::Replayed(own(number)));
    }
    sale.buy(2, "r19", 1);
}

#[test]
fn an_event_that_cannot_have_happened_is_refused_and_changes_nothing() {
    let mut sale = Sale::new();
    sale.buy(1, "r1", 1);
    let (activity, version) = (activity(), 1);
    let figures = units(8, 2, 0);
    let reserved = |reservation, held, version, figures, request_id| Body::Reserved {
        activity,
        front: Front::Resp,
        reservation,
        user: user(1),
        quantity: 1,
        held,
        version,
        figures,
        request_id,
    };
    let confirmed = |quantity, held, figures| Body::Confirmed {
        activity,
        reservation: own(1),
        user: user(1),
        quantity,
        held,
        version,
        figures,
        payment_no: "p",
    };
    let refused = [
        (reserved(own(3), 2, 1, figures, "r2"), ApplyError::Misplaced(own(3))),
        (reserved(old(2), 2, 1, figures, "r2"), ApplyError::Misplaced(old(2))),
        (reserved(own(2), 2, 1, figures, "r1"), ApplyError::RequestRepeated(own(2))),
        (
            reserved(own(2), 2, 2, figures, "r2"),
            ApplyError::Version { activity, present: 1, carried: 2 },
        ),
        (
            reserved(own(2), 2, 1, units(9, 1, 0), "r2"),
            ApplyError::Figures { activity, present: units(9, 1, 0), carried: units(9, 1, 0) },
        ),
        (
            reserved(own(2), 3, 1, figures, "r2"),
            ApplyError::Held { activity, user: user(1), present: 1, carried: 3 },
        ),
        (confirmed(2, 1, units(9, 0, 1)), ApplyError::Mismatch(own(1))),
        (
            confirmed(1, 1, units(8, 1, 1)),
            ApplyError::Figures { activity, present: units(9, 1, 0), carried: units(8, 1, 1) },
        ),
        (
            confirmed(1, 0, units(9, 0, 1)),
            ApplyError::Held { activity, user: user(1), present: 1, carried: 0 },
        ),
        (
            Body::ActivityCreated {
                activity,
                actor: ACTOR,
                ordinal: Ordinal::new(6).unwrap(),
                total: 1,
                definition: DEFINITION,
            },
            ApplyError::ActivityExists(activity),
        ),
        (
            Body::Decreased {
                activity,
                actor: ACTOR,
                op: DecreaseKey::Edit,
                quantity: 1,
                version,
                figures: units(9, 0, 0),
            },
            ApplyError::Figures { activity, present: units(9, 1, 0), carried: units(9, 0, 0) },
        ),
        (Body::ControlCleared { actor: ACTOR, key: "k" }, ApplyError::NoActivity),
    ];
    let before = digest(&sale.shard);
    for (body, error) in refused {
        assert_eq!(sale.event(body), Err(error), "{body:?}");
        assert_eq!(digest(&sale.shard), before, "{body:?}");
    }
    let fits = Event { at_ms: NOW_MS, body: reserved(own(2), 2, 1, figures, "r2") };
    let applied = sale.shard.applied_seq();
    for found in [0, applied, applied + 2] {
        let error = ApplyError::Sequence { applied, found };
        assert_eq!(apply(&mut sale.shard, &fits, found), Err(error));
    }
    sale.append(&fits).unwrap();
}

#[test]
fn a_window_includes_both_of_its_ends() {
    let mut sale = Sale::empty();
    let (ordinal, total) = (Ordinal::new(5).unwrap(), 10);
    let definition = Definition { start_ms: NOW_MS, end_ms: NOW_MS + 10, ..DEFINITION };
    sale.run(&Command::Create { actor: ACTOR, ordinal, total, definition });
    sale.run(&Command::Publish { actor: ACTOR });
    for (now_ms, refused) in [
        (NOW_MS - 1, Some(Refusal::NotStarted)),
        (NOW_MS, None),
        (NOW_MS + 10, None),
        (NOW_MS + 11, Some(Refusal::Ended)),
    ] {
        sale.now_ms = now_ms;
        let found = match sale.purchase(1, "r1", 1) {
            Purchase::Refused(refusal) => Some(refusal),
            _ => None,
        };
        assert_eq!(found, refused, "{now_ms}");
    }
}

/// Each variation of a history is one thing that answers depend on.
#[test]
fn every_difference_that_answers_depend_on_shows_in_the_digest() {
    let history = |variation: usize| {
        let mut sale = adopting();
        let is = |number: usize| variation == number;
        sale.buy(1, if is(1) { "other" } else { "r1" }, 1);
        sale.buy(if is(2) { 3 } else { 2 }, "r1", 1);
        sale.now_ms += u64::from(is(3));
        sale.run(&cancel(own(1)));
        sale.now_ms = NOW_MS;
        sale.run(&confirm(own(2), if is(4) { "p2" } else { "p1" }));
        let op = if is(5) { "k2" } else { "k1" };
        sale.run(&Command::Restock { actor: ACTOR, op, quantity: 1 });
        let title = if is(6) { "Sale!" } else { "Sale" };
        let price = if is(6) { 100 } else { DEFINITION.price };
        let edited = Definition { title, price, per_user_limit: 3, ..DEFINITION };
        let version = 4;
        let figures = sale.figures();
        let id = activity();
        sale.event(Body::ActivityEdited {
            activity: id,
            actor: ACTOR,
            version,
            figures,
            definition: edited,
        })
        .unwrap();
        let flag = match variation {
            7 => Body::Drained { activity: id, actor: ACTOR },
            8 => Body::Unpublished { activity: id, actor: ACTOR },
            9 => Body::DeadLettered { activity: id, reservation: old(1), note: "" },
            10 => Body::PaymentOpened {
                activity: id,
                reservation: own(1),
                attempt: 3,
                channel: "mock",
                amount: 1,
                expires_ms: 1,
            },
            11 => Body::RefundRequested {
                activity: id,
                actor: ACTOR,
                reservation: own(2),
                user: user(if is(2) { 3 } else { 2 }),
                refund_no: "f1",
                scope: RefundScope::Order,
                restock: false,
                free_limit: false,
                channel: "",
                payment_no: "",
                transaction: "",
                amount: 100,
                note: "",
            },
            _ => Body::Paused { activity: id, actor: ACTOR },
        };
        sale.event(flag).unwrap();
        digest(&sale.shard)
    };
    let digests: std::collections::BTreeSet<u128> = (0..12).map(history).collect();
    assert_eq!(digests.len(), 12);
    assert_eq!(history(0), history(0));
}

#[test]
fn controls_and_sinks_are_what_the_last_record_says() {
    let mut control = Control::default();
    let event = |body| Event { at_ms: NOW_MS, body };
    let set = |value| event(Body::ControlSet { actor: ACTOR, key: "stop", value, expires_ms: 0 });
    let value = |control: &Control| Some(control.table().get("stop")?.value.to_vec());
    control.apply(&set(b"1"), 1).unwrap();
    control.apply(&set(b"2"), 2).unwrap();
    assert_eq!(value(&control), Some(b"2".to_vec()));
    control.apply(&event(Body::ControlCleared { actor: ACTOR, key: "stop" }), 3).unwrap();
    assert_eq!(value(&control), None);

    let mut buffer = Vec::new();
    let shards = ShardMarks::encode(&[(1, 10), (7, 3)], &mut buffer);
    control.apply(&event(Body::SinkAdvanced { sink: "sql", lsn: 20, shards }), 4).unwrap();
    let mut buffer = Vec::new();
    let shards = ShardMarks::encode(&[(1, 12)], &mut buffer);
    control.apply(&event(Body::SinkAdvanced { sink: "sql", lsn: 25, shards }), 5).unwrap();
    let sink = control.sink("sql").unwrap();
    assert_eq!((sink.lsn, sink.shards.get(&1), sink.shards.get(&7)), (25, Some(&12), Some(&3)));

    let back = event(Body::SinkAdvanced { sink: "sql", lsn: 24, shards });
    let before = control.digest();
    let error = ControlError::SinkWentBack { present: 25, carried: 24 };
    assert_eq!(control.apply(&back, 6), Err(error));
    let gap = ControlError::Sequence { applied: 5, found: 7 };
    assert_eq!(control.apply(&set(b"3"), 7), Err(gap));
    let foreign = event(Body::Archived { activity: activity() });
    assert_eq!(control.apply(&foreign, 6), Err(ControlError::OfAnActivity));
    assert_eq!(control.digest(), before);
}

/// A log of many kinds of events.
fn story() -> Vec<(u8, Vec<u8>)> {
    let mut sale = adopting();
    let id = activity();
    sale.buy(1, "r1", 1);
    sale.run(&Command::Restock { actor: ACTOR, op: "k1", quantity: 5 });
    sale.run(&Command::Decrease { actor: ACTOR, op: "k2", quantity: 1 });
    sale.event(Body::PaymentOpened {
        activity: id,
        reservation: own(1),
        attempt: 1,
        channel: "mock",
        amount: 100,
        expires_ms: NOW_MS + 1,
    })
    .unwrap();
    sale.event(Body::PaymentRecorded {
        activity: Some(id),
        reservation: Some(own(1)),
        channel: "mock",
        payment_no: "p1",
        transaction: "t1",
        amount: 100,
        verdict: PaymentVerdict::Accepted,
        body: b"{}",
    })
    .unwrap();
    sale.run(&confirm(own(1), "p1"));
    sale.run(&cancel(old(1)));
    sale.event(Body::DeadLettered { activity: id, reservation: own(1), note: "n" }).unwrap();
    sale.event(Body::DeadLetterResolved {
        activity: id,
        reservation: own(1),
        resolution: DeadLetterResolution::Delivered,
        actor: ACTOR,
    })
    .unwrap();
    sale.run(&Command::Pause { actor: ACTOR });
    sale.run(&Command::Resume { actor: ACTOR });
    sale.run(&Command::Drain { actor: ACTOR });
    sale.run(&Command::Unpublish { actor: ACTOR });
    sale.log
}

proptest! {
    /// Checksums keep such logs away; should one pass, the state must still be sound.
    #[test]
    fn a_changed_byte_is_refused_or_leads_to_a_sound_state(
        record in any::<Index>(),
        at in any::<Index>(),
        bit in 0u8..8,
    ) {
        let mut log = story();
        let changed = record.index(log.len());
        let bytes = &mut log[changed].1;
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut sale = Sale::empty();
        for (kind, bytes) in &log {
            let Ok(event) = codec::decode(*kind, codec::FORMAT_VERSION, bytes) else { break };
            let before = digest(&sale.shard);
            if sale.append(&event).is_err() {
                prop_assert_eq!(digest(&sale.shard), before);
                break;
            }
            sale.audit();
        }
    }
}
