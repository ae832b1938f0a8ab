//! What operators do: make, edit, switch, restock, decrease.

use super::super::activity::Activity;
use super::super::command::{Answer, Refusal};
use super::super::event::{Actor, Body, DecreaseKey, Definition, Figures};
use super::super::ids::{ActivityId, Ordinal};
use super::super::limits::{OPERATIONS_PER_ACTIVITY_MAX, UNITS_MAX};
use super::super::shard::Shard;
use super::super::side::OperationKind;
use super::super::validate;
use super::purchase::absent;
use super::{Decision, one, with};

type Decided<'a> = Result<Decision<'a>, Refusal>;

/// Makes an activity. Its id is free unless it was ever used, archived ones included.
pub(super) fn create<'a>(
    shard: &Shard,
    id: ActivityId,
    actor: Actor<'a>,
    ordinal: Ordinal,
    total: u32,
    definition: &Definition<'a>,
) -> Decided<'a> {
    validate::actor(&actor)?;
    validate::total_at_creation(total)?;
    validate::definition(definition)?;
    if shard.activity(id).is_some() || shard.tombstone(id).is_some() {
        return Err(Refusal::ActivityExists);
    }
    if ordinal == Ordinal::ADOPTED {
        return Err(Refusal::OrdinalsExhausted);
    }
    Ok(one(Body::ActivityCreated { activity: id, actor, ordinal, total, definition: *definition }))
}

/// An edit, as [`Command::Edit`](super::super::command::Command::Edit) carries it.
pub(super) struct Edit<'e, 'a> {
    pub(super) actor: Actor<'a>,
    pub(super) version: Option<u32>,
    pub(super) total: u32,
    pub(super) definition: &'e Definition<'a>,
}

/// Changes a definition and the total.
///
/// | state                                         | what may change                         |
/// |-----------------------------------------------|-----------------------------------------|
/// | nothing ever reserved, and not in progress    | everything                              |
/// | in progress (on sale, started), or reserved   | the title; the total, downwards         |
///
/// Each edit makes a new version, so that two editors who saw the same one cannot both succeed.
pub(super) fn edit<'a>(
    shard: &Shard,
    id: ActivityId,
    edit: &Edit<'_, 'a>,
    at_ms: u64,
) -> Decided<'a> {
    let &Edit { actor, total, definition, .. } = edit;
    validate::actor(&actor)?;
    validate::total(total)?;
    validate::definition(definition)?;
    let activity = find(shard, id)?;
    let current = activity.version;
    if edit.version.is_some_and(|version| version != current) {
        return Err(Refusal::VersionMismatch { current });
    }
    let present = activity.terms.definition();
    if *definition == present && total == activity.total {
        return done(activity, id);
    }

    let version = current.checked_add(1).ok_or(Refusal::LockedWhileInProgress)?;
    let edited = |figures| Body::ActivityEdited {
        activity: id,
        actor,
        version,
        figures,
        definition: *definition,
    };
    let in_progress = activity.flags.on_sale && at_ms >= activity.terms.start_ms;
    if !in_progress && !activity.was_reserved() {
        return Ok(one(edited(Figures { available: total, locked: 0, sold: 0 })));
    }

    let others_change = Definition { title: present.title, ..*definition } != present;
    let Some(quantity) = activity.total.checked_sub(total).filter(|_| !others_change) else {
        return Err(Refusal::LockedWhileInProgress);
    };
    let figures = less(activity, quantity)?;
    let decreased =
        Body::Decreased { activity: id, actor, op: DecreaseKey::Edit, quantity, version, figures };
    Ok(with(edited(activity.figures), (quantity > 0).then_some(decreased)))
}

/// Puts it on sale. Units stay as they are, however often.
pub(super) fn publish<'a>(shard: &Shard, id: ActivityId, actor: Actor<'a>) -> Decided<'a> {
    let body = Body::Published { activity: id, actor };
    switch(shard, id, actor, body, |it| it.flags.on_sale)
}

/// Takes it off sale. Off sale already, but with a schedule to come, it is taken off that: what an
/// operator has unpublished must not publish itself later.
pub(super) fn unpublish<'a>(shard: &Shard, id: ActivityId, actor: Actor<'a>) -> Decided<'a> {
    let body = Body::Unpublished { activity: id, actor };
    switch(shard, id, actor, body, |it| !it.flags.on_sale && it.publish_due_ms().is_none())
}

