//! Paying and giving back, through the engine.

use wal::Busy;

use super::engine::Engine;
use super::pending::Pending;
use super::views::ReservationView;
use crate::core::command::{Command, Refusal};
use crate::core::event::{Actor, RestoreReason};
use crate::core::ids::{ReservationId, UserId};

/// The reservation after the command, or why nothing changed.
pub(super) type Answered = Result<Pending<Result<ReservationView, Refusal>>, Busy>;

impl Engine {
    /// Marks a reservation as paid. Paying it again with the same number changes nothing.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn confirm(&self, reservation: ReservationId, payment_no: &str) -> Answered {
        self.settle(reservation, &Command::Confirm { reservation, payment_no })
    }

    /// Gives an unpaid reservation back; `owner` must be its buyer where given. `actor` is the
    /// operator where the reason is `Admin`, else [`Actor::NONE`]. Giving it back again changes
    /// nothing.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn restore(
        &self,
        reservation: ReservationId,
        owner: Option<UserId>,
        reason: RestoreReason,
        actor: Actor<'_>,
    ) -> Answered {
        self.settle(reservation, &Command::Restore { reservation, owner, reason, actor })
    }

    pub(super) fn settle(&self, id: ReservationId, command: &Command<'_>) -> Answered {
        let Some(activity) = self.activity_of(id) else {
            return self.refused(0, Refusal::UnknownReservation);
        };
        let index = self.shard_index(activity);
        let pending = self.run(activity, command, |shard, _| {
            shard.reservation(activity, id).map(|it| self.view(index, shard, it))
        })?;
        Ok(pending.map(|told| told?.ok_or(Refusal::UnknownReservation)))
    }
}
