//! The engine's core behind the library's calls: what Sluice itself answers.
//!
//! Only the shape of the arguments and the codes of the answers are here; what is decided is
//! decided by `decide` and done by `apply`, at the instant that the library is given.

use std::collections::BTreeMap;

use engine::core::apply::apply;
use engine::core::codec;
use engine::core::command::{Answer, Command, Refusal, Reserve};
use engine::core::decide::{Outcome, decide};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Front, LatePayment, RestoreReason, Status,
};
use engine::core::ids::{ActivityId, OrderPrefix, Ordinal, ReservationId, SkuId, UserId};
use engine::core::limits::{PAYMENT_TTL_MS_MAX, RESERVATIONS_BEYOND_LIMIT_MAX, TIME_MS_MAX};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};

use super::call::{ARGUMENTS, Call};
use super::reply::Reply;

const ACTOR: Actor<'static> = Actor { name: "caller", request_id: "" };

/// The code of each refusal of a call; any other refusal is an error.
type Codes = &'static [(Refusal, i64)];

const RESERVE: Codes = &[
    (Refusal::SoldOut, 0),
    (Refusal::NotStarted, -1),
    (Refusal::Ended, -1),
    (Refusal::LimitReached, -2),
    (Refusal::OffSale, -3),
    (Refusal::Paused, -4),
    (Refusal::UnknownActivity, -5),
    (Refusal::RequestIdReused, -6),
];
const CONFIRM: Codes =
    &[(Refusal::PaidByAnother, 3), (Refusal::RolledBack, -1), (Refusal::UnknownReservation, 0)];
const RESTORE: Codes = &[(Refusal::AlreadyPaid, 3), (Refusal::UnknownReservation, 0)];
const WARM: Codes = &[(Refusal::ActivityExists, 0)];
const SWITCH: Codes = &[(Refusal::UnknownActivity, 0)];
const CHANGE_TOTAL: Codes = &[];

pub struct Oracle {
    pub shard: Shard,
    prefix: OrderPrefix,
    next_ordinal: u32,
    /// The time of a call that brings none.
    now_ms: u64,
    /// What has happened and nobody has taken, each event's kind and bytes.
    happened: Vec<(u8, Vec<u8>)>,
}

/// An argument is outside its bounds, or the call cannot be and has no code for why.
struct Invalid;

enum Done {
    /// The id of the reservation that was made, where one was.
    Accepted(Option<ReservationId>),
    Repeated(Answer),
    Refused(Refusal),
}

impl Oracle {
    pub fn new(prefix: OrderPrefix, now_ms: u64) -> Self {
        let seed = ShardSeed { table_seed: 1, requests: RequestHasher::new(&[7; 16]) };
        let (shard, happened) = (Shard::new(seed), Vec::new());
        Self { shard, prefix, next_ordinal: 1, now_ms, happened }
    }

    /// The events since the last time, in order, as a log holds them: kind and bytes.
    pub fn take_events(&mut self) -> Vec<(u8, Vec<u8>)> {
        std::mem::take(&mut self.happened)
    }

    pub fn call(&mut self, call: &Call) -> Reply {
        self.answer(call).unwrap_or_else(|Invalid| Reply::error("INVALID"))
    }

    fn answer(&mut self, call: &Call) -> Result<Reply, Invalid> {
        let (_, count) = ARGUMENTS.iter().find(|(name, _)| *name == call.name).unwrap();
        let id = ActivityId::new(decimal(&call.activity)?).ok_or(Invalid)?;
        let words: Vec<_> = call.arguments.iter().map(Vec::as_slice).collect();
        let (words, now) = words.split_at_checked(*count).ok_or(Invalid)?;
        let now_ms = match now {
            [] => self.now_ms,
            [now] => decimal(now)?,
            _ => return Err(Invalid),
        };
        if now_ms > TIME_MS_MAX {
            return Err(Invalid);
        }
        match (call.name, words) {
            ("sluice_reserve", [user, request_id, quantity]) => {
                let user = UserId::new(decimal(user)?).ok_or(Invalid)?;
                let (request_id, quantity) = (text(request_id)?, units(quantity)?);
                self.reserve(id, user, request_id, quantity, now_ms)
            }
            ("sluice_confirm", [reservation, payment_no]) => {
                let reservation = reservation_id(reservation)?;
                let command = Command::Confirm { reservation, payment_no: text(payment_no)? };
                self.code(id, &command, now_ms, 2, CONFIRM)
            }
            ("sluice_restore", [reservation]) => {
                let (reservation, reason) = (reservation_id(reservation)?, RestoreReason::Api);
                let actor = Actor::NONE;
                let command = Command::Restore { reservation, owner: None, reason, actor };
                self.code(id, &command, now_ms, 2, RESTORE)
            }
            ("sluice_warm", words) => self.warm(id, words, now_ms),
            ("sluice_decrease", [op, delta]) => {
                let (op, quantity) = (text(op)?, units(delta)?);
                self.total(id, &Command::Decrease { actor: ACTOR, op, quantity }, now_ms)
            }
            ("sluice_restock", [op, delta]) => {
                let (op, quantity) = (text(op)?, units(delta)?);
                self.total(id, &Command::Restock { actor: ACTOR, op, quantity }, now_ms)
            }
            ("sluice_get", [reservation]) => Ok(self.get(id, reservation_id(reservation)?)),
            ("sluice_activity", _) => Ok(self.show(id)),
            (name, _) => {
                let command = match name {
                    "sluice_publish" => Command::Publish { actor: ACTOR },
                    "sluice_unpublish" => Command::Unpublish { actor: ACTOR },
                    "sluice_pause" => Command::Pause { actor: ACTOR },
                    "sluice_resume" => Command::Resume { actor: ACTOR },
                    other => unreachable!("{other} is listed above"),
                };
                self.code(id, &command, now_ms, 1, SWITCH)
            }
        }
    }

