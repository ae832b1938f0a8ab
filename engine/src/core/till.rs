//! The till: purchases of one activity, decided and made so in one step, under one hold of its
//! shard.
//!
//! It is [`decide`](super::decide) and [`apply`](super::apply) run together. The rules are the
//! same [`judge`], the change is the same [`accept`] that replay ends in; what is left out is what
//! nothing can have changed between the two: the second look for the activity and for the user,
//! and holding the event against the state that it was just made from. What lists show, and the
//! sum of all units, is seen to once, when the till is closed.

use super::activity::Activity;
use super::apply::purchase::{Bought, accept, bought};
use super::apply::{ApplyError, Now};
use super::codec;
use super::command::{Refusal, Reserve};
use super::decide::purchase::{Accepted, Verdict, absent, bounds, gate, judge};
use super::ids::{ActivityId, ReservationId, UserId};
use super::limits::TIME_MS_MAX;
use super::reservation::Slot;
use super::shard::{Place, Shard};
use super::stock::Stock;

/// A purchase that was not refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sold {
    /// It was accepted: this reservation.
    Now(ReservationId),
    /// The same request made this reservation before.
    Before(ReservationId),
}

/// Sells units of one activity at one instant. Closed when dropped.
#[derive(Debug)]
pub struct Till<'s> {
    /// The activity, or why nothing can be bought of it.
    activity: Result<&'s mut Activity, Refusal>,
    /// What every purchase is refused for that is no repeat.
    gate: Result<(), Refusal>,
    id: ActivityId,
    at_ms: u64,
    durable_seq: u64,
    opened_seq: u64,
    applied_seq: &'s mut u64,
    due_ms_min: &'s mut u64,
}

impl Shard {
    /// The till of activity `id` at `at_ms`, an instant of the engine's clock.
    ///
    /// # Panics
    /// Where `at_ms` is beyond `TIME_MS_MAX`: no clock says so.
    pub fn till(&mut self, id: ActivityId, at_ms: u64) -> Till<'_> {
        assert!(at_ms <= TIME_MS_MAX, "the clock is beyond the year 9999");
        let activity = match self.places.get_mut(&id) {
            Some(Place::Live(activity)) => Ok(&mut **activity),
            place => Err(absent(place.is_some())),
        };
        let gate = activity.as_ref().map_or(Ok(()), |activity| gate(activity, at_ms));
        let (applied_seq, due_ms_min) = (&mut self.applied_seq, &mut self.due_ms_min);
        let (durable_seq, opened_seq) = (self.durable_seq, *applied_seq);
        Till { activity, gate, id, at_ms, durable_seq, opened_seq, applied_seq, due_ms_min }
    }
}

impl Till<'_> {
    /// Decides a purchase and, where it is accepted, makes it so and hands its record to `log`,
    /// which appends it and tells its place in the shard's log.
    ///
    /// `command.request_hash` must be the hash of `command.request_id` by the shard's hasher.
    ///
    /// # Errors
    /// The refusal.
    ///
    /// # Panics
    /// Where `log` tells another place than the record has here. The state has changed by then: who
    /// calls this aborts on a panic.
    #[inline]
    pub fn sell(
        &mut self,
        command: &Reserve<'_>,
        log: impl FnOnce(&codec::Purchase<'_>) -> u64,
    ) -> Result<Sold, Refusal> {
        bounds(command)?;
        let activity = self.activity.as_mut().map_err(|refusal| *refusal)?;
        let at_ms = self.at_ms;
        let accepted = match judge(activity, command, self.gate)? {
            Verdict::Replayed(reservation) => return Ok(Sold::Before(reservation)),
            Verdict::Accepted(accepted) => accepted,
        };
        let seq = *self.applied_seq + 1;
        *self.applied_seq = seq;
        let &Reserve { user, request_id, quantity, request_hash, front } = command;
        let &Accepted { reservation, position, figures, held, .. } = &accepted;
        let (activity_id, version, request_id) = (self.id, activity.version, request_id.as_bytes());
        let slot = Slot::new(user, quantity, request_hash, at_ms, seq);
        accept(activity, &accepted, slot);
        activity.assert_last(position);
        let logged = log(&codec::Purchase {
            at_ms,
            activity: activity_id,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            front,
            request_id,
        });
        assert_eq!(logged, seq, "the log's order is the shard's");
        Ok(Sold::Now(accepted.reservation))
    }

    /// Makes the purchase happen that is record `shard_seq` of the shard's log. The till's own
    /// instant is of no account.
    ///
    /// # Errors
    /// [`ApplyError`] where it cannot have followed this state, which is unchanged then.
    #[inline]
    pub fn replay(
        &mut self,
        purchase: &codec::Purchase<'_>,
        shard_seq: u64,
        request_hash: u128,
    ) -> Result<(), ApplyError> {
        let &codec::Purchase { reservation, user, quantity, held, version, figures, .. } = purchase;
        let applied = *self.applied_seq;
        if applied.checked_add(1) != Some(shard_seq) {
            return Err(ApplyError::Sequence { applied, found: shard_seq });
        }
        let activity = match &mut self.activity {
            Ok(activity) => activity,
            Err(Refusal::Ended) => return Err(ApplyError::Archived(self.id)),
            Err(_) => return Err(ApplyError::UnknownActivity(self.id)),
        };
        let now = Now { id: self.id, at_ms: purchase.at_ms, shard_seq, request_hash };
        bought(activity, &Bought { reservation, user, quantity, held, version, figures }, &now)?;
        *self.applied_seq = shard_seq;
        Ok(())
    }

    /// Units that are free to buy; 0 where there is no such activity.
    pub fn available(&self) -> u32 {
        self.activity.as_ref().map_or(0, |activity| activity.figures().available)
    }

    /// Whether it would take memory that was made ahead.
    pub fn is_short(&self) -> bool {
        self.activity.as_ref().is_ok_and(|activity| activity.is_short())
    }

    /// Takes memory that was made ahead, where much will be bought: see [`Stock`].
    pub fn stock_up(&mut self, stock: &mut dyn Stock) {
        if let Ok(activity) = &mut self.activity {
            activity.stock_up(stock);
        }
    }

    /// Has what is known of these users fetched from memory side by side, before they buy one after
    /// another: with millions of users a purchase waits for little else.
    pub fn fetch(&self, users: impl Iterator<Item = UserId>) {
        if let Ok(activity) = &self.activity {
            activity.users.fetch(users);
        }
    }
}

impl Drop for Till<'_> {
    fn drop(&mut self) {
        let Ok(activity) = &mut self.activity else { return };
        if *self.applied_seq == self.opened_seq {
            return;
        }
        activity.changed(self.id, self.durable_seq, *self.applied_seq);
        let due_ms = activity.next_due_ms(0).unwrap_or(u64::MAX);
        *self.due_ms_min = (*self.due_ms_min).min(due_ms);
    }
}
