//! Calls about an activity that has left the engine's memory: SQL answers them, as over HTTP, and
//! without it nobody does. A back end must never take silence for a refusal: one that is told `-1`
//! for what it has bought gives money back, or sells again.
//!
//! | call | SQL has | answer |
//! |---|---|---|
//! | `sluice_reserve` | the request's reservation | as of any replay; another quantity: -6 |
//! | | nothing | -1; while the kill switch is thrown -4 |
//! | `sluice_confirm` | it, paid by that payment, or by another | 2, 3 |
//! | | it, given back, or nothing | -1, 0 |
//! | `sluice_restore` | it, given back, or paid, or nothing | 2, 3, 0 |
//! | `sluice_get`, `sluice_activity` | it | its map |
//!
//! No loop waits for SQL: a [`Question`] is kept in its connection's place among the answers, and
//! asked beside the loops ([`asked`](super::asked)).

use bridge::sql::archived::{ActivityRow, ReservationRow};
use bridge::sql::queries::Queries;
use bridge::sql::store::StoreError;
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::request::RequestHasher;

use super::functions;
use super::render;
use super::reply::Reply;
use crate::app::App;
use crate::breaker::Failed;
use crate::http::problem::Code;
use crate::metrics::PurchaseOutcome;

/// What is answered where SQL does not: the outcome of the call is what it was.
const UNAVAILABLE: &str =
    "DATABASEUNAVAILABLE the activity is over and its database does not answer; repeat the call";

/// A call about an archived activity.
#[derive(Debug)]
pub(super) enum Question {
    /// `sluice_reserve`
    Purchase { activity: ActivityId, user: UserId, request_id: String, quantity: u32 },
    /// `sluice_confirm`
    Confirm { activity: ActivityId, reservation: ReservationId, payment_no: String },
    /// `sluice_restore`
    Restore { activity: ActivityId, reservation: ReservationId },
    /// `sluice_get`
    Get { activity: ActivityId, reservation: ReservationId },
    /// `sluice_activity`
    Activity(ActivityId),
}

/// What SQL says of one.
pub(super) enum Told {
    /// The reservation that the request made, where it made one of that quantity.
    Purchase(Result<Option<ReservationRow>, Code>),
    Code(i64),
    Reservation(Option<(ReservationRow, String)>),
    Activity(Option<ActivityRow>),
    /// It does not answer.
    Nothing,
}

impl Question {
    /// Asks SQL.
    pub(super) async fn ask(self, app: &App) -> Told {
        let asked = self.query(app, &app.orders.queries);
        match app.orders.breaker.call(asked).await {
            Ok(told) => told,
            Err(Failed::Open | Failed::TimedOut | Failed::Refused) => Told::Nothing,
        }
    }

    async fn query(self, app: &App, queries: &Queries) -> Result<Told, StoreError> {
        Ok(match self {
            Self::Purchase { activity, user, request_id, quantity } => {
                let hash = RequestHasher::new(&app.engine.request_hash_key()).hash(&request_id);
                let found = queries.reservation_of_request(activity, user, &request_id, hash);
                Told::Purchase(match found.await? {
                    Some(row) if row.quantity != u64::from(quantity) => Err(Code::RequestIdReused),
                    None if app.engine.is_stopped() => Err(Code::Paused),
                    found => Ok(found),
                })
            }
            Self::Confirm { activity, reservation, payment_no } => {
                let row = of(activity, queries.reservation(reservation).await?);
                let paid = match &row {
                    Some(row) if !is_rolled_back(row) => queries.payment_of(row).await?,
                    _ => None,
                };
                match (row, paid) {
                    (None, _) => Told::Code(0),
                    (Some(row), _) if is_rolled_back(&row) => Told::Code(-1),
                    (Some(_), Some(paid)) if paid == payment_no => Told::Code(2),
                    (Some(_), Some(_)) => Told::Code(3),
                    // Nothing unpaid is archived: SQL has lost by which payment.
                    (Some(_), None) => Told::Nothing,
                }
            }
            Self::Restore { activity, reservation } => {
                let row = of(activity, queries.reservation(reservation).await?);
                Told::Code(row.map_or(0, |row| if is_rolled_back(&row) { 2 } else { 3 }))
            }
            Self::Get { activity, reservation } => {
                let Some(row) = of(activity, queries.reservation(reservation).await?) else {
                    return Ok(Told::Reservation(None));
                };
                let paid = match is_rolled_back(&row) {
                    true => None,
                    false => queries.payment_of(&row).await?,
                };
                Told::Reservation(Some((row, paid.unwrap_or_default())))
            }
            Self::Activity(activity) => Told::Activity(queries.activity(activity).await?),
        })
    }
}

