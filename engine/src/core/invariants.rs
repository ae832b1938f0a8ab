//! What always holds of an activity and of a shard: asserted after every change, in release builds
//! too. Where one of these breaks, units were lost or sold twice already, and every further answer
//! makes it worse; so the process ends, and the log, whose events were each checked before, says
//! what happened.
//!
//! Each is a comparison or two of what the change has at hand. What needs a walk over the activity
//! is recomputed by [`audit`](super::audit).

use super::activity::Activity;
use super::event::Status;
use super::ids::{ActivityId, Position};
use super::shard::Shard;

impl Activity {
    /// Holds what no event may break.
    ///
    /// # Panics
    /// Where it is broken.
    pub(super) fn assert_conserved(&self, id: ActivityId) {
        self.assert_units(id);
        self.assert_timer(id);
        self.assert_aside(id);
    }

    /// W17: every unit is in exactly one pool.
    fn assert_units(&self, id: ActivityId) {
        let sum = self.figures.total();
        assert!(sum == u64::from(self.total), "W17: {} units of activity {id}: {sum}", self.total);
        // What was sold before this log has no reservation here that could give it back.
        assert!(
            self.figures.sold >= self.sold_before,
            "W17: activity {id} took back foreign units"
        );
    }

    /// W17: locked units belong to someone, who pays or runs out of time. The cursor of the timer
    /// stands at the first of them: an unpaid reservation before it would hold its units for ever.
    fn assert_timer(&self, id: ActivityId) {
        let (locked, adopted) = (self.figures.locked, self.adopted_unpaid.len());
        let own = self.slots.get(self.unpaid_from);
        assert!(self.unpaid_from <= self.slots.len(), "the timer of {id} is past all slots");
        assert!(locked == 0 || own.is_some() || adopted > 0, "W17: {id} locks no one's units");
        assert!(locked as usize >= adopted, "W17: activity {id} locks too few adopted units");
        let Some(first) = own else { return };
        assert!(first.status() == Status::Reserved, "the timer of {id} waits for what is settled");
        assert!(first.quantity() <= locked, "W17: activity {id} locks too few units");
    }

    /// What few reservations have is had by reservations that are there.
    fn assert_aside(&self, id: ActivityId) {
        let reservations = self.slots.len() + self.adopted.len();
        assert!(self.adopted_unpaid.len() <= self.adopted.len(), "{id} waits for strangers");
        assert!(self.payments.len() <= reservations, "activity {id} was paid for nothing");
        assert!(self.openings.len() <= reservations, "activity {id} opened payments of nothing");
        assert!(self.dead_letters.len() <= reservations, "{id} has dead letters of nothing");
    }

    /// Positions are dense (W4): a reservation's id says where it lies, and nothing else does.
    ///
    /// # Panics
    /// Where the reservation made last is not the one at `position`.
    #[inline]
    pub(super) fn assert_last(&self, position: Position) {
        assert!(self.slots.len() == position.index() + 1, "W4: a reservation beside its place");
    }
}

impl Shard {
    /// The record `shard_seq` was the last to happen here, and lists show nothing later.
    ///
    /// # Panics
    /// Where it was not.
    pub(super) fn assert_applied(&self, shard_seq: u64) {
        assert!(self.applied_seq == shard_seq, "W4: the order of the log is the order of changes");
        assert!(self.durable_seq <= shard_seq, "W2: what is durable was applied before");
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::Flags;
    use super::super::event::{DeadLetterPolicy, Definition, Figures, LatePayment};
    use super::super::ids::{Ordinal, SkuId, UserId};
    use super::super::reservation::Slot;
    use super::super::table::Tables;
    use super::*;

    fn id() -> ActivityId {
        ActivityId::new(1).unwrap()
    }

    /// Ten units, three of them locked by one reservation.
    fn activity() -> Activity {
        let definition = Definition {
            sku: SkuId::new(1).unwrap(),
            title: "t",
            price: 1,
            per_user_limit: 3,
            start_ms: 0,
            end_ms: 1,
            payment_ttl_ms: 1_000,
            late_payment: LatePayment::Refund,
            dead_letter: DeadLetterPolicy::Hold,
            publish_at_ms: 0,
        };
        let figures = Figures { available: 7, locked: 3, sold: 0 };
        let ordinal = Ordinal::new(1).unwrap();
        let mut activity =
            Activity::new(ordinal, 1, figures, Flags::default(), &definition, 1, Tables(7));
        activity.slots.push(Slot::new(UserId::new(9).unwrap(), 3, 5, 0, 2));
        activity
    }

    fn breaks(break_it: impl FnOnce(&mut Activity)) -> bool {
        let mut activity = activity();
        break_it(&mut activity);
        let check = std::panic::AssertUnwindSafe(|| activity.assert_conserved(id()));
        std::panic::catch_unwind(check).is_err()
    }

    #[test]
    fn a_unit_in_two_pools_in_none_or_locked_for_no_one_is_found() {
        assert!(!breaks(|_| ()), "as it is, it holds");
        assert!(breaks(|it| it.figures.sold = 1), "one too many");
        assert!(breaks(|it| it.figures.available = 6), "one too few");
        assert!(breaks(|it| it.figures = Figures { available: 9, locked: 1, sold: 0 }));
        assert!(breaks(|it| it.figures = Figures { available: 10, locked: 0, sold: 0 }));
        assert!(breaks(|it| it.unpaid_from = 1), "its reservation would never expire");
        assert!(breaks(|it| it.unpaid_from = 2));
        assert!(breaks(|it| it.sold_before = 1), "nothing was ever sold");
    }

    #[test]
    #[should_panic(expected = "W4")]
    fn a_reservation_beside_its_place_is_found() {
        activity().assert_last(Position::new(2).unwrap());
    }
}
