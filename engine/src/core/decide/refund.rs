//! Refunds: asked for by an operator or by the rules, settled or refused by the provider.
//!
//! | number        | request                           | settle          | refuse           |
//! |---------------|-----------------------------------|-----------------|------------------|
//! | unknown       | by the order's stage              | unknown         | unknown          |
//! | requested     | repeat where it asks for the same | settled         | failed           |
//! | settled       | repeat where it asks for the same | repeat          | already refunded |
//! | failed        | by the order's stage, once more   | not in progress | repeat           |
//!
//! Of an archived activity SQL knows the order: who asks brings what it says.

use super::super::activity::Activity;
use super::super::command::{Answer, ArchivedOrder, Refusal, RequestRefund};
use super::super::event::{Actor, Body, Figures, Pool, RefundScope};
use super::super::ids::{ActivityId, ReservationId};
use super::super::lifecycle::{Course, Stage, Step};
use super::super::limits::REFUNDS_PER_RESERVATION_MAX;
use super::super::reservation::Slot;
use super::super::shard::{Shard, Tombstone};
use super::super::side::{Refund, RefundStatus};
use super::super::validate;
use super::dead_letter::closed_with;
use super::payment::find;
use super::{Decision, one, with};

type Decided<'a> = Result<Decision<'a>, Refusal>;

/// A refund of an order, as it is asked for.
pub(super) struct OrderRefund<'a> {
    pub(super) refund_no: &'a str,
    pub(super) restock: bool,
    pub(super) free_limit: bool,
    pub(super) note: &'a str,
    pub(super) actor: Actor<'a>,
}

/// An operator asks for a refund.
pub(super) fn request<'a>(
    shard: &Shard,
    id: ActivityId,
    command: &RequestRefund<'a>,
) -> Decided<'a> {
    let &RequestRefund { reservation, refund_no, restock, free_limit, note, actor, archived } =
        command;
    validate::operator(&actor)?;
    validate::refund_no(refund_no)?;
    validate::note(note)?;
    let refund = OrderRefund { refund_no, restock, free_limit, note, actor };
    if let Some(tombstone) = shard.tombstone(id) {
        return of_archived(tombstone, id, reservation, &refund, archived);
    }
    let (activity, slot) = find(shard, id, reservation)?;
    of_order(activity, id, reservation, slot, &refund)
}

/// A refund of a live activity's order.
pub(super) fn of_order<'a>(
    activity: &Activity,
    id: ActivityId,
    reservation: ReservationId,
    slot: &Slot,
    refund: &OrderRefund<'a>,
) -> Decided<'a> {
    let &OrderRefund { refund_no, restock, free_limit, note, actor } = refund;
    let mut known = activity.refunds_of(reservation);
    if let Some((_, it)) = known.find(|(number, _)| *number == refund_no)
        && let Some(told) = repeated(it, refund)
    {
        return told;
    }
    let stage = Stage::of(activity, reservation, slot.status());
    if let Course::Refused(refusal) = stage.course(Step::Refund) {
        return Err(refusal);
    }
    if activity.refunds_of(reservation).count() >= REFUNDS_PER_RESERVATION_MAX {
        return Err(Refusal::TooManyOperations);
    }
    Ok(one(Body::RefundRequested {
        activity: id,
        actor,
        reservation,
        user: slot.user(),
        refund_no,
        scope: RefundScope::Order,
        restock,
        free_limit,
        // `apply` knows by which payment it was paid.
        channel: "",
        payment_no: "",
        transaction: "",
        amount: activity.amount(slot),
        note,
    }))
}

