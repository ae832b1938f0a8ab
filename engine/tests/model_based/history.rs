//! Runs a history through the engine's core and the model, and holds them against each other.

use std::collections::BTreeMap;

use engine::core::activity::View;
use engine::core::apply::apply;
use engine::core::codec;
use engine::core::command::{
    Answer, Command, OpenPayment, RecordPayment, Refusal, RequestRefund, Reserve, Status,
};
use engine::core::decide::{Outcome, decide};
use engine::core::digest::digest;
use engine::core::event::{Actor, Body, Definition, Event, Front, PaymentVerdict};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use engine::core::model::{Model, Reply};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use engine::core::side::RefundStatus;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::op::{BEGIN_MS, Op, Step, Terms};

const ACTOR: Actor<'static> = Actor { name: "operator", request_id: "req-1" };

/// What the histories of a run must lead to.
pub(crate) const MUST_BE_SEEN: &[&str] = &[
    "reserved",
    "replayed",
    "confirmed",
    "restored",
    "expired",
    "created",
    "edited",
    "edited twice",
    "restocked",
    "decreased",
    "switched",
    "schedule ended",
    "nothing due",
    "invalid",
    "unknown activity",
    "activity exists",
    "ordinals exhausted",
    "paused",
    "off sale",
    "not started",
    "ended",
    "sold out",
    "limit reached",
    "request id reused",
    "version mismatch",
    "locked in progress",
    "stock below reserved",
    "unknown reservation",
    "already paid",
    "paid by another",
    "rolled back",
    "indexed user",
    "payment opened",
    "payment found",
    "payment in progress",
    "accepted",
    "reinstated",
    "repeated callback",
    "wrong amount",
    "unknown payment",
    "second payment",
    "late",
    "failed payment",
    "refund requested",
    "refund known",
    "refund settled",
    "refund failed",
    "refund in progress",
    "already refunded",
    "not paid",
    "unknown refund",
    "dead letter held",
    "dead letter given back",
    "dead letter known",
    "dead letter delivered",
    "dead letter refunded",
    "no dead letter",
    "archived activity",
    "archived",
];

pub(crate) struct History {
    shard: Shard,
    model: Model,
    now_ms: u64,
    serving_since_ms: u64,
    log: Vec<(u8, Vec<u8>)>,
    last_reserve: Option<(u64, u64, String, u32)>,
    churned: u32,
    durable_seq: u64,
    /// Of each activity, the views it had, with the sequence that made each.
    views: BTreeMap<ActivityId, Vec<(u64, View)>>,
    seen: BTreeMap<&'static str, u64>,
}

fn seed(table_seed: u64) -> ShardSeed {
    ShardSeed { table_seed, requests: RequestHasher::new(&[7; 16]) }
}

