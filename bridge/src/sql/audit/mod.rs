//! `audit`: who did what, one row for every event that an operator caused, with what it changed.
//!
//! The log says what was done; what it was before is what the projection has in its rows at that
//! place of the log: an activity's, a reservation's, a refund's. So `before_value` and
//! `after_value` are the same however often the log is projected, and no record carries them. Both
//! are JSON objects with the fields that changed; NULL where there was or is nothing.
//!
//! Controls have no table of their own. The newest row of each carries its key in `control_key`,
//! which is unique: the next row of that control finds there what was set before.
//!
//! What only SQL knows, accounts and the catalogue, is audited by whoever writes it: [`direct`].

pub mod direct;
pub mod list;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;

use engine::core::event::{Actor, Body, DeadLetterResolution, DecreaseKey};
use engine::core::ids::ReservationId;
use serde_json::{Map, Value as Json};

use super::fault::SinkError;
use super::sink::update_all;
use super::store::{Lookup, Rows, Table, Transaction, Value};
pub(super) use values::{of_activity, of_refund, of_reservation};

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
        "before_value",
        "after_value",
        "control_key",
        "created_at",
    ],
    key_columns: 1,
};

/// Takes the mark of the newest row from one that no longer is.
static AUDIT_SUPERSEDED: Table =
    Table { name: "audit", columns: &["control_key", "control_key"], key_columns: 1 };

static AUDIT_BY_CONTROL: Lookup = Lookup {
    columns: &["control_key", "after_value"],
    from: "audit",
    key: "control_key",
    part: None,
    only: None,
};

/// The fields of something, by name.
pub(super) type Fields = Map<String, Json>;

/// The action, its actor, what it was about and how many units.
pub(super) type Action<'a> = (&'static str, Actor<'a>, Option<Cow<'a, str>>, Option<u32>);

/// What was done, where `body` is an operator's; `None` where it is nobody's.
pub(super) fn action<'a>(body: &Body<'a>) -> Option<Action<'a>> {
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

/// The audit of a batch.
#[derive(Debug, Default)]
pub(super) struct Trail<'a> {
    entries: Vec<Entry<'a>>,
    /// What the controls that the batch touches are set to, empty where they are not.
    controls: BTreeMap<String, Fields>,
    /// The controls that have a newest row in the database.
    stored: Vec<String>,
    /// The newest row of each control, by its place in `entries`.
    newest: BTreeMap<&'a str, usize>,
}

#[derive(Debug)]
struct Entry<'a> {
    audit_no: String,
    action: Action<'a>,
    activity: Option<u64>,
    before: Option<String>,
    after: Option<String>,
    at_ms: u64,
}

impl<'a> Trail<'a> {
    /// Reads what the controls `keys` are set to.
    pub(super) async fn load(
        &mut self,
        keys: impl Iterator<Item = &str>,
        transaction: &mut impl Transaction,
    ) -> Result<(), SinkError> {
        let keys: Vec<_> = keys.map(|key| Value::text(key.to_owned())).collect();
        for record in transaction.select(&AUDIT_BY_CONTROL, &keys).await? {
            let key = record.text(0)?.to_owned();
            let value = record.text_or_null(1)?.map(serde_json::from_str::<Fields>);
            // What is no object was written by nobody here: as good as unknown.
            let value = value.and_then(Result::ok).unwrap_or_default();
            self.controls.insert(key.clone(), value);
            self.stored.push(key);
        }
        Ok(())
    }

    /// What the control `key` is set to at `at_ms`.
    pub(super) fn control(&self, key: &str, at_ms: u64) -> Fields {
        let set = self.controls.get(key).cloned().unwrap_or_default();
        let ends = set.get("expires_at").and_then(Json::as_u64);
        if ends.is_some_and(|ends| ends <= at_ms) { Fields::new() } else { set }
    }

    /// The control `key` was set until `expires_ms`, 0 for ever.
    pub(super) fn set(&mut self, key: &str, value: &[u8], expires_ms: u64) {
        self.controls.insert(key.to_owned(), values::of_control(value, expires_ms));
    }

    /// The control `key` was cleared.
    pub(super) fn clear(&mut self, key: &str) {
        self.controls.insert(key.to_owned(), Fields::new());
    }

    /// Adds the row of `body`, which is an operator's and changed `before` into `after`.
    pub(super) fn push(
        &mut self,
        audit_no: String,
        (body, action): (&Body<'a>, Action<'a>),
        (before, after): (Fields, Fields),
        at_ms: u64,
    ) {
        let (before, after) = match *body {
            Body::ControlSet { key, .. } | Body::ControlCleared { key, .. } => {
                self.newest.insert(key, self.entries.len());
                // Its end may lie behind the event already: it was set all the same.
                (before, self.controls.get(key).cloned().unwrap_or(after))
            }
            _ => values::difference(before, after),
        };
        let activity = engine::core::codec::activity(body).map(|activity| activity.get());
        let (before, after) = (values::text(before), values::text(after));
        self.entries.push(Entry { audit_no, action, activity, before, after, at_ms });
    }

    pub(super) async fn write(self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        let mut superseded = Rows::new(&AUDIT_SUPERSEDED);
        for key in self.stored.into_iter().filter(|key| self.newest.contains_key(key.as_str())) {
            superseded.push([Value::text(key), Value::Null]);
        }
        update_all(transaction, &superseded).await?;
        let mut rows = Rows::new(&AUDIT);
        for (index, entry) in self.entries.into_iter().enumerate() {
            let (action, actor, subject, quantity) = entry.action;
            let marked = subject.as_deref().filter(|key| self.newest.get(key) == Some(&index));
            let control_key = Value::text_or_null(marked.map(str::to_owned));
            rows.push([
                Value::text(entry.audit_no),
                Value::text(actor.name),
                Value::text(actor.request_id),
                Value::text(action),
                Value::integer_or_null(entry.activity),
                Value::text_or_null(subject),
                Value::integer_or_null(quantity.map(u64::from)),
                Value::text_or_null(entry.before),
                Value::text_or_null(entry.after),
                control_key,
                Value::integer(entry.at_ms),
            ]);
        }
        Ok(transaction.insert(&rows).await?)
    }
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
