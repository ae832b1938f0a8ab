//! Refunds: asked for, then settled or refused by the provider.
//!
//! | scope   | gives back the money of              | units and limit move once settled |
//! |---------|--------------------------------------|-----------------------------------|
//! | order   | the payment that paid a reservation  | as asked                          |
//! | payment | one that paid nothing: late, second  | never                             |
//!
//! An order has at most one refund that is open or settled; one that was refused may be asked
//! again. Of an archived activity nothing is left to move: SQL holds it.

use super::super::activity::Activity;
use super::super::event::{Body, Event, Figures, Pool, RefundScope, Status};
use super::super::ids::ReservationId;
use super::super::shard::{Shard, Tombstone};
use super::super::side::{OpenRefund, Refund, RefundStatus, Refunds};
use super::{ApplyError, Now};

/// A refund of a live activity took a step.
pub(super) fn changed(
    activity: &mut Activity,
    body: &Body<'_>,
    now: &Now,
) -> Result<(), ApplyError> {
    match *body {
        Body::RefundRequested { reservation, user, refund_no, .. } => {
            let refund = Refund::requested(body);
            let slot = activity.slot(reservation);
            let slot = *slot.ok_or(ApplyError::UnknownReservation(reservation))?;
            if slot.user() != user {
                return Err(ApplyError::Mismatch(reservation));
            }
            if refund.scope == RefundScope::Order {
                if slot.status() != Status::Confirmed {
                    return Err(ApplyError::Status { reservation, status: slot.status() });
                }
                let in_force = |it: &Refund| it.status != RefundStatus::Failed;
                if activity.refund(reservation).is_some_and(|(_, it)| in_force(it)) {
                    return Err(ApplyError::Refund(reservation));
                }
            }
            open(&mut activity.refunds, reservation, refund_no, refund)
        }
        Body::RefundSettled { .. } => settled(activity, body, now),
        Body::RefundFailed { reservation, refund_no, .. } => {
            let refund = open_refund(&mut activity.refunds, reservation, refund_no)?;
            refund.status = RefundStatus::Failed;
            Ok(())
        }
        _ => unreachable!("`change` sends none of the others here"),
    }
}

/// A refund of an archived activity took a step.
pub(super) fn after_archive(tombstone: &mut Tombstone, body: &Body<'_>) -> Result<(), ApplyError> {
    match *body {
        Body::RefundRequested { reservation, refund_no, restock, free_limit, .. } => {
            if restock || free_limit {
                return Err(ApplyError::Refund(reservation));
            }
            open(&mut tombstone.refunds, reservation, refund_no, Refund::requested(body))
        }
        Body::RefundSettled { reservation, refund_no, held, figures, .. } => {
            if held > 0 || figures != Figures::default() {
                return Err(ApplyError::Refund(reservation));
            }
            let refund = open_refund(&mut tombstone.refunds, reservation, refund_no)?;
            refund.status = RefundStatus::Settled;
            Ok(())
        }
        Body::RefundFailed { reservation, refund_no, .. } => {
            let refund = open_refund(&mut tombstone.refunds, reservation, refund_no)?;
            refund.status = RefundStatus::Failed;
            Ok(())
        }
        _ => unreachable!("`apply` sends none of the others here"),
    }
}

/// Holds an event against the list of what the provider has yet to settle: what is asked for is not
/// on it, what ends is.
pub(super) fn check_listed(shard: &Shard, body: &Body<'_>) -> Result<(), ApplyError> {
    let (reservation, refund_no, expected) = match *body {
        Body::RefundRequested { reservation, refund_no, .. } => (reservation, refund_no, false),
        Body::RefundSettled { reservation, refund_no, .. }
        | Body::RefundFailed { reservation, refund_no, .. } => (reservation, refund_no, true),
        _ => return Ok(()),
    };
    match shard.open_refund(reservation, refund_no).is_some() == expected {
        true => Ok(()),
        false => Err(ApplyError::Refund(reservation)),
    }
}

/// Keeps the list of what the provider has yet to settle, once an event has been applied.
///
/// # Panics
/// Where list and refund no longer agree.
pub(super) fn note(shard: &mut Shard, event: &Event<'_>, shard_seq: u64) {
    match event.body {
        Body::RefundRequested {
            activity,
            reservation,
            user,
            refund_no,
            scope,
            restock,
            free_limit,
            channel,
            payment_no,
            transaction,
            amount,
            ..
        } => {
            // Which payment paid an order is known here; for what else goes back, the event says.
            let paid = match scope {
                RefundScope::Order => shard.activity(activity),
                RefundScope::Payment => None,
            };
            let (channel, payment_no, transaction) =
                paid.map_or((channel, payment_no, transaction), |it| it.paid_by(reservation));
            let it = OpenRefund {
                activity,
                user,
                scope,
                restock,
                free_limit,
                channel: channel.into(),
                payment_no: payment_no.into(),
                transaction: transaction.into(),
                amount,
                requested_ms: event.at_ms,
                shard_seq,
            };
            let before = shard.open_refunds.insert((reservation, refund_no.into()), it);
            assert!(before.is_none(), "refund {refund_no} is asked for while it is open");
            shard.assert_listed(activity, reservation, refund_no);
        }
        Body::RefundSettled { activity, reservation, refund_no, .. }
        | Body::RefundFailed { activity, reservation, refund_no, .. } => {
            let ended = shard.open_refunds.remove(&(reservation, refund_no.into()));
            assert!(ended.is_some(), "refund {refund_no} ends and was never open");
            shard.assert_listed(activity, reservation, refund_no);
        }
        _ => {}
    }
}

