//! Server-sent events: the sale's figures, and what becomes of one purchase.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use engine::core::ids::ReservationId;
use engine::{ActivityView, PublicStatus, ReservationView};
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};
use tokio::time::Instant as Deadline;

use super::archived;
use super::input::{Params, Segment, single};
use super::json;
use super::openapi::{Api, Input, Operation, Tag};
use super::problem::{Code, Problem};
use super::purchases::{RECHECK, named, owned, settled};
use super::stream::{Gone, Pieces, answer};
use super::views::{ActivityJson, PurchaseJson};
use crate::app::{App, Shared};
use crate::events::{NoPlace, Place};
use crate::identity::{Caller, Role};
use crate::time::{Instant, wall_seconds};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Between two signs of life: proxies cut what is silent for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream ends after so long, and its client comes back: whoever may no longer come in is out.
const STREAM_MAX: Duration = Duration::from_secs(3600);

const EVENT_STREAM: &str = "text/event-stream";

/// Before a client that was cut off comes back, milliseconds.
const RETRY: &str = "retry: 2000\n\n";

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Ticket")]
struct TicketJson<'a> {
    /// What goes into `?ticket=`, within a minute.
    ticket: &'a str,
    expires_at: Instant,
}

/// What happens, as it happens.
pub(super) fn routes() -> Api {
    Api::new()
        .post(
            "/api/events/ticket",
            ticket,
            Operation::new(Tag::Events, "issueTicket", "Get a ticket for a browser's event stream")
                .answers::<TicketJson<'_>>(200, "A ticket, good for a short time"),
        )
        .get(
            "/api/flashsales/events",
            activities,
            Operation::new(Tag::Events, "watchActivities", "Figures of all activities, live")
                .about(
                    "Each activity that is listed, now and whenever it has changed, a few times a \
                     second at most. Ids are resumable: `Last-Event-ID` leaves out what was seen. \
                     A stream ends after an hour; clients come back.",
                )
                .answers_text(EVENT_STREAM, "Events `activity`, whose data is an `Activity`.")
                .refuses(&[Code::RateLimited, Code::Overloaded]),
        )
        .get(
            "/api/flashsales/purchases/{id}/events",
            purchase,
            Operation::new(Tag::Events, "watchPurchase", "What becomes of a purchase, live")
                .about("The stream ends once the purchase is an order or was given back.")
                .answers_text(EVENT_STREAM, "Events `purchase`, whose data is a `Purchase`.")
                .answers_nothing("There is no more to come: the last event was seen")
                .refuses(&[Code::PurchaseNotFound, Code::RateLimited])
                .writes()
                .asks_sql(),
        )
}

/// `POST /api/events/ticket`
pub(super) async fn ticket(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (ticket, expires) = shared.events.tickets.issue(caller.user, wall_seconds());
    let expires_at = Instant(expires.saturating_mul(1000));
    json(&TicketJson { ticket: &ticket, expires_at }).map(IntoResponse::into_response)
}

#[derive(Deserialize)]
struct TicketQuery {
    ticket: Option<String>,
}

/// Who wants events: by `?ticket=`, or by a token as everywhere, with the last event it has seen.
pub(super) struct Subscriber {
    caller: Caller,
    seen: Option<String>,
}

impl FromRequestParts<Arc<Shared>> for Subscriber {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let seen = single(&parts.headers, &LAST_EVENT_ID)?.map(str::to_owned);
        let Params(query) = Params::<TicketQuery>::from_request_parts(parts, shared).await?;
        let caller = match query.ticket {
            None => Caller::from_request_parts(parts, shared).await?,
            Some(ticket) => {
                let now = wall_seconds();
                let user = shared.events.tickets.user(&ticket, now).ok_or(Code::Unauthenticated)?;
                if shared.gate.controls.is_disabled(user, now.saturating_mul(1000)) {
                    return Err(Code::Unauthenticated.into());
                }
                Caller { user, role: Role::User }
            }
        };
        Ok(Self { caller, seen })
    }
}

impl Input for Subscriber {
    fn describe(operation: &mut Operation) {
        operation.takes_ticket();
        let about = "The id of the last event that was seen.";
        operation.takes_header("Last-Event-ID", |_| json_schema!({"type": "string"}), about);
    }
}

fn place(shared: &Shared, caller: Caller) -> Result<Place, Problem> {
    shared.events.places.take(caller.user).map_err(|full| match full {
        NoPlace::Full => Code::Overloaded.into(),
        NoPlace::TooManyOfOne => Problem::with(Code::RateLimited, "too many streams of one user"),
    })
}

/// What is shown of an activity.
pub(crate) fn render(view: &ActivityView, now_ms: u64) -> String {
    serde_json::to_string(&ActivityJson::at(view, now_ms)).unwrap_or_default()
}

