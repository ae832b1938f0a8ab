//! What always holds of an activity and of a shard: asserted after every change, in release builds
//! too. Where one of these breaks, units were lost or sold twice already, and every further answer
//! makes it worse; so the process ends, and the log, whose events were each checked before, says
//! what happened.
//!
//! Each is a comparison or two of what the change has at hand. What needs a walk over the activity
//! is recomputed by [`audit`](super::audit).

use super::activity::Activity;
use super::event::Status;
use super::ids::{ActivityId, Position, ReservationId};
use super::limits::UNITS_MAX;
use super::reservation::Slot;
use super::shard::Shard;
use super::side::RefundStatus;

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

    /// What a purchase cannot break, and every other event might.
    ///
    /// # Panics
    /// Where it is broken.
    pub(super) fn assert_beside(&self, id: ActivityId) {
        assert!(self.total <= UNITS_MAX, "SQL has no column for the units of activity {id}");
        let publishes_itself = self.flags.on_sale && !self.schedule_over;
        assert!(!publishes_itself, "activity {id} is on sale and waits to be published");
        let reservations = self.slots.len() + self.adopted.len();
        assert!(self.users.count() <= reservations, "W17: {id} has users without reservations");
        let Some((created_ms, first)) = self.adopted_unpaid.first() else { return };
        let waits = self.adopted.get(first).map(|it| (it.slot.status(), it.slot.created_ms()));
        assert!(waits == Some((Status::Reserved, *created_ms)), "W17: {id} waits for {first}");
    }

    /// An event has made `status` of a reservation, so that the timer waits for it no more, and
    /// what is paid has its payment.
    ///
    /// # Panics
    /// Where it has not.
    pub(super) fn assert_moved(&self, id: ReservationId, status: Status) {
        let slot = self.slot(id);
        assert!(slot.map(Slot::status) == Some(status), "reservation {id} is not {status:?}");
        let is_paid = status == Status::Confirmed;
        assert!(!is_paid || self.payments.contains_key(&id), "{id} is paid by no payment");
        let timer = slot.map(|slot| (slot.created_ms(), id));
        let waits = timer.is_some_and(|timer| self.adopted_unpaid.contains(&timer));
        assert!(!waits, "W17: the timer would give {id} back, which is {status:?}");
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
    /// A refund that waits for its provider is listed, and no other one is: else money would never
    /// go back, or twice.
    ///
    /// # Panics
    /// Where it is not so.
    pub(super) fn assert_listed(
        &self,
        id: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
    ) {
        let refund = self.refund(id, reservation, refund_no);
        let is_open = refund.is_some_and(|it| it.status == RefundStatus::Requested);
        let is_listed = self.open_refund(reservation, refund_no).is_some();
        assert!(is_open == is_listed, "refund {refund_no} is open: {is_open}, listed: {is_listed}");
    }

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
        is_broken(break_it, |it| it.assert_conserved(id()))
    }

    fn is_broken(break_it: impl FnOnce(&mut Activity), check: impl FnOnce(&Activity)) -> bool {
        let mut activity = activity();
        break_it(&mut activity);
        let check = std::panic::AssertUnwindSafe(|| check(&activity));
        std::panic::catch_unwind(check).is_err()
    }

    fn own(position: u32) -> ReservationId {
        ReservationId::compose(Ordinal::new(1).unwrap(), Position::new(position).unwrap())
    }

    #[test]
    fn what_no_purchase_can_break_is_found_as_well() {
        let breaks = |break_it: fn(&mut Activity)| is_broken(break_it, |it| it.assert_beside(id()));
        assert!(!breaks(|_| ()), "as it is, it holds");
        assert!(breaks(|it| it.total = UNITS_MAX + 1));
        assert!(breaks(|it| it.flags.on_sale = true), "it would be published once more");
        assert!(!breaks(|it| (it.flags.on_sale, it.schedule_over) = (true, true)));
        assert!(breaks(|it| {
            for user in [8, 9] {
                let slot = Slot::new(UserId::new(user).unwrap(), 1, 0, 0, 1);
                it.users.adopt(&slot, 1, own(1), &it.slots, it.ordinal);
            }
        }));
        assert!(breaks(|it| _ = it.adopted_unpaid.insert((5, own(1)))), "none was adopted");
    }

    #[test]
    fn a_reservation_that_is_not_where_its_event_put_it_is_found() {
        let confirmed = |break_it: fn(&mut Activity)| {
            let confirm = |it: &mut Activity| {
                it.slots.get_mut(0).unwrap().set_status(Status::Confirmed, 1);
                it.payments.insert(own(1), "p".into());
                break_it(it);
            };
            is_broken(confirm, |it| it.assert_moved(own(1), Status::Confirmed))
        };
        assert!(!confirmed(|_| ()), "as it is, it holds");
        assert!(confirmed(|it| _ = it.payments.remove(&own(1))), "paid by nothing");
        assert!(confirmed(|it| _ = it.adopted_unpaid.insert((0, own(1)))), "and given back later");
        let is_there = |it: &Activity| it.assert_moved(own(1), Status::Confirmed);
        assert!(is_broken(|_| (), is_there), "it is unpaid");
        let is_none = |it: &Activity| it.assert_moved(own(2), Status::Confirmed);
        assert!(is_broken(|_| (), is_none), "it is not there");
    }

    #[test]
    #[should_panic(expected = "W17")]
    fn units_of_somebody_who_never_reserved_are_found() {
        activity().users.set_held(UserId::new(8).unwrap(), 1);
    }

    #[test]
    fn a_refund_that_is_open_or_listed_and_not_both_is_found() {
        use super::super::event::RefundScope;
        use super::super::request::RequestHasher;
        use super::super::shard::{Place, ShardSeed};
        use super::super::side::{OpenRefund, Refund};

        let requests = RequestHasher::new(&[3; 16]);
        let user = UserId::new(9).unwrap();
        let is_found = |status: Option<RefundStatus>, listed: bool| {
            let mut shard = Shard::new(ShardSeed { table_seed: 1, requests });
            let mut activity = activity();
            let (scope, restock, free_limit) = (RefundScope::Order, false, false);
            let key = || (own(1), Box::from("f"));
            if let Some(status) = status {
                let refund = Refund { scope, restock, free_limit, status };
                activity.refunds.insert(key(), refund);
            }
            shard.places.insert(id(), Place::Live(Box::new(activity)));
            if listed {
                let refund = OpenRefund {
                    activity: id(),
                    user,
                    scope,
                    restock,
                    free_limit,
                    channel: Box::default(),
                    payment_no: Box::default(),
                    transaction: Box::default(),
                    amount: 1,
                    requested_ms: 1,
                    shard_seq: 1,
                };
                shard.open_refunds.insert(key(), refund);
            }
            let check = std::panic::AssertUnwindSafe(|| shard.assert_listed(id(), own(1), "f"));
            std::panic::catch_unwind(check).is_err()
        };
        assert!(!is_found(None, false) && !is_found(Some(RefundStatus::Requested), true));
        assert!(!is_found(Some(RefundStatus::Settled), false));
        assert!(is_found(Some(RefundStatus::Requested), false), "its money never goes back");
        assert!(is_found(Some(RefundStatus::Settled), true), "its money goes back twice");
        assert!(is_found(None, true));
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
