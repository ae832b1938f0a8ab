//! Activities that have left the engine's memory: SQL answers for them, and without it nobody does.

use axum::response::{IntoResponse, Response};
use bridge::sql::archived::{ActivityRow, PaymentFacts, ReservationRow};
use bridge::sql::store::StoreError;
use engine::Callback;
use engine::core::command::{Refusal, RequestRefund};
use engine::core::event::RefundScope;
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::request::RequestHasher;
use engine::core::side::{Refund, RefundStatus};

use super::json;
use super::payments::PaymentJson;
use super::problem::{Code, Problem};
use crate::app::App;
use crate::breaker::Failed;
use crate::identity::Caller;
use crate::time::Instant;

/// What SQL answers, or that there is nobody to ask.
async fn asked<T>(
    app: &App,
    query: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Problem> {
    app.orders.breaker.call(query).await.map_err(|_: Failed| Code::DatabaseUnavailable.into())
}

/// The activity `id`, where it is archived.
pub(super) async fn activity(app: &App, id: ActivityId) -> Result<ActivityRow, Problem> {
    app.engine.archived(id).ok_or(Code::ActivityNotFound)?;
    let row = asked(app, app.orders.queries.activity(id)).await?;
    row.ok_or(Code::ActivityNotFound.into())
}

/// Those of `ids`, which are archived, that SQL has, by id. `None` where it does not answer: a list
/// is worth having without them.
pub(super) async fn activities(app: &App, ids: &[ActivityId]) -> Option<Vec<ActivityRow>> {
    if ids.is_empty() {
        return Some(Vec::new());
    }
    asked(app, app.orders.queries.activities(ids)).await.ok()
}

/// What `user` has bought of an archived activity and not given back.
pub(super) async fn held(app: &App, id: ActivityId, user: UserId) -> Result<u64, Problem> {
    asked(app, app.orders.queries.held(id, user)).await
}

/// The purchase `id`, where its activity is archived. One that was taken over from elsewhere is
/// forgotten with its activity: whose it is, its row says.
pub(super) async fn reservation(app: &App, id: ReservationId) -> Result<ReservationRow, Problem> {
    let may_be_archived = match app.engine.activity_of(id) {
        Some(activity) => app.engine.archived(activity).is_some(),
        None => app.engine.has_archived(),
    };
    let missing = || Problem::from(Code::PurchaseNotFound);
    if !may_be_archived {
        return Err(missing());
    }
    let row = asked(app, app.orders.queries.reservation(id)).await?;
    row.filter(|row| is_archived(app, row)).ok_or_else(missing)
}

/// The caller's purchase `id`, where its activity is archived.
pub(super) async fn purchase(
    app: &App,
    id: ReservationId,
    caller: Caller,
) -> Result<ReservationRow, Problem> {
    let row = reservation(app, id).await?;
    Some(row).filter(|row| is_of(row, caller)).ok_or(Code::PurchaseNotFound.into())
}

/// The purchase behind an order number, where its activity is archived.
pub(super) async fn purchase_of_order(
    app: &App,
    order_no: &str,
) -> Result<Option<ReservationRow>, Problem> {
    let known = app.engine.reservation_of_order(order_no).and_then(|id| app.engine.activity_of(id));
    let may_be_archived = match known {
        Some(activity) => app.engine.archived(activity).is_some(),
        None => app.engine.has_archived(),
    };
    if !may_be_archived {
        return Ok(None);
    }
    let row = asked(app, app.orders.queries.reservation_of_order(order_no)).await?;
    Ok(row.filter(|row| is_archived(app, row)))
}

/// The purchase behind a payment's number, where its activity is archived.
pub(super) async fn purchase_of_payment(
    app: &App,
    payment_no: &str,
) -> Result<Option<ReservationRow>, Problem> {
    purchase_of_order(app, order_of(payment_no)).await
}

/// The order that a payment's number names: all but its last two digits.
fn order_of(payment_no: &str) -> &str {
    payment_no.get(..payment_no.len().saturating_sub(2)).unwrap_or_default()
}

fn is_archived(app: &App, row: &ReservationRow) -> bool {
    ActivityId::new(row.activity_id).is_some_and(|id| app.engine.archived(id).is_some())
}

fn is_of(row: &ReservationRow, caller: Caller) -> bool {
    row.user_id == caller.user.get()
}

/// The purchase that a request made of an activity that is archived, if there was one.
pub(super) async fn replay(
    app: &App,
    activity: ActivityId,
    user: UserId,
    request_id: &str,
) -> Result<Option<ReservationRow>, Problem> {
    let hash = RequestHasher::new(&app.engine.request_hash_key()).hash(request_id);
    let queries = &app.orders.queries;
    asked(app, queries.reservation_of_request(activity, user, request_id, hash)).await
}

/// Why the caller's order, whose purchase is `row` and whose activity is archived, can't be paid or
/// cancelled: nothing unpaid is archived.
pub(super) fn order_over(caller: Caller, row: &ReservationRow) -> Problem {
    match row.status.as_str() {
        _ if !is_of(row, caller) => Code::OrderNotFound.into(),
        "rolled_back" => Code::AlreadyRolledBack.into(),
        _ => Code::AlreadyPaid.into(),
    }
}

/// What a callback rests on where only SQL knows its payment: the engine has nothing of it in
/// memory. `None` where SQL knows nothing either.
pub(super) async fn payment_facts(
    app: &App,
    callback: &Callback<'_>,
) -> Result<Option<PaymentFacts>, Problem> {
    let &Callback { payment_no, transaction, .. } = callback;
    let Some(row) = purchase_of_payment(app, payment_no).await? else { return Ok(None) };
    asked(app, app.orders.queries.payment_facts(&row, payment_no, transaction)).await.map(Some)
}

/// The payment of an archived activity's reservation.
pub(super) async fn show_payment(
    app: &App,
    payment_no: &str,
    may_see: impl Fn(u64) -> bool,
) -> Result<Response, Problem> {
    let row = asked(app, app.orders.queries.payment(payment_no)).await?;
    let row = row.filter(|row| may_see(row.user_id)).ok_or(Code::PaymentNotFound)?;
    let refunds = asked(app, app.orders.queries.refunds_of(&row.order_no)).await?;
    let of_order = refunds.iter().rfind(|refund| refund.scope == "order");
    let refund = of_order.filter(|_| row.status == "paid").map(|it| status_of(&it.status));
    json(&PaymentJson {
        payment_no: &row.payment_no,
        order_no: &row.order_no,
        amount: row.amount,
        channel: &row.channel,
        status: &row.status,
        refund: refund.map(super::payments::refund_status),
        expires_at: Instant(row.expires_ms),
    })
    .map(IntoResponse::into_response)
}

/// Asks for the refund of an archived activity's order, whose purchase is `row` and which
/// `payment_no` paid.
pub(super) async fn refund(
    app: &App,
    row: &ReservationRow,
    payment_no: &str,
    wanted: &RequestRefund<'_>,
) -> Result<Result<Refund, Refusal>, Problem> {
    let refunds = asked(app, app.orders.queries.refunds_of(&row.order_no)).await?;
    let settled = refunds.iter().find(|it| it.scope == "order" && it.status == "SETTLED");
    if let Some(settled) = settled {
        let same = settled.refund_no == wanted.refund_no;
        let (restock, free_limit) = (settled.restock, settled.free_limit);
        let (scope, status) = (RefundScope::Order, RefundStatus::Settled);
        return Ok(match same {
            true => Ok(Refund { scope, restock, free_limit, status }),
            false => Err(Refusal::AlreadyRefunded),
        });
    }
    let facts = asked(app, app.orders.queries.order_facts(row, payment_no)).await?;
    let facts = facts.ok_or(Code::NotPaid)?;
    let request = RequestRefund { archived: Some(facts.as_command()), ..*wanted };
    Ok(app.engine.refund_request(&request)?.durable().await?)
}

fn status_of(name: &str) -> RefundStatus {
    match name {
        "SETTLED" => RefundStatus::Settled,
        "FAILED" => RefundStatus::Failed,
        _ => RefundStatus::Requested,
    }
}
