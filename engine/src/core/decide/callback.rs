//! Payments: opened by the buyer, decided by the provider's callback.
//!
//! A callback with a good signature is always recorded; what is made of it is its verdict, the
//! first of these that fits:
//!
//! | callback                                          | verdict        | beside it              |
//! |---------------------------------------------------|----------------|------------------------|
//! | the payment was never opened, or in another way   | unknown        |                        |
//! | the provider says that it failed                  | failed         |                        |
//! | its transaction was recorded before               | repeated       |                        |
//! | the amount is not the order's                     | wrong amount   |                        |
//! | the order is unpaid                               | accepted       | confirmed              |
//! | it was given back, and may be reinstated          | accepted       | reinstated             |
//! | it was given back, and may not                    | late           | refund of the payment  |
//! | it was paid before                                | second payment | refund of the payment  |
//!
//! A failure is not remembered by its transaction: providers tell of one transaction first that it
//! failed, then that it was paid. Whoever is told `unknown` or `wrong_amount` has money that only
//! an operator can judge: SQL lists it.

use super::super::activity::Activity;
use super::super::command::{Answer, ArchivedPayment, OpenPayment, RecordPayment, Refusal};
use super::super::event::{Actor, Body, LatePayment, PaymentVerdict, Pool, RefundScope};
use super::super::ids::{ActivityId, UserId, attempt_of};
use super::super::lifecycle::{Course, Stage, Step};
use super::super::limits::{PAYMENT_ATTEMPTS_MAX, RECEIPTS_PER_ACTIVITY_MAX, TIME_MS_MAX};
use super::super::reservation::Slot;
use super::super::shard::{Shard, Tombstone};
use super::super::validate;
use super::payment::{confirmed, find};
use super::{Decision, one, with};

type Decided<'a> = Result<Decision<'a>, Refusal>;

/// Opens a payment, or finds the one that is live: an order has at most one.
pub(super) fn open<'a>(
    shard: &Shard,
    id: ActivityId,
    command: &OpenPayment<'a>,
    at_ms: u64,
) -> Decided<'a> {
    let &OpenPayment { reservation, owner, channel, ttl_ms } = command;
    validate::channel(channel)?;
    validate::payment_ttl(ttl_ms)?;
    let (activity, slot) = find(shard, id, reservation)?;
    if slot.user() != owner {
        return Err(Refusal::UnknownReservation);
    }
    if let Course::Refused(refusal) =
        Stage::of(activity, reservation, slot.status()).course(Step::Open)
    {
        return Err(refusal);
    }
    let last = activity.payments_of(reservation).last();
    if let Some(live) = last.filter(|payment| payment.is_live(at_ms)) {
        return match *live.channel == *channel {
            true => Ok(Decision::Done(Answer::Payment(Box::new(live.clone())))),
            false => Err(Refusal::PaymentInProgress),
        };
    }
    let attempt = slot.attempts().saturating_add(1);
    if attempt > PAYMENT_ATTEMPTS_MAX {
        return Err(Refusal::TooManyPayments);
    }
    // A provider must not take money for what will have been given back by then; where that is
    // overdue already (after a start, nothing is given back for a while), the buyer gets his time.
    let pay_before_ms = slot.created_ms().saturating_add(activity.terms.payment_ttl_ms);
    let wanted_ms = at_ms.saturating_add(ttl_ms);
    let expires_ms = if pay_before_ms > at_ms { wanted_ms.min(pay_before_ms) } else { wanted_ms };
    let amount = activity.amount(slot);
    let expires_ms = expires_ms.min(TIME_MS_MAX);
    assert!(expires_ms >= at_ms, "a payment is opened for the time to come");
    assert!(attempt > slot.attempts(), "no two payments of {reservation} have one number");
    Ok(one(Body::PaymentOpened { activity: id, reservation, attempt, channel, amount, expires_ms }))
}