/// The row, where it is the activity's that the caller names.
fn of(activity: ActivityId, row: Option<ReservationRow>) -> Option<ReservationRow> {
    row.filter(|row| row.activity_id == activity.get())
}

fn is_rolled_back(row: &ReservationRow) -> bool {
    row.status == "rolled_back"
}

impl Told {
    /// As what it counts, where a purchase was asked for.
    pub(super) const fn outcome(&self) -> Option<PurchaseOutcome> {
        match self {
            Self::Purchase(Ok(Some(_))) => Some(PurchaseOutcome::Replayed),
            Self::Purchase(Ok(None)) => Some(PurchaseOutcome::Refused(Code::Ended)),
            Self::Purchase(Err(code)) => Some(PurchaseOutcome::Refused(*code)),
            _ => None,
        }
    }

    /// Answers it.
    pub(super) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Nothing => reply.error(UNAVAILABLE),
            Self::Code(code) => reply.integer(*code),
            Self::Purchase(told) => purchase(told, reply),
            Self::Reservation(None) | Self::Activity(None) => reply.map(0),
            Self::Reservation(Some((row, payment_no))) => reservation(row, payment_no, reply),
            Self::Activity(Some(row)) => activity(row, reply),
        }
    }
}

/// `[code, reservation_id, order_no, remaining]`: nothing is on sale any more.
fn purchase(told: &Result<Option<ReservationRow>, Code>, reply: &mut Reply<'_>) {
    reply.array(4);
    let (code, id, order_no) = match told {
        Ok(Some(row)) => (functions::REPLAYED, row.id, row.order_no.as_str()),
        Ok(None) => (functions::ENDED, 0, ""),
        Err(Code::Paused) => (functions::PAUSED, 0, ""),
        Err(_) => (functions::REUSED, 0, ""),
    };
    reply.integer(code);
    reply.unsigned(id);
    reply.text(order_no);
    reply.unsigned(0);
}

fn reservation(row: &ReservationRow, payment_no: &str, reply: &mut Reply<'_>) {
    let numbers = [
        ("id", row.id),
        ("activity", row.activity_id),
        ("user", row.user_id),
        ("sku", row.sku_id),
        ("price", row.price),
        ("quantity", row.quantity),
        ("created_ms", row.created_ms),
    ];
    let status = if is_rolled_back(row) { "rolled_back" } else { "confirmed" };
    let texts =
        [("order_no", row.order_no.as_str()), ("status", status), ("payment_no", payment_no)];
    render::fields(&numbers, &texts, reply);
}

fn activity(row: &ActivityRow, reply: &mut Reply<'_>) {
    let numbers = [
        ("id", row.id),
        ("sku", row.sku_id),
        ("price", row.price),
        ("total", row.total),
        ("available", row.available),
        ("locked", row.locked),
        ("sold", row.sold),
        ("limit", row.per_user_limit),
        ("start_ms", row.start_ms),
        ("end_ms", row.end_ms),
        ("on_sale", row.is_on_sale.into()),
        ("paused", (row.is_paused || row.is_drained).into()),
    ];
    render::fields(&numbers, &[], reply);
}
