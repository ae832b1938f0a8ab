//! The making of activities, and what operators do to them.

use std::sync::Arc;

use super::super::activity::Activity;
use super::super::event::{Body, DecreaseKey, Figures};
use super::super::side::{Operation, OperationKind};
use super::super::table::Tables;
use super::super::terms::Terms;
use super::{ApplyError, Now};

/// The activity that `body` makes, if it makes one.
pub(super) fn create(body: &Body<'_>, tables: Tables) -> Option<Activity> {
    match *body {
        Body::ActivityCreated { ordinal, total, ref definition, .. } => {
            let figures = Figures { available: total, ..Figures::default() };
            Some(Activity::new(ordinal, 1, figures, definition, tables))
        }
        Body::ActivityAdopted { ordinal, version, figures, on_sale, ref definition, .. } => {
            let mut activity = Activity::new(ordinal, version, figures, definition, tables);
            activity.flags.on_sale = on_sale;
            activity.was_published = on_sale;
            Some(activity)
        }
        _ => None,
    }
}

/// Makes a change of an activity that touches no reservation.
pub(super) fn changed(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    match *body {
        Body::Published { .. } => {
            activity.flags.on_sale = true;
            activity.was_published = true;
        }
        Body::Unpublished { .. } => activity.flags.on_sale = false,
        Body::Paused { .. } => activity.flags.paused = true,
        Body::Drained { .. } => activity.flags.drained = true,
        Body::Resumed { .. } => {
            activity.flags.paused = false;
            activity.flags.drained = false;
        }
        Body::ActivityEdited { version, figures, ref definition, .. } => {
            if activity.version.checked_add(1) != Some(version) {
                let present = activity.version;
                return Err(ApplyError::Version { activity: now.id, present, carried: version });
            }
            // Units are an edit's to change only while nobody ever had one.
            let free = (!activity.was_reserved())
                .then_some(Figures { available: figures.available, ..Figures::default() });
            activity.check_figures(now, free.or(Some(activity.figures)), figures)?;
            activity.version = version;
            activity.terms = Arc::new(Terms::new(definition));
            activity.total = activity.total - activity.figures.available + figures.available;
            activity.figures = figures;
        }
        Body::Restocked { op, quantity, version, figures, .. } => {
            let following = activity.figures.available.checked_add(quantity);
            let change = Change { kind: OperationKind::Restock, quantity, following };
            operate(activity, now, Some(op), &change, version, figures)?;
        }
        Body::Decreased { op, quantity, version, figures, .. } => {
            let following = activity.figures.available.checked_sub(quantity);
            let change = Change { kind: OperationKind::Decrease, quantity, following };
            let op = match op {
                DecreaseKey::Caller(op) => Some(op),
                // Its key is the version that its edit made: it cannot come twice.
                DecreaseKey::Edit => None,
            };
            operate(activity, now, op, &change, version, figures)?;
        }
        _ => unreachable!("`change` sends none of the others here"),
    }
    Ok(())
}

struct Change {
    kind: OperationKind,
    quantity: u32,
    /// Units available afterwards.
    following: Option<u32>,
}

fn operate(
    activity: &mut Activity,
    now: &Now,
    op: Option<&str>,
    change: &Change,
    version: u32,
    carried: Figures,
) -> Result<(), ApplyError> {
    activity.check_version(now, version)?;
    let following = change.following.map(|available| Figures { available, ..activity.figures });
    activity.check_figures(now, following, carried)?;
    if op.is_some_and(|op| activity.operations.contains_key(op)) {
        return Err(ApplyError::OperationRepeated(now.id));
    }
    activity.total = activity.total - activity.figures.available + carried.available;
    activity.figures = carried;
    if let Some(op) = op {
        let (kind, quantity) = (change.kind, change.quantity);
        let operation = Operation { kind, quantity, answer: activity.answer(now.id) };
        activity.operations.insert(op.into(), operation);
    }
    Ok(())
}
