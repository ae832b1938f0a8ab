//! What the log says has happened, added up by other means than the engine's.
//!
//! It reads the log as far as it is durable, from where it stopped. After a crash it must find its
//! place again: a log that lost what was durable, or has another history, does not hold it.

use std::collections::BTreeMap;

use bridge::redis::layouts::Layout;
use engine::core::codec;
use engine::core::event::{Body, DeadLetterResolution, Event, Figures, Pool, RestoreReason};
use engine::core::ids::{ActivityId, ReservationId, UserId};
use wal::{Lsn, Reader};

use super::keys::KeyHistory;
use super::shoppers::PAYMENT_TTL_MS;

/// Where a reservation is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// Accepted, unpaid.
    Reserved,
    /// Paid.
    Paid,
    /// Its refund is asked for.
    Refunding,
    /// Its money went back.
    Refunded,
    /// Given back.
    RolledBack(RestoreReason),
}

/// A reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Its activity.
    pub(super) activity: ActivityId,
    /// Its buyer.
    pub(super) user: UserId,
    /// Its units.
    pub(super) quantity: u32,
    /// The client's id.
    pub(super) request_id: String,
    /// Where it is.
    pub(super) life: Life,
    /// Whether it is a dead letter that nobody has resolved.
    pub(super) is_dead_letter: bool,
    /// Whether its last refund takes the units out of `sold`.
    restock: bool,
    /// When it was accepted.
    created_ms: u64,
}

/// The request that a reservation answers.
pub(super) type Request = (UserId, ActivityId, String);

/// All of it.
#[derive(Default)]
pub(super) struct Ledger {
    /// Reservations.
    pub(super) reservations: BTreeMap<ReservationId, Entry>,
    /// Units of the activities.
    pub(super) activities: BTreeMap<ActivityId, Figures>,
    /// What each request led to.
    pub(super) requests: BTreeMap<Request, ReservationId>,
    /// Units given back, each give-back once.
    pub(super) give_backs: u64,
    /// What the keys in Redis must be, at every LSN.
    pub(super) keys: KeyHistory,
    /// Units that count against a buyer's limit.
    held: BTreeMap<(ActivityId, UserId), u32>,
    at: Lsn,
    chain: u32,
}

impl Ledger {
    /// An empty one, beside keys of `layout`.
    pub(super) fn of(layout: Layout) -> Self {
        Self { keys: KeyHistory::of(layout), ..Self::default() }
    }