    fn reserve(
        &mut self,
        id: ActivityId,
        user: UserId,
        request_id: &str,
        quantity: u32,
        now_ms: u64,
    ) -> Result<Reply, Invalid> {
        let request_hash = self.shard.requests().hash(request_id);
        let front = Front::Resp;
        let command = Command::Reserve(Reserve { user, request_id, request_hash, quantity, front });
        let done = self.execute(id, &command, now_ms);
        let remaining = self.shard.activity(id).map_or(0, |it| it.figures().available.into());
        let made = |code, id: ReservationId| {
            Ok(Reply::purchase(code, id.get(), &self.prefix.order_no(id), remaining))
        };
        match done {
            Done::Accepted(Some(id)) => made(1, id),
            Done::Repeated(Answer::Reservation(reservation)) => made(2, reservation.id),
            Done::Refused(refusal) => {
                Ok(Reply::purchase(code(RESERVE, refusal)?, 0, "", remaining))
            }
            Done::Accepted(None) | Done::Repeated(_) => unreachable!("no purchase ends so"),
        }
    }

    fn warm(&mut self, id: ActivityId, words: &[&[u8]], now_ms: u64) -> Result<Reply, Invalid> {
        let &[sku, price, total, limit, start_ms, end_ms] = words else { return Err(Invalid) };
        let definition = Definition {
            sku: SkuId::new(decimal(sku)?).ok_or(Invalid)?,
            title: "",
            price: decimal(price)?,
            per_user_limit: units(limit)?,
            start_ms: decimal(start_ms)?,
            end_ms: decimal(end_ms)?,
            // No call of the library lets time run out: its caller restores.
            payment_ttl_ms: PAYMENT_TTL_MS_MAX,
            late_payment: LatePayment::Refund,
            dead_letter: DeadLetterPolicy::Rollback,
            publish_at_ms: 0,
        };
        let (ordinal, total) = (Ordinal::new(self.next_ordinal).unwrap(), units(total)?);
        let command = Command::Create { actor: ACTOR, ordinal, total, definition };
        let reply = self.code(id, &command, now_ms, 0, WARM)?;
        self.next_ordinal += u32::from(reply == Reply::Integer(1));
        Ok(reply)
    }

    fn total(&mut self, id: ActivityId, it: &Command<'_>, now_ms: u64) -> Result<Reply, Invalid> {
        match self.execute(id, it, now_ms) {
            Done::Accepted(_) => {
                let figures = self.shard.activity(id).unwrap().figures();
                Ok(Reply::integer(figures.available.into()))
            }
            Done::Repeated(Answer::Activity(before)) => {
                Ok(Reply::integer(before.figures.available.into()))
            }
            Done::Repeated(_) => unreachable!("an operator's command tells of the activity"),
            Done::Refused(refusal) => code(CHANGE_TOTAL, refusal).map(Reply::Integer),
        }
    }

    /// A command that is answered with a number alone: 1 for done now.
    fn code(
        &mut self,
        id: ActivityId,
        command: &Command<'_>,
        now_ms: u64,
        repeated: i64,
        refused: Codes,
    ) -> Result<Reply, Invalid> {
        match self.execute(id, command, now_ms) {
            Done::Accepted(_) => Ok(Reply::Integer(1)),
            Done::Repeated(_) => Ok(Reply::Integer(repeated)),
            Done::Refused(refusal) => code(refused, refusal).map(Reply::Integer),
        }
    }