/// `GET /api/flashsales/events`: each activity that is listed, now and whenever it has changed, a
/// few times a second at most.
pub(super) async fn activities(
    State(shared): State<Arc<Shared>>,
    subscriber: Subscriber,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let place = place(&shared, subscriber.caller)?;
    let mut board = shared.events.subscribe(&app.engine, render);
    let (pieces, response) = answer(EVENT_STREAM);
    let stop = shared.stop.clone();
    tokio::spawn(async move {
        let _place = place;
        let show = async {
            pieces.send(RETRY).await?;
            let seen = subscriber.seen.as_deref().unwrap_or_default();
            let mut number = board.borrow().number_of(seen);
            loop {
                let now = Arc::clone(&board.borrow_and_update());
                let mut text = String::new();
                for shown in now.since(number) {
                    let data = String::from_utf8_lossy(&shown.data);
                    text.push_str(&event(&now.id(shown.number), "activity", &data));
                }
                number = now.number();
                if !text.is_empty() {
                    pieces.send(text).await?;
                }
                match tokio::time::timeout(KEEP_ALIVE, board.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Ok(()),
                    Err(_) => pieces.send(":\n\n").await?,
                }
            }
        };
        until(show, &pieces, stop.cancelled()).await;
    });
    Ok(response)
}

/// `GET /api/flashsales/purchases/{id}/events`: the purchase, now and whenever its status has
/// changed; over once it is ordered or rolled back.
pub(super) async fn purchase(
    State(shared): State<Arc<Shared>>,
    segment: Segment,
    subscriber: Subscriber,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let caller = subscriber.caller;
    let id = match named(app, &segment, caller).await {
        Ok(view) => view.reservation.id,
        Err(_) => segment.reservation()?,
    };
    let status = status_of(app, id, caller).await?;
    if status.is_final && subscriber.seen.as_deref() == Some(&status.id) {
        // Tells a browser that there is no more to come back for.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let place = place(&shared, caller)?;
    let (pieces, response) = answer(EVENT_STREAM);
    let mut ordered = shared.ordered.subscribe();
    tokio::spawn(async move {
        let _place = place;
        let show = async {
            pieces.send(RETRY).await?;
            let (mut seen, mut status) = (subscriber.seen.unwrap_or_default(), status);
            let mut alive = Deadline::now() + KEEP_ALIVE;
            loop {
                if status.id != seen {
                    pieces.send(event(&status.id, "purchase", &status.data)).await?;
                    seen.clone_from(&status.id);
                    alive = Deadline::now() + KEEP_ALIVE;
                }
                if status.is_final {
                    return Ok(());
                }
                if Deadline::now() >= alive {
                    pieces.send(":\n\n").await?;
                    alive = Deadline::now() + KEEP_ALIVE;
                }
                let _ = tokio::time::timeout(RECHECK, ordered.changed()).await;
                // Whatever keeps us from looking ends the stream: its client comes back and is
                // told why.
                let Ok(app) = shared.app() else { return Err(Gone) };
                status = status_of(app, id, caller).await.map_err(|_| Gone)?;
            }
        };
        until(show, &pieces, shared.stop.cancelled()).await;
    });
    Ok(response)
}

/// A purchase as it is shown.
struct Status {
    /// Of the event that shows it.
    id: String,
    data: String,
    is_final: bool,
}

/// The caller's purchase, from the engine or, where its activity is archived, from SQL.
async fn status_of(app: &App, id: ReservationId, caller: Caller) -> Result<Status, Problem> {
    let text = |body: &PurchaseJson<'_>| serde_json::to_string(body).map_err(|_| Code::Internal);
    match owned(app, id, caller).await {
        Ok(view) => Ok(Status {
            id: event_id(&view),
            data: text(&PurchaseJson::from(&view))?,
            is_final: settled(&view),
        }),
        Err(problem) if problem.code == Code::PurchaseNotFound => {
            let row = archived::purchase(app, id, caller).await?;
            let (id, data) = (format!("archived-{}", row.updated_ms), PurchaseJson::from(&row));
            Ok(Status { id, data: text(&data)?, is_final: true })
        }
        Err(problem) => Err(problem),
    }
}

fn event_id(view: &ReservationView) -> String {
    let status = match view.status {
        PublicStatus::PendingOrder => "pending_order",
        PublicStatus::Ordered => "ordered",
        PublicStatus::RolledBack(_) => "rolled_back",
    };
    format!("{status}-{}", view.reservation.updated_ms)
}

/// One event; JSON has no line breaks of its own.
fn event(id: &str, name: &str, data: &str) -> String {
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

/// Runs `show` until it ends, its client is gone, the server stops, or its time is up.
async fn until(
    show: impl Future<Output = Result<(), Gone>>,
    pieces: &Pieces,
    stopped: impl Future<Output = ()>,
) {
    tokio::select! {
        _ = show => {}
        () = pieces.gone() => {}
        () = stopped => {}
        () = tokio::time::sleep(STREAM_MAX) => {}
    }
}
