//! What clients were told, kept apart from what the log says: the one must follow from the other.

use std::collections::BTreeMap;

use engine::core::command::Refusal;
use engine::core::ids::ReservationId;
use engine::{Purchase, Refused};

use super::ledger::{Ledger, Request};

/// What clients know.
#[derive(Default)]
pub(super) struct Told {
    /// Accepted purchases, by request.
    pub(super) accepted: BTreeMap<Request, (ReservationId, u32)>,
    /// Requests whose outcome nobody was told.
    pub(super) in_doubt: Vec<(Request, u32)>,
    /// Reservations that were shown as `ordered`.
    pub(super) ordered: Vec<ReservationId>,
}

impl Told {
    /// Takes in an answer, at the moment when its client knows it.
    ///
    /// # Errors
    /// What it contradicts.
    pub(super) fn take(
        &mut self,
        ledger: &Ledger,
        request: Request,
        quantity: u32,
        answer: Result<Purchase, Refused>,
    ) -> Result<(), String> {
        let known = self.accepted.get(&request).copied();
        self.in_doubt.retain(|(doubt, _)| *doubt != request);
        let wrong = |what: String| Err(format!("{request:?}: {what}"));
        match answer {
            Ok(Purchase { reservation, .. }) => {
                let id = reservation.reservation.id;
                if let Some((first, _)) = known.filter(|(first, _)| *first != id) {
                    return wrong(format!("O5: {id} is told after {first}"));
                }
                if ledger.requests.get(&request) != Some(&id) {
                    return wrong(format!("W1: {id} is told before it is durable"));
                }
                self.accepted.insert(request, (id, reservation.reservation.quantity));
            }
            Err(Refused { refusal: Refusal::RequestIdReused, .. }) => {
                let first = ledger.requests.get(&request);
                let entry = first.and_then(|first| ledger.reservations.get(first));
                if entry.is_none_or(|entry| entry.quantity == quantity) {
                    return wrong("O5: the same request is told that it is another".into());
                }
            }
            Err(Refused { refusal, .. }) => {
                if known.is_some() {
                    return wrong(format!("O5: an accepted request is told {refusal:?}"));
                }
            }
        }
        Ok(())
    }
}