/// A refund of an archived activity's order. Nothing is on sale any more, and no limit counts.
fn of_archived<'a>(
    tombstone: &Tombstone,
    id: ActivityId,
    reservation: ReservationId,
    refund: &OrderRefund<'a>,
    archived: Option<ArchivedOrder<'a>>,
) -> Decided<'a> {
    let &OrderRefund { refund_no, note, actor, .. } = refund;
    let refund = OrderRefund { restock: false, free_limit: false, ..*refund };
    let key = (reservation, refund_no.into());
    if let Some(told) = tombstone.refunds.get(&key).and_then(|it| repeated(it, &refund)) {
        return told;
    }
    let order = archived.ok_or(Refusal::Archived)?;
    validate::facts(&order)?;
    let ArchivedOrder { user, channel, payment_no, transaction, amount, .. } = order;
    let of_it = || tombstone.refunds.iter().filter(|((it, _), _)| *it == reservation);
    let of_order = || of_it().filter(|(_, it)| it.scope == RefundScope::Order);
    if of_order().any(|(_, it)| it.status == RefundStatus::Requested) {
        return Err(Refusal::RefundInProgress);
    }
    if of_order().any(|(_, it)| it.status == RefundStatus::Settled) {
        return Err(Refusal::AlreadyRefunded);
    }
    if of_it().count() >= REFUNDS_PER_RESERVATION_MAX {
        return Err(Refusal::TooManyOperations);
    }
    Ok(one(Body::RefundRequested {
        activity: id,
        actor,
        reservation,
        user,
        refund_no,
        scope: RefundScope::Order,
        restock: false,
        free_limit: false,
        channel,
        payment_no,
        transaction,
        amount,
        note,
    }))
}

/// What a number that is known already is answered; `None` where it may be asked for again.
fn repeated<'a>(known: &Refund, refund: &OrderRefund<'_>) -> Option<Decided<'a>> {
    let OrderRefund { restock, free_limit, .. } = *refund;
    let same = known.scope == RefundScope::Order
        && (known.restock, known.free_limit) == (restock, free_limit);
    match known.status {
        RefundStatus::Failed => None,
        _ if same => Some(Ok(Decision::Done(Answer::Refund(*known)))),
        _ => Some(Err(Refusal::RequestIdReused)),
    }
}

/// The provider gave the money back.
pub(super) fn settle<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    refund_no: &'a str,
) -> Decided<'a> {
    let known = shard.refund(id, reservation, refund_no).ok_or(Refusal::UnknownRefund)?;
    match known.status {
        RefundStatus::Requested => {}
        RefundStatus::Settled => return Ok(Decision::Done(Answer::Refund(known))),
        RefundStatus::Failed => return Err(Refusal::RefundNotOpen),
    }
    let moves = known.restock || known.free_limit;
    assert!(known.scope == RefundScope::Order || !moves, "W17: money that paid nothing has units");
    let Some(activity) = shard.activity(id) else {
        assert!(!moves, "W17: units of activity {id} would move, which is archived");
        let open = shard.open_refund(reservation, refund_no).ok_or(Refusal::UnknownRefund)?;
        return Ok(one(Body::RefundSettled {
            activity: id,
            reservation,
            user: open.user,
            held: 0,
            version: 1,
            figures: Figures::default(),
            refund_no,
        }));
    };
    let slot = activity.slot(reservation).ok_or(Refusal::UnknownReservation)?;
    let (user, quantity) = (slot.user(), slot.quantity());
    let back = |moves: bool| if moves { quantity } else { 0 };
    let figures = activity.figures.moved(Pool::Sold, Pool::Available, back(known.restock));
    let held = activity.held(user).checked_sub(back(known.free_limit));
    let settled = Body::RefundSettled {
        activity: id,
        reservation,
        user,
        held: held.unwrap_or_else(|| unreachable!("W17: who paid for units holds them")),
        version: activity.version,
        figures: figures.unwrap_or_else(|| unreachable!("W17: what is paid is sold")),
        refund_no,
    };
    // The money of a dead letter is back: nothing is left to decide.
    let of_order = known.scope == RefundScope::Order;
    let letter = activity.dead_letter(reservation).filter(|_| of_order);
    Ok(with(settled, closed_with(letter, id, reservation)))
}

/// The provider will not give the money back.
pub(super) fn fail<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    refund_no: &'a str,
    note: &'a str,
) -> Decided<'a> {
    validate::note(note)?;
    let known = shard.refund(id, reservation, refund_no).ok_or(Refusal::UnknownRefund)?;
    match known.status {
        RefundStatus::Requested => {
            Ok(one(Body::RefundFailed { activity: id, reservation, refund_no, note }))
        }
        RefundStatus::Settled => Err(Refusal::AlreadyRefunded),
        RefundStatus::Failed => Ok(Decision::Done(Answer::Refund(known))),
    }
}
