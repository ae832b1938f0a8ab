//! What SQL must say of what the engine says: pure, page by page.

use engine::core::activity::{Activity, Flags};
use engine::core::event::{Figures, RestoreReason, Status};
use engine::core::ids::{ActivityId, OrderPrefix, Position, ReservationId, UserId};
use engine::core::reservation::Slot;
use engine::core::side::{DeadLetterState, RefundStatus};

use super::Kind;

/// An activity as the engine has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Units {
    /// The activity.
    pub id: ActivityId,
    /// Its units.
    pub figures: Figures,
    /// Its switches.
    pub flags: Flags,
    /// The version of its definition.
    pub version: u32,
    /// The record of its shard that changed it last: the same number is the same state.
    pub changed_seq: u64,
}

impl Units {
    /// Of `activity`, as it is now.
    pub fn of(id: ActivityId, activity: &Activity) -> Self {
        let (figures, flags) = (activity.figures(), activity.flags());
        let (version, changed_seq) = (activity.version(), activity.changed_seq());
        Self { id, figures, flags, version, changed_seq }
    }
}

/// An activity as SQL has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitsRow {
    /// The activity.
    pub id: u64,
    /// available, locked, sold.
    pub units: [u64; 3],
    /// on sale, paused, drained.
    pub switches: [bool; 3],
    /// The version of its definition.
    pub version: u64,
}

impl UnitsRow {
    /// What SQL must say.
    pub fn expected(of: &Units) -> Self {
        let Figures { available, locked, sold } = of.figures;
        let Flags { on_sale, paused, drained } = of.flags;
        Self {
            id: of.id.get(),
            units: [available, locked, sold].map(u64::from),
            switches: [on_sale, paused, drained],
            version: of.version.into(),
        }
    }
}

/// A reservation as the engine has it, and what SQL must say of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its id.
    pub id: ReservationId,
    /// Its activity.
    pub activity: ActivityId,
    /// Its buyer.
    pub user: UserId,
    /// Its units.
    pub quantity: u32,
    /// Its order number.
    pub order_no: String,
    /// Where it is in its life.
    pub status: Status,
    /// Where the refund of its order is, if there is one.
    pub refund: Option<RefundStatus>,
    /// Whether a settled refund freed the user's limit.
    pub frees_limit: bool,
    /// Where it is as a dead letter, if it was one.
    pub letter: Option<DeadLetterState>,
    /// The payment that paid it; empty where none did.
    pub payment_no: String,
    /// The keyed hash of the request that made it.
    pub request_hash: u128,
    /// Accepted at, Unix milliseconds.
    pub created_ms: u64,
    /// Last changed at, Unix milliseconds.
    pub updated_ms: u64,
    /// Sequence in its shard of the record that accepted it.
    pub shard_seq: u64,
}

impl Expected {
    /// Of reservation `id`, as it is now.
    pub fn of(
        of: ActivityId,
        activity: &Activity,
        id: ReservationId,
        prefix: OrderPrefix,
    ) -> Option<Self> {
        activity.slot(id).map(|slot| Self::new(of, activity, id, slot, prefix))
    }

    fn new(
        of: ActivityId,
        activity: &Activity,
        id: ReservationId,
        slot: &Slot,
        prefix: OrderPrefix,
    ) -> Self {
        let refund = activity.refund(id).map(|(_, refund)| *refund);
        let adopted = activity.adopted_reservation(id).map(|it| it.order_no.as_ref());
        let order_no = adopted.filter(|it| !it.is_empty());
        Self {
            id,
            activity: of,
            user: slot.user(),
            quantity: slot.quantity(),
            order_no: order_no.map_or_else(|| prefix.order_no(id), str::to_owned),
            status: slot.status(),
            refund: refund.map(|it| it.status),
            frees_limit: refund
                .is_some_and(|it| it.free_limit && it.status == RefundStatus::Settled),
            letter: activity.dead_letter(id).map(|letter| letter.state),
            payment_no: activity.payment_no(id).unwrap_or_default().to_owned(),
            request_hash: slot.request_hash(),
            created_ms: slot.created_ms(),
            updated_ms: slot.updated_ms(),
            shard_seq: slot.shard_seq(),
        }
    }