fn definition(terms: &Terms) -> Definition<'_> {
    Definition {
        sku: SkuId::new(20_001).unwrap(),
        title: terms.title,
        price: terms.price,
        per_user_limit: terms.per_user_limit,
        start_ms: terms.start_ms,
        end_ms: terms.end_ms,
        payment_ttl_ms: terms.payment_ttl_ms,
        late_payment: terms.late_payment,
        dead_letter: terms.dead_letter,
        publish_at_ms: terms.publish_at_ms,
    }
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            shard: Shard::new(seed(1)),
            model: Model::default(),
            now_ms: BEGIN_MS,
            serving_since_ms: BEGIN_MS,
            log: Vec::new(),
            last_reserve: None,
            churned: 0,
            durable_seq: 0,
            views: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// How often each thing was met.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.seen.iter().map(|(name, count)| (*name, *count))
    }

    pub(crate) fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Reserve { activity, user, request_id, quantity } => {
                self.last_reserve = Some((*activity, *user, request_id.clone(), *quantity));
                self.reserve(*activity, *user, request_id, *quantity)
            }
            Op::Retry { quantity } => {
                let Some((activity, user, id, before)) = self.last_reserve.clone() else {
                    return Ok(());
                };
                self.reserve(activity, user, &id, quantity.unwrap_or(before))
            }
            Op::Churn { activity, user, times } => self.churn(*activity, *user, *times),
            Op::Confirm { activity, ordinal, position, payment_no } => {
                let Some(reservation) = self.reservation(*activity, *ordinal, *position) else {
                    return Ok(());
                };
                self.call(*activity, &Command::Confirm { reservation, payment_no })
            }
            Op::Restore { activity, ordinal, position, owner, reason, named } => {
                let Some(reservation) = self.reservation(*activity, *ordinal, *position) else {
                    return Ok(());
                };
                let owner = owner.and_then(UserId::new);
                let actor = if *named { ACTOR } else { Actor::NONE };
                let reason = *reason;
                self.call(*activity, &Command::Restore { reservation, owner, reason, actor })
            }
            Op::Order { activity, ordinal, position, step } => {
                let Some(reservation) = self.reservation(*activity, *ordinal, *position) else {
                    return Ok(());
                };
                self.step(*activity, reservation, step)
            }
            Op::OpenAndPay { activity, ordinal, position, pay } => {
                let Some(reservation) = self.reservation(*activity, *ordinal, *position) else {
                    return Ok(());
                };
                let open = Step::Open { stranger: false, channel: "mock", ttl_ms: 600_000 };
                self.step(*activity, reservation, &open)?;
                self.step(*activity, reservation, pay)
            }
            Op::EndRefund { activity, refund, failed } => {
                self.end_refund(*activity, *refund, *failed)
            }
            Op::Archive { activity, days, covered } => {
                self.now_ms += days * 86_400_000;
                self.expire(*activity)?;
                let covered_seq = if *covered { self.shard.applied_seq() } else { 0 };
                self.call(*activity, &Command::Archive { covered_seq })
            }
            Op::Expire { activity } => self.expire(*activity),
            Op::Wait { ms } => {
                self.now_ms += ms;
                // Meanwhile the log is synced, now and then all of it.
                self.durable_seq = (self.durable_seq + ms).min(self.shard.applied_seq());
                self.shard.note_durable(self.durable_seq);
                Ok(())
            }
            Op::Restart => {
                self.serving_since_ms = self.now_ms;
                Ok(())
            }
            _ => self.operate(op),
        }
    }

    /// What an operator does.
    fn operate(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Create { activity, ordinal, total, terms } => {
                let ordinal = Ordinal::new(*ordinal).unwrap();
                let definition = definition(terms);
                let total = *total;
                self.call(*activity, &Command::Create { actor: ACTOR, ordinal, total, definition })
            }
            Op::Edit { activity, version, total, terms } => {
                let (version, total, definition) = (*version, *total, definition(terms));
                self.call(*activity, &Command::Edit { actor: ACTOR, version, total, definition })
            }
            Op::Trim { activity, title, less } => self.trim(*activity, *title, *less),
            Op::Publish { activity } => self.call(*activity, &Command::Publish { actor: ACTOR }),
            Op::Unpublish { activity } => {
                self.call(*activity, &Command::Unpublish { actor: ACTOR })
            }
            Op::Pause { activity } => self.call(*activity, &Command::Pause { actor: ACTOR }),
            Op::Resume { activity } => self.call(*activity, &Command::Resume { actor: ACTOR }),
            Op::Drain { activity } => self.call(*activity, &Command::Drain { actor: ACTOR }),
            Op::Restock { activity, op, quantity } => {
                self.call(*activity, &Command::Restock { actor: ACTOR, op, quantity: *quantity })
            }
            Op::Decrease { activity, op, quantity } => {
                self.call(*activity, &Command::Decrease { actor: ACTOR, op, quantity: *quantity })
            }
            _ => unreachable!("`run` takes the others"),
        }
    }

    /// The id that `ordinal` and `position` make, if they make one. Where the ordinal is the
    /// activity's, the position is brought down to what exists, and the one after.
    fn reservation(&self, activity: u64, ordinal: u32, position: u32) -> Option<ReservationId> {
        let made = self.shard.activity(ActivityId::new(activity)?).map(|it| it.slots().len());
        let position = match made {
            Some(made) if u64::from(ordinal) == activity => {
                1 + position % (u32::try_from(made).unwrap() + 1)
            }
            _ => position,
        };
        ReservationId::new(u64::from(ordinal) << 32 | u64::from(position))
    }

    fn trim(
        &mut self,
        activity: u64,
        title: Option<&'static str>,
        less: u32,
    ) -> Result<(), TestCaseError> {
        let id = ActivityId::new(activity).unwrap();
        let Some(present) = self.shard.activity(id) else { return Ok(()) };
        let (terms, total) = (present.terms().clone(), present.total().saturating_sub(less));
        let (definition, version) = (terms.definition(), Some(present.version()));
        let definition = Definition { title: title.unwrap_or(definition.title), ..definition };
        self.call(activity, &Command::Edit { actor: ACTOR, version, total, definition })
    }

    fn reserve(
        &mut self,
        activity: u64,
        user: u64,
        request_id: &str,
        quantity: u32,
    ) -> Result<(), TestCaseError> {
        let request_hash = self.shard.requests().hash(request_id);
        let (user, front) = (UserId::new(user).unwrap(), Front::Http);
        let reserve = Reserve { user, request_id, request_hash, quantity, front };
        self.call(activity, &Command::Reserve(reserve))
    }

    fn churn(&mut self, activity: u64, user: u64, times: u32) -> Result<(), TestCaseError> {
        let id = ActivityId::new(activity).unwrap();
        for _ in 0..times {
            self.churned += 1;
            let before = self.log.len();
            self.reserve(activity, user, &format!("c{}", self.churned), 1)?;
            if self.log.len() == before {
                break;
            }
            let made = self.shard.activity(id).and_then(|it| Some(it.all_slots().last()?.0));
            let Some(reservation) = made else { return Ok(()) };
            let reason = engine::core::event::RestoreReason::Cancelled;
            let owner = UserId::new(user);
            let actor = Actor::NONE;
            self.call(activity, &Command::Restore { reservation, owner, reason, actor })?;
        }
        let mine = |slot: &&engine::core::reservation::Slot| slot.user().get() == user;
        let slots = self.shard.activity(id).map(|it| it.slots().iter().filter(mine).count());
        if slots.unwrap_or_default() > 16 {
            self.see("indexed user");
        }
        Ok(())
    }

    /// One step of an order's life.
    fn step(
        &mut self,
        activity: u64,
        reservation: ReservationId,
        step: &Step,
    ) -> Result<(), TestCaseError> {
        let known = self.shard.activity(ActivityId::new(activity).unwrap());
        let slot = known.and_then(|it| it.slot(reservation)).copied();
        let actor = |named: bool| if named { ACTOR } else { Actor::NONE };
        match step {
            Step::Open { stranger, channel, ttl_ms } => {
                let buyer = slot.map_or(1, |slot| slot.user().get());
                let owner = UserId::new(if *stranger { 77 } else { buyer }).unwrap();
                let ttl_ms = *ttl_ms;
                let open = OpenPayment { reservation, owner, channel, ttl_ms };
                self.call(activity, &Command::OpenPayment(open))
            }
            Step::Pay { attempt, channel, transaction, wrong, paid } => {
                let last = known.and_then(|it| it.payments_of(reservation).last());
                let attempt = attempt.unwrap_or(last.map_or(1, |payment| payment.attempt));
                let price = known.map_or(0, |it| it.terms().price);
                let amount = price * u64::from(slot.map_or(0, |slot| slot.quantity()));
                let payment_no = &format!("{reservation}{attempt:02}");
                let command = RecordPayment {
                    reservation,
                    channel,
                    payment_no,
                    transaction,
                    amount: amount + u64::from(*wrong),
                    paid: *paid,
                    body: b"{}",
                    refund_no: &format!("auto-{channel}-{transaction}"),
                    archived: None,
                };
                self.call(activity, &Command::RecordPayment(command))
            }
            Step::Refund { refund_no, restock, free_limit, named } => {
                let command = RequestRefund {
                    reservation,
                    refund_no,
                    restock: *restock,
                    free_limit: *free_limit,
                    note: "",
                    actor: actor(*named),
                    archived: None,
                };
                self.call(activity, &Command::RequestRefund(command))
            }
            Step::DeadLetter { stale } => {
                let latest = known.and_then(|it| it.order_seq(reservation));
                let born_seq = slot.map_or(0, |slot| slot.shard_seq());
                let failed_seq = if *stale { born_seq } else { latest.unwrap_or(born_seq) };
                let note = "no address";
                self.call(activity, &Command::DeadLetter { reservation, failed_seq, note })
            }
            Step::Retry { named } => {
                let actor = actor(*named);
                self.call(activity, &Command::RetryDeadLetter { reservation, actor })
            }
            Step::RollBack { named } => {
                let (actor, refund_no) = (actor(*named), "auto-dead-letter");
                let command = Command::RollBackDeadLetter { reservation, refund_no, actor };
                self.call(activity, &command)
            }
        }
    }

    /// The provider answers for one of the refunds that are open, or for none.
    fn end_refund(
        &mut self,
        activity: u64,
        refund: usize,
        failed: bool,
    ) -> Result<(), TestCaseError> {
        let open: Vec<_> = self.shard.open_refunds().collect();
        let found = open.get(refund % (open.len() + 1));
        let found = found.map(|(id, number, it)| (it.activity.get(), *id, (*number).to_owned()));
        let nobody = ReservationId::new(activity << 32 | 1).unwrap();
        let (activity, reservation, refund_no) =
            found.unwrap_or((activity, nobody, "none".to_owned()));
        let refund_no = refund_no.as_str();
        let command = match failed {
            true => Command::FailRefund { reservation, refund_no, note: "no" },
            false => Command::SettleRefund { reservation, refund_no },
        };
        self.call(activity, &command)?;
        // A worker that died says it again.
        self.call(activity, &command)
    }

    fn expire(&mut self, activity: u64) -> Result<(), TestCaseError> {
        // Each turn gives one reservation back, so this ends.
        loop {
            let before = self.log.len();
            let serving_since_ms = self.serving_since_ms;
            self.call(activity, &Command::Expire { serving_since_ms })?;
            if self.log.len() == before {
                return Ok(());
            }
        }
    }

    /// One command, through both.
    fn call(&mut self, activity: u64, command: &Command<'_>) -> Result<(), TestCaseError> {
        self.see("commands");
        let id = ActivityId::new(activity).unwrap();
        let before = self.shard.applied_seq();
        let scheduled = self.publish_due_ms(id).is_some();
        let outcome = decide(&self.shard, id, command, self.now_ms);
        let found = self.answer(id, command, &outcome);
        let expected = self.model.execute(id, command, self.now_ms);
        prop_assert_eq!(&found, &expected, "{:?} at {}", command, self.now_ms);
        prop_assert_eq!(self.shard.applied_seq(), self.model.records());
        let events = self.shard.applied_seq() - before;
        prop_assert_eq!(events > 0, matches!(outcome, Outcome::Accepted { .. }));
        prop_assert!(events <= 3);
        prop_assert_eq!(self.shard.open_refunds().count(), self.model.open_refunds());
        prop_assert_eq!(self.shard.activity(id).map(|it| it.figures()), self.model.figures(id));
        prop_assert_eq!(self.publish_due_ms(id), self.model.publish_due_ms(id));
        if scheduled && matches!(command, Command::Unpublish { .. }) {
            prop_assert_eq!(self.publish_due_ms(id), None);
            self.see("schedule ended");
        }
        self.note(command, &found, events);
        self.look_around()
    }

    fn publish_due_ms(&self, id: ActivityId) -> Option<u64> {
        self.shard.activity(id)?.publish_due_ms()
    }

    /// What timers and lists rest on.
    fn look_around(&mut self) -> Result<(), TestCaseError> {
        let durable_seq = self.durable_seq;
        for (id, activity) in self.shard.activities() {
            let due_ms = activity.next_due_ms(0).unwrap_or(u64::MAX);
            prop_assert!(self.shard.due_ms_min() <= due_ms, "a timer would sleep too long");

            let views = self.views.get(&id).map_or(&[][..], |views| views);
            let shown = activity.published(durable_seq).map(|(view, _)| view);
            let durable = |(seq, view): &(u64, View)| *seq <= durable_seq && Some(*view) == shown;
            prop_assert!(shown.is_none() || views.iter().any(durable), "a list shows a phantom");
            if durable_seq == self.shard.applied_seq() {
                prop_assert_eq!(shown, Some(activity.view()));
            }
        }
        Ok(())
    }

    /// Applies and logs what was decided, and puts the answer into the model's words.
    fn answer(&mut self, id: ActivityId, command: &Command<'_>, outcome: &Outcome<'_>) -> Reply {
        let events = match outcome {
            Outcome::Accepted { events } => events,
            Outcome::Repeated(Answer::Reservation(reservation)) => {
                return Reply::Reservation { fresh: false, reservation: (**reservation).clone() };
            }
            Outcome::Repeated(Answer::Activity(figures)) => {
                return Reply::Activity { fresh: false, figures: **figures };
            }
            Outcome::Repeated(Answer::Payment(payment)) => {
                return Reply::Payment { fresh: false, payment: (**payment).clone() };
            }
            Outcome::Repeated(Answer::Refund(refund)) => {
                return Reply::Refund { fresh: false, refund: *refund };
            }
            Outcome::Refused(refusal) => return Reply::Refused(*refusal),
            Outcome::NothingDue(due_ms) => return Reply::NothingDue(*due_ms),
        };
        let mut made = None;
        let (mut verdict, mut refunds) = (PaymentVerdict::Unknown, false);
        for event in events.iter() {
            self.append(event);
            match event.body {
                Body::Reserved { reservation, .. } | Body::Restored { reservation, .. } => {
                    made = Some(reservation);
                }
                Body::PaymentRecorded { verdict: told, .. } => verdict = told,
                Body::RefundRequested { .. } => refunds = true,
                Body::Reinstated { .. } => self.see("reinstated"),
                _ => {}
            }
        }
        let fresh = true;
        let Some(activity) = self.shard.activity(id) else { return Reply::Archived };
        let told = |reservation| self.shard.reservation(id, reservation).unwrap();
        match *command {
            Command::Reserve(_) | Command::Expire { .. } => {
                Reply::Reservation { fresh, reservation: told(made.unwrap()) }
            }
            Command::Confirm { reservation, .. }
            | Command::Restore { reservation, .. }
            | Command::DeadLetter { reservation, .. }
            | Command::RetryDeadLetter { reservation, .. }
            | Command::RollBackDeadLetter { reservation, .. } => {
                Reply::Reservation { fresh, reservation: told(reservation) }
            }
            Command::OpenPayment(OpenPayment { reservation, .. }) => {
                let payment = activity.payments_of(reservation).last().unwrap().clone();
                Reply::Payment { fresh, payment }
            }
            Command::RecordPayment(RecordPayment { reservation, .. }) => {
                Reply::Recorded { verdict, refunds, reservation: told(reservation) }
            }
            Command::RequestRefund(RequestRefund { reservation, refund_no, .. })
            | Command::SettleRefund { reservation, refund_no }
            | Command::FailRefund { reservation, refund_no, .. } => {
                let refund = self.shard.refund(id, reservation, refund_no).unwrap();
                Reply::Refund { fresh, refund }
            }
            _ => Reply::Activity { fresh, figures: activity.answer(id) },
        }
    }

    fn append(&mut self, event: &Event<'_>) {
        let mut body = Vec::new();
        codec::encode(event, &mut body);
        self.log.push((codec::kind(&event.body), body));
        let shard_seq = self.log.len() as u64;
        apply(&mut self.shard, event, shard_seq).unwrap();
        let id = codec::activity(&event.body).unwrap();
        let Some(activity) = self.shard.activity(id) else { return };
        let view = activity.view();
        self.views.entry(id).or_default().push((shard_seq, view));
    }

    /// What holds after a history.
    pub(crate) fn finish(&self) -> Result<(), TestCaseError> {
        let mut replayed = Shard::new(seed(2));
        for (index, (kind, body)) in self.log.iter().enumerate() {
            let event = codec::decode(*kind, codec::FORMAT_VERSION, body).unwrap();
            apply(&mut replayed, &event, index as u64 + 1).unwrap();
        }
        prop_assert_eq!(digest(&replayed), digest(&self.shard));
        // Holds the digest of what comes back against the original's.
        super::support::reloaded(&self.shard, 3);
        for (id, activity) in self.shard.activities() {
            prop_assert_eq!(activity.audit(), Ok(()));
            let again = replayed.activity(id).unwrap();
            prop_assert_eq!(again.audit(), Ok(()));
            prop_assert_eq!(again.view(), activity.view());
            prop_assert_eq!(Some(again.figures()), self.model.figures(id));
        }
        Ok(())
    }

    fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn note(&mut self, command: &Command<'_>, reply: &Reply, events: u64) {
        let what = match (reply, command) {
            (
                Reply::Reservation { fresh: false, .. } | Reply::Activity { fresh: false, .. },
                command,
            ) => match command {
                Command::Reserve(_) => "replayed",
                Command::DeadLetter { .. } => "dead letter known",
                _ => "repeated",
            },
            (Reply::Payment { fresh: true, .. }, _) => "payment opened",
            (Reply::Payment { fresh: false, .. }, _) => "payment found",
            (Reply::Recorded { verdict, .. }, _) => match verdict {
                PaymentVerdict::Accepted => "accepted",
                PaymentVerdict::Repeated => "repeated callback",
                PaymentVerdict::WrongAmount => "wrong amount",
                PaymentVerdict::Unknown => "unknown payment",
                PaymentVerdict::SecondPayment => "second payment",
                PaymentVerdict::Late => "late",
                PaymentVerdict::Failed => "failed payment",
            },
            (Reply::Archived, _) => "archived activity",
            (Reply::Refund { fresh: false, .. }, _) => "refund known",
            (Reply::Refund { refund, .. }, _) => match refund.status {
                RefundStatus::Requested => "refund requested",
                RefundStatus::Settled => "refund settled",
                RefundStatus::Failed => "refund failed",
            },
            (Reply::Reservation { .. }, Command::DeadLetter { .. }) if events == 1 => {
                "dead letter held"
            }
            (Reply::Reservation { .. }, Command::DeadLetter { .. }) => "dead letter given back",
            (Reply::Reservation { .. }, Command::RetryDeadLetter { .. }) => "dead letter delivered",
            (Reply::Reservation { reservation, .. }, Command::RollBackDeadLetter { .. }) => {
                match reservation.status {
                    Status::Confirmed => "dead letter refunded",
                    _ => "dead letter rolled back",
                }
            }
            (Reply::Reservation { reservation, .. }, Command::Expire { .. }) => {
                assert!(matches!(reservation.status, Status::RolledBack(_)));
                "expired"
            }
            (Reply::Reservation { .. }, Command::Reserve(_)) => "reserved",
            (Reply::Reservation { .. }, Command::Confirm { .. }) => "confirmed",
            (Reply::Reservation { .. }, _) => "restored",
            (Reply::Activity { .. }, Command::Create { .. }) => "created",
            (Reply::Activity { .. }, Command::Edit { .. }) if events == 2 => "edited twice",
            (Reply::Activity { .. }, Command::Edit { .. }) => "edited",
            (Reply::Activity { .. }, Command::Restock { .. }) => "restocked",
            (Reply::Activity { .. }, Command::Decrease { .. }) => "decreased",
            (Reply::Activity { .. }, _) => "switched",
            (Reply::NothingDue(_), _) => "nothing due",
            (Reply::Refused(refusal), _) => refused(refusal),
        };
        self.see(what);
    }
}

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Invalid(_) => "invalid",
        Refusal::UnknownActivity => "unknown activity",
        Refusal::ActivityExists => "activity exists",
        Refusal::OrdinalsExhausted => "ordinals exhausted",
        Refusal::SkuOnSale => "sku on sale",
        Refusal::Paused => "paused",
        Refusal::OffSale => "off sale",
        Refusal::NotStarted => "not started",
        Refusal::Ended => "ended",
        Refusal::SoldOut => "sold out",
        Refusal::LimitReached => "limit reached",
        Refusal::RequestIdReused => "request id reused",
        Refusal::VersionMismatch { .. } => "version mismatch",
        Refusal::LockedWhileInProgress => "locked in progress",
        Refusal::StockBelowReserved => "stock below reserved",
        Refusal::TooManyOperations => "too many operations",
        Refusal::UnknownReservation => "unknown reservation",
        Refusal::AlreadyPaid => "already paid",
        Refusal::PaidByAnother => "paid by another",
        Refusal::RolledBack => "rolled back",
        Refusal::PaymentInProgress => "payment in progress",
        Refusal::TooManyPayments => "too many payments",
        Refusal::TooManyCallbacks => "too many callbacks",
        Refusal::NotPaid => "not paid",
        Refusal::RefundInProgress => "refund in progress",
        Refusal::AlreadyRefunded => "already refunded",
        Refusal::UnknownRefund => "unknown refund",
        Refusal::RefundNotOpen => "refund not open",
        Refusal::TooManyControls => "too many controls",
        Refusal::NoDeadLetter => "no dead letter",
        Refusal::Archived => "archived",
    }
}
