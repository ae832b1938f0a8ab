//! From state to images.

use super::Image;
use crate::core::activity::{Activity, Flags};
use crate::core::control::{Control, Setting, Sink};
use crate::core::event::{ShardMarks, Status};
use crate::core::ids::{ActivityId, Ordinal, Position, ReservationId};
use crate::core::reservation::Slot;
use crate::core::shard::{Shard, Tombstone};
use crate::core::side::{
    Adopted, DeadLetter, OpenRefund, Operation, OperationKind, Payment, Refund, Refunds,
};
use crate::core::slots::Slots;
use crate::core::user::{User, Users};

/// Gives every image of `shard` to `each`, in the order in which they load.
///
/// # Errors
/// What `each` returns.
pub fn walk_shard<E>(
    shard: &Shard,
    each: &mut impl FnMut(Image<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut live: Vec<_> = shard.activities().collect();
    live.sort_unstable_by_key(|(id, _)| *id);
    for (id, activity) in live {
        walk_activity(id, activity, each)?;
    }
    let mut archived: Vec<_> = shard.tombstones().collect();
    archived.sort_unstable_by_key(|(id, _)| *id);
    for (activity, tombstone) in archived {
        let Tombstone { ordinal, end_ms, refunds } = tombstone;
        each(Image::Archived { activity, ordinal: *ordinal, end_ms: *end_ms })?;
        walk_refunds(refunds, each)?;
    }
    for (reservation, refund_no, it) in shard.open_refunds() {
        each(open_refund(reservation, refund_no, it))?;
    }
    Ok(())
}

fn walk_refunds<E>(
    refunds: &Refunds,
    each: &mut impl FnMut(Image<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for ((reservation, refund_no), refund) in refunds {
        let (reservation, refund_no) = (*reservation, refund_no.as_ref());
        let Refund { scope, restock, free_limit, status } = *refund;
        each(Image::Refund { reservation, refund_no, scope, restock, free_limit, status })?;
    }
    Ok(())
}

fn open_refund<'a>(
    reservation: ReservationId,
    refund_no: &'a str,
    refund: &'a OpenRefund,
) -> Image<'a> {
    let OpenRefund {
        activity,
        user,
        scope,
        restock,
        free_limit,
        channel,
        payment_no,
        transaction,
        amount,
        requested_ms,
        shard_seq,
    } = refund;
    Image::OpenRefund {
        activity: *activity,
        reservation,
        refund_no,
        user: *user,
        scope: *scope,
        restock: *restock,
        free_limit: *free_limit,
        channel,
        payment_no,
        transaction,
        amount: *amount,
        requested_ms: *requested_ms,
        shard_seq: *shard_seq,
    }
}

