//! A batch of events, folded into rows.
//!
//! Nothing here speaks SQL. The fold takes the events in the log's order, changes activities and
//! reservations in memory, and checks that the units of every event follow from the units before
//! it: what it leaves is what one transaction writes.

use std::collections::{BTreeSet, HashMap};

use engine::core::event::{Body, DecreaseKey, Figures, PaymentVerdict, Pool, Status};
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};
use engine::core::request::RequestHasher;
use wal::{LogUuid, Lsn};

use super::activities::{ACTIVITIES, Activities, Activity};
use super::audit::{self, AUDIT};
use super::dead_letters::DeadLetters;
use super::fault::SinkError;
use super::flows::{self, Change, Flow, STOCK_FLOWS};
use super::needs::{Placed, reservation_of};
use super::orders::Reservation;
use super::payments::{Callback, Opened, Payments};
use super::refunds::{Effects, Refunds, Request};
use super::store::Rows;

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
    pub(super) dead_letters: DeadLetters<'a>,
    pub(super) flows: Rows<'a>,
    pub(super) audit: Rows<'a>,
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
        dead_letters: DeadLetters<'a>,
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
            dead_letters,
            flows: Rows::new(&STOCK_FLOWS),
            audit: Rows::new(&AUDIT),
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
        let site = self.site;
        audit::push(&mut self.audit, &event.body, || flows::event_no(site.log, *lsn), event.at_ms);
        match event.body {
            Body::SinkAdvanced { .. } | Body::ControlSet { .. } | Body::ControlCleared { .. } => {
                Ok(())
            }
            Body::PaymentRecorded { activity, payment_no, transaction, amount, verdict, body } => {
                if verdict == PaymentVerdict::Failed {
                    self.payments.failed(payment_no, self.at_ms);
                }
                let (callback_no, at_ms) = (flows::event_no(site.log, *lsn), self.at_ms);
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

    /// An event of an activity as such.
    fn take_activity(&mut self, body: Body<'a>) -> Result<(), SinkError> {
        match body {
            Body::ActivityCreated { activity, ordinal, total, definition, .. } => {
                let figures = Figures { available: total, locked: 0, sold: 0 };
                let row = Activity::new(activity, ordinal.get(), figures, &definition, self.at_ms);
                self.create(row);
            }
            Body::ActivityAdopted { activity, ordinal, version, figures, on_sale, definition } => {
                let row = Activity::new(activity, ordinal.get(), figures, &definition, self.at_ms);
                self.create(Activity { version, on_sale, ..row });
            }
            Body::ActivityEdited { activity, version, figures, definition, .. } => {
                let row = self.touch(activity)?;
                row.define(&definition);
                row.version = version;
                let expected = Figures { available: figures.available, ..row.figures };
                let biz = ("edit", format!("{activity}:{version}"));
                self.move_units(activity, figures, Some(expected), Change::Adjust, biz)?;
            }
            Body::Restocked { activity, op, quantity, version, figures, .. } => {
                let row = self.touch(activity)?;
                row.version = version;
                let expected = row.figures.available.checked_add(quantity);
                let expected = expected.map(|available| Figures { available, ..row.figures });
                let biz = ("restock", format!("{activity}:{op}"));
                self.move_units(activity, figures, expected, Change::Adjust, biz)?;
            }
            Body::Decreased { activity, op, quantity, version, figures, .. } => {
                let row = self.touch(activity)?;
                row.version = version;
                let expected = row.figures.available.checked_sub(quantity);
                let expected = expected.map(|available| Figures { available, ..row.figures });
                let biz = match op {
                    DecreaseKey::Caller(op) => ("decrease", format!("{activity}:{op}")),
                    DecreaseKey::Edit => ("edit_decrease", format!("{activity}:{version}")),
                };
                self.move_units(activity, figures, expected, Change::Adjust, biz)?;
            }
            Body::Published { activity, .. } => self.touch(activity)?.on_sale = true,
            Body::Unpublished { activity, .. } => self.touch(activity)?.on_sale = false,
            Body::Paused { activity, .. } => self.touch(activity)?.paused = true,
            Body::Drained { activity, .. } => self.touch(activity)?.drained = true,
            Body::Resumed { activity, .. } => {
                let row = self.touch(activity)?;
                (row.paused, row.drained) = (false, false);
            }
            Body::Archived { activity } => {
                let at_ms = self.at_ms;
                self.touch(activity)?.archived_ms = Some(at_ms);
            }
            other => unreachable!("{other:?} is no event of an activity as such"),
        }
        Ok(())
    }

    /// An event of a reservation.
    fn take_reservation(&mut self, id: ReservationId, body: Body<'a>) -> Result<(), SinkError> {
        let at_ms = self.at_ms;
        match body {
            Body::Reserved { activity, user, quantity, figures, request_id, .. } => {
                let order_no = self.site.order_prefix.order_no(id);
                self.bear(id, order_no, user, quantity, activity, request_id, at_ms)?;
                let pools = (Pool::Available, Pool::Locked, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "reservation", id)?;
            }
            Body::ReservationAdopted { .. } => self.adopt(id, body)?,
            Body::PaymentOpened { attempt, channel, amount, expires_ms, .. } => {
                let reservation = self.reservation(id)?;
                let (order_no, user) = (reservation.order_no.clone(), reservation.user);
                let opened = Opened { order_no, user, channel, amount, expires_ms, at_ms };
                self.payments.open(format!("{}{attempt:02}", opened.order_no), opened);
            }
            Body::Confirmed { activity, quantity, figures, payment_no, .. } => {
                self.reservation(id)?.confirm(payment_no, at_ms);
                self.payments.paid(payment_no, at_ms);
                let pools = (Pool::Locked, Pool::Sold, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "confirm", id)?;
            }
            Body::Reinstated { activity, quantity, figures, payment_no, .. } => {
                self.reservation(id)?.reinstate(payment_no, at_ms);
                self.payments.paid(payment_no, at_ms);
                let pools = (Pool::Available, Pool::Sold, quantity);
                self.shift(activity, figures, pools, Change::Deduct, "reinstate", id)?;
            }
            Body::Restored { activity, quantity, figures, reason, .. } => {
                self.reservation(id)?.restore(reason, at_ms);
                let pools = (Pool::Locked, Pool::Available, quantity);
                self.shift(activity, figures, pools, Change::Recover, "restore", id)?;
            }
            Body::DeadLettered { note, .. } => {
                let index = self.index(id)?;
                self.reservations[index].dead_letter(note, at_ms);
                self.dead_letters.open(&self.reservations[index], note, at_ms);
            }
            Body::DeadLetterResolved { resolution, .. } => {
                self.dead_letters.resolve(id, resolution, at_ms);
                self.reservation(id)?.dead_letter_resolved(resolution, at_ms);
            }
            body => self.take_refund(id, body)?,
        }
        Ok(())
    }

    fn take_refund(&mut self, id: ReservationId, body: Body<'a>) -> Result<(), SinkError> {
        let at_ms = self.at_ms;
        let index = self.index(id)?;
        let reservation = &mut self.reservations[index];
        match body {
            Body::RefundRequested { actor, refund_no, restock, free_limit, note, .. } => {
                let request = Request {
                    activity: reservation.activity,
                    amount: reservation.amount(),
                    reason: note,
                    requested_by: actor.name,
                };
                let names = (reservation.order_no.as_str(), refund_no);
                self.refunds.request(names, request, Effects { restock, free_limit }, at_ms);
                reservation.set_order_status("refunding", at_ms);
                Ok(())
            }
            Body::RefundSettled { activity, figures, refund_no, .. } => {
                let names = (reservation.order_no.as_str(), refund_no);
                let Effects { restock, free_limit } = self.refunds.end(names, None, at_ms)?;
                reservation.refunded(free_limit, at_ms);
                let units = if restock { reservation.quantity } else { 0 };
                let row = self.touch(activity)?;
                if row.archived_ms.is_some() {
                    // Nothing is on sale any more: such a refund restocks nothing.
                    return Ok(());
                }
                let back = |units| row.figures.moved(Pool::Sold, Pool::Available, units);
                let expected = u32::try_from(units).ok().and_then(back);
                let biz = ("refund", format!("{id}:{refund_no}"));
                self.move_units(activity, figures, expected, Change::Recover, biz)
            }
            Body::RefundFailed { refund_no, note, .. } => {
                let names = (reservation.order_no.as_str(), refund_no);
                self.refunds.end(names, Some(note), at_ms)?;
                reservation.set_order_status("paid", at_ms);
                Ok(())
            }
            other => unreachable!("{other:?} is no event of a refund"),
        }
    }

    fn adopt(&mut self, id: ReservationId, body: Body<'a>) -> Result<(), SinkError> {
        let Body::ReservationAdopted {
            activity,
            order_no,
            status,
            user,
            quantity,
            created_ms,
            updated_ms,
            figures,
            request_id,
            payment_no,
            ..
        } = body
        else {
            unreachable!("adopt takes adopted reservations")
        };
        let order_no = match order_no {
            "" => self.site.order_prefix.order_no(id),
            order_no => order_no.to_owned(),
        };
        self.bear(id, order_no, user, quantity, activity, request_id, created_ms)?;
        let row = self.touch(activity)?.figures;
        let reservation = self.reservation(id)?;
        let expected = match status {
            Status::Reserved => row.moved(Pool::Available, Pool::Locked, quantity),
            Status::Confirmed => {
                reservation.confirm(payment_no, updated_ms);
                row.moved(Pool::Available, Pool::Sold, quantity)
            }
            Status::RolledBack(reason) => {
                reservation.restore(reason, updated_ms);
                Some(row)
            }
        };
        let biz = ("reservation", id.to_string());
        self.move_units(activity, figures, expected, Change::Deduct, biz)
    }

    fn create(&mut self, row: Activity) {
        self.created.insert(row.id);
        let flow = Flow {
            change: Change::Init,
            before: 0,
            after: row.figures.available,
            biz_type: "activity",
            biz_id: row.id.to_string(),
        };
        let number = flows::event_no(self.site.log, self.lsn);
        flows::push(&mut self.flows, flow, &row, number, self.at_ms);
        self.activities.insert(row);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a new row")]
    fn bear(
        &mut self,
        id: ReservationId,
        order_no: String,
        user: UserId,
        quantity: u32,
        activity: ActivityId,
        request_id: &'a str,
        created_ms: u64,
    ) -> Result<(), SinkError> {
        let request = (request_id, self.site.hasher.hash(request_id));
        let row = self.activities.get_mut(activity)?;
        let new = Reservation::new(id, order_no, user, quantity, row, request, created_ms);
        self.by_id.insert(id, self.reservations.len());
        self.reservations.push(new);
        Ok(())
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
