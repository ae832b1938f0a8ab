//! The making of activities, and what operators do to them.

use std::sync::Arc;

use super::super::activity::{Activity, Flags};
use super::super::event::{Body, DecreaseKey, Figures};
use super::super::side::{Operation, OperationKind};
use super::super::table::Tables;
use super::super::terms::Terms;
use super::{ApplyError, Now};

/// The activity that `body` makes.
pub(super) fn create(body: &Body<'_>, now: &Now, tables: Tables) -> Result<Activity, ApplyError> {
    let &Now { id, shard_seq, .. } = now;
    match *body {
        Body::ActivityCreated { ordinal, total, ref definition, .. } => {
            let figures = Figures { available: total, ..Figures::default() };
            let flags = Flags::default();
            Ok(Activity::new(ordinal, 1, figures, flags, definition, shard_seq, tables))
        }
        Body::ActivityAdopted { ordinal, version, figures, on_sale, ref definition, .. } => {
            // Locked units come with the reservations that lock them.
            if figures.locked > 0 {
                let present = Figures::default();
                return Err(ApplyError::Figures { activity: id, present, carried: figures });
            }
            let flags = Flags { on_sale, ..Flags::default() };
            Ok(Activity::new(ordinal, version, figures, flags, definition, shard_seq, tables))
        }
        _ => Err(ApplyError::UnknownActivity(id)),
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
            activity.schedule_over = true;
        }
        Body::Unpublished { .. } => {
            activity.flags.on_sale = false;
            activity.schedule_over = true;
        }
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
            // A new date ahead is a new schedule, whatever became of the last one.
            let publish_at_ms = definition.publish_at_ms;
            let is_new = publish_at_ms != activity.terms.publish_at_ms;
            if is_new && publish_at_ms > now.at_ms && !activity.flags.on_sale {
                activity.schedule_over = false;
            }
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
