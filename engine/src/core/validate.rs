//! The bounds of what comes in, in one place.
//!
//! `decide` asks here before it looks at any state, so that what it lets through can always be
//! encoded: a record that cannot be written must not have been applied.

use super::command::{ArchivedOrder, Refusal};
use super::control::keys;
use super::decide::AdoptReservation;
use super::event::{Actor, Definition, RestoreReason, Status};
use super::limits::{
    ACTOR_BYTES_MAX, CALLBACK_BYTES_MAX, CONTROL_KEY_BYTES_MAX, CONTROL_VALUE_BYTES_MAX, ID_MAX,
    NAME_BYTES_MAX, NOTE_BYTES_MAX, ORDER_NO_BYTES_MAX, ORDINAL_BITS, PAYMENT_NO_BYTES_MAX,
    PAYMENT_TTL_MS_MAX, PAYMENT_TTL_MS_MIN, REFUND_NO_BYTES_MAX, REFUND_NO_RESERVED_PREFIX,
    REQUEST_ID_BYTES_MAX, TIME_MS_MAX, TITLE_BYTES_MAX, UNITS_MAX,
};

/// Turns a broken bound into the refusal that names it.
const fn bound(holds: bool, text: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::Invalid(text)) }
}

/// The units of a purchase, a restock, or a decrease.
pub(super) const fn quantity(quantity: u32) -> Result<(), Refusal> {
    bound(quantity >= 1 && quantity <= UNITS_MAX, "quantity must be 1..=2147483647")
}

/// A client's request id.
pub(super) const fn request_id(request_id: &str) -> Result<(), Refusal> {
    let bytes = request_id.len();
    bound(bytes >= 1 && bytes <= REQUEST_ID_BYTES_MAX, "client_request_id must be 1..=64 bytes")
}

/// The key of a restock or a decrease.
pub(super) const fn operation_key(op: &str) -> Result<(), Refusal> {
    let bytes = op.len();
    bound(bytes >= 1 && bytes <= REQUEST_ID_BYTES_MAX, "the operation key must be 1..=64 bytes")
}

/// The number of a payment.
pub(super) const fn payment_no(payment_no: &str) -> Result<(), Refusal> {
    let bytes = payment_no.len();
    bound(bytes >= 1 && bytes <= PAYMENT_NO_BYTES_MAX, "payment_no must be 1..=64 bytes")
}

/// A control's key, value and end.
pub(super) fn control(key: &str, value: &[u8], expires_ms: u64) -> Result<(), Refusal> {
    let fits = (1..=CONTROL_KEY_BYTES_MAX).contains(&key.len());
    bound(fits, "a control's key must be 1..=128 bytes")?;
    bound(value.len() <= CONTROL_VALUE_BYTES_MAX, "a control's value must be at most 4096 bytes")?;
    bound(expires_ms <= TIME_MS_MAX, "expires_at must be before the year 10000")?;
    for (prefix, number_max) in [
        (keys::ORDINALS_PREFIX, (1 << ORDINAL_BITS) - 1),
        (keys::ACTIVITIES_PREFIX, ID_MAX),
        (keys::ADOPTED_PREFIX, u64::from(u32::MAX)),
    ] {
        let fits = keys::number(key, prefix).is_some_and(|it| (1..=number_max).contains(&it));
        bound(fits || !key.starts_with(prefix), "a number must follow, within its bounds")?;
    }
    Ok(())
}

/// A text that says why.
pub(super) const fn note(note: &str) -> Result<(), Refusal> {
    bound(note.len() <= NOTE_BYTES_MAX, "the reason must be at most 256 bytes")
}

/// A refund's number, as a caller gives it.
pub(super) fn refund_no(refund_no: &str) -> Result<(), Refusal> {
    let fits = (1..=REFUND_NO_BYTES_MAX).contains(&refund_no.len());
    bound(fits, "refund_no must be 1..=64 bytes")?;
    let reserved = refund_no.starts_with(REFUND_NO_RESERVED_PREFIX);
    bound(!reserved, "refund numbers that begin with auto- are given by the server")
}

/// The name of a way to pay.
pub(super) const fn channel(channel: &str) -> Result<(), Refusal> {
    let bytes = channel.len();
    bound(bytes >= 1 && bytes <= NAME_BYTES_MAX, "channel must be 1..=32 bytes")
}

/// A provider's number of a transaction.
pub(super) const fn transaction(transaction: &str) -> Result<(), Refusal> {
    let bytes = transaction.len();
    bound(bytes >= 1 && bytes <= PAYMENT_NO_BYTES_MAX, "the transaction must be 1..=64 bytes")
}

/// A provider's callback.
pub(super) fn callback(
    channel: &str,
    payment_no: &str,
    transaction: &str,
    amount: u64,
    body: &[u8],
) -> Result<(), Refusal> {
    self::channel(channel)?;
    self::payment_no(payment_no)?;
    self::transaction(transaction)?;
    bound(amount <= ID_MAX, "amount must be 0..=2^53-1")?;
    let bytes = body.len();
    bound(bytes <= CALLBACK_BYTES_MAX, "the callback's body must be at most 4096 bytes")
}

