//! The flows of an activity that is filled: what of them is known still, and one row for the rest,
//! so that they add up to the units available.

use std::collections::BTreeSet;

use wal::{LogUuid, Lsn};

use super::portion::Ended;
use crate::sql::activities::Activity;
use crate::sql::flows::{self, Change, Flow};
use crate::sql::store::{Lookup, Rows, StoreError, Transaction, Value};

static FLOWS_BY_BIZ: Lookup =
    Lookup { columns: &["biz_id"], from: "stock_flows", key: "biz_id", part: None, only: None };

/// A restock or decrease that was done.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) op: String,
    pub(super) decrease: bool,
    pub(super) quantity: u32,
    /// The units available that it left.
    pub(super) available: u32,
}

impl Operation {
    fn change(&self) -> i64 {
        let units = i64::from(self.quantity);
        if self.decrease { -units } else { units }
    }

    fn biz_type(&self) -> &'static str {
        if self.decrease { "decrease" } else { "restock" }
    }

    /// What names its flow.
    fn biz(&self, of: &Activity) -> Biz {
        (self.biz_type(), format!("{}:{}", of.id, self.op))
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

/// What names a flow: `biz_type` and `biz_id`.
pub(super) type Biz = (&'static str, String);

/// The operations of `ended` whose flows the database has.
pub(super) async fn known(
    ended: &[Ended],
    transaction: &mut impl Transaction,
) -> Result<BTreeSet<Biz>, StoreError> {
    let mut known = BTreeSet::new();
    for biz_type in ["restock", "decrease"] {
        let of = ended.iter().flat_map(|it| it.operations.iter().map(|one| one.biz(&it.row)));
        let of = of.filter(|(found, _)| *found == biz_type);
        let keys: Vec<_> = of.map(|(_, biz_id)| Value::text(biz_id)).collect();
        let lookup = Lookup { only: Some(("biz_type", biz_type)), ..FLOWS_BY_BIZ };
        for record in transaction.select(&lookup, &keys).await? {
            known.insert((biz_type, record.text(0)?.to_owned()));
        }
    }
    Ok(known)
}

/// Adds the flows that bring an activity, of which `there` is in the database, to `ended`; those of
/// the `known` operations are there.
pub(super) fn push(
    rows: &mut Rows<'_>,
    ended: &Ended,
    there: Option<&Activity>,
    known: &BTreeSet<Biz>,
    filling: &Filling,
) {
    let (row, available) = (&*ended.row, i64::from(ended.row.figures.available));
    let is_new = |operation: &&Operation| !known.contains(&operation.biz(row));
    let new: Vec<_> = ended.operations.iter().filter(is_new).collect();
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
        let before = i64::from(operation.available) - operation.change();
        let (biz_type, biz_id) = operation.biz(row);
        add(Change::Adjust, (before, operation.change()), biz_type, biz_id);
    }
    let before = begun + moved;
    if before != available {
        let biz_id = format!("{}:{}", row.id, filling.lsn);
        add(Change::Deduct, (before, available - before), "filled", biz_id);
    }
}
