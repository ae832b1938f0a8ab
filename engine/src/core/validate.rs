//! The bounds of what comes in, in one place.
//!
//! `decide` asks here before it looks at any state, so that what it lets through can always be
//! encoded: a record that cannot be written must not have been applied.

use super::command::Refusal;
use super::event::{Actor, Definition, RestoreReason};
use super::limits::{
    ACTOR_BYTES_MAX, ID_MAX, PAYMENT_NO_BYTES_MAX, PAYMENT_TTL_MS_MAX, PAYMENT_TTL_MS_MIN,
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

/// What a purchase costs.
pub(super) const fn amount(price: u64, quantity: u32) -> Result<(), Refusal> {
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
