//! The till: purchases of one activity, decided and made so in one step, under one hold of its
//! shard.
//!
//! It is [`decide`](super::decide) and [`apply`](super::apply) run together. The rules are the
//! same [`judge`], the change is the same [`accept`] that replay ends in; what is left out is what
//! nothing can have changed between the two: the second look for the activity and for the user,
//! and holding the event against the state that it was just made from. What lists show, and the
//! sum of all units, is seen to once, when the till is closed.

use super::activity::Activity;
use super::apply::purchase::accept;
use super::command::{Refusal, Reserve};
use super::decide::Purchase;
use super::decide::purchase::{Verdict, absent, bounds, judge};
use super::ids::{ActivityId, UserId};
use super::limits::TIME_MS_MAX;
use super::reservation::Slot;
use super::shard::{Place, Shard};

/// Sells units of one activity at one instant. Closed when dropped.
#[derive(Debug)]
pub struct Till<'s> {
    /// The activity, or why nothing can be bought of it.
    activity: Result<&'s mut Activity, Refusal>,
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
        let refusal = absent(self, id);
        let activity = match self.places.get_mut(&id) {
            Some(Place::Live(activity)) => Ok(&mut **activity),
            _ => Err(refusal),
        };
        let (applied_seq, due_ms_min) = (&mut self.applied_seq, &mut self.due_ms_min);
        let (durable_seq, opened_seq) = (self.durable_seq, *applied_seq);
        Till { activity, id, at_ms, durable_seq, opened_seq, applied_seq, due_ms_min }
    }
}

impl Till<'_> {
    /// Decides a purchase and makes it so where it is accepted. The event of an accepted one must
    /// become the record [`applied_seq`](Self::applied_seq) of the shard's log before anything
    /// else happens to the shard.
    ///
    /// `command.request_hash` must be the hash of `command.request_id` by the shard's hasher.
    #[inline]
    pub fn reserve<'a>(&mut self, command: &Reserve<'a>) -> Purchase<'a> {
        match self.rules(command) {
            Ok(purchase) => purchase,
            Err(refusal) => Purchase::Refused(refusal),
        }
    }

    #[inline]
    fn rules<'a>(&mut self, command: &Reserve<'a>) -> Result<Purchase<'a>, Refusal> {
        bounds(command)?;
        let activity = self.activity.as_mut().map_err(|refusal| *refusal)?;
        let accepted = match judge(activity, command, self.at_ms)? {
            Verdict::Replayed(reservation) => return Ok(Purchase::Replayed(reservation)),
            Verdict::Accepted(accepted) => accepted,
        };
        *self.applied_seq += 1;
        let &Reserve { user, quantity, request_hash, .. } = command;
        let slot = Slot::new(user, quantity, request_hash, self.at_ms, *self.applied_seq);
        accept(activity, &accepted, slot);
        let event = accepted.event(activity, self.id, command, self.at_ms);
        Ok(Purchase::Accepted(accepted.reservation, event))
    }

    /// Units that are free to buy; 0 where there is no such activity.
    pub fn available(&self) -> u32 {
        self.activity.as_ref().map_or(0, |activity| activity.figures().available)
    }

    /// Has what is known of these users fetched from memory side by side, before they buy one after
    /// another: with millions of users a purchase waits for little else.
    pub fn fetch(&self, users: impl Iterator<Item = UserId>) {
        if let Ok(activity) = &self.activity {
            activity.users.fetch(users);
        }
    }

    /// The sequence in the shard of the last event applied.
    pub const fn applied_seq(&self) -> u64 {
        *self.applied_seq
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
