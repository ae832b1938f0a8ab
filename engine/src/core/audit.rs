//! The exact-sale equation, recomputed from every reservation: what `apply` keeps step by step is
//! added up here from nothing. Costs a walk over the activity.

use std::collections::BTreeMap;

use super::activity::Activity;
use super::event::{Figures, Status};
use super::ids::{Position, ReservationId, UserId};
use super::reservation::Slot;
use super::side::RefundStatus;

/// Where an activity's state contradicts its reservations: a fault of this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Units are in no pool, or in two.
    #[error("figures are {kept:?}, reservations add up to {recomputed:?}")]
    Figures {
        /// As kept.
        kept: Figures,
        /// As added up.
        recomputed: Figures,
    },
    /// The total is not what the figures add up to.
    #[error("the total is {total}, the figures add up to {sum}")]
    Total {
        /// As kept.
        total: u32,
        /// As added up.
        sum: u64,
    },
    /// A user holds other units than their reservations say.
    #[error("user {user} holds {kept}, reservations add up to {recomputed}")]
    Held {
        /// The user.
        user: UserId,
        /// As kept.
        kept: u32,
        /// As added up.
        recomputed: u64,
    },
    /// A reservation's chain, its index, or the expiry cursor has lost it.
    #[error("reservation {0} cannot be found by its request, or would never expire")]
    Lost(ReservationId),
}

impl Activity {
    /// Recomputes units and limits from the reservations.
    ///
    /// # Errors
    /// [`AuditError`] with the first contradiction.
    pub fn audit(&self) -> Result<(), AuditError> {
        let (mut locked, mut sold) = (0u64, u64::from(self.sold_before));
        let mut held = BTreeMap::<UserId, u64>::new();
        for (id, slot) in self.all_slots() {
            let units = u64::from(slot.quantity());
            let refund = self.refund(id).map(|(_, it)| it);
            let refund = refund.filter(|it| it.status == RefundStatus::Settled);
            let back = |moves: bool| if moves { 0 } else { units };
            let user = held.entry(slot.user()).or_default();
            match slot.status() {
                Status::Reserved => {
                    locked += units;
                    *user += units;
                }
                Status::Confirmed => {
                    sold += refund.map_or(units, |it| back(it.restock));
                    *user += refund.map_or(units, |it| back(it.free_limit));
                }
                Status::RolledBack(_) => {}
            }
            let expires = slot.status() != Status::Reserved || self.will_expire(id, slot);
            if !expires || self.find_request(slot.user(), slot.request_hash()) != Some(id) {
                return Err(AuditError::Lost(id));
            }
        }
        self.audit_figures(locked, sold)?;
        let holders = self.users.iter().map(|user| user.id);
        for user in holders.chain(held.keys().copied()) {
            let (kept, recomputed) = (self.held(user), held.get(&user).copied().unwrap_or(0));
            if u64::from(kept) != recomputed {
                return Err(AuditError::Held { user, kept, recomputed });
            }
        }
        Ok(())
    }

    /// Every reservation, accepted here or adopted.
    pub fn all_slots(&self) -> impl Iterator<Item = (ReservationId, &Slot)> {
        let own = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            Some((ReservationId::compose(self.ordinal, Position::after(index)?), slot))
        });
        own.chain(self.adopted.iter().map(|(id, adopted)| (*id, &adopted.slot)))
    }

    fn will_expire(&self, id: ReservationId, slot: &Slot) -> bool {
        match self.own_position(id) {
            Some(position) => position.index() >= self.unpaid_from,
            None => self.adopted_unpaid.contains(&(slot.created_ms(), id)),
        }
    }

    fn audit_figures(&self, locked: u64, sold: u64) -> Result<(), AuditError> {
        let kept = self.figures;
        if kept.total() != u64::from(self.total) {
            return Err(AuditError::Total { total: self.total, sum: kept.total() });
        }
        if (u64::from(kept.locked), u64::from(kept.sold)) == (locked, sold) {
            return Ok(());
        }
        let units = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
        let recomputed = Figures { locked: units(locked), sold: units(sold), ..kept };
        Err(AuditError::Figures { kept, recomputed })
    }
}
