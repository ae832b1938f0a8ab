//! What makes an event happen: the only place where state changes.
//!
//! Each event is held against the state before anything moves: it says what the figures, the
//! user's units, and the version are afterwards, and must be right. Live, a difference is a fault
//! in `decide`; in replay, a log that this program did not write, or wrote with a fault. Either
//! way the state is untouched, and the caller must stop. What cannot differ any more once an event
//! is accepted is asserted (W17), in release as well.

mod dead_letter;
mod operator;
pub(super) mod payment;
pub(super) mod purchase;
mod refund;

use std::sync::Arc;

use hashbrown::hash_map::Entry;

use super::activity::Activity;
use super::codec;
use super::event::{Body, Event, Figures, Status};
use super::ids::{ActivityId, ReservationId, UserId};
use super::request::RequestHasher;
use super::shard::{Place, Shard, Tombstone};
use super::side::Refunds;
use crate::planted::{self, Bug};

/// Why an event cannot have happened to this state. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Records of a shard are missing or repeated.
    #[error("shard sequence {found} follows {applied}")]
    Sequence {
        /// The last applied.
        applied: u64,
        /// The event's.
        found: u64,
    },
    /// It is for the control shard.
    #[error("the event belongs to no activity")]
    NoActivity,
    /// Its activity is not here.
    #[error("activity {0} is unknown")]
    UnknownActivity(ActivityId),
    /// Its activity is here already.
    #[error("activity {0} exists already")]
    ActivityExists(ActivityId),
    /// Its activity is archived and can only settle refunds and note payments.
    #[error("activity {0} is archived")]
    Archived(ActivityId),
    /// An activity that is archived has units locked, a refund or a dead letter open.
    #[error("activity {0} cannot be archived yet")]
    Unsettled(ActivityId),
    /// Its reservation is not here.
    #[error("reservation {0} is unknown")]
    UnknownReservation(ReservationId),
    /// Its reservation is not the next one of its activity, or is here already.
    #[error("reservation {0} is out of place")]
    Misplaced(ReservationId),
    /// The request made a reservation before.
    #[error("the request of reservation {0} made another one before")]
    RequestRepeated(ReservationId),
    /// The operation was done before.
    #[error("an operation on activity {0} is repeated")]
    OperationRepeated(ActivityId),
    /// Its reservation's life does not allow it.
    #[error("reservation {reservation} cannot do that while it is {status:?}")]
    Status {
        /// The reservation.
        reservation: ReservationId,
        /// Where it is in its life.
        status: Status,
    },
    /// The timer waits for it though it is not to be paid, or does not though it is.
    #[error("reservation {0} waits to be paid and is not to be, or the other way round")]
    Timer(ReservationId),
    /// It names another user or quantity than its reservation.
    #[error("the event does not fit reservation {0}")]
    Mismatch(ReservationId),
    /// A give-back names an operator and is none's, or the other way round.
    #[error("reservation {0} is given back in the wrong name")]
    Actor(ReservationId),
    /// No such refund is open.
    #[error("reservation {0} has no such refund open")]
    Refund(ReservationId),
    /// A payment's number does not follow the last one.
    #[error("payment {attempt} of reservation {reservation} does not follow the last")]
    Attempt {
        /// The reservation.
        reservation: ReservationId,
        /// The payment's number.
        attempt: u8,
    },
    /// A callback in an activity's shard names no reservation.
    #[error("a callback of activity {0} names no reservation")]
    PaymentOfNobody(ActivityId),
    /// A provider's transaction is repeated and does not say so, or the other way round.
    #[error("a callback for reservation {0} is or is not the first of its transaction")]
    Receipt(ReservationId),
    /// No, or already, a dead letter.
    #[error("reservation {0} has no dead letter to open or close")]
    DeadLetter(ReservationId),
    /// The figures cannot be what the event says.
    #[error("units of activity {activity} would be {carried:?} after {present:?}")]
    Figures {
        /// The activity.
        activity: ActivityId,
        /// Its figures now.
        present: Figures,
        /// The figures that the event carries.
        carried: Figures,
    },
    /// The user's units cannot be what the event says.
    #[error("user {user} of activity {activity} cannot hold {carried} after {present}")]
    Held {
        /// The activity.
        activity: ActivityId,
        /// The user.
        user: UserId,
        /// Units held now.
        present: u32,
        /// Units held after the event, as it says.
        carried: u32,
    },
    /// The user would hold more, or have more reservations, than the limit allows.
    #[error("user {user} of activity {activity} is above the limit")]
    AboveLimit {
        /// The activity.
        activity: ActivityId,
        /// The user.
        user: UserId,
    },
    /// The version cannot be what the event says.
    #[error("version {carried} of activity {activity} follows {present}")]
    Version {
        /// The activity.
        activity: ActivityId,
        /// Its version now.
        present: u32,
        /// The version that the event carries.
        carried: u32,
    },
}