/// Records a callback.
pub(super) fn record<'a>(
    shard: &Shard,
    id: ActivityId,
    command: &RecordPayment<'a>,
) -> Decided<'a> {
    let &RecordPayment { channel, payment_no, transaction, amount, body, .. } = command;
    validate::callback(channel, payment_no, transaction, amount, body)?;
    if let Some(tombstone) = shard.tombstone(id) {
        return record_archived(tombstone, id, command);
    }
    let (activity, slot) = find(shard, id, command.reservation)?;
    if activity.receipts.len() >= RECEIPTS_PER_ACTIVITY_MAX {
        return Err(Refusal::TooManyCallbacks);
    }
    let receipt = shard.requests().receipt(channel, transaction);
    let is_known = activity.receipts.contains_key(&receipt);
    let course = Stage::of(activity, command.reservation, slot.status()).course(Step::Pay);
    let (verdict, second) = match judge(activity, command, is_known) {
        Some(verdict) => (verdict, None),
        None => honour(activity, id, slot, command, course),
    };
    assert_honoured(verdict, second.as_ref());
    Ok(with(recorded(id, command, verdict), second))
}

/// The verdict on a callback that pays nothing, whatever the order's stage.
fn judge(
    activity: &Activity,
    command: &RecordPayment<'_>,
    is_known: bool,
) -> Option<PaymentVerdict> {
    let attempt = attempt_of(command.payment_no);
    let payments = activity.payments_of(command.reservation);
    let payment = payments.iter().find(|payment| Some(payment.attempt) == attempt);
    let payment = payment.filter(|payment| *payment.channel == *command.channel);
    let verdicts = [
        (!command.paid && payment.is_some(), PaymentVerdict::Failed),
        (is_known, PaymentVerdict::Repeated),
        (payment.is_none(), PaymentVerdict::Unknown),
        (payment.is_some_and(|it| it.amount != command.amount), PaymentVerdict::WrongAmount),
    ];
    verdicts.into_iter().find(|(fits, _)| *fits).map(|(_, verdict)| verdict)
}

/// What good money does.
fn honour<'a>(
    activity: &Activity,
    id: ActivityId,
    slot: &Slot,
    command: &RecordPayment<'a>,
    course: Course,
) -> (PaymentVerdict, Option<Body<'a>>) {
    let &RecordPayment { reservation, payment_no, .. } = command;
    let refund = |note| Some(refund(id, slot.user(), command, note));
    match course {
        Course::Happens => {
            let body = confirmed(activity, id, reservation, slot, payment_no);
            (PaymentVerdict::Accepted, Some(body))
        }
        Course::HappensIfAllowed => match reinstated(activity, id, slot, command) {
            Some(body) => (PaymentVerdict::Accepted, Some(body)),
            None => (PaymentVerdict::Late, refund(LATE)),
        },
        Course::Late => (PaymentVerdict::Late, refund(LATE)),
        Course::SecondPayment => (PaymentVerdict::SecondPayment, refund(SECOND)),
        Course::Repeats | Course::Refused(_) => unreachable!("money is never refused"),
    }
}

/// That late money is honoured, where the policy says so, the activity is not paused, and units
/// and limit still allow. A drain, an unpublish and the end of the window stop no payment.
fn reinstated<'a>(
    activity: &Activity,
    id: ActivityId,
    slot: &Slot,
    command: &RecordPayment<'a>,
) -> Option<Body<'a>> {
    let (user, quantity) = (slot.user(), slot.quantity());
    if activity.terms.late_payment == LatePayment::Refund || activity.flags.paused {
        return None;
    }
    let held = activity.held(user).checked_add(quantity)?;
    if held > activity.terms.per_user_limit {
        return None;
    }
    Some(Body::Reinstated {
        activity: id,
        reservation: command.reservation,
        user,
        quantity,
        held,
        version: activity.version,
        figures: activity.figures.moved(Pool::Available, Pool::Sold, quantity)?,
        payment_no: command.payment_no,
    })
}