    /// At most `max` reservations of `activity` behind the first `from`: those accepted here, then
    /// the adopted ones.
    pub fn page(
        of: ActivityId,
        activity: &Activity,
        from: usize,
        max: usize,
        prefix: OrderPrefix,
    ) -> Vec<Self> {
        let count = activity.slots().len();
        let end = count.min(from.saturating_add(max));
        let own = (from.min(count)..end).filter_map(|index| {
            let id = ReservationId::compose(activity.ordinal(), Position::after(index)?);
            Some(Self::new(of, activity, id, activity.slots().get(index)?, prefix))
        });
        let mut page: Vec<Self> = own.collect();
        let left = max.saturating_sub(page.len());
        let adopted = activity.adopted().skip(from.saturating_sub(count)).take(left);
        page.extend(adopted.map(|(id, it)| Self::new(of, activity, id, &it.slot, prefix)));
        page
    }

    /// Whether it is a dead letter that no order shall hold.
    pub fn is_dead(&self) -> bool {
        matches!(self.letter, Some(DeadLetterState::Open | DeadLetterState::RolledBack))
    }

    /// The status of its row.
    pub fn row_status(&self) -> &'static str {
        match (self.letter, self.status) {
            (Some(DeadLetterState::Open), _) => "dead_letter",
            (_, Status::RolledBack(_)) => "rolled_back",
            _ => "ordered",
        }
    }

    /// The status of its order.
    pub fn order_status(&self) -> &'static str {
        match (self.status, self.refund) {
            (Status::Reserved, _) => "pending_payment",
            (Status::RolledBack(RestoreReason::Timeout), _) => "timeout",
            (Status::RolledBack(_), _) => "cancelled",
            (Status::Confirmed, Some(RefundStatus::Requested)) => "refunding",
            (Status::Confirmed, Some(RefundStatus::Settled)) => "refunded",
            (Status::Confirmed, Some(RefundStatus::Failed) | None) => "paid",
        }
    }

    /// Whether its slot is taken.
    pub fn takes_slot(&self) -> bool {
        !matches!(self.status, Status::RolledBack(_)) && !self.frees_limit
    }
}

/// A reservation as SQL has it, with its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its id.
    pub id: u64,
    /// Its activity.
    pub activity: u64,
    /// Its buyer.
    pub user: u64,
    /// Its units.
    pub quantity: u64,
    /// Its order number.
    pub order_no: String,
    /// Its status.
    pub status: String,
    /// Its order, if there is one.
    pub order: Option<OrderRow>,
}

/// An order as SQL has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRow {
    /// Its buyer.
    pub user: u64,
    /// The reservation behind it.
    pub reservation: u64,
    /// Its status.
    pub status: String,
    /// Whether `user_activity_key` is set.
    pub takes_slot: bool,
}

/// The first difference between what SQL must say and what it says, with what it says and should.
pub fn difference(expected: &Expected, row: Option<&Row>) -> Option<(Kind, String, String)> {
    let Some(row) = row else {
        // A dead letter may stand alone: what was refused was the row itself.
        if expected.is_dead() {
            return None;
        }
        return Some((Kind::Missing, "absent".to_owned(), expected.row_status().to_owned()));
    };
    let (id, activity, user) = (expected.id.get(), expected.activity.get(), expected.user.get());
    let owner = |activity: u64, user: u64, quantity: u64, order_no: &str| {
        format!("{quantity} of activity {activity} for user {user}, order {order_no}")
    };
    let theirs = owner(row.activity, row.user, row.quantity, &row.order_no);
    let ours = owner(activity, user, expected.quantity.into(), &expected.order_no);
    if theirs != ours {
        return Some((Kind::Foreign, theirs, ours));
    }
    // Of a dead letter that was paid and refunded the row keeps how far it came.
    let is_settled_letter = expected.letter == Some(DeadLetterState::RolledBack);
    if row.status != expected.row_status() && !is_settled_letter {
        let is = row.status.clone();
        return Some((Kind::Status, is, expected.row_status().to_owned()));
    }
    if expected.is_dead() {
        return None;
    }
    let Some(order) = &row.order else {
        let order_status = expected.order_status().to_owned();
        return Some((Kind::OrderMissing, "absent".to_owned(), order_status));
    };
    if (order.user, order.reservation) != (user, id) {
        let theirs = format!("an order of user {} for {}", order.user, order.reservation);
        return Some((Kind::Foreign, theirs, format!("an order of user {user} for {id}")));
    }
    let is = order.status.as_str();
    let must = expected.order_status();
    // What happens to the goods is no business of the log.
    let sent = must == "paid" && matches!(is, "shipped" | "completed");
    if is != must && !sent {
        return Some((Kind::OrderStatus, is.to_owned(), must.to_owned()));
    }
    let word = |taken: bool| if taken { "taken" } else { "free" };
    if order.takes_slot != expected.takes_slot() {
        let (is, must) = (word(order.takes_slot), word(expected.takes_slot()));
        return Some((Kind::Slot, is.to_owned(), must.to_owned()));
    }
    None
}

