//! What a buyer bought and SQL has no order of: not yet, or never.

use wal::Busy;

use super::engine::Engine;
use super::pending::Pending;
use super::views::ReservationView;
use crate::core::event::{RestoreReason, Status};
use crate::core::ids::{ReservationId, UserId};
use crate::core::side::DeadLetter;

/// Such reservations of one activity that are looked at: more than a sink is ever behind with one
/// buyer.
const OF_AN_ACTIVITY_MAX: usize = 256;

impl Engine {
    /// The reservations of `user` that have no order in SQL: those that the orders sink has not
    /// reached, and dead letters. Each of the values waits for what it rests on.
    ///
    /// # Errors
    /// [`Busy::LogUnavailable`] where the log has failed.
    pub fn without_order(&self, user: UserId) -> Result<Vec<Pending<Vec<ReservationView>>>, Busy> {
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let mut found = Vec::new();
        for index in 0..self.inner.log.format().shard_count {
            let shard = self.lock(index);
            let ordered_seq = self.inner.ordered.seq(index);
            let mut views = Vec::new();
            for (id, activity) in shard.activities() {
                let ids: Vec<ReservationId> = activity
                    .reservations_of(user)
                    .into_iter()
                    .filter_map(|reservation| Some((reservation, activity.slot(reservation)?)))
                    .filter(|(reservation, slot)| {
                        slot.shard_seq() > ordered_seq
                            || activity.dead_letter(*reservation).is_some_and(DeadLetter::is_open)
                            || slot.status() == Status::RolledBack(RestoreReason::DeadLetter)
                    })
                    .map(|(reservation, _)| reservation)
                    .take(OF_AN_ACTIVITY_MAX)
                    .collect();
                let reservations = ids.into_iter().filter_map(|it| activity.reservation(id, it));
                views.extend(reservations.map(|it| self.view(index, &shard, it)));
            }
            if !views.is_empty() {
                found.push(self.pending(index, &shard, views));
            }
        }
        Ok(found)
    }
}
