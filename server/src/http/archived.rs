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

/// What `user` has bought of an archived activity and not given back.
pub(super) async fn held(app: &App, id: ActivityId, user: UserId) -> Result<u64, Problem> {
    asked(app, app.orders.queries.held(id, user)).await
}

/// The caller's purchase `id`, where its activity is archived.
pub(super) async fn purchase(
    app: &App,
    id: ReservationId,
    caller: Caller,
) -> Result<ReservationRow, Problem> {
    if app.engine.archived_with(id).is_none() {
        return Err(Code::PurchaseNotFound.into());
    }
    let row = asked(app, app.orders.queries.reservation(id)).await?;
    row.filter(|row| row.user_id == caller.user.get()).ok_or(Code::PurchaseNotFound.into())
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

/// Why an order of an archived activity can't be paid or cancelled: `Ok` is that reason.
pub(super) async fn order_over(
    app: &App,
    caller: Caller,
    order_no: &str,
) -> Result<Problem, Problem> {
    let order = asked(app, app.orders.queries.order(caller.user, order_no)).await?;
    Ok(match order {
        None => Code::OrderNotFound.into(),
        Some(order) if order.paid_ms.is_some() => Code::AlreadyPaid.into(),
        Some(_) => Code::AlreadyRolledBack.into(),
    })
}

/// What a callback about an archived activity's payment rests on.
pub(super) async fn payment_facts(
    app: &App,
    callback: &Callback<'_>,
) -> Result<PaymentFacts, Problem> {
    let &Callback { payment_no, transaction, .. } = callback;
    let end = payment_no.len().saturating_sub(2);
    let order_no = payment_no.get(..end).unwrap_or_default();
    // Without a row the projection has lost what the log had: that is for a person to see.
    let missing = || Problem::from(Code::DatabaseUnavailable);
    let id = app.engine.reservation_of_order(order_no).ok_or_else(missing)?;
    let facts = asked(app, app.orders.queries.payment_facts(id, payment_no, transaction)).await?;
    facts.ok_or_else(missing)
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

/// Asks for the refund of an archived activity's order, which `payment_no` paid.
pub(super) async fn refund(
    app: &App,
    payment_no: &str,
    wanted: &RequestRefund<'_>,
) -> Result<Result<Refund, Refusal>, Problem> {
    let row = asked(app, app.orders.queries.payment(payment_no)).await?;
    let row = row.ok_or(Code::PaymentNotFound)?;
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
    let facts = asked(app, app.orders.queries.order_facts(payment_no)).await?;
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