/// Stops new purchases.
pub(super) fn pause<'a>(shard: &Shard, id: ActivityId, actor: Actor<'a>) -> Decided<'a> {
    let body = Body::Paused { activity: id, actor };
    switch(shard, id, actor, body, |it| it.flags.paused)
}

/// Lifts a pause and a drain.
pub(super) fn resume<'a>(shard: &Shard, id: ActivityId, actor: Actor<'a>) -> Decided<'a> {
    let body = Body::Resumed { activity: id, actor };
    switch(shard, id, actor, body, |it| !it.flags.paused && !it.flags.drained)
}

/// Stops new purchases for good.
pub(super) fn drain<'a>(shard: &Shard, id: ActivityId, actor: Actor<'a>) -> Decided<'a> {
    let body = Body::Drained { activity: id, actor };
    switch(shard, id, actor, body, |it| it.flags.drained)
}

/// Adds units, once per key.
pub(super) fn restock<'a>(
    shard: &Shard,
    id: ActivityId,
    actor: Actor<'a>,
    op: &'a str,
    quantity: u32,
) -> Decided<'a> {
    let activity = match operation(shard, id, actor, op, OperationKind::Restock, quantity)? {
        Operate::Fresh(activity) => activity,
        Operate::Done(answer) => return Ok(Decision::Done(answer)),
    };
    if activity.total.saturating_add(quantity) > UNITS_MAX {
        return Err(Refusal::Invalid("quantity would raise the stock above 2147483647"));
    }
    let figures = Figures { available: activity.figures.available + quantity, ..activity.figures };
    let version = activity.version;
    Ok(one(Body::Restocked { activity: id, actor, op, quantity, version, figures }))
}

/// Takes free units away, once per key.
pub(super) fn decrease<'a>(
    shard: &Shard,
    id: ActivityId,
    actor: Actor<'a>,
    op: &'a str,
    quantity: u32,
) -> Decided<'a> {
    let activity = match operation(shard, id, actor, op, OperationKind::Decrease, quantity)? {
        Operate::Fresh(activity) => activity,
        Operate::Done(answer) => return Ok(Decision::Done(answer)),
    };
    let (op, version) = (DecreaseKey::Caller(op), activity.version);
    let figures = less(activity, quantity)?;
    Ok(one(Body::Decreased { activity: id, actor, op, quantity, version, figures }))
}

enum Operate<'s> {
    Fresh(&'s Activity),
    Done(Answer),
}

/// What the memory of operations says of a key.
fn operation<'s>(
    shard: &'s Shard,
    id: ActivityId,
    actor: Actor<'_>,
    op: &str,
    kind: OperationKind,
    quantity: u32,
) -> Result<Operate<'s>, Refusal> {
    validate::actor(&actor)?;
    validate::quantity(quantity)?;
    validate::operation_key(op)?;
    let activity = find(shard, id)?;
    match activity.operations.get(op) {
        Some(done) if done.kind == kind && done.quantity == quantity => {
            Ok(Operate::Done(Answer::Activity(Box::new(done.answer))))
        }
        Some(_) => Err(Refusal::RequestIdReused),
        None if activity.operations.len() >= OPERATIONS_PER_ACTIVITY_MAX => {
            Err(Refusal::TooManyOperations)
        }
        None => Ok(Operate::Fresh(activity)),
    }
}

/// A switch is thrown once: where it stands so already, nothing happens.
fn switch<'a>(
    shard: &Shard,
    id: ActivityId,
    actor: Actor<'a>,
    body: Body<'a>,
    stands: impl FnOnce(&Activity) -> bool,
) -> Decided<'a> {
    validate::actor(&actor)?;
    let activity = find(shard, id)?;
    if stands(activity) { done(activity, id) } else { Ok(one(body)) }
}

fn find(shard: &Shard, id: ActivityId) -> Result<&Activity, Refusal> {
    shard.activity(id).ok_or_else(|| absent(shard.tombstone(id).is_some()))
}

fn done<'a>(activity: &Activity, id: ActivityId) -> Decided<'a> {
    Ok(Decision::Done(Answer::Activity(Box::new(activity.answer(id)))))
}

/// The figures once `quantity` free units are gone.
fn less(activity: &Activity, quantity: u32) -> Result<Figures, Refusal> {
    let available = activity.figures.available.checked_sub(quantity);
    let available = available.ok_or(Refusal::StockBelowReserved)?;
    Ok(Figures { available, ..activity.figures })
}