impl Refund {
    fn requested(body: &Body<'_>) -> Self {
        let Body::RefundRequested { scope, restock, free_limit, .. } = *body else {
            unreachable!("a request is meant");
        };
        Self { scope, restock, free_limit, status: RefundStatus::Requested }
    }
}

/// Opens a refund: its number is new, or its provider refused it before.
fn open(
    refunds: &mut Refunds,
    reservation: ReservationId,
    refund_no: &str,
    refund: Refund,
) -> Result<(), ApplyError> {
    let moves = refund.restock || refund.free_limit;
    if refund.scope == RefundScope::Payment && moves {
        return Err(ApplyError::Refund(reservation));
    }
    let key = (reservation, refund_no.into());
    if refunds.get(&key).is_some_and(|it| it.status != RefundStatus::Failed) {
        return Err(ApplyError::Refund(reservation));
    }
    refunds.insert(key, refund);
    Ok(())
}

fn open_refund<'r>(
    refunds: &'r mut Refunds,
    reservation: ReservationId,
    refund_no: &str,
) -> Result<&'r mut Refund, ApplyError> {
    let refund = refunds.get_mut(&(reservation, refund_no.into()));
    refund.filter(|it| it.status == RefundStatus::Requested).ok_or(ApplyError::Refund(reservation))
}

fn settled(activity: &mut Activity, body: &Body<'_>, now: &Now) -> Result<(), ApplyError> {
    let Body::RefundSettled { reservation, user, held, version, figures, refund_no, .. } = *body
    else {
        unreachable!("`changed` sends nothing else here");
    };
    activity.check_version(now, version)?;
    let slot = *activity.slot(reservation).ok_or(ApplyError::UnknownReservation(reservation))?;
    if slot.user() != user {
        return Err(ApplyError::Mismatch(reservation));
    }
    let refund = *open_refund(&mut activity.refunds, reservation, refund_no)?;
    let back = |moves: bool| if moves { slot.quantity() } else { 0 };
    let following = activity.figures.moved(Pool::Sold, Pool::Available, back(refund.restock));
    activity.check_figures(now, following, figures)?;
    activity.check_held(now, user, |held| held.checked_sub(back(refund.free_limit)), held)?;

    activity.figures = figures;
    activity.users.set_held(user, held);
    open_refund(&mut activity.refunds, reservation, refund_no)?.status = RefundStatus::Settled;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::digest::digest;
    use super::super::super::event::Actor;
    use super::super::super::ids::{ActivityId, Ordinal, Position, UserId};
    use super::super::super::request::RequestHasher;
    use super::super::super::shard::{Place, ShardSeed};
    use super::super::apply;
    use super::*;

    /// As a faulty snapshot may have it: the activity knows another story than the list.
    #[test]
    fn an_event_that_contradicts_the_list_of_open_refunds_is_refused_and_changes_nothing() {
        let activity = ActivityId::new(1).unwrap();
        let user = UserId::new(7).unwrap();
        let reservation =
            ReservationId::compose(Ordinal::new(1).unwrap(), Position::new(1).unwrap());
        let requested = Body::RefundRequested {
            activity,
            actor: Actor { name: "admin", request_id: "r" },
            reservation,
            user,
            refund_no: "f1",
            scope: RefundScope::Payment,
            restock: false,
            free_limit: false,
            channel: "card",
            payment_no: "p1",
            transaction: "t1",
            amount: 100,
            note: "",
        };
        let failed = Body::RefundFailed { activity, reservation, refund_no: "f1", note: "" };
        let requests = RequestHasher::new(&[3; 16]);
        let mut shard = Shard::new(ShardSeed { table_seed: 1, requests });
        let tombstone =
            Tombstone { ordinal: Ordinal::new(1).unwrap(), end_ms: 9, refunds: Refunds::new() };
        shard.places.insert(activity, Place::Archived(tombstone));
        let event = |body| Event { at_ms: 1, body };
        let refused = |shard: &mut Shard, body, seq| {
            let before = digest(shard);
            assert_eq!(apply(shard, &event(body), seq), Err(ApplyError::Refund(reservation)));
            assert_eq!(digest(shard), before);
        };

        apply(&mut shard, &event(requested), 1).unwrap();
        let listed = std::mem::take(&mut shard.open_refunds);
        refused(&mut shard, failed, 2);
        shard.open_refunds = listed.clone();
        apply(&mut shard, &event(failed), 2).unwrap();
        shard.open_refunds = listed;
        refused(&mut shard, requested, 3);
    }
}