/// What SQL says of the payment behind an archived order.
pub(super) fn facts(order: &ArchivedOrder<'_>) -> Result<(), Refusal> {
    bound(order.channel.len() <= NAME_BYTES_MAX, "channel must be at most 32 bytes")?;
    payment_no(order.payment_no)?;
    let bytes = order.transaction.len();
    bound(bytes <= PAYMENT_NO_BYTES_MAX, "the transaction must be at most 64 bytes")?;
    bound(order.amount <= ID_MAX, "amount must be 0..=2^53-1")
}

/// How long a provider may take a payment.
pub(super) fn payment_ttl(ttl_ms: u64) -> Result<(), Refusal> {
    let fits = (PAYMENT_TTL_MS_MIN..=PAYMENT_TTL_MS_MAX).contains(&ttl_ms);
    bound(fits, "a payment's time must be 1 s to 30 days")
}

/// The operator whose word a command is.
pub(super) fn operator(actor: &Actor<'_>) -> Result<(), Refusal> {
    self::actor(actor)?;
    bound(!actor.name.is_empty(), "the command must name its operator")
}

/// What a purchase costs.
pub(crate) const fn amount(price: u64, quantity: u32) -> Result<(), Refusal> {
    let holds = match price.checked_mul(quantity as u64) {
        Some(amount) => amount <= ID_MAX,
        None => false,
    };
    bound(holds, "price x quantity must be at most 2^53-1")
}

/// Who gives a command.
pub(super) const fn actor(actor: &Actor<'_>) -> Result<(), Refusal> {
    if actor.name.len() > ACTOR_BYTES_MAX {
        return Err(Refusal::Invalid("the caller's name must be at most 64 bytes"));
    }
    bound(
        actor.request_id.len() <= REQUEST_ID_BYTES_MAX,
        "the request's id must be at most 64 bytes",
    )
}

/// Who gives a reservation back.
pub(super) fn restorer(actor: &Actor<'_>, reason: RestoreReason) -> Result<(), Refusal> {
    self::actor(actor)?;
    bound(actor.may_restore(reason), "a release must name its operator, nothing else may")
}

/// The units of an activity that is made. One without any could not be told from a typing error;
/// a restock or an edit may come to none later.
pub(super) const fn total_at_creation(total: u32) -> Result<(), Refusal> {
    bound(total >= 1 && total <= UNITS_MAX, "stock must be 1..=2147483647")
}

/// The units and the version of an activity that is adopted.
pub(super) const fn adopted_units(total: u64, version: u32) -> Result<(), Refusal> {
    if version == 0 {
        return Err(Refusal::Invalid("version must be at least 1"));
    }
    bound(total <= UNITS_MAX as u64, "stock must be 0..=2147483647")
}

/// A reservation that is adopted.
pub(super) fn adopted(it: &AdoptReservation<'_>) -> Result<(), Refusal> {
    quantity(it.quantity)?;
    let bytes = it.request_id.len();
    bound(bytes <= REQUEST_ID_BYTES_MAX, "client_request_id must be at most 64 bytes")?;
    bound(it.order_no.len() <= ORDER_NO_BYTES_MAX, "order_no must be at most 62 bytes")?;
    bound(it.payment_no.len() <= PAYMENT_NO_BYTES_MAX, "payment_no must be at most 64 bytes")?;
    let paid = matches!(it.status, Status::Confirmed);
    bound(paid || it.payment_no.is_empty(), "only what is paid has a payment")?;
    let in_time = it.created_ms <= TIME_MS_MAX && it.updated_ms <= TIME_MS_MAX;
    bound(in_time, "times must be before the year 10000")
}

/// The units of an activity that is edited.
pub(super) const fn total(total: u32) -> Result<(), Refusal> {
    bound(total <= UNITS_MAX, "stock must be 0..=2147483647")
}

/// What an activity's life is ruled by.
pub(super) fn definition(definition: &Definition<'_>) -> Result<(), Refusal> {
    let it = definition;
    bound(it.title.len() <= TITLE_BYTES_MAX, "title must be at most 1020 bytes")?;
    bound(it.price <= ID_MAX, "price must be 0..=2^53-1")?;
    bound(
        it.per_user_limit >= 1 && it.per_user_limit <= UNITS_MAX,
        "per_user_limit must be 1..=2147483647",
    )?;
    bound(it.start_ms <= TIME_MS_MAX, "start_at must be before the year 10000")?;
    bound(it.end_ms <= TIME_MS_MAX, "end_at must be before the year 10000")?;
    bound(it.start_ms <= it.end_ms, "start_at must not be after end_at")?;
    bound(
        (PAYMENT_TTL_MS_MIN..=PAYMENT_TTL_MS_MAX).contains(&it.payment_ttl_ms),
        "payment_ttl must be 1 s to 30 days",
    )?;
    bound(it.publish_at_ms <= TIME_MS_MAX, "publish_at must be before the year 10000")
}