/// The hash of the request that a record of a purchase names.
pub(crate) fn replayed_hash(requests: &RequestHasher, request_id: &[u8]) -> u128 {
    requests.hash_bytes(request_id) ^ u128::from(planted::has(Bug::RequestForgottenInReplay))
}

/// Makes `event`, the record `shard_seq` of the shard's log, happen.
///
/// # Errors
/// [`ApplyError`] where the event cannot have followed this state; the state is unchanged.
pub fn apply(shard: &mut Shard, event: &Event<'_>, shard_seq: u64) -> Result<(), ApplyError> {
    let request_hash = match event.body {
        Body::Reserved { request_id, .. } => replayed_hash(shard.requests(), request_id.as_bytes()),
        _ => 0,
    };
    apply_hashed(shard, event, shard_seq, request_hash)
}

/// The hash that a rare event is known by.
fn hash_of(shard: &Shard, body: &Body<'_>) -> Option<u128> {
    match *body {
        Body::ReservationAdopted { request_hash, .. } => Some(request_hash),
        Body::PaymentRecorded { channel, transaction, .. } => {
            Some(shard.requests().receipt(channel, transaction))
        }
        _ => None,
    }
}

/// [`apply`] for who has the hash of the request id already: the hot path, which hashes before it
/// takes the shard's lock. `request_hash` is ignored for events that are no purchase.
///
/// # Errors
/// As [`apply`].
pub fn apply_hashed(
    shard: &mut Shard,
    event: &Event<'_>,
    shard_seq: u64,
    request_hash: u128,
) -> Result<(), ApplyError> {
    if shard.applied_seq.checked_add(1) != Some(shard_seq) {
        return Err(ApplyError::Sequence { applied: shard.applied_seq, found: shard_seq });
    }
    let id = codec::activity(&event.body).ok_or(ApplyError::NoActivity)?;
    let request_hash = hash_of(shard, &event.body).unwrap_or(request_hash);
    let now = Now { id, at_ms: event.at_ms, shard_seq, request_hash };
    let (durable_seq, tables) = (shard.durable_seq, shard.seed.tables());
    refund::check_listed(shard, &event.body)?;
    let due_ms = match shard.place_mut(id) {
        Entry::Vacant(vacant) => {
            let activity = operator::create(&event.body, &now, tables)?;
            activity.assert_conserved(id);
            activity.assert_beside(id);
            vacant.insert(Place::Live(Box::new(activity)));
            None
        }
        Entry::Occupied(mut occupied) => match occupied.get_mut() {
            Place::Archived(tombstone) => {
                after_archive(tombstone, &event.body, id)?;
                None
            }
            Place::Live(activity) if matches!(event.body, Body::Archived { .. }) => {
                let tombstone = archive(activity, id)?;
                occupied.insert(Place::Archived(tombstone));
                None
            }
            Place::Live(activity) => {
                change(activity, &event.body, &now)?;
                activity.changed(id, durable_seq, shard_seq);
                activity.assert_beside(id);
                if matches!(event.body, Body::ActivityEdited { .. }) {
                    let terms = Arc::clone(&activity.terms);
                    activity.published_terms.set(durable_seq, shard_seq, terms);
                }
                activity.next_due_ms(0)
            }
        },
    };
    refund::note(shard, event, shard_seq);
    shard.applied_seq = shard_seq;
    shard.due_ms_min = shard.due_ms_min.min(due_ms.unwrap_or(u64::MAX));
    shard.assert_applied(shard_seq);
    Ok(())
}

