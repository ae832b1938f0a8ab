//! `audit`: who did what, one row for every event that an operator caused.

use engine::core::event::{Actor, Body, DecreaseKey};

use super::store::{Rows, Table, Value};

pub(super) static AUDIT: Table = Table {
    name: "audit",
    columns: &[
        "audit_no",
        "actor",
        "request_id",
        "action",
        "activity_id",
        "subject",
        "quantity",
        "created_at",
    ],
    key_columns: 1,
};

/// The action, its actor, what it was about and how many units, where `body` is an operator's.
fn action<'a>(body: &Body<'a>) -> Option<(&'static str, Actor<'a>, Option<&'a str>, Option<u32>)> {
    Some(match *body {
        Body::ActivityCreated { actor, total, .. } => ("create", actor, None, Some(total)),
        Body::ActivityEdited { actor, .. } => ("edit", actor, None, None),
        Body::Published { actor, .. } => ("publish", actor, None, None),
        Body::Unpublished { actor, .. } => ("unpublish", actor, None, None),
        Body::Paused { actor, .. } => ("pause", actor, None, None),
        Body::Resumed { actor, .. } => ("resume", actor, None, None),
        Body::Drained { actor, .. } => ("drain", actor, None, None),
        Body::Restocked { actor, op, quantity, .. } => ("restock", actor, Some(op), Some(quantity)),
        Body::Decreased { actor, op: DecreaseKey::Caller(op), quantity, .. } => {
            ("decrease", actor, Some(op), Some(quantity))
        }
        Body::Decreased { actor, op: DecreaseKey::Edit, quantity, .. } => {
            ("edit_decrease", actor, None, Some(quantity))
        }
        Body::RefundRequested { actor, refund_no, .. } => ("refund", actor, Some(refund_no), None),
        Body::ControlSet { actor, key, .. } => ("control_set", actor, Some(key), None),
        Body::ControlCleared { actor, key } => ("control_clear", actor, Some(key), None),
        _ => return None,
    })
}

/// Adds the row of `body`, if it is an operator's.
pub(super) fn push<'a>(
    rows: &mut Rows<'a>,
    body: &Body<'a>,
    number: impl FnOnce() -> String,
    at_ms: u64,
) {
    let Some((action, actor, subject, quantity)) = action(body) else { return };
    let activity = engine::core::codec::activity(body).map(|activity| activity.get());
    rows.push([
        Value::text(number()),
        Value::text(actor.name),
        Value::text(actor.request_id),
        Value::text(action),
        Value::integer_or_null(activity),
        Value::text_or_null(subject),
        Value::integer_or_null(quantity.map(u64::from)),
        Value::integer(at_ms),
    ]);
}