fn walk_activity<E>(
    id: ActivityId,
    activity: &Activity,
    each: &mut impl FnMut(Image<'_>) -> Result<(), E>,
) -> Result<(), E> {
    // No `..`: a field that is new here must be written, or named as one that is not state.
    let Activity {
        ordinal,
        version,
        terms,
        figures,
        total,
        sold_before,
        flags: Flags { on_sale, paused, drained },
        schedule_over,
        slots,
        unpaid_from,
        users,
        payments,
        operations,
        openings,
        receipts,
        refunds,
        dead_letters,
        adopted,
        // Not written: it follows from what is adopted.
        adopted_unpaid,
        published: _,
        published_terms: _,
    } = activity;
    each(Image::Activity {
        activity: id,
        ordinal: *ordinal,
        version: *version,
        figures: *figures,
        total: *total,
        sold_before: *sold_before,
        on_sale: *on_sale,
        paused: *paused,
        drained: *drained,
        schedule_over: *schedule_over,
        unpaid_from: *unpaid_from as u64,
        definition: terms.definition(),
    })?;
    walk_reservations(*ordinal, slots, users, each)?;
    let waiting = adopted.values().filter(|it| it.slot.status() == Status::Reserved).count();
    assert!(adopted_unpaid.len() == waiting, "W14: the timer of {id} cannot be made anew");
    for (id, one) in adopted {
        each(adopted_image(*id, one))?;
    }
    for (reservation, payment_no) in payments {
        each(Image::Payment { reservation: *reservation, payment_no })?;
    }
    for (op, operation) in operations {
        each(operation_image(op, operation))?;
    }
    walk_refunds(refunds, each)?;
    for (reservation, letter) in dead_letters {
        let DeadLetter { state, note, opened_ms } = letter;
        let (reservation, state, opened_ms) = (*reservation, *state, *opened_ms);
        each(Image::DeadLetter { reservation, state, opened_ms, note })?;
    }
    for (reservation, opened) in openings {
        opened.iter().try_for_each(|payment| each(opening(*reservation, payment)))?;
    }
    receipts.iter().try_for_each(|(receipt, reservation)| {
        each(Image::Receipt { receipt: *receipt, reservation: *reservation })
    })
}

fn walk_reservations<E>(
    ordinal: Ordinal,
    slots: &Slots,
    users: &Users,
    each: &mut impl FnMut(Image<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut written = 0;
    for slot in slots.iter() {
        let position = Position::after(written);
        let position = position.unwrap_or_else(|| unreachable!("every slot has a position"));
        each(reservation(ReservationId::compose(ordinal, position), slot))?;
        written += 1;
    }
    assert!(written == slots.len(), "W14: {written} of {} reservations are written", slots.len());
    let mut written = 0;
    for User { id: user, held, last } in users.iter() {
        each(Image::User { user: *user, held: *held, last: *last })?;
        written += 1;
    }
    assert!(written == users.count(), "W14: {written} of {} users are written", users.count());
    Ok(())
}

fn opening(reservation: ReservationId, payment: &Payment) -> Image<'_> {
    let Payment { attempt, channel, amount, expires_ms, status, transaction } = payment;
    Image::Opening {
        reservation,
        attempt: *attempt,
        channel,
        amount: *amount,
        expires_ms: *expires_ms,
        status: *status,
        transaction,
    }
}

fn operation_image<'a>(op: &'a str, operation: &Operation) -> Image<'a> {
    let Operation { kind, quantity, answer } = *operation;
    let decrease = kind == OperationKind::Decrease;
    let (version, figures) = (answer.version, answer.figures);
    Image::Operation { op, decrease, quantity, version, figures }
}

fn reservation(reservation: ReservationId, slot: &Slot) -> Image<'static> {
    Image::Reservation {
        reservation,
        user: slot.user(),
        quantity: slot.quantity(),
        status: slot.status(),
        attempts: slot.attempts(),
        created_ms: slot.created_ms(),
        updated_ms: slot.updated_ms(),
        shard_seq: slot.shard_seq(),
        request_hash: slot.request_hash(),
        previous: slot.previous(),
    }
}

fn adopted_image(reservation: ReservationId, adopted: &Adopted) -> Image<'_> {
    let Adopted { slot, old_id, order_no } = adopted;
    Image::Adopted {
        reservation,
        old_id: *old_id,
        user: slot.user(),
        quantity: slot.quantity(),
        status: slot.status(),
        attempts: slot.attempts(),
        created_ms: slot.created_ms(),
        updated_ms: slot.updated_ms(),
        shard_seq: slot.shard_seq(),
        request_hash: slot.request_hash(),
        order_no,
    }
}

/// Gives every image of the control lane to `each`; `last_ms` is the time of the last decision.
///
/// # Errors
/// What `each` returns.
pub fn walk_control<E>(
    control: &Control,
    last_ms: u64,
    each: &mut impl FnMut(Image<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each(Image::LastDecision { at_ms: last_ms })?;
    for (key, Setting { value, expires_ms }) in control.table().iter() {
        each(Image::Control { key, value, expires_ms: *expires_ms })?;
    }
    for (sink, Sink { lsn, shards }) in control.sinks() {
        let marks: Vec<_> = shards.iter().map(|(shard, seq)| (*shard, *seq)).collect();
        let mut buffer = Vec::new();
        let shards = ShardMarks::encode(&marks, &mut buffer);
        each(Image::Sink { sink, lsn: *lsn, shards })?;
    }
    Ok(())
}