/// What an event's change may need beside its body.
pub(super) struct Now {
    pub(super) id: ActivityId,
    pub(super) at_ms: u64,
    pub(super) shard_seq: u64,
    pub(super) request_hash: u128,
}

/// Checks and makes one change of a live activity.
fn change(activity: &mut Activity, body: &Body<'_>, now: &Now) -> Result<(), ApplyError> {
    match *body {
        Body::ActivityCreated { .. } | Body::ActivityAdopted { .. } => {
            Err(ApplyError::ActivityExists(now.id))
        }
        Body::Reserved { .. } => purchase::reserved(activity, body, now),
        Body::Confirmed { .. } | Body::Reinstated { .. } | Body::Restored { .. } => {
            payment::moved(activity, body, now)
        }
        Body::PaymentOpened { .. } | Body::PaymentRecorded { .. } => {
            payment::changed(activity, body, now)
        }
        Body::RefundRequested { .. } | Body::RefundSettled { .. } | Body::RefundFailed { .. } => {
            refund::changed(activity, body, now)
        }
        Body::DeadLettered { .. } | Body::DeadLetterResolved { .. } => {
            dead_letter::changed(activity, body, now)
        }
        Body::ReservationAdopted { .. } => purchase::adopted(activity, body, now),
        Body::ActivityEdited { .. }
        | Body::Published { .. }
        | Body::Unpublished { .. }
        | Body::Paused { .. }
        | Body::Resumed { .. }
        | Body::Drained { .. }
        | Body::Restocked { .. }
        | Body::Decreased { .. } => operator::changed(activity, body, now),
        Body::Archived { .. }
        | Body::SinkAdvanced { .. }
        | Body::ControlSet { .. }
        | Body::ControlCleared { .. } => Err(ApplyError::NoActivity),
    }
}

/// What may still happen to an archived activity: SQL holds it, and neither units nor limits are
/// left here to move.
fn after_archive(
    tombstone: &mut Tombstone,
    body: &Body<'_>,
    id: ActivityId,
) -> Result<(), ApplyError> {
    match body {
        Body::PaymentRecorded { .. } => Ok(()),
        Body::RefundRequested { .. } | Body::RefundSettled { .. } | Body::RefundFailed { .. } => {
            refund::after_archive(tombstone, body)
        }
        Body::ActivityCreated { .. } | Body::ActivityAdopted { .. } => {
            Err(ApplyError::ActivityExists(id))
        }
        _ => Err(ApplyError::Archived(id)),
    }
}

fn archive(activity: &Activity, id: ActivityId) -> Result<Tombstone, ApplyError> {
    if !activity.is_settled() {
        return Err(ApplyError::Unsettled(id));
    }
    assert!(activity.oldest_unpaid().is_none(), "W17: activity {id} goes and waits to be paid");
    let (ordinal, end_ms) = (activity.ordinal, activity.terms.end_ms);
    Ok(Tombstone { ordinal, end_ms, refunds: Refunds::new() })
}

impl Activity {
    /// Notes that the record `shard_seq` was the last of a change: what must hold is
    /// [held](super::invariants), and lists may show the result.
    pub(super) fn changed(&mut self, id: ActivityId, durable_seq: u64, shard_seq: u64) {
        self.assert_conserved(id);
        self.published.set(durable_seq, shard_seq, self.view());
    }

    fn check_version(&self, now: &Now, carried: u32) -> Result<(), ApplyError> {
        if carried == self.version {
            return Ok(());
        }
        Err(ApplyError::Version { activity: now.id, present: self.version, carried })
    }

    /// Holds the figures that an event carries against those that follow.
    fn check_figures(
        &self,
        now: &Now,
        following: Option<Figures>,
        carried: Figures,
    ) -> Result<(), ApplyError> {
        if following == Some(carried) {
            return Ok(());
        }
        Err(ApplyError::Figures { activity: now.id, present: self.figures, carried })
    }

    /// Holds a user's units that an event carries against those that follow from what is held now.
    fn check_held(
        &self,
        now: &Now,
        user: UserId,
        following: impl FnOnce(u32) -> Option<u32>,
        carried: u32,
    ) -> Result<(), ApplyError> {
        let present = self.held(user);
        if following(present) == Some(carried) {
            return Ok(());
        }
        Err(ApplyError::Held { activity: now.id, user, present, carried })
    }
}
