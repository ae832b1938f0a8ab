//! What the engine knows, as JSON.

use bridge::sql::archived::{ActivityRow, ReservationRow};
use engine::core::event::{DeadLetterPolicy, LatePayment, RestoreReason};
use engine::{ActivityView, DerivedState, PublicStatus, ReservationView};
use schemars::JsonSchema;
use serde::Serialize;

use super::openapi::id_schema;
use crate::duration::format_ms;
use crate::time::Instant;

/// The body of an accepted purchase.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Accepted")]
pub(super) struct AcceptedJson<'a> {
    /// The reservation's id.
    #[schemars(schema_with = "id_schema", example = 4_294_967_297_u64)]
    pre_deduction_id: u64,
    /// The number of the order that it becomes.
    #[schemars(example = "100000004294967297")]
    order_no: &'a str,
    #[schemars(extend("enum" = ["pending_order", "ordered", "rolled_back"]))]
    status: &'static str,
    activity_id: u64,
    quantity: u32,
    /// Of one unit.
    price: u64,
    /// Unpaid units go back then.
    pay_before: Instant,
}

impl<'a> From<&'a ReservationView> for AcceptedJson<'a> {
    fn from(view: &'a ReservationView) -> Self {
        let reservation = &view.reservation;
        Self {
            pre_deduction_id: reservation.id.get(),
            order_no: &view.order_no,
            status: status(view.status),
            activity_id: reservation.activity.get(),
            quantity: reservation.quantity,
            price: reservation.price,
            pay_before: Instant(reservation.pay_before_ms),
        }
    }
}

impl<'a> From<&'a ReservationRow> for AcceptedJson<'a> {
    fn from(row: &'a ReservationRow) -> Self {
        Self {
            pre_deduction_id: row.id,
            order_no: &row.order_no,
            status: status_of_row(row),
            activity_id: row.activity_id,
            quantity: u32::try_from(row.quantity).unwrap_or(u32::MAX),
            price: row.price,
            pay_before: Instant(row.pay_before_ms),
        }
    }
}

/// A row's status; a dead letter is one that has no order yet.
fn status_of_row(row: &ReservationRow) -> &'static str {
    match row.status.as_str() {
        "ordered" => "ordered",
        "rolled_back" => "rolled_back",
        _ => "pending_order",
    }
}

/// A purchase as its owner asks for it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Purchase")]
pub(super) struct PurchaseJson<'a> {
    /// The reservation's id.
    #[schemars(schema_with = "id_schema", example = 4_294_967_297_u64)]
    pre_deduction_id: u64,
    /// The number of the order that it becomes.
    #[schemars(example = "100000004294967297")]
    order_no: &'a str,
    #[schemars(extend("enum" = ["pending_order", "ordered", "rolled_back"]))]
    status: &'static str,
    /// Why it was given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["cancelled", "timeout", "dead_letter", "admin", "api"]))]
    reason: Option<&'a str>,
    activity_id: u64,
    sku_id: u64,
    price: u64,
    quantity: u32,
    pay_before: Instant,
    created_at: Instant,
    updated_at: Instant,
}

impl<'a> From<&'a ReservationView> for PurchaseJson<'a> {
    fn from(view: &'a ReservationView) -> Self {
        let reservation = &view.reservation;
        Self {
            pre_deduction_id: reservation.id.get(),
            order_no: &view.order_no,
            status: status(view.status),
            reason: reason(view.status),
            activity_id: reservation.activity.get(),
            sku_id: reservation.sku.get(),
            price: reservation.price,
            quantity: reservation.quantity,
            pay_before: Instant(reservation.pay_before_ms),
            created_at: Instant(reservation.created_ms),
            updated_at: Instant(reservation.updated_ms),
        }
    }
}

impl<'a> From<&'a ReservationRow> for PurchaseJson<'a> {
    fn from(row: &'a ReservationRow) -> Self {
        Self {
            pre_deduction_id: row.id,
            order_no: &row.order_no,
            status: status_of_row(row),
            reason: row.reason.as_deref(),
            activity_id: row.activity_id,
            sku_id: row.sku_id,
            price: row.price,
            quantity: u32::try_from(row.quantity).unwrap_or(u32::MAX),
            pay_before: Instant(row.pay_before_ms),
            created_at: Instant(row.created_ms),
            updated_at: Instant(row.updated_ms),
        }
    }
}

/// An activity as shoppers see it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Activity")]
pub(super) struct ActivityJson<'a> {
    id: u64,
    sku_id: u64,
    title: &'a str,
    /// Of one unit.
    price: u64,
    /// Units in all.
    stock: u64,
    /// Units that are free to buy.
    remaining: u64,
    /// Units that a user may hold.
    per_user_limit: u64,
    /// The first instant in which it sells.
    start_at: Instant,
    /// The last one.
    end_at: Instant,
    #[schemars(extend("enum" = [
        "paused", "off_sale", "not_started", "ended", "sold_out", "in_progress", "archived"
    ]))]
    state: &'static str,
}

