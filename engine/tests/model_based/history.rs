//! Runs a history through the engine's core and the model, and holds them against each other.

use std::collections::BTreeMap;

use engine::core::activity::View;
use engine::core::apply::apply;
use engine::core::codec;
use engine::core::command::{Answer, Command, Refusal, Reserve, Status};
use engine::core::decide::{Outcome, decide};
use engine::core::digest::digest;
use engine::core::event::{Actor, Body, Definition, Event, Front};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use engine::core::model::{Model, Reply};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::op::{BEGIN_MS, Op, Terms};

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
        let found = self.answer(id, &outcome);
        let expected = self.model.execute(id, command, self.now_ms);
        prop_assert_eq!(&found, &expected, "{:?} at {}", command, self.now_ms);
        prop_assert_eq!(self.shard.applied_seq(), self.model.records());
        let events = self.shard.applied_seq() - before;
        prop_assert_eq!(events > 0, matches!(outcome, Outcome::Accepted { .. }));
        prop_assert!(events <= 2);
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
    fn answer(&mut self, id: ActivityId, outcome: &Outcome<'_>) -> Reply {
        let events = match outcome {
            Outcome::Accepted { events } => events,
            Outcome::Repeated(Answer::Reservation(reservation)) => {
                return Reply::Reservation { fresh: false, reservation: (**reservation).clone() };
            }
            Outcome::Repeated(Answer::Activity(figures)) => {
                return Reply::Activity { fresh: false, figures: **figures };
            }
            Outcome::Refused(refusal) => return Reply::Refused(*refusal),
            Outcome::NothingDue(due_ms) => return Reply::NothingDue(*due_ms),
        };
        let mut touched = None;
        for event in events.iter() {
            self.append(event);
            touched = match event.body {
                Body::Reserved { reservation, .. }
                | Body::Confirmed { reservation, .. }
                | Body::Restored { reservation, .. } => Some(reservation),
                _ => None,
            };
        }
        match touched {
            Some(reservation) => {
                let reservation = self.shard.reservation(id, reservation).unwrap();
                Reply::Reservation { fresh: true, reservation }
            }
            None => {
                let figures = self.shard.activity(id).unwrap().answer(id);
                Reply::Activity { fresh: true, figures }
            }
        }
    }

    fn append(&mut self, event: &Event<'_>) {
        let mut body = Vec::new();
        codec::encode(event, &mut body);
        self.log.push((codec::kind(&event.body), body));
        let shard_seq = self.log.len() as u64;
        apply(&mut self.shard, event, shard_seq).unwrap();
        let id = codec::activity(&event.body).unwrap();
        let view = self.shard.activity(id).unwrap().view();
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
                _ => "repeated",
            },
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
    }
}
