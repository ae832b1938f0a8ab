//! `stock_flows`: one row for every change of the units available in an activity; only inserted.
//!
//! | event | type | biz_type | biz_id |
//! |---|---|---|---|
//! | created, adopted | `INIT` | `activity` | activity |
//! | reserved, reservation adopted | `DEDUCT` | `reservation` | reservation |
//! | restored | `RECOVER` | `restore` | reservation |
//! | reinstated | `DEDUCT` | `reinstate` | reservation |
//! | refund settled with restock | `RECOVER` | `refund` | reservation:refund_no |
//! | restocked | `ADJUST` | `restock` | activity:op |
//! | decreased | `ADJUST` | `decrease` | activity:op |
//! | decreased by an edit | `ADJUST` | `edit_decrease` | activity:version |
//! | edited before the first sale | `ADJUST` | `edit` | activity:version |
//! | filled from a snapshot | `DEDUCT`, for all that reservations moved | `filled` | activity:LSN |
//! | mended by `reconcile` | `REPAIR` | `repair` | a number of its own |
//!
//! (biz_type, biz_id) is unique: a give-back that came twice would halt the sink, not count twice.

use wal::{LogUuid, Lsn};

use super::activities::Activity;
use super::store::{Rows, Table, Value};

pub(super) static STOCK_FLOWS: Table = Table {
    name: "stock_flows",
    columns: &[
        "flow_no",
        "sku_id",
        "activity_id",
        "change_type",
        "change_qty",
        "before_qty",
        "after_qty",
        "biz_type",
        "biz_id",
        "remark",
        "created_at",
    ],
    key_columns: 1,
};

/// What a change is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Init,
    Deduct,
    Recover,
    Adjust,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Deduct => "DEDUCT",
            Self::Recover => "RECOVER",
            Self::Adjust => "ADJUST",
        }
    }
}

/// One change.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) change: Change,
    /// Units available before it.
    pub(super) before: i64,
    /// How many more there are after it.
    pub(super) by: i64,
    pub(super) biz_type: &'static str,
    pub(super) biz_id: String,
}

/// Adds `flow`, which `number` names.
pub(super) fn push(
    rows: &mut Rows<'_>,
    flow: Flow,
    activity: &Activity,
    number: String,
    at_ms: u64,
) {
    rows.push([
        Value::text(number),
        Value::integer(activity.sku),
        Value::integer(activity.id.get()),
        Value::text(flow.change.name()),
        Value::Integer(flow.by),
        Value::Integer(flow.before),
        Value::Integer(flow.before + flow.by),
        Value::text(flow.biz_type),
        Value::text(flow.biz_id),
        // Free for people and repairs: the projection has nothing to add.
        Value::text(""),
        Value::integer(at_ms),
    ]);
}

/// A number for the row that the event at `lsn` of `log` makes: the same however often it is
/// projected, and another for every event of every log that a database may ever follow.
pub(super) fn event_no(log: LogUuid, lsn: Lsn) -> String {
    let [a, b, c, d, ..] = log.0;
    format!("{a:02x}{b:02x}{c:02x}{d:02x}-{:016x}", lsn.0)
}