impl<'a> ActivityJson<'a> {
    /// `view` as it is at `now_ms`.
    pub(super) fn at(view: &'a ActivityView, now_ms: u64) -> Self {
        Self {
            id: view.id.get(),
            sku_id: view.terms.sku.get(),
            title: &view.terms.title,
            price: view.terms.price,
            stock: view.total(),
            remaining: view.figures.available.into(),
            per_user_limit: view.terms.per_user_limit.into(),
            start_at: Instant(view.terms.start_ms),
            end_at: Instant(view.terms.end_ms),
            state: state(view.state(now_ms)),
        }
    }

    /// One that has left the engine's memory.
    pub(super) fn archived(row: &'a ActivityRow) -> Self {
        Self {
            id: row.id,
            sku_id: row.sku_id,
            title: &row.title,
            price: row.price,
            stock: row.total,
            remaining: row.available,
            per_user_limit: row.per_user_limit,
            start_at: Instant(row.start_ms),
            end_at: Instant(row.end_ms),
            state: "archived",
        }
    }
}

/// An activity as operators see it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ActivityOfOperators")]
pub(super) struct AdminActivityJson<'a> {
    #[serde(flatten)]
    activity: ActivityJson<'a>,
    /// What `If-Match` wants back.
    version: u64,
    #[schemars(extend("enum" = ["on_sale", "off_sale"]))]
    status: &'static str,
    /// Available, locked and sold: always their sum.
    total: u64,
    available: u64,
    /// Reserved and unpaid.
    locked: u64,
    sold: u64,
    paused: bool,
    drained: bool,
    /// Time to pay.
    #[schemars(example = "10m")]
    payment_ttl: String,
    #[schemars(extend("enum" = ["reinstate_or_refund", "refund"]))]
    late_payment: &'a str,
    #[schemars(extend("enum" = ["rollback", "hold"]))]
    dead_letter: &'a str,
    /// It puts itself on sale then.
    #[serde(skip_serializing_if = "Option::is_none")]
    publish_at: Option<Instant>,
}

impl<'a> AdminActivityJson<'a> {
    /// `view` as it is at `now_ms`.
    pub(super) fn at(view: &'a ActivityView, now_ms: u64) -> Self {
        Self {
            activity: ActivityJson::at(view, now_ms),
            version: view.version.into(),
            status: if view.on_sale { "on_sale" } else { "off_sale" },
            total: view.total(),
            available: view.figures.available.into(),
            locked: view.figures.locked.into(),
            sold: view.figures.sold.into(),
            paused: view.paused,
            drained: view.drained,
            payment_ttl: format_ms(view.terms.payment_ttl_ms),
            late_payment: match view.terms.late_payment {
                LatePayment::ReinstateOrRefund => "reinstate_or_refund",
                LatePayment::Refund => "refund",
            },
            dead_letter: match view.terms.dead_letter {
                DeadLetterPolicy::Rollback => "rollback",
                DeadLetterPolicy::Hold => "hold",
            },
            publish_at: view.publish_due_ms.map(Instant),
        }
    }

    /// One that has left the engine's memory.
    pub(super) fn archived(row: &'a ActivityRow) -> Self {
        Self {
            activity: ActivityJson::archived(row),
            version: row.version,
            status: if row.is_on_sale { "on_sale" } else { "off_sale" },
            total: row.total,
            available: row.available,
            locked: row.locked,
            sold: row.sold,
            paused: row.is_paused,
            drained: row.is_drained,
            payment_ttl: format_ms(row.payment_ttl_ms),
            late_payment: &row.late_payment,
            dead_letter: &row.dead_letter,
            publish_at: None,
        }
    }

    /// The activity.
    pub(super) const fn id(&self) -> u64 {
        self.activity.id
    }
}

fn state(state: DerivedState) -> &'static str {
    match state {
        DerivedState::Paused => "paused",
        DerivedState::OffSale => "off_sale",
        DerivedState::NotStarted => "not_started",
        DerivedState::Ended => "ended",
        DerivedState::SoldOut => "sold_out",
        DerivedState::InProgress => "in_progress",
    }
}

fn status(status: PublicStatus) -> &'static str {
    match status {
        PublicStatus::PendingOrder => "pending_order",
        PublicStatus::Ordered => "ordered",
        PublicStatus::RolledBack(_) => "rolled_back",
    }
}

fn reason(status: PublicStatus) -> Option<&'static str> {
    let PublicStatus::RolledBack(reason) = status else { return None };
    Some(match reason {
        RestoreReason::Cancelled => "cancelled",
        RestoreReason::Timeout => "timeout",
        RestoreReason::DeadLetter => "dead_letter",
        RestoreReason::Admin => "admin",
        RestoreReason::Api => "api",
    })
}