    /// Reads on, as far as `reader` goes.
    ///
    /// # Errors
    /// What cannot be true.
    pub(super) fn read(&mut self, mut reader: Reader) -> Result<(), String> {
        let chain = reader.seek(self.at).map_err(|error| {
            format!("O2: what was durable up to LSN {} is gone: {error}", self.at)
        })?;
        if chain != self.chain {
            return Err(format!("O3: the history up to LSN {} is another one", self.at));
        }
        while let Some(frame) = reader.next_frame().map_err(|error| format!("reader: {error}"))? {
            for record in frame.records() {
                let record = record.map_err(|error| format!("reader: {error}"))?;
                let event = codec::decode(record.kind, record.kind_version, record.body)
                    .map_err(|error| format!("LSN {}: {error}", record.lsn))?;
                self.take(&event).map_err(|what| format!("LSN {}: {what}", record.lsn))?;
                self.keys.take(record.lsn, &event);
            }
            if frame.first_lsn <= frame.last_lsn {
                self.keys.frame(frame.last_lsn, frame.commit_us);
                (self.at, self.chain) = (frame.last_lsn, frame.chain);
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.hold(&event.body)?;
        match event.body {
            Body::ActivityCreated { activity, total, .. } => {
                let figures = Figures { available: total, ..Figures::default() };
                let before = self.activities.insert(activity, figures);
                before.map_or(Ok(()), |_| Err(format!("activity {activity} is made twice")))
            }
            Body::ActivityEdited { activity, figures, .. }
            | Body::Restocked { activity, figures, .. }
            | Body::Decreased { activity, figures, .. } => self.set(activity, figures),
            Body::Reserved {
                activity, reservation, user, quantity, figures, request_id, ..
            } => {
                self.shift(activity, Pool::Available, Pool::Locked, quantity, figures)?;
                self.reserve(reservation, (user, activity, request_id.to_owned()), quantity)?;
                self.entry(reservation)?.created_ms = event.at_ms;
                Ok(())
            }
            Body::Confirmed { activity, reservation, quantity, figures, .. } => {
                self.shift(activity, Pool::Locked, Pool::Sold, quantity, figures)?;
                self.go(reservation, &[Life::Reserved], Life::Paid)
            }
            Body::Reinstated { activity, reservation, quantity, figures, .. } => {
                self.shift(activity, Pool::Available, Pool::Sold, quantity, figures)?;
                let entry = self.entry(reservation)?;
                match entry.life {
                    Life::RolledBack(_) => entry.life = Life::Paid,
                    life => return Err(format!("{reservation} is reinstated from {life:?}")),
                }
                Ok(())
            }
            Body::Restored { activity, reservation, quantity, figures, reason, .. } => {
                self.shift(activity, Pool::Locked, Pool::Available, quantity, figures)?;
                self.give_backs += 1;
                self.may_go_back(reservation, reason, event.at_ms)?;
                self.go(reservation, &[Life::Reserved], Life::RolledBack(reason))
            }
            Body::RefundRequested { reservation, restock, .. } => {
                let entry = self.entry(reservation)?;
                // A payment that paid nothing is refunded as well: its order does not change.
                if entry.life == Life::Paid {
                    (entry.life, entry.restock) = (Life::Refunding, restock);
                }
                Ok(())
            }
            Body::RefundSettled { activity, reservation, figures, .. } => {
                self.settle(activity, reservation, figures)
            }
            Body::RefundFailed { reservation, .. } => {
                let entry = self.entry(reservation)?;
                if entry.life == Life::Refunding {
                    entry.life = Life::Paid;
                }
                Ok(())
            }
            Body::DeadLettered { reservation, .. } => {
                self.entry(reservation)?.is_dead_letter = true;
                Ok(())
            }
            Body::DeadLetterResolved { reservation, resolution, .. } => {
                let _: DeadLetterResolution = resolution;
                self.entry(reservation)?.is_dead_letter = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Holds what an event says of its buyer's units against those that follow.
    fn hold(&mut self, body: &Body<'_>) -> Result<(), String> {
        let (activity, user, more, less, held) = match *body {
            Body::Reserved { activity, user, quantity, held, .. }
            | Body::Reinstated { activity, user, quantity, held, .. } => {
                (activity, user, quantity, 0, held)
            }
            Body::Confirmed { activity, user, held, .. } => (activity, user, 0, 0, held),
            Body::Restored { activity, user, quantity, held, .. } => {
                (activity, user, 0, quantity, held)
            }
            // How much of a refund frees the limit is the refund's own word.
            Body::RefundSettled { activity, user, held, .. } => {
                self.held.insert((activity, user), held);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let known = self.held.entry((activity, user)).or_default();
        let following = (*known + more).checked_sub(less);
        if following != Some(held) {
            return Err(format!("O1: {user} holds {held} of {activity}, not {following:?}"));
        }
        *known = held;
        Ok(())
    }

    fn reserve(
        &mut self,
        reservation: ReservationId,
        request: Request,
        quantity: u32,
    ) -> Result<(), String> {
        if let Some(first) = self.requests.insert(request.clone(), reservation) {
            return Err(format!("the request of {reservation} made {first} before"));
        }
        let (user, activity, request_id) = request;
        let entry = Entry {
            activity,
            user,
            quantity,
            request_id,
            life: Life::Reserved,
            is_dead_letter: false,
            restock: false,
            created_ms: 0,
        };
        let before = self.reservations.insert(reservation, entry);
        before.map_or(Ok(()), |_| Err(format!("{reservation} is accepted twice")))
    }

    fn settle(
        &mut self,
        activity: ActivityId,
        reservation: ReservationId,
        figures: Figures,
    ) -> Result<(), String> {
        let entry = self.entry(reservation)?;
        if entry.life != Life::Refunding {
            return Ok(());
        }
        entry.life = Life::Refunded;
        let (restock, quantity) = (entry.restock, entry.quantity);
        match restock {
            true => self.shift(activity, Pool::Sold, Pool::Available, quantity, figures),
            false => self.shift(activity, Pool::Sold, Pool::Sold, quantity, figures),
        }
    }

    /// Nobody's time to pay ends before it is over.
    fn may_go_back(
        &mut self,
        id: ReservationId,
        reason: RestoreReason,
        at_ms: u64,
    ) -> Result<(), String> {
        let due_ms = self.entry(id)?.created_ms + PAYMENT_TTL_MS;
        match reason == RestoreReason::Timeout && at_ms < due_ms {
            true => Err(format!("{id} times out {} ms early", due_ms - at_ms)),
            false => Ok(()),
        }
    }

    fn entry(&mut self, id: ReservationId) -> Result<&mut Entry, String> {
        self.reservations.get_mut(&id).ok_or_else(|| format!("O4: {id} was never accepted"))
    }

    fn go(&mut self, id: ReservationId, from: &[Life], to: Life) -> Result<(), String> {
        let entry = self.entry(id)?;
        if !from.contains(&entry.life) {
            return Err(format!("{id} goes from {:?} to {to:?}", entry.life));
        }
        entry.life = to;
        Ok(())
    }

    fn set(&mut self, activity: ActivityId, figures: Figures) -> Result<(), String> {
        let known = self.activities.get_mut(&activity);
        let known = known.ok_or_else(|| format!("activity {activity} was never made"))?;
        if (known.locked, known.sold) != (figures.locked, figures.sold) {
            return Err(format!("O1: {activity} goes from {known:?} to {figures:?}"));
        }
        *known = figures;
        Ok(())
    }

    fn shift(
        &mut self,
        activity: ActivityId,
        from: Pool,
        to: Pool,
        quantity: u32,
        figures: Figures,
    ) -> Result<(), String> {
        let known = self.activities.get_mut(&activity);
        let known = known.ok_or_else(|| format!("activity {activity} was never made"))?;
        let following = known.moved(from, to, quantity);
        if following != Some(figures) {
            return Err(format!("O1: {activity} is {figures:?}, not {following:?}"));
        }
        *known = figures;
        Ok(())
    }
}
