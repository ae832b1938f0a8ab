//! The life of an order: every stage against every step.
//!
//! | stage       | confirm          | pay            | open         | give back    | refund       |
//! |-------------|------------------|----------------|--------------|--------------|--------------|
//! | reserved    | paid             | paid           | opens        | rolled back  | not paid     |
//! | paid        | repeat / another | second payment | already paid | already paid | refunding    |
//! | refunding   | repeat / another | second payment | already paid | already paid | in progress  |
//! | refunded    | repeat / another | second payment | already paid | already paid | refunded     |
//! | rolled back | rolled back      | paid, or late  | rolled back  | repeat       | not paid     |
//! | dead        | rolled back      | late           | rolled back  | repeat       | not paid     |
//!
//! *Confirm* is a back end's word that it was paid; with the number that paid it, it is a repeat.
//! *Pay* is a provider's word about a payment opened here: money has come, so it is never refused,
//! but recorded and, where it pays nothing, refunded. *Dead* is what was given back because no
//! order could hold it. The refund's own way: requested, then settled or refused for good; what
//! was refused may be requested again.

use super::activity::Activity;
use super::apply::payment::may_be_reinstated;
use super::command::Refusal;
use super::event::Status;
use super::ids::ReservationId;
use super::side::RefundStatus;

/// Where an order is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Held, unpaid.
    Reserved,
    /// Paid.
    Paid,
    /// Paid; its refund is asked for.
    Refunding,
    /// Its money went back.
    Refunded,
    /// Given back; late money may reinstate it.
    RolledBack,
    /// Given back because no order could hold it.
    Dead,
}

/// What may be done to an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A back end says that it was paid.
    Confirm {
        /// By the payment that has paid it already.
        same_payment: bool,
    },
    /// A provider says that a payment opened for it was paid.
    Pay,
    /// A payment is opened.
    Open,
    /// It is cancelled, released, or its time runs out.
    GiveBack,
    /// A new refund of it is asked for.
    Refund,
}

/// What comes of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// It is done.
    Happens,
    /// It was done before: nothing changes.
    Repeats,
    /// It cannot be done.
    Refused(Refusal),
    /// The money is honoured where units, limit and policy allow, else refunded.
    HappensIfAllowed,
    /// A second good payment: refunded.
    SecondPayment,
    /// Money too late to be honoured: refunded.
    Late,
}

impl Stage {
    /// Every stage.
    pub const ALL: &[Self] = &[
        Self::Reserved,
        Self::Paid,
        Self::Refunding,
        Self::Refunded,
        Self::RolledBack,
        Self::Dead,
    ];

    /// The stage of a reservation with `status`.
    pub fn of(activity: &Activity, id: ReservationId, status: Status) -> Self {
        match status {
            Status::Reserved => Self::Reserved,
            Status::RolledBack(_) if may_be_reinstated(activity, id, status) => Self::RolledBack,
            Status::RolledBack(_) => Self::Dead,
            Status::Confirmed => match activity.refund(id).map(|(_, refund)| refund.status) {
                None | Some(RefundStatus::Failed) => Self::Paid,
                Some(RefundStatus::Requested) => Self::Refunding,
                Some(RefundStatus::Settled) => Self::Refunded,
            },
        }
    }

    /// The table.
    pub const fn course(self, step: Step) -> Course {
        use Course::{Happens, HappensIfAllowed, Late, Refused, Repeats, SecondPayment};
        use Stage::{Dead, Paid, Refunded, Refunding, Reserved, RolledBack};
        match (self, step) {
            (Reserved, Step::Refund) => Refused(Refusal::NotPaid),
            (Reserved, _) => Happens,

            (Paid | Refunding | Refunded, Step::Confirm { same_payment: true }) => Repeats,
            (Paid | Refunding | Refunded, Step::Confirm { same_payment: false }) => {
                Refused(Refusal::PaidByAnother)
            }
            (Paid | Refunding | Refunded, Step::Pay) => SecondPayment,
            (Paid | Refunding | Refunded, Step::Open | Step::GiveBack) => {
                Refused(Refusal::AlreadyPaid)
            }
            (Paid, Step::Refund) => Happens,
            (Refunding, Step::Refund) => Refused(Refusal::RefundInProgress),
            (Refunded, Step::Refund) => Refused(Refusal::AlreadyRefunded),

            (RolledBack | Dead, Step::Confirm { .. } | Step::Open) => Refused(Refusal::RolledBack),
            (RolledBack, Step::Pay) => HappensIfAllowed,
            (Dead, Step::Pay) => Late,
            (RolledBack | Dead, Step::GiveBack) => Repeats,
            (RolledBack | Dead, Step::Refund) => Refused(Refusal::NotPaid),
        }
    }
}
