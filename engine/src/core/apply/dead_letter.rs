//! Dead letters: reservations that no order could hold.
//!
//! | from        | event                | to          | where                                     |
//! |-------------|----------------------|-------------|-------------------------------------------|
//! | none        | DeadLettered         | open        |                                           |
//! | delivered   | DeadLettered         | open        | it failed again                           |
//! | open        | Resolved delivered   | delivered   |                                           |
//! | open        | Resolved rolled back | rolled back | its units went back, or its money did     |
//!
//! What was rolled back stays so: its order was never made, and none shall be.

use super::super::activity::Activity;
use super::super::event::{Body, DeadLetterResolution, Status};
use super::super::ids::ReservationId;
use super::super::side::{DeadLetter, DeadLetterState, RefundStatus};
use super::{ApplyError, Now};

/// A dead letter was opened or closed.
pub(super) fn changed(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    match *body {
        Body::DeadLettered { reservation, note, .. } => {
            if activity.slot(reservation).is_none() {
                return Err(ApplyError::UnknownReservation(reservation));
            }
            let state = activity.dead_letters.get(&reservation).map(|letter| letter.state);
            if matches!(state, Some(DeadLetterState::Open | DeadLetterState::RolledBack)) {
                return Err(ApplyError::DeadLetter(reservation));
            }
            let (state, opened_ms) = (DeadLetterState::Open, now.at_ms);
            let letter = DeadLetter { state, note: note.into(), opened_ms };
            activity.dead_letters.insert(reservation, letter);
            Ok(())
        }
        Body::DeadLetterResolved { reservation, resolution, .. } => {
            let state = match resolution {
                DeadLetterResolution::Delivered => {
                    DeadLetterState::Delivered { shard_seq: now.shard_seq }
                }
                DeadLetterResolution::RolledBack => {
                    check_gone(activity, reservation)?;
                    DeadLetterState::RolledBack
                }
            };
            let letter = activity.dead_letters.get_mut(&reservation);
            let letter = letter.filter(|letter| letter.is_open());
            let letter = letter.ok_or(ApplyError::DeadLetter(reservation))?;
            letter.state = state;
            letter.note = Box::default();
            Ok(())
        }
        _ => unreachable!("`change` sends none of the others here"),
    }
}

/// Rolled back means that the units went back, by a `Restored` before this, or the money did, by a
/// `RefundSettled`.
fn check_gone(activity: &Activity, reservation: ReservationId) -> Result<(), ApplyError> {
    let slot = activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
    let refund = activity.refund(reservation).map(|(_, refund)| refund.status);
    let gone = match slot.status() {
        Status::RolledBack(_) => true,
        Status::Confirmed => refund == Some(RefundStatus::Settled),
        Status::Reserved => false,
    };
    let status = slot.status();
    if gone { Ok(()) } else { Err(ApplyError::Status { reservation, status }) }
}
