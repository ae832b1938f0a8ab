//! `GET /api/flashsales/purchases/{id}`, with `?wait=`: what became of a purchase.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use engine::core::ids::ReservationId;
use engine::{PublicStatus, ReservationView};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::archived;
use super::input::{Params, Segment};
use super::json;
use super::openapi::{Api, Operation, Tag, length_schema};
use super::problem::{Code, Problem};
use super::views::PurchaseJson;
use crate::app::{App, Shared};
use crate::duration;
use crate::identity::Caller;

/// The longest `?wait=`: beyond it proxies give up on a silent connection.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How often a waiting query looks again by itself: a give-back wakes nobody.
pub(super) const RECHECK: Duration = Duration::from_millis(500);

/// `?wait=5s`
#[derive(JsonSchema, Deserialize)]
pub(super) struct Wait {
    /// Answers when the status is `ordered` or `rolled_back`, or this time is up: `5s`, 30 s at
    /// most.
    #[serde(default)]
    #[schemars(schema_with = "length_schema")]
    wait: Option<String>,
}

impl Wait {
    fn duration(&self) -> Result<Duration, Problem> {
        let Some(text) = &self.wait else { return Ok(Duration::ZERO) };
        duration::parse(text)
            .map(|wait| wait.min(WAIT_MAX))
            .ok_or_else(|| Problem::invalid("wait must be a length of time such as 5s"))
    }
}

/// What became of a purchase.
pub(super) fn routes() -> Api {
    Api::new().get(
        "/api/flashsales/purchases/{id}",
        query,
        Operation::new(Tag::Sale, "getPurchase", "What became of a purchase")
            .about("With `?wait=5s` once it is an order or was given back, or the time is up.")
            .answers::<PurchaseJson<'_>>(200, "The caller's purchase")
            .refuses(&[Code::PurchaseNotFound])
            .reads()
            .asks_sql(),
    )
}

/// The caller's purchase; with `?wait=` once it is ordered or rolled back, or the time is up.
pub(super) async fn query(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    segment: Segment,
    Params(wait): Params<Wait>,
) -> Result<Response, Problem> {
    let wait = wait.duration()?;
    let app = shared.app()?;
    let mut view = match named(app, &segment, caller).await {
        Ok(view) => view,
        Err(problem) if problem.code == Code::PurchaseNotFound => {
            let row = archived::purchase(app, segment.reservation()?, caller).await?;
            return json(&PurchaseJson::from(&row)).map(IntoResponse::into_response);
        }
        Err(problem) => return Err(problem),
    };
    if !wait.is_zero() && !settled(&view) {
        view = settle(&shared, app, caller, view, Instant::now() + wait).await?;
    }
    json(&PurchaseJson::from(&view)).map(IntoResponse::into_response)
}

/// The caller's reservation that a path names: by its id, or by the number that it had in the older
/// system, which may be one that an id here has as well.
pub(super) async fn named(
    app: &App,
    segment: &Segment,
    caller: Caller,
) -> Result<ReservationView, Problem> {
    let own = segment.reservation();
    let older = segment.number().and_then(|number| app.engine.adopted_as_number(number));
    for id in own.into_iter().chain(older) {
        match owned(app, id, caller).await {
            Err(problem) if problem.code == Code::PurchaseNotFound => {}
            told => return told,
        }
    }
    Err(Code::PurchaseNotFound.into())
}

/// The reservation `id`, where it is the caller's. Another's is as unknown as none.
pub(super) async fn owned(
    app: &App,
    id: ReservationId,
    caller: Caller,
) -> Result<ReservationView, Problem> {
    let view = app.engine.reservation(id)?.durable().await?;
    view.filter(|view| view.reservation.user == caller.user).ok_or(Code::PurchaseNotFound.into())
}

pub(super) fn settled(view: &ReservationView) -> bool {
    match view.status {
        PublicStatus::PendingOrder => false,
        PublicStatus::Ordered | PublicStatus::RolledBack(_) => true,
    }
}

/// Looks again at every mark of the order sink, and now and then, until `view` is settled.
async fn settle(
    shared: &Shared,
    app: &App,
    caller: Caller,
    mut view: ReservationView,
    deadline: Instant,
) -> Result<ReservationView, Problem> {
    // A waiter costs a task and a connection; those beyond the bound are told the present state.
    let Ok(_place) = shared.waiters.try_acquire() else { return Ok(view) };
    let mut ordered = shared.ordered.subscribe();
    while !settled(&view) && Instant::now() < deadline {
        let recheck = deadline.min(Instant::now() + RECHECK);
        tokio::select! {
            _ = ordered.changed() => {}
            () = tokio::time::sleep_until(recheck) => {}
            () = shared.stop.cancelled() => break,
        }
        view = owned(app, view.reservation.id, caller).await?;
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_length_of_time_and_is_cut_at_its_maximum() {
        let wait = |text: &str| Wait { wait: Some(text.to_owned()) }.duration().ok();
        assert_eq!(wait("5s"), Some(Duration::from_secs(5)));
        assert_eq!(wait("2h"), Some(WAIT_MAX));
        assert_eq!(wait("0s"), Some(Duration::ZERO));
        assert_eq!(wait("5"), None);
        assert_eq!(wait("-1s"), None);
        assert_eq!(Wait { wait: None }.duration().ok(), Some(Duration::ZERO));
    }
}
