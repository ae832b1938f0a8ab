//! The calls of the function library (`functions/sluice.lua`), in the library's terms: each names
//! its activity, and tells a command that was done before from one that was done now.

use wal::Busy;

use super::engine::Engine;
use super::pending::Pending;
use crate::core::command::{Answer, Command, Refusal};
use crate::core::event::{Actor, Figures, RestoreReason};
use crate::core::ids::{ActivityId, ReservationId};
use crate::core::shard::Shard;

/// A call that changes an activity that exists, a purchase aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of `Command`, documented there")]
pub enum Call<'a> {
    /// Marks a reservation of the activity as paid. Never reinstates one that was given back.
    Confirm { reservation: ReservationId, payment_no: &'a str },
    /// Gives an unpaid reservation of the activity back.
    Restore { reservation: ReservationId },
    /// Puts the activity on sale.
    Publish { actor: Actor<'a> },
    /// Takes it off sale.
    Unpublish { actor: Actor<'a> },
    /// Stops new purchases.
    Pause { actor: Actor<'a> },
    /// Lifts a pause and a drain.
    Resume { actor: Actor<'a> },
    /// Adds units, once per `op`.
    Restock { actor: Actor<'a>, op: &'a str, quantity: u32 },
    /// Takes free units away, once per `op`.
    Decrease { actor: Actor<'a>, op: &'a str, quantity: u32 },
}

/// What a call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    /// It had been done before, and nothing changed.
    pub repeated: bool,
    /// The activity's units: after the call, or as an operation that is repeated was answered then.
    pub figures: Figures,
}

impl<'a> Call<'a> {
    const fn command(self) -> Command<'a> {
        match self {
            Self::Confirm { reservation, payment_no } => {
                Command::Confirm { reservation, payment_no }
            }
            Self::Restore { reservation } => Command::Restore {
                reservation,
                owner: None,
                reason: RestoreReason::Api,
                actor: Actor::NONE,
            },
            Self::Publish { actor } => Command::Publish { actor },
            Self::Unpublish { actor } => Command::Unpublish { actor },
            Self::Pause { actor } => Command::Pause { actor },
            Self::Resume { actor } => Command::Resume { actor },
            Self::Restock { actor, op, quantity } => Command::Restock { actor, op, quantity },
            Self::Decrease { actor, op, quantity } => Command::Decrease { actor, op, quantity },
        }
    }
}

impl Engine {
    /// Makes a call.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn call(
        &self,
        activity: ActivityId,
        call: Call<'_>,
    ) -> Result<Pending<Result<Called, Refusal>>, Busy> {
        self.run(activity, &call.command(), |shard, before| match before {
            Some(Answer::Activity(then)) => Called { repeated: true, figures: then.figures },
            Some(Answer::Reservation(_) | Answer::Payment(_) | Answer::Refund(_)) => {
                Called { repeated: true, figures: now(shard, activity) }
            }
            None => Called { repeated: false, figures: now(shard, activity) },
        })
    }

    /// What `look` makes of the state of the activity's shard, held until all that it may have
    /// seen is durable. Nothing but its answer may leave it.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn look<T>(
        &self,
        activity: ActivityId,
        look: impl FnOnce(&Shard) -> T,
    ) -> Result<Pending<T>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let index = self.shard_index(activity);
        let shard = self.lock(index);
        Ok(self.pending(index, &shard, look(&shard)))
    }
}

fn now(shard: &Shard, activity: ActivityId) -> Figures {
    shard.activity(activity).map(|it| it.figures()).unwrap_or_default()
}
