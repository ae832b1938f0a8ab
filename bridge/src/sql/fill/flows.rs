//! The flows of an activity that is filled: what of them is known still, and one row for the rest,
//! so that they add up to the units available.

use wal::{LogUuid, Lsn};

use super::portion::Ended;
use crate::sql::activities::Activity;
use crate::sql::flows::{self, Change, Flow};
use crate::sql::store::Rows;

/// A restock or decrease that was done.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) op: String,
    pub(super) decrease: bool,
    pub(super) quantity: u32,
    /// The version of the definition that it left.
    pub(super) version: u32,
    /// The units available that it left.
    pub(super) available: u32,
}

impl Operation {
    fn change(&self) -> i64 {
        let units = i64::from(self.quantity);
        if self.decrease { -units } else { units }
    }
}

/// Which filling numbers its flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) log: LogUuid,
    pub(super) lsn: Lsn,
    pub(super) made_ms: u64,
}

impl Filling {
    /// A number for a row of its own, and of no other filling.
    fn number(&self, of: &Activity, index: usize) -> String {
        let [a, b, c, d, ..] = self.log.0;
        format!("{a:02x}{b:02x}{c:02x}{d:02x}-fill-{:x}-{}-{index}", self.lsn.0, of.id)
    }
}

/// Adds the flows that bring an activity, of which `there` is in the database, to `ended`.
///
/// Every operation moved the version of the definition on: those up to the version in the database
/// have their flows there.
pub(super) fn push(
    rows: &mut Rows<'_>,
    ended: &Ended,
    there: Option<&Activity>,
    filling: &Filling,
) {
    let (row, available) = (&*ended.row, i64::from(ended.row.figures.available));
    let known_version = there.map_or(0, |there| there.version);
    let mut new: Vec<_> =
        ended.operations.iter().filter(|operation| operation.version > known_version).collect();
    new.sort_unstable_by_key(|operation| operation.version);
    let moved: i64 = new.iter().map(|operation| operation.change()).sum();
    let mut index = 0;
    let mut add = |change, (before, by): (i64, i64), biz_type, biz_id| {
        // In sums of what is known there may have been fewer units than none: then the row says
        // the move alone.
        let before = before.max(0).max(-by);
        let flow = Flow { change, before, by, biz_type, biz_id };
        flows::push(rows, flow, row, filling.number(row, index), filling.made_ms);
        index += 1;
    };
    let begun = match there {
        Some(there) => i64::from(there.figures.available),
        None => {
            let first = i64::try_from(row.figures.total()).unwrap_or(i64::MAX);
            let first = first.saturating_sub(moved).max(0);
            add(Change::Init, (0, first), "activity", row.id.to_string());
            first
        }
    };
    for operation in new {
        let biz_type = if operation.decrease { "decrease" } else { "restock" };
        let before = i64::from(operation.available) - operation.change();
        let biz_id = format!("{}:{}", row.id, operation.op);
        add(Change::Adjust, (before, operation.change()), biz_type, biz_id);
    }
    let before = begun + moved;
    if before != available {
        let biz_id = format!("{}:{}", row.id, filling.lsn);
        add(Change::Deduct, (before, available - before), "filled", biz_id);
    }
}