#[cfg(test)]
mod tests {
    use engine::core::ids::Ordinal;

    use super::*;

    fn expected(status: Status) -> Expected {
        let (ordinal, position) = (Ordinal::new(5), Position::new(7));
        let (Some(ordinal), Some(position)) = (ordinal, position) else { unreachable!() };
        let id = ReservationId::compose(ordinal, position);
        let (Some(activity), Some(user)) = (ActivityId::new(3), UserId::new(9)) else {
            unreachable!()
        };
        Expected {
            id,
            activity,
            user,
            quantity: 2,
            order_no: OrderPrefix::DEFAULT.order_no(id),
            status,
            refund: None,
            frees_limit: false,
            letter: None,
            payment_no: String::new(),
            request_hash: 1,
            created_ms: 1,
            updated_ms: 1,
            shard_seq: 1,
        }
    }

    fn row(of: &Expected) -> Row {
        Row {
            id: of.id.get(),
            activity: of.activity.get(),
            user: of.user.get(),
            quantity: of.quantity.into(),
            order_no: of.order_no.clone(),
            status: of.row_status().to_owned(),
            order: (!of.is_dead()).then(|| OrderRow {
                user: of.user.get(),
                reservation: of.id.get(),
                status: of.order_status().to_owned(),
                takes_slot: of.takes_slot(),
            }),
        }
    }

    #[test]
    fn what_sql_must_say_is_no_difference() {
        let statuses = [
            Status::Reserved,
            Status::Confirmed,
            Status::RolledBack(RestoreReason::Timeout),
            Status::RolledBack(RestoreReason::Cancelled),
        ];
        let refunds = [None, Some(RefundStatus::Requested), Some(RefundStatus::Settled)];
        let letters = [None, Some(DeadLetterState::Open), Some(DeadLetterState::RolledBack)];
        for status in statuses {
            for (refund, letter) in refunds.into_iter().zip(letters) {
                let of = Expected { refund, letter, ..expected(status) };
                assert_eq!(difference(&of, Some(&row(&of))), None, "{of:?}");
            }
        }
        let paid = expected(Status::Confirmed);
        let mut shipped = row(&paid);
        shipped.order.as_mut().unwrap().status = "shipped".to_owned();
        assert_eq!(difference(&paid, Some(&shipped)), None, "goods are no business of the log");
    }

    #[test]
    fn every_kind_of_difference_is_told_apart() {
        let of = expected(Status::Reserved);
        let kind = |change: fn(&mut Row)| {
            let mut row = row(&of);
            change(&mut row);
            difference(&of, Some(&row)).map(|(kind, ..)| kind)
        };
        assert_eq!(difference(&of, None).map(|(kind, ..)| kind), Some(Kind::Missing));
        type Case = (fn(&mut Row), Kind);
        let cases: [Case; 8] = [
            (|row| row.user = 10, Kind::Foreign),
            (|row| row.quantity = 3, Kind::Foreign),
            (|row| row.order_no.push('1'), Kind::Foreign),
            (|row| row.status = "rolled_back".to_owned(), Kind::Status),
            (|row| row.order = None, Kind::OrderMissing),
            (|row| row.order.as_mut().unwrap().user = 1, Kind::Foreign),
            (|row| row.order.as_mut().unwrap().status = "paid".to_owned(), Kind::OrderStatus),
            (|row| row.order.as_mut().unwrap().takes_slot = false, Kind::Slot),
        ];
        for (change, expected) in cases {
            assert_eq!(kind(change), Some(expected));
        }
    }
}