    fn execute(&mut self, id: ActivityId, command: &Command<'_>, now_ms: u64) -> Done {
        let events = match decide(&self.shard, id, command, now_ms) {
            Outcome::Accepted { events } => events,
            Outcome::Repeated(answer) => return Done::Repeated(answer),
            Outcome::Refused(refusal) => return Done::Refused(refusal),
            Outcome::NothingDue(_) => unreachable!("the library has no timer"),
        };
        let mut made = None;
        for event in events.iter() {
            let shard_seq = self.shard.applied_seq() + 1;
            apply(&mut self.shard, event, shard_seq).unwrap();
            let mut bytes = Vec::new();
            codec::encode(event, &mut bytes);
            self.happened.push((codec::kind(&event.body), bytes));
            if let Body::Reserved { reservation, .. } = event.body {
                made = Some(reservation);
            }
        }
        Done::Accepted(made)
    }

    /// Whether the buyer has as many reservations as one user may have.
    pub fn is_at_bound(&self, call: &Call) -> bool {
        let id = decimal(&call.activity).ok().and_then(ActivityId::new);
        let user = call.arguments.first().and_then(|user| decimal(user).ok());
        let Some(activity) = id.and_then(|id| self.shard.activity(id)) else { return false };
        let limit = activity.terms().per_user_limit;
        let of_user = activity.slots().iter().filter(|slot| Some(slot.user().get()) == user);
        let reservations_max = limit.saturating_add(RESERVATIONS_BEYOND_LIMIT_MAX);
        of_user.count() >= reservations_max as usize
    }

    fn get(&self, id: ActivityId, reservation: ReservationId) -> Reply {
        let Some(it) = self.shard.reservation(id, reservation) else {
            return Reply::Map(BTreeMap::new());
        };
        let status = match it.status {
            Status::Reserved => "reserved",
            Status::Confirmed => "confirmed",
            Status::RolledBack(_) => "rolled_back",
        };
        map([
            ("id", Reply::integer(it.id.get())),
            ("activity", Reply::integer(it.activity.get())),
            ("user", Reply::integer(it.user.get())),
            ("sku", Reply::integer(it.sku.get())),
            ("price", Reply::integer(it.price)),
            ("quantity", Reply::integer(it.quantity.into())),
            ("order_no", Reply::Text(self.prefix.order_no(it.id))),
            ("status", Reply::text(status)),
            ("payment_no", Reply::Text(it.payment_no)),
            ("created_ms", Reply::integer(it.created_ms)),
        ])
    }

    fn show(&self, id: ActivityId) -> Reply {
        let Some(it) = self.shard.activity(id) else { return Reply::Map(BTreeMap::new()) };
        let (terms, figures, flags) = (it.terms(), it.figures(), it.flags());
        map([
            ("id", Reply::integer(id.get())),
            ("sku", Reply::integer(terms.sku.get())),
            ("price", Reply::integer(terms.price)),
            ("total", Reply::integer(it.total().into())),
            ("available", Reply::integer(figures.available.into())),
            ("locked", Reply::integer(figures.locked.into())),
            ("sold", Reply::integer(figures.sold.into())),
            ("limit", Reply::integer(terms.per_user_limit.into())),
            ("start_ms", Reply::integer(terms.start_ms)),
            ("end_ms", Reply::integer(terms.end_ms)),
            ("on_sale", Reply::integer(flags.on_sale.into())),
            ("paused", Reply::integer(flags.paused.into())),
        ])
    }
}

fn map<const N: usize>(fields: [(&str, Reply); N]) -> Reply {
    Reply::Map(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

fn code(codes: Codes, refusal: Refusal) -> Result<i64, Invalid> {
    let found = codes.iter().find(|(known, _)| *known == refusal);
    found.map(|(_, code)| *code).ok_or(Invalid)
}

/// A decimal of ASCII digits; leading zeros do not count.
fn decimal(word: &[u8]) -> Result<u64, Invalid> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return Err(Invalid);
    }
    text(word)?.trim_start_matches('0').parse().or_else(|_| match word {
        zeros if zeros.iter().all(|&byte| byte == b'0') => Ok(0),
        _ => Err(Invalid),
    })
}

fn units(word: &[u8]) -> Result<u32, Invalid> {
    u32::try_from(decimal(word)?).map_err(|_| Invalid)
}

fn reservation_id(word: &[u8]) -> Result<ReservationId, Invalid> {
    ReservationId::new(decimal(word)?).ok_or(Invalid)
}

/// Text, whose length the engine judges.
fn text(word: &[u8]) -> Result<&str, Invalid> {
    std::str::from_utf8(word).map_err(|_| Invalid)
}
