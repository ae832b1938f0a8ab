//! What few reservations and activities have.

use super::command::ActivityFigures;
use super::reservation::Slot;

/// A reservation whose id came from elsewhere: an older system, or SQL after a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adopted {
    /// The reservation.
    pub slot: Slot,
    /// Its id there, 0 where it had none.
    pub old_id: u64,
    /// Its order number there; empty where it follows from the id.
    pub order_no: Box<str>,
}

/// What an operation on an activity's total did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OperationKind {
    /// Units were added.
    Restock,
    /// Free units were taken away.
    Decrease,
}

/// A restock or decrease that happened: the same key again is answered from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Which of the two.
    pub kind: OperationKind,
    /// Units asked for.
    pub quantity: u32,
    /// What it was answered.
    pub answer: ActivityFigures,
}

/// Where a refund is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RefundStatus {
    /// Asked for; the provider has not settled it.
    Requested,
    /// Settled: the order is refunded.
    Settled,
    /// Refused for good: the order is paid.
    Failed,
}

/// The last refund of a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refund {
    /// The caller's key.
    pub refund_no: Box<str>,
    /// Its units go back on sale.
    pub restock: bool,
    /// Its units no longer count against the user's limit.
    pub free_limit: bool,
    /// Where it is.
    pub status: RefundStatus,
}