/// A callback of an archived activity: SQL says what it knew of the payment.
fn record_archived<'a>(
    tombstone: &Tombstone,
    id: ActivityId,
    command: &RecordPayment<'a>,
) -> Decided<'a> {
    let facts = command.archived.ok_or(Refusal::Archived)?;
    let ArchivedPayment { user, channel, amount, order_paid, transaction_known, .. } = facts;
    let asked = tombstone.refunds.contains_key(&(command.reservation, command.refund_no.into()));
    let opened = channel == command.channel;
    let verdicts = [
        (!command.paid && opened, PaymentVerdict::Failed),
        (transaction_known || asked, PaymentVerdict::Repeated),
        (!opened, PaymentVerdict::Unknown),
        (amount != command.amount, PaymentVerdict::WrongAmount),
        (order_paid, PaymentVerdict::SecondPayment),
    ];
    let fitting = verdicts.into_iter().find(|(fits, _)| *fits);
    let verdict = fitting.map_or(PaymentVerdict::Late, |(_, verdict)| verdict);
    let note = match verdict {
        PaymentVerdict::SecondPayment => Some(SECOND),
        PaymentVerdict::Late => Some(LATE),
        _ => None,
    };
    let second = note.map(|note| refund(id, user, command, note));
    assert_honoured(verdict, second.as_ref());
    Ok(with(recorded(id, command, verdict), second))
}

/// Money that comes pays an order or goes back, by its verdict, and never both nor neither.
///
/// # Panics
/// Where the event beside the verdict is another.
fn assert_honoured(verdict: PaymentVerdict, second: Option<&Body<'_>>) {
    let fits = match second {
        Some(Body::Confirmed { .. } | Body::Reinstated { .. }) => {
            verdict == PaymentVerdict::Accepted
        }
        Some(Body::RefundRequested { .. }) => {
            matches!(verdict, PaymentVerdict::Late | PaymentVerdict::SecondPayment)
        }
        Some(_) => false,
        None => matches!(
            verdict,
            PaymentVerdict::Failed
                | PaymentVerdict::Repeated
                | PaymentVerdict::Unknown
                | PaymentVerdict::WrongAmount
        ),
    };
    assert!(fits, "a payment's verdict is {verdict:?}, and beside it stands {second:?}");
}

const LATE: &str = "the payment came too late";
const SECOND: &str = "the order was paid before";

/// That money which paid nothing shall go back.
fn refund<'a>(
    activity: ActivityId,
    user: UserId,
    command: &RecordPayment<'a>,
    note: &'static str,
) -> Body<'a> {
    let &RecordPayment { reservation, refund_no, channel, payment_no, transaction, amount, .. } =
        command;
    Body::RefundRequested {
        activity,
        actor: Actor::NONE,
        reservation,
        user,
        refund_no,
        scope: RefundScope::Payment,
        restock: false,
        free_limit: false,
        channel,
        payment_no,
        transaction,
        amount,
        note,
    }
}

fn recorded<'a>(
    activity: ActivityId,
    command: &RecordPayment<'a>,
    verdict: PaymentVerdict,
) -> Body<'a> {
    let &RecordPayment { reservation, channel, payment_no, transaction, amount, body, .. } =
        command;
    let (activity, reservation) = (Some(activity), Some(reservation));
    Body::PaymentRecorded {
        activity,
        reservation,
        channel,
        payment_no,
        transaction,
        amount,
        verdict,
        body,
    }
}

/// That a callback fits no payment: it is kept for whoever asks where the money is.
///
/// # Errors
/// Why it cannot be kept.
pub fn unknown_payment<'a>(
    channel: &'a str,
    payment_no: &'a str,
    transaction: &'a str,
    amount: u64,
    body: &'a [u8],
) -> Result<Body<'a>, Refusal> {
    validate::callback(channel, payment_no, transaction, amount, body)?;
    let verdict = PaymentVerdict::Unknown;
    let (activity, reservation) = (None, None);
    Ok(Body::PaymentRecorded {
        activity,
        reservation,
        channel,
        payment_no,
        transaction,
        amount,
        verdict,
        body,
    })
}
