//! What is taken over from elsewhere: an older system, or SQL once the log is lost.
//!
//! | asked to adopt                             | comes to                                    |
//! |--------------------------------------------|---------------------------------------------|
//! | an activity that is here                   | known: nothing changes                      |
//! | an activity whose id was archived          | refused                                     |
//! | a reservation that was adopted before      | known: nothing changes                      |
//! | one whose request made another one here    | refused: a request has one outcome          |
//! | one whose units the activity has not free  | refused: no unit is given twice             |
//! | anything else                              | adopted, with its units                     |
//!
//! An adopted reservation counts against its user's limit, and may be above it: it was accepted
//! under another system's rules.

use super::super::activity::Activity;
use super::super::command::Refusal;
use super::super::event::{Body, Definition, Figures, Pool, Status};
use super::super::ids::{ActivityId, Ordinal, ReservationId, UserId};
use super::super::limits::UNITS_MAX;
use super::super::shard::Shard;
use super::super::validate;

/// An activity of another system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdoptActivity<'a> {
    /// The version of its definition, from 1.
    pub version: u32,
    /// Units that are free or will be taken by reservations to come.
    pub available: u32,
    /// Units sold that no reservation to come stands for.
    pub sold: u32,
    /// Whether it is published.
    pub on_sale: bool,
    /// Its definition.
    pub definition: Definition<'a>,
}

/// A reservation of another system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdoptReservation<'a> {
    /// Its number there, 0 where it has none.
    pub old_id: u64,
    /// Its order number there; empty where it follows from the id it has here.
    pub order_no: &'a str,
    /// Where it is in its life.
    pub status: Status,
    /// Its buyer.
    pub user: UserId,
    /// Its units.
    pub quantity: u32,
    /// Accepted at, Unix milliseconds.
    pub created_ms: u64,
    /// Last changed at, Unix milliseconds.
    pub updated_ms: u64,
    /// The client's id of the purchase; empty where only its hash is known.
    pub request_id: &'a str,
    /// The keyed hash of that id, by the directory's key.
    pub request_hash: u128,
    /// The payment that paid it; empty where none did.
    pub payment_no: &'a str,
}

/// What an adoption comes to where it is not refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adoption<'a> {
    /// It shall be.
    New(Body<'a>),
    /// It was adopted before, or made here.
    Known,
}

/// What adopting activity `id` comes to. The runtime has allotted `ordinal`.
///
/// # Errors
/// Why it cannot be.
pub fn adopt_activity<'a>(
    shard: &Shard,
    id: ActivityId,
    ordinal: Ordinal,
    it: &AdoptActivity<'a>,
) -> Result<Adoption<'a>, Refusal> {
    validate::definition(&it.definition)?;
    let figures = Figures { available: it.available, locked: 0, sold: it.sold };
    validate::adopted_units(figures.total(), it.version)?;
    if shard.activity(id).is_some() {
        return Ok(Adoption::Known);
    }
    if shard.tombstone(id).is_some() {
        return Err(Refusal::Archived);
    }
    if ordinal == Ordinal::ADOPTED {
        return Err(Refusal::OrdinalsExhausted);
    }
    Ok(Adoption::New(Body::ActivityAdopted {
        activity: id,
        ordinal,
        version: it.version,
        figures,
        on_sale: it.on_sale,
        definition: it.definition,
    }))
}

/// What adopting a reservation of activity `id` as `reservation` comes to.
///
/// # Errors
/// Why it cannot be.
pub fn adopt_reservation<'a>(
    shard: &Shard,
    id: ActivityId,
    reservation: ReservationId,
    it: &AdoptReservation<'a>,
) -> Result<Adoption<'a>, Refusal> {
    validate::adopted(it)?;
    let Some(activity) = shard.activity(id) else {
        let is_archived = shard.tombstone(id).is_some();
        return Err(if is_archived { Refusal::Archived } else { Refusal::UnknownActivity });
    };
    if let Some(slot) = activity.slot(reservation) {
        let is_same = slot.user() == it.user && slot.quantity() == it.quantity;
        return if is_same { Ok(Adoption::Known) } else { Err(Refusal::RequestIdReused) };
    }
    validate::amount(activity.terms.price, it.quantity)?;
    if reservation.ordinal() == activity.ordinal {
        return Err(Refusal::Invalid("the id is one that this activity gives itself"));
    }
    if activity.find_request(it.user, it.request_hash).is_some() {
        return Err(Refusal::RequestIdReused);
    }
    let (figures, held) = after(activity, it)?;
    Ok(Adoption::New(Body::ReservationAdopted {
        activity: id,
        reservation,
        old_id: it.old_id,
        order_no: it.order_no,
        status: it.status,
        user: it.user,
        quantity: it.quantity,
        created_ms: it.created_ms,
        updated_ms: it.updated_ms,
        held,
        figures,
        request_id: it.request_id,
        request_hash: it.request_hash,
        payment_no: it.payment_no,
    }))
}

/// The activity's units, and the user's, with the reservation.
fn after(activity: &Activity, it: &AdoptReservation<'_>) -> Result<(Figures, u32), Refusal> {
    let (to, units) = match it.status {
        Status::Reserved => (Pool::Locked, it.quantity),
        Status::Confirmed => (Pool::Sold, it.quantity),
        Status::RolledBack(_) => (Pool::Locked, 0),
    };
    let figures = activity.figures.moved(Pool::Available, to, units).ok_or(Refusal::SoldOut)?;
    let held = activity.held(it.user).checked_add(units).filter(|held| *held <= UNITS_MAX);
    Ok((figures, held.ok_or(Refusal::LimitReached)?))
}
