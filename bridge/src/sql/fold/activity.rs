//! Events of an activity as such.

use engine::core::event::{Body, DecreaseKey, Figures};

use super::Fold;
use crate::sql::activities::Activity;
use crate::sql::fault::SinkError;
use crate::sql::flows::{self, Change, Flow};

impl<'a> Fold<'a, '_> {
    /// Takes one in.
    pub(super) fn take_activity(&mut self, body: Body<'a>) -> Result<(), SinkError> {
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

    fn create(&mut self, row: Activity) {
        self.created.insert(row.id);
        let flow = Flow {
            change: Change::Init,
            before: 0,
            by: row.figures.available.into(),
            biz_type: "activity",
            biz_id: row.id.to_string(),
        };
        let number = flows::event_no(self.site.log, self.lsn);
        flows::push(&mut self.flows, flow, &row, number, self.at_ms);
        self.activities.insert(row);
    }
}
