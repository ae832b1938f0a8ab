//! `audit`: who did what, one row for every event that an operator caused.

use std::borrow::Cow;

use engine::core::event::{Actor, Body, DeadLetterResolution, DecreaseKey};
use engine::core::ids::ReservationId;

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

/// The action, its actor, what it was about and how many units.
type Action<'a> = (&'static str, Actor<'a>, Option<Cow<'a, str>>, Option<u32>);

/// What was done, where `body` is an operator's.
fn action<'a>(body: &Body<'a>) -> Option<Action<'a>> {
    let key = |key: &'a str| Some(Cow::Borrowed(key));
    let id = |reservation: ReservationId| Some(Cow::Owned(reservation.to_string()));
    Some(match *body {
        Body::ActivityCreated { actor, total, .. } => ("create", actor, None, Some(total)),
        Body::ActivityEdited { actor, .. } => ("edit", actor, None, None),
        Body::Published { actor, .. } => ("publish", actor, None, None),
        Body::Unpublished { actor, .. } => ("unpublish", actor, None, None),
        Body::Paused { actor, .. } => ("pause", actor, None, None),
        Body::Resumed { actor, .. } => ("resume", actor, None, None),
        Body::Drained { actor, .. } => ("drain", actor, None, None),
        Body::Restocked { actor, op, quantity, .. } => ("restock", actor, key(op), Some(quantity)),
        Body::Decreased { actor, op: DecreaseKey::Caller(op), quantity, .. } => {
            ("decrease", actor, key(op), Some(quantity))
        }
        Body::Decreased { actor, op: DecreaseKey::Edit, quantity, .. } => {
            ("edit_decrease", actor, None, Some(quantity))
        }
        Body::RefundRequested { actor, refund_no, .. } if !actor.is_none() => {
            ("refund", actor, key(refund_no), None)
        }
        Body::Restored { actor, reservation, quantity, .. } if !actor.is_none() => {
            ("release", actor, id(reservation), Some(quantity))
        }
        Body::DeadLetterResolved { actor, reservation, resolution, .. } if !actor.is_none() => {
            let action = match resolution {
                DeadLetterResolution::Delivered => "dead_letter_delivered",
                DeadLetterResolution::RolledBack => "dead_letter_rolled_back",
            };
            (action, actor, id(reservation), None)
        }
        Body::ControlSet { actor, key: name, .. } => ("control_set", actor, key(name), None),
        Body::ControlCleared { actor, key: name } => ("control_clear", actor, key(name), None),
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

#[cfg(test)]
mod tests {
    use engine::core::event::{Figures, RestoreReason};
    use engine::core::ids::{ActivityId, UserId};

    use super::*;

    const OPERATOR: Actor<'static> = Actor { name: "7", request_id: "req-1" };

    fn restored(reason: RestoreReason, actor: Actor<'static>) -> Body<'static> {
        Body::Restored {
            activity: const { ActivityId::new(30_001).unwrap() },
            reservation: const { ReservationId::new(77).unwrap() },
            user: const { UserId::new(1).unwrap() },
            quantity: 2,
            held: 0,
            version: 1,
            figures: Figures::default(),
            reason,
            actor,
        }
    }

    #[test]
    fn a_release_is_its_operators_and_a_time_out_is_nobodys() {
        let release = action(&restored(RestoreReason::Admin, OPERATOR));
        assert_eq!(release, Some(("release", OPERATOR, Some("77".into()), Some(2))));
        assert_eq!(action(&restored(RestoreReason::Timeout, Actor::NONE)), None);
    }

    #[test]
    fn a_dead_letter_is_audited_where_an_operator_closed_it() {
        let closed = |resolution, actor| Body::DeadLetterResolved {
            activity: const { ActivityId::new(30_001).unwrap() },
            reservation: const { ReservationId::new(77).unwrap() },
            resolution,
            actor,
        };
        let subject = Some(Cow::Borrowed("77"));
        assert_eq!(
            action(&closed(DeadLetterResolution::RolledBack, OPERATOR)),
            Some(("dead_letter_rolled_back", OPERATOR, subject, None))
        );
        assert_eq!(action(&closed(DeadLetterResolution::Delivered, Actor::NONE)), None);
    }
}
