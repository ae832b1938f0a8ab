//! What shall happen: a pure function of the state, the command, and the instant.
//!
//! Every decision has the same shape: bounds of the input, then what has been done before (a
//! repeated command is answered, not done again), then the rules. Nothing is changed here; an
//! accepted outcome is one to three events, for [`apply`](super::apply::apply).

pub(super) mod adopt;
mod archive;
mod callback;
mod control;
mod dead_letter;
mod operator;
pub(super) mod payment;
pub(super) mod purchase;
mod refund;

pub use self::adopt::{
    AdoptActivity, AdoptReservation, Adoption, adopt_activity, adopt_reservation,
};
pub use self::callback::unknown_payment;
pub use self::control::{SetControl, clear_control, set_control};
pub use self::purchase::{Purchase, reserve};

use super::codec;
use super::command::{Answer, Command, Refusal};
use super::event::{Body, Event};
use super::ids::ActivityId;
use super::limits::TIME_MS_MAX;
use super::shard::Shard;

/// What a command comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "accepted is the rule, and it must not allocate")]
pub enum Outcome<'a> {
    /// It shall be: these events are to be applied and logged, in one piece.
    Accepted {
        /// One to three.
        events: Events<'a>,
    },
    /// It has been done before, or is so already: nothing changes.
    Repeated(Answer),
    /// It cannot be: nothing changes.
    Refused(Refusal),
    /// To an `Expire` or an `Archive`: nothing is overdue. When something falls due, if that is
    /// known.
    NothingDue(Option<u64>),
}

/// The events of one command. They must never straddle two frames of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events<'a> {
    first: Event<'a>,
    others: [Option<Event<'a>>; 2],
}

impl<'a> Events<'a> {
    /// The events, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Event<'a>> {
        std::iter::once(&self.first).chain(self.others.iter().flatten())
    }

    /// What a decision about `id` has come to.
    ///
    /// # Panics
    /// Where it moves another activity.
    fn of(id: ActivityId, at_ms: u64, first: Body<'a>, others: [Option<Body<'a>>; 2]) -> Self {
        let event = |body| Event { at_ms, body };
        let events = Self { first: event(first), others: others.map(|body| body.map(event)) };
        let is_its = |event: &Event<'_>| codec::activity(&event.body) == Some(id);
        assert!(events.iter().all(is_its), "a decision about {id} moves another: {events:?}");
        events
    }

    const fn one(first: Event<'a>) -> Self {
        Self { first, others: [None; 2] }
    }
}

/// What comes of `command` for `activity` at `at_ms`, an instant of the engine's clock.
///
/// Panics where `at_ms` is beyond `TIME_MS_MAX`: no clock says so.
pub fn decide<'a>(
    shard: &Shard,
    activity: ActivityId,
    command: &Command<'a>,
    at_ms: u64,
) -> Outcome<'a> {
    assert!(at_ms <= TIME_MS_MAX, "the clock is beyond the year 9999");
    let decision = match *command {
        Command::Reserve(ref command) => {
            return purchase::outcome(shard, activity, command, at_ms);
        }
        Command::Expire { serving_since_ms } => {
            return payment::expire(shard, activity, serving_since_ms, at_ms);
        }
        Command::Archive { covered_seq } => {
            return archive::archive(shard, activity, covered_seq, at_ms);
        }
        Command::Create { actor, ordinal, total, ref definition } => {
            operator::create(shard, activity, actor, ordinal, total, definition)
        }
        Command::Edit { actor, version, total, ref definition } => {
            let edit = operator::Edit { actor, version, total, definition };
            operator::edit(shard, activity, &edit, at_ms)
        }
        Command::Publish { actor } => operator::publish(shard, activity, actor),
        Command::Unpublish { actor } => operator::unpublish(shard, activity, actor),
        Command::Pause { actor } => operator::pause(shard, activity, actor),
        Command::Resume { actor } => operator::resume(shard, activity, actor),
        Command::Drain { actor } => operator::drain(shard, activity, actor),
        Command::Restock { actor, op, quantity } => {
            operator::restock(shard, activity, actor, op, quantity)
        }
        Command::Decrease { actor, op, quantity } => {
            operator::decrease(shard, activity, actor, op, quantity)
        }
        Command::Confirm { reservation, payment_no } => {
            payment::confirm(shard, activity, reservation, payment_no)
        }
        Command::OpenPayment(ref command) => callback::open(shard, activity, command, at_ms),
        Command::RecordPayment(ref command) => callback::record(shard, activity, command),
        Command::RequestRefund(ref command) => refund::request(shard, activity, command),
        Command::SettleRefund { reservation, refund_no } => {
            refund::settle(shard, activity, reservation, refund_no)
        }
        Command::FailRefund { reservation, refund_no, note } => {
            refund::fail(shard, activity, reservation, refund_no, note)
        }
        Command::DeadLetter { reservation, failed_seq, note } => {
            dead_letter::report(shard, activity, reservation, failed_seq, note)
        }
        Command::RetryDeadLetter { reservation, actor } => {
            dead_letter::retry(shard, activity, reservation, actor)
        }
        Command::RollBackDeadLetter { reservation, refund_no, actor } => {
            dead_letter::roll_back(shard, activity, reservation, refund_no, actor)
        }
        Command::Restore { reservation, owner, reason, actor } => {
            payment::restore(shard, activity, reservation, owner, (reason, actor))
        }
    };
    match decision {
        Ok(Decision::Do(first, others)) => {
            Outcome::Accepted { events: Events::of(activity, at_ms, first, others) }
        }
        Ok(Decision::Done(answer)) => Outcome::Repeated(answer),
        Err(refusal) => Outcome::Refused(refusal),
    }
}

/// What the rules of one command say where they do not refuse it.
#[expect(clippy::large_enum_variant, reason = "it lives for one call, on the stack")]
enum Decision<'a> {
    /// It shall happen.
    Do(Body<'a>, [Option<Body<'a>>; 2]),
    /// It has happened.
    Done(Answer),
}

/// The one event of most commands.
const fn one(body: Body<'_>) -> Decision<'_> {
    Decision::Do(body, [None; 2])
}

const fn two<'a>(first: Body<'a>, second: Body<'a>) -> Decision<'a> {
    with(first, Some(second))
}

const fn three<'a>(first: Body<'a>, second: Body<'a>, third: Body<'a>) -> Decision<'a> {
    Decision::Do(first, [Some(second), Some(third)])
}

/// One event, and another where there is one.
const fn with<'a>(first: Body<'a>, second: Option<Body<'a>>) -> Decision<'a> {
    Decision::Do(first, [second, None])
}
