//! What few reservations and activities have.

use std::collections::BTreeMap;

use super::command::ActivityFigures;
use super::event::RefundScope;
use super::ids::{ActivityId, ReservationId, UserId};
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

/// A refund, of an order or of a payment that paid nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refund {
    /// Whose money it gives back.
    pub scope: RefundScope,
    /// Its units go back on sale.
    pub restock: bool,
    /// Its units no longer count against the user's limit.
    pub free_limit: bool,
    /// Where it is.
    pub status: RefundStatus,
}

/// Refunds by reservation and number.
pub type Refunds = BTreeMap<(ReservationId, Box<str>), Refund>;

/// A refund that the provider has yet to settle, with all that it needs for that.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of `RefundRequested`, documented there")]
pub struct OpenRefund {
    pub activity: ActivityId,
    pub user: UserId,
    pub scope: RefundScope,
    pub restock: bool,
    pub free_limit: bool,
    pub channel: Box<str>,
    pub payment_no: Box<str>,
    pub transaction: Box<str>,
    pub amount: u64,
    pub requested_ms: u64,
    pub shard_seq: u64,
}

/// Where a payment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PaymentStatus {
    /// Opened; no callback has decided it.
    Pending,
    /// It paid its order.
    Paid,
    /// The provider says that it failed.
    Failed,
}

/// A payment that was opened for a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payment {
    /// Its number among the reservation's payments, from 1.
    pub attempt: u8,
    /// The way it is paid.
    pub channel: Box<str>,
    /// What is to be paid.
    pub amount: u64,
    /// Until when the provider takes it, Unix milliseconds.
    pub expires_ms: u64,
    /// Where it is.
    pub status: PaymentStatus,
    /// The provider's transaction that paid it; empty where none did.
    pub transaction: Box<str>,
}

impl Payment {
    /// Whether it can still be paid at `now_ms`.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.status == PaymentStatus::Pending && now_ms < self.expires_ms
    }
}

/// Where a dead letter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DeadLetterState {
    /// No order holds the reservation, and nobody has decided what becomes of it.
    Open,
    /// It is to be delivered again: a sink whose mark covers the record `shard_seq` has done so.
    Delivered {
        /// Sequence in the shard of the record that says so.
        shard_seq: u64,
    },
    /// Its units, or its money, went back. It is never reinstated.
    RolledBack,
}

/// A reservation that no order could hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// Where it is.
    pub state: DeadLetterState,
    /// Why no order could hold it; empty once it is closed.
    pub note: Box<str>,
    /// When it was opened, Unix milliseconds.
    pub opened_ms: u64,
}

impl DeadLetter {
    /// Whether it waits for a decision.
    pub fn is_open(&self) -> bool {
        self.state == DeadLetterState::Open
    }
}
