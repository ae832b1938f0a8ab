//! What must be read before a batch can be folded, so that it is read in few statements.

use std::collections::BTreeSet;

use engine::core::codec;
use engine::core::event::{Body, Event};
use engine::core::ids::{ActivityId, ReservationId};
use wal::Lsn;

use super::fault::SinkError;
use crate::place;
use crate::tail::Batch;

/// An event and its place.
pub(crate) type Placed<'a> = (Lsn, Event<'a>);

/// The events of `batch`.
pub(crate) fn decode(batch: &Batch) -> Result<Vec<Placed<'_>>, SinkError> {
    batch
        .entries()
        .map(|entry| {
            place::rest();
            codec::decode(entry.kind, entry.version, entry.body)
                .map(|event| (entry.lsn, event))
                .map_err(|source| SinkError::Undecodable { lsn: entry.lsn, source })
        })
        .collect()
}

/// What must be known before the fold begins.
#[derive(Debug, Default)]
pub(super) struct Needs<'a> {
    /// Activities that the events rest on.
    pub(super) activities: BTreeSet<ActivityId>,
    /// Reservations that were accepted in an earlier batch.
    pub(super) reservations: BTreeSet<ReservationId>,
    /// Reservations whose refunds take a step here.
    pub(super) refunded: BTreeSet<ReservationId>,
    /// Controls that are set or cleared here: the audit says what they were.
    pub(super) controls: BTreeSet<&'a str>,
}

impl<'a> Needs<'a> {
    pub(super) fn of(events: &[Placed<'a>]) -> Self {
        let mut needs = Self::default();
        let mut created = BTreeSet::new();
        let mut born = BTreeSet::new();
        for (_, event) in events {
            match event.body {
                Body::ActivityCreated { activity, .. } | Body::ActivityAdopted { activity, .. } => {
                    created.insert(activity);
                    continue;
                }
                Body::Reserved { reservation, .. }
                | Body::ReservationAdopted { reservation, .. } => {
                    born.insert(reservation);
                }
                Body::ControlSet { key, .. } | Body::ControlCleared { key, .. } => {
                    needs.controls.insert(key);
                }
                Body::RefundRequested { reservation, .. }
                | Body::RefundSettled { reservation, .. }
                | Body::RefundFailed { reservation, .. } => {
                    needs.refunded.insert(reservation);
                    needs.reservations.insert(reservation);
                }
                Body::PaymentOpened { reservation, .. }
                | Body::Confirmed { reservation, .. }
                | Body::Reinstated { reservation, .. }
                | Body::Restored { reservation, .. }
                | Body::DeadLettered { reservation, .. }
                | Body::DeadLetterResolved { reservation, .. } => {
                    needs.reservations.insert(reservation);
                }
                _ => {}
            }
            needs.activities.extend(codec::activity(&event.body));
        }
        needs.activities.retain(|activity| !created.contains(activity));
        needs.reservations.retain(|reservation| !born.contains(reservation));
        needs
    }
}

/// The reservation that an event is of.
pub(super) fn reservation_of(body: &Body<'_>) -> Option<ReservationId> {
    match *body {
        Body::Reserved { reservation, .. }
        | Body::ReservationAdopted { reservation, .. }
        | Body::PaymentOpened { reservation, .. }
        | Body::Confirmed { reservation, .. }
        | Body::Reinstated { reservation, .. }
        | Body::Restored { reservation, .. }
        | Body::RefundRequested { reservation, .. }
        | Body::RefundSettled { reservation, .. }
        | Body::RefundFailed { reservation, .. }
        | Body::DeadLettered { reservation, .. }
        | Body::DeadLetterResolved { reservation, .. } => Some(reservation),
        _ => None,
    }
}
