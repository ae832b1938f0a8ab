//! What can be asked, and what is answered.
//!
//! A command never carries a time: the runtime gives `decide` the instant of the decision.

use super::event::{Actor, Definition, Figures, Front, RestoreReason};
use super::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};

pub use super::event::Status;

/// Something asked of an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields carry the names and meanings of the events they lead to")]
pub enum Command<'a> {
    /// Makes an activity. The runtime has allotted `ordinal`.
    Create { actor: Actor<'a>, ordinal: Ordinal, total: u32, definition: Definition<'a> },
    /// Changes a definition and, where `total` differs, the units. `version` is the version the
    /// caller saw; `None` edits whatever is there.
    Edit { actor: Actor<'a>, version: Option<u32>, total: u32, definition: Definition<'a> },
    /// Puts it on sale.
    Publish { actor: Actor<'a> },
    /// Takes it off sale, and off its schedule.
    Unpublish { actor: Actor<'a> },
    /// Stops new purchases.
    Pause { actor: Actor<'a> },
    /// Lifts a pause and a drain.
    Resume { actor: Actor<'a> },
    /// Stops new purchases for good.
    Drain { actor: Actor<'a> },
    /// Adds units, once per `op`.
    Restock { actor: Actor<'a>, op: &'a str, quantity: u32 },
    /// Takes free units away, once per `op`.
    Decrease { actor: Actor<'a>, op: &'a str, quantity: u32 },
    /// Buys.
    Reserve(Reserve<'a>),
    /// Marks a reservation as paid.
    Confirm { reservation: ReservationId, payment_no: &'a str },
    /// Gives an unpaid reservation back. `owner` must match where given; `actor` is the operator
    /// where the reason is `Admin`, else [`Actor::NONE`].
    Restore {
        reservation: ReservationId,
        owner: Option<UserId>,
        reason: RestoreReason,
        actor: Actor<'a>,
    },
    /// Gives the next overdue unpaid reservation back, if there is one. The runtime repeats it.
    /// `serving_since_ms` is when the server became ready: see `EXPIRY_GRACE_MS_MAX`.
    Expire { serving_since_ms: u64 },
}

/// One purchase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve<'a> {
    /// The buyer.
    pub user: UserId,
    /// The client's id for this purchase, 1..=64 bytes: the same id is the same purchase.
    pub request_id: &'a str,
    /// Keyed hash of `request_id`; memory keeps this alone.
    pub request_hash: u128,
    /// Units wanted, 1..=`UNITS_MAX`.
    pub quantity: u32,
    /// The door it came in by.
    pub front: Front,
}

/// Why a command changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// A field is outside its bounds; the text names the field and the bound.
    Invalid(&'static str),
    /// No activity has that id.
    UnknownActivity,
    /// An activity has that id already.
    ActivityExists,
    /// All ordinals of this node are used.
    OrdinalsExhausted,
    /// Paused or drained.
    Paused,
    /// Not published.
    OffSale,
    /// Before the window.
    NotStarted,
    /// After the window.
    Ended,
    /// Fewer units free than wanted.
    SoldOut,
    /// The user would hold more than the limit, or has too many reservations here.
    LimitReached,
    /// The request id or operation key was used with other content.
    RequestIdReused,
    /// The caller saw another version of the definition.
    VersionMismatch {
        /// The version it has now.
        current: u32,
    },
    /// Only the title and a lower total may change now.
    LockedWhileInProgress,
    /// The total would fall below what is reserved or sold.
    StockBelowReserved,
    /// The activity remembers as many operations as it can.
    TooManyOperations,
    /// No such reservation (or not the caller's).
    UnknownReservation,
    /// It is paid: it can't be given back.
    AlreadyPaid,
    /// It is paid, by another payment.
    PaidByAnother,
    /// It was given back: it can't be paid.
    RolledBack,
}

/// What a command that changes nothing, because it has been done, is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To `Reserve`, `Confirm` and `Restore`.
    Reservation(Box<Reservation>),
    /// To every command of an operator.
    Activity(Box<ActivityFigures>),
}

/// An activity's figures, with what the caller's command rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActivityFigures {
    /// The activity.
    pub activity: ActivityId,
    /// Version of its definition.
    pub version: u32,
    /// Its units.
    pub figures: Figures,
}

/// A reservation as it is told to callers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// Its id, also its purchase slot.
    pub id: ReservationId,
    /// Its activity.
    pub activity: ActivityId,
    /// Its buyer.
    pub user: UserId,
    /// The SKU, frozen at acceptance.
    pub sku: SkuId,
    /// Price of a unit, frozen at acceptance.
    pub price: u64,
    /// Units.
    pub quantity: u32,
    /// Where it is in its life.
    pub status: Status,
    /// Accepted at, Unix milliseconds.
    pub created_ms: u64,
    /// Last changed at, Unix milliseconds.
    pub updated_ms: u64,
    /// Unpaid, it is given back from this instant on, Unix milliseconds.
    pub pay_before_ms: u64,
    /// The payment that paid it; empty where none did.
    pub payment_no: String,
    /// Units the activity has left at the decision.
    pub remaining: u32,
    /// Sequence in its shard of the record that accepted it: a sink whose mark covers it has its
    /// order.
    pub shard_seq: u64,
}
