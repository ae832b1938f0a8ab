//! A batch of events, folded into rows: here what all events share, [`activity`] and
//! [`reservation`] event by event.
//!
//! Nothing here speaks SQL. The fold takes the events in the log's order, changes activities and
//! reservations in memory, and checks that the units of every event follow from the units before
//! it: what it leaves is what one transaction writes.

mod activity;
mod reservation;

use std::collections::{BTreeSet, HashMap};

use engine::core::event::{Body, Figures, PaymentVerdict, Pool};
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId};
use engine::core::request::RequestHasher;
use wal::{LogUuid, Lsn};

use crate::sql::activities::{ACTIVITIES, Activities, Activity};
use crate::sql::audit::{self, Fields, Trail};
use crate::sql::blacklist::Blacklist;
use crate::sql::fault::SinkError;
use crate::sql::flows::{self, Change, Flow, STOCK_FLOWS};
use crate::sql::needs::{Placed, reservation_of};
use crate::sql::payments::{Callback, Payments};
use crate::sql::refunds::Refunds;
use crate::sql::reservations::Reservation;
use crate::sql::store::Rows;

/// What the projection knows of the site and its log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) log: LogUuid,
    pub(super) order_prefix: OrderPrefix,
    pub(super) hasher: RequestHasher,
}

/// A batch half folded.
#[derive(Debug)]
pub(super) struct Fold<'a, 's> {
    site: Site,
    activities: &'s mut Activities,
    created: BTreeSet<ActivityId>,
    touched: BTreeSet<ActivityId>,
    pub(super) reservations: Vec<Reservation<'a>>,
    by_id: HashMap<ReservationId, usize>,
    pub(super) payments: Payments<'a>,
    pub(super) refunds: Refunds<'a>,
    pub(super) blacklist: Blacklist<'a>,
    pub(super) flows: Rows<'a>,
    pub(super) audit: Trail<'a>,
    lsn: Lsn,
    at_ms: u64,
}

impl<'a, 's> Fold<'a, 's> {
    /// A fold that begins with what `Needs` asked for.
    pub(super) fn new(
        site: Site,
        activities: &'s mut Activities,
        reservations: Vec<Reservation<'a>>,
        refunds: Refunds<'a>,
        audit: Trail<'a>,
    ) -> Self {
        let by_id = reservations.iter().enumerate().map(|(index, one)| (one.id, index)).collect();
        Self {
            site,
            activities,
            created: BTreeSet::new(),
            touched: BTreeSet::new(),
            reservations,
            by_id,
            payments: Payments::new(),
            refunds,
            blacklist: Blacklist::default(),
            flows: Rows::new(&STOCK_FLOWS),
            audit,
            lsn: Lsn(0),
            at_ms: 0,
        }
    }

    /// Takes one event in.
    ///
    /// # Errors
    /// Where the database lacks what the event rests on, or the units don't follow.
    pub(super) fn take(&mut self, (lsn, event): &Placed<'a>) -> Result<(), SinkError> {
        (self.lsn, self.at_ms) = (*lsn, event.at_ms);
        let body = event.body;
        let Some(action) = audit::action(&body) else { return self.apply(body) };
        let before = self.seen(&body);
        self.apply(body)?;
        let (after, number) = (self.seen(&body), flows::event_no(self.site.log, *lsn));
        self.audit.push(number, (&body, action), (before, after), event.at_ms);
        Ok(())
    }

    /// What an operator's `body` is about, as it is now; nothing where it does not exist.
    fn seen(&self, body: &Body<'_>) -> Fields {
        if let Body::ControlSet { key, .. } | Body::ControlCleared { key, .. } = *body {
            return self.audit.control(key, self.at_ms);
        }
        let reservation = reservation_of(body).and_then(|id| self.by_id.get(&id));
        let Some(reservation) = reservation.map(|index| &self.reservations[*index]) else {
            let activity = engine::core::codec::activity(body);
            let row = activity.and_then(|activity| self.activities.get(activity));
            return row.map(audit::of_activity).unwrap_or_default();
        };
        let mut fields = audit::of_reservation(reservation);
        if let Body::RefundRequested { refund_no, .. } = *body {
            let names = (reservation.order_no.as_str(), refund_no);
            fields.extend(audit::of_refund(self.refunds.status(names)));
        }
        fields
    }

