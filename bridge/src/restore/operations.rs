//! Restocks and decreases, whose keys must stay used.

use std::collections::BTreeMap;

use engine::core::event::{Body, DecreaseKey, Figures};
use engine::core::ids::ActivityId;
use engine::core::limits::UNITS_MAX;

use super::RestoreError;
use super::facts::PAGE_ROWS;
use super::rebuild::{ACTOR, Rebuild};
use crate::sql::readers::Snapshot;
use crate::sql::store::{StoreError, Value};

/// A restock (units more) or decrease (units less), by its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    op: String,
    units: i64,
}

/// Operations by activity.
pub(super) type Operations = BTreeMap<u64, Vec<Operation>>;

/// What SQL knows of operations. Operators make them: they are few.
pub(super) async fn read(snapshot: &mut Snapshot) -> Result<Operations, StoreError> {
    let mut operations = Operations::new();
    let text = format!(
        "SELECT biz_id, activity_id, CAST(ABS(change_qty) AS SIGNED) FROM stock_flows \
         WHERE biz_type = ? AND biz_id > ? ORDER BY biz_id LIMIT {PAGE_ROWS}"
    );
    for (biz_type, sign) in [("restock", 1), ("decrease", -1)] {
        let mut after = String::new();
        loop {
            let keys = [Value::text(biz_type), Value::text(after.clone())];
            let rows = snapshot.rows(&text, &keys).await?;
            let Some(last) = rows.last() else { break };
            last.text(0)?.clone_into(&mut after);
            for row in &rows {
                let (biz_id, activity) = (row.text(0)?, row.number(1)?);
                let Some((_, op)) = biz_id.split_once(':') else { continue };
                let units = i64::try_from(row.number(2)?).unwrap_or(i64::MAX);
                let operation = Operation { op: op.to_owned(), units: sign * units };
                operations.entry(activity).or_default().push(operation);
            }
        }
    }
    Ok(operations)
}

/// Units that an activity begins with, so that its `operations` leave `free`; `None` where they
/// would not fit in between.
pub(super) fn units_before(free: u32, operations: &[Operation]) -> Option<u32> {
    let sum = |wanted: fn(i64) -> bool| {
        let wanted = operations.iter().map(|it| it.units).filter(|units| wanted(*units));
        wanted.fold(0_i64, i64::saturating_add)
    };
    let (more, less) = (sum(|units| units > 0), sum(|units| units < 0));
    let before = i64::from(free).saturating_sub(more.saturating_add(less)).max(0);
    let most = before.saturating_add(more);
    (most <= i64::from(UNITS_MAX)).then(|| u32::try_from(before).ok()).flatten()
}

impl Rebuild<'_> {
    /// Does the operations of `activity` again: from `before` free units to `free`, while nothing
    /// is reserved; `sold` were before them.
    pub(super) fn operations(
        &mut self,
        activity: ActivityId,
        operations: &[Operation],
        (before, free, sold): (u32, u32, u32),
        version: u32,
    ) -> Result<(), RestoreError> {
        let at_ms = self.engine.now_ms();
        let mut available = before;
        for Operation { op, units } in operations {
            let quantity = u32::try_from(units.unsigned_abs()).unwrap_or(u32::MAX);
            let following = match *units > 0 {
                true => available.checked_add(quantity),
                false => available.checked_sub(quantity),
            };
            let Some(following) = following else { continue };
            available = following;
            let figures = Figures { available, locked: 0, sold };
            let (actor, op) = (ACTOR, op.as_str());
            let body = match *units > 0 {
                true => Body::Restocked { activity, actor, op, quantity, version, figures },
                false => {
                    let op = DecreaseKey::Caller(op);
                    Body::Decreased { activity, actor, op, quantity, version, figures }
                }
            };
            self.fact(activity, at_ms, body)?;
        }
        // Edits took units, too, and have no keys.
        let Some(quantity) = available.checked_sub(free).filter(|more| *more > 0) else {
            return Ok(());
        };
        let figures = Figures { available: free, locked: 0, sold };
        let (actor, op) = (ACTOR, DecreaseKey::Edit);
        let body = Body::Decreased { activity, actor, op, quantity, version, figures };
        self.fact(activity, at_ms, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(units: &[i64]) -> Vec<Operation> {
        units.iter().map(|units| Operation { op: units.to_string(), units: *units }).collect()
    }

    #[test]
    fn operations_lead_from_what_was_before_to_what_is_free() {
        assert_eq!(units_before(10, &[]), Some(10));
        assert_eq!(units_before(10, &operations(&[4, -1])), Some(7));
        assert_eq!(units_before(10, &operations(&[-3])), Some(13));
        assert_eq!(units_before(10, &operations(&[50])), Some(0), "an edit took some of them");
        assert_eq!(units_before(10, &operations(&[i64::from(UNITS_MAX), 5])), None);
    }
}
