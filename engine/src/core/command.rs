//! What can be asked, and what is answered.
//!
//! A command never carries a time: the runtime gives `decide` the instant of the decision.

use super::event::{Actor, Definition, Figures, Front, RestoreReason};
use super::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};

use super::side::{Payment, Refund};

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
    /// Opens a payment for a reservation, or finds the one that is live.
    OpenPayment(OpenPayment<'a>),
    /// Records a provider's callback, and does what it says where it may.
    RecordPayment(RecordPayment<'a>),
    /// Asks for the refund of a paid order.
    RequestRefund(RequestRefund<'a>),
    /// The provider gave a refund's money back.
    SettleRefund { reservation: ReservationId, refund_no: &'a str },
    /// The provider refused a refund for good.
    FailRefund { reservation: ReservationId, refund_no: &'a str, note: &'a str },
    /// A sink could not make an order of a reservation, at the record `failed_seq` of its shard.
    DeadLetter { reservation: ReservationId, failed_seq: u64, note: &'a str },
    /// Has a dead letter delivered again.
    RetryDeadLetter { reservation: ReservationId, actor: Actor<'a> },
    /// Gives a dead letter up: its units go back, or, by the refund `refund_no`, its money.
    RollBackDeadLetter { reservation: ReservationId, refund_no: &'a str, actor: Actor<'a> },
    /// Lets an activity leave memory, if its time has come. `covered_seq` is the sequence of its
    /// shard that every sink covers.
    Archive { covered_seq: u64 },
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

/// A payment to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenPayment<'a> {
    /// What is to be paid.
    pub reservation: ReservationId,
    /// Who wants to pay: the reservation's buyer.
    pub owner: UserId,
    /// The way to pay.
    pub channel: &'a str,
    /// How long the provider may take it, milliseconds; never beyond the time to pay.
    pub ttl_ms: u64,
}

/// A provider's callback, its signature checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordPayment<'a> {
    /// The reservation that `payment_no` speaks of.
    pub reservation: ReservationId,
    /// The way it was paid.
    pub channel: &'a str,
    /// The payment.
    pub payment_no: &'a str,
    /// The provider's number of the transaction: the same one has one effect.
    pub transaction: &'a str,
    /// What was paid.
    pub amount: u64,
    /// Whether it was paid, or failed.
    pub paid: bool,
    /// The callback's raw body.
    pub body: &'a [u8],
    /// The number of the refund, should there be one: a pure function of channel and transaction.
    pub refund_no: &'a str,
    /// What SQL knows of the payment, where its activity is archived.
    pub archived: Option<ArchivedPayment<'a>>,
}

/// What SQL knows of a payment whose activity is archived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedPayment<'a> {
    /// The activity.
    pub activity: ActivityId,
    /// The reservation that it was to pay: memory forgets the numbers that were adopted.
    pub reservation: ReservationId,
    /// The buyer.
    pub user: UserId,
    /// The way to pay that it was opened for; empty where it never was.
    pub channel: &'a str,
    /// What was to be paid.
    pub amount: u64,
    /// Whether the order was ever paid.
    pub order_paid: bool,
    /// Whether this transaction was recorded before.
    pub transaction_known: bool,
}

/// A refund that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRefund<'a> {
    /// The paid reservation.
    pub reservation: ReservationId,
    /// The caller's key.
    pub refund_no: &'a str,
    /// Its units go back on sale.
    pub restock: bool,
    /// Its units no longer count against the user's limit.
    pub free_limit: bool,
    /// Why.
    pub note: &'a str,
    /// Who asks.
    pub actor: Actor<'a>,
    /// What SQL knows of the order, where its activity is archived.
    pub archived: Option<ArchivedOrder<'a>>,
}

/// What SQL knows of a paid order whose activity is archived and that no refund was settled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchivedOrder<'a> {
    /// The activity.
    pub activity: ActivityId,
    /// The buyer.
    pub user: UserId,
    /// The way it was paid; empty where a back end brought its own payment.
    pub channel: &'a str,
    /// The payment that paid it.
    pub payment_no: &'a str,
    /// The provider's transaction that paid it.
    pub transaction: &'a str,
    /// What was paid.
    pub amount: u64,
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
    /// Its SKU is on sale in another activity, where readers outside allow one.
    SkuOnSale,
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
    /// There is no room for another control.
    TooManyControls,
    /// The reservation is no dead letter.
    NoDeadLetter,
    /// No such reservation (or not the caller's).
    UnknownReservation,
    /// It is paid: it can't be given back.
    AlreadyPaid,
    /// It is paid, by another payment.
    PaidByAnother,
    /// It was given back: it can't be paid.
    RolledBack,
    /// Another payment of it can still be paid.
    PaymentInProgress,
    /// It has had as many payments as a payment number can count.
    TooManyPayments,
    /// Its activity remembers as many callbacks as it can.
    TooManyCallbacks,
    /// It is not paid: there is nothing to refund.
    NotPaid,
    /// Another refund of it is in progress.
    RefundInProgress,
    /// It was refunded.
    AlreadyRefunded,
    /// No refund has that number.
    UnknownRefund,
    /// The refund was refused: it is settled only once it is asked for again.
    RefundNotOpen,
    /// Its activity is archived: SQL knows what this one needs.
    Archived,
}

/// What a command that changes nothing, because it has been done, is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To `Reserve`, `Confirm` and `Restore`.
    Reservation(Box<Reservation>),
    /// To every command of an operator.
    Activity(Box<ActivityFigures>),
    /// To `OpenPayment`.
    Payment(Box<Payment>),
    /// To the commands of a refund.
    Refund(Refund),
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
