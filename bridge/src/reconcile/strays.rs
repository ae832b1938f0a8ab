//! Rows in SQL that the log knows nothing of. The log is ahead of SQL: what it does not know by
//! now, it never wrote there.

use engine::core::ids::{ActivityId, ReservationId};

use super::run::{Ledger, ReconcileError, Reconciler, units_text};
use super::{Kind, Mismatch};
use crate::sql::facts;
use crate::sql::mend::Aside;

impl<H: Ledger> Reconciler<'_, H> {
    pub(super) async fn stray_activities(&mut self) -> Result<(), ReconcileError> {
        let mut after = 0;
        loop {
            let mut snapshot = self.readers.snapshot().await?;
            let page = facts::next_units(&mut snapshot, after).await?;
            drop(snapshot);
            let Some(last) = page.last() else { return Ok(()) };
            after = last.id;
            for row in page {
                let id = ActivityId::new(row.id);
                let is_known = id.is_some_and(|id| {
                    self.host.look(id, |_| ()).is_some() || self.host.is_archived(id)
                });
                if !is_known {
                    self.report.add(Mismatch {
                        kind: Kind::StrayActivity,
                        place: format!("flashsale_activities {}", row.id),
                        found: units_text(&row),
                        expected: "absent".to_owned(),
                        repaired: false,
                    });
                }
            }
        }
    }

    pub(super) async fn stray_rows(&mut self) -> Result<(), ReconcileError> {
        let mut after = 0;
        loop {
            let mut snapshot = self.readers.snapshot().await?;
            let page = facts::next_ids(&mut snapshot, after).await?;
            drop(snapshot);
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            for (id, activity) in page {
                // The log is ahead of SQL: what it does not know by now, it never wrote there.
                let (Some(of), Some(known)) = (ActivityId::new(activity), ReservationId::new(id))
                else {
                    continue;
                };
                let is_stray = || {
                    let is_here = self.host.look(of, |it| it.slot(known).is_some());
                    is_here.is_none_or(|is_here| !is_here) && !self.host.is_archived(of)
                };
                if is_stray() {
                    let aside = Aside::Reservation(id);
                    let repaired = self.repair && self.mender().aside(&aside, of, is_stray).await?;
                    self.stray(format!("flashsale_pre_deductions {id}"), activity, repaired);
                }
            }
        }
    }

    pub(super) async fn stray_orders(&mut self) -> Result<(), ReconcileError> {
        let mut after = String::new();
        loop {
            let mut snapshot = self.readers.snapshot().await?;
            let page = facts::stray_orders(&mut snapshot, &after).await?;
            drop(snapshot);
            let Some((last, _)) = page.last() else { return Ok(()) };
            after.clone_from(last);
            for (order_no, activity) in page {
                let place = format!("orders {order_no}");
                let aside = Aside::Order(order_no);
                let repaired = match ActivityId::new(activity) {
                    Some(of) if self.repair && !self.host.is_archived(of) => {
                        // Its reservation would have come in the same transaction.
                        self.mender().aside(&aside, of, || true).await?
                    }
                    _ => false,
                };
                self.stray(place, activity, repaired);
            }
        }
    }

    fn stray(&mut self, place: String, activity: u64, repaired: bool) {
        let (found, expected) = (format!("of activity {activity}"), "absent".to_owned());
        self.report.add(Mismatch { kind: Kind::Stray, place, found, expected, repaired });
    }
}
