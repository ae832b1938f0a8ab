//! What callers are shown.

use std::sync::Arc;

use super::engine::Engine;
use crate::core::activity::{Activity, View};
use crate::core::command::Reservation;
use crate::core::event::{Figures, RestoreReason, Status};
use crate::core::ids::{ActivityId, Ordinal};
use crate::core::side::RefundStatus;
use crate::core::terms::Terms;

/// A reservation's status as the outside knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PublicStatus {
    /// Durable; its order is not in SQL yet.
    PendingOrder,
    /// Its order is in SQL.
    Ordered,
    /// Given back.
    RolledBack(RestoreReason),
}

/// A reservation with what the outside calls it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservationView {
    /// The reservation.
    pub reservation: Reservation,
    /// Its order number.
    pub order_no: String,
    /// Its status.
    pub status: PublicStatus,
    /// Where its order's refund is, if one was asked for.
    pub refund: Option<RefundStatus>,
}

impl PublicStatus {
    /// `order_seq` is the record with which a sink makes the order, `ordered_seq` the last that
    /// the sink covers.
    pub(crate) fn of(status: Status, order_seq: Option<u64>, ordered_seq: u64) -> Self {
        match (status, order_seq) {
            (Status::RolledBack(reason), _) => Self::RolledBack(reason),
            (_, Some(order_seq)) if order_seq <= ordered_seq => Self::Ordered,
            _ => Self::PendingOrder,
        }
    }
}

/// An activity's state as shoppers know it, computed when read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DerivedState {
    /// Paused or drained.
    Paused,
    /// Not published.
    OffSale,
    /// Before its window.
    NotStarted,
    /// After its window.
    Ended,
    /// No unit is free.
    SoldOut,
    /// Open.
    InProgress,
}

/// An activity, as its newest durable record left it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActivityView {
    /// Its id.
    pub id: ActivityId,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its definition.
    pub terms: Arc<Terms>,
    /// Version of the definition.
    pub version: u32,
    /// Its units.
    pub figures: Figures,
    /// Published.
    pub on_sale: bool,
    /// New purchases are stopped.
    pub paused: bool,
    /// New purchases are stopped for good.
    pub drained: bool,
    /// When it publishes itself, if it still does, Unix milliseconds.
    pub publish_due_ms: Option<u64>,
}

impl ActivityView {
    pub(crate) fn of(id: ActivityId, activity: &Activity, view: View, terms: &Arc<Terms>) -> Self {
        Self {
            id,
            ordinal: activity.ordinal(),
            terms: Arc::clone(terms),
            version: view.version,
            figures: view.figures,
            on_sale: view.flags.on_sale,
            paused: view.flags.paused,
            drained: view.flags.drained,
            publish_due_ms: Some(terms.publish_at_ms)
                .filter(|at_ms| *at_ms > 0 && !view.schedule_over),
        }
    }

    /// An activity as it is now: for [`Engine::look`](crate::Engine::look), which holds it until it
    /// is durable.
    pub fn live(id: ActivityId, activity: &Activity) -> Self {
        Self::of(id, activity, activity.view(), activity.terms())
    }

    /// All its units.
    pub fn total(&self) -> u64 {
        self.figures.total()
    }

    /// Its state at `now_ms`: the first that fits.
    pub fn state(&self, now_ms: u64) -> DerivedState {
        let states = [
            (self.paused || self.drained, DerivedState::Paused),
            (!self.on_sale, DerivedState::OffSale),
            (now_ms < self.terms.start_ms, DerivedState::NotStarted),
            (now_ms > self.terms.end_ms, DerivedState::Ended),
            (self.figures.available == 0, DerivedState::SoldOut),
        ];
        states.iter().find(|(fits, _)| *fits).map_or(DerivedState::InProgress, |(_, state)| *state)
    }
}

impl Engine {
    /// The activities that are published and have not ended at `now_ms`, as their newest durable
    /// records left them, by id; and how many were looked at to find them: all there are.
    pub fn on_sale(&self, now_ms: u64) -> (Vec<ActivityId>, usize) {
        let (mut ids, mut looked) = (Vec::new(), 0);
        for (index, shard) in (0..).zip(&self.inner.shards) {
            let durable_seq = self.inner.log.durable_seq(index);
            let shard = shard.lock();
            ids.extend(shard.activities().filter_map(|(id, activity)| {
                looked += 1;
                let (view, terms) = activity.published(durable_seq)?;
                (view.flags.on_sale && now_ms <= terms.end_ms).then_some(id)
            }));
        }
        ids.sort_unstable();
        (ids, looked)
    }
}