    fn apply(&mut self, body: Body<'a>) -> Result<(), SinkError> {
        let site = self.site;
        match body {
            Body::SinkAdvanced { .. } => Ok(()),
            Body::ControlSet { actor, key, value, expires_ms } => {
                self.blacklist.set(key, value, actor.name, expires_ms, self.at_ms);
                self.audit.set(key, value, expires_ms);
                Ok(())
            }
            Body::ControlCleared { key, .. } => {
                self.blacklist.clear(key);
                self.audit.clear(key);
                Ok(())
            }
            Body::PaymentRecorded {
                activity,
                payment_no,
                transaction,
                amount,
                verdict,
                body,
                ..
            } => {
                if verdict == PaymentVerdict::Failed {
                    self.payments.failed(payment_no, self.at_ms);
                }
                let (callback_no, at_ms) = (flows::event_no(site.log, self.lsn), self.at_ms);
                self.payments.record(Callback {
                    callback_no,
                    activity,
                    payment_no,
                    transaction,
                    amount,
                    verdict,
                    body,
                    at_ms,
                });
                Ok(())
            }
            body => match reservation_of(&body) {
                Some(reservation) => self.take_reservation(reservation, body),
                None => self.take_activity(body),
            },
        }
    }

    fn index(&self, id: ReservationId) -> Result<usize, SinkError> {
        let missing = SinkError::RowMissing { table: "flashsale_pre_deductions", id: id.get() };
        self.by_id.get(&id).copied().ok_or(missing)
    }

    fn reservation(&mut self, id: ReservationId) -> Result<&mut Reservation<'a>, SinkError> {
        let index = self.index(id)?;
        Ok(&mut self.reservations[index])
    }

    fn touch(&mut self, id: ActivityId) -> Result<&mut Activity, SinkError> {
        let row = self.activities.get_mut(id)?;
        row.updated_ms = self.at_ms;
        self.touched.insert(id);
        Ok(row)
    }

    /// Units of a reservation go from one pool to another.
    fn shift(
        &mut self,
        activity: ActivityId,
        figures: Figures,
        (from, to, quantity): (Pool, Pool, u32),
        change: Change,
        biz_type: &'static str,
        id: ReservationId,
    ) -> Result<(), SinkError> {
        let expected = self.touch(activity)?.figures.moved(from, to, quantity);
        self.move_units(activity, figures, expected, change, (biz_type, id.to_string()))
    }

    /// The activity's units become `figures`, which must be what `expected` says; where that
    /// changes the units available, a row of `stock_flows` says so.
    fn move_units(
        &mut self,
        activity: ActivityId,
        figures: Figures,
        expected: Option<Figures>,
        change: Change,
        (biz_type, biz_id): (&'static str, String),
    ) -> Result<(), SinkError> {
        let (log, lsn, at_ms) = (self.site.log, self.lsn, self.at_ms);
        let row = self.touch(activity)?;
        let before = row.figures;
        if expected != Some(figures) {
            let activity = activity.get();
            return Err(SinkError::FiguresDisagree { lsn, activity, event: figures, row: before });
        }
        row.figures = figures;
        if before.available != figures.available {
            let after = figures.available;
            let flow = Flow { change, before: before.available, after, biz_type, biz_id };
            let number = flows::event_no(log, lsn);
            // Borrows of two fields: the row stays in `activities`.
            let row = self.activities.get_mut(activity)?;
            flows::push(&mut self.flows, flow, row, number, at_ms);
        }
        Ok(())
    }

    /// The rows of the activities that were made here, and of those that were there and changed.
    pub(super) fn activity_rows(&mut self) -> Result<(Rows<'static>, Rows<'static>), SinkError> {
        let (mut created, mut changed) = (Rows::new(&ACTIVITIES), Rows::new(&ACTIVITIES));
        for id in self.created.union(&self.touched) {
            let rows = if self.created.contains(id) { &mut created } else { &mut changed };
            rows.push(self.activities.get_mut(*id)?.row());
        }
        Ok((created, changed))
    }
}
