//! `POST /api/flashsales/{id}/purchase`: the one request that a sale is made of.
//!
//! The order of checks is the contract's: who is calling, is it a purchase at all, may this caller
//! buy, is it one we know (a replay), is everything stopped, may it be called so often, and then,
//! in one decision under the activity's lock, everything about the activity and its stock. Where
//! nothing stands between the look-up of a known request id and the decision, the two are one call.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::core::command::Refusal;
use engine::core::event::Front;
use engine::core::ids::ActivityId;
use engine::core::limits::REQUEST_ID_BYTES_MAX;
use engine::{Purchase, Refused};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;

use super::archived;
use super::input::{
    BODY_BYTES_MAX, Client, IdempotencyKey, Segment, Units, parse_object, present, read_body,
    require_json,
};
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use super::views::AcceptedJson;
use crate::app::Shared;
use crate::gate::{Buyer, Reason};
use crate::identity::Caller;
use crate::listener::turn;
use crate::metrics::PurchaseOutcome;

pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Where it is asked for.
pub(super) const ROUTE: &str = "/api/flashsales/{id}/purchase";

/// Room for the body of a 202, which has some 200 bytes.
const ACCEPTED_BYTES: usize = 256;

/// What a shopper sends. Anything else in it, client-sent times above all, is ignored.
#[derive(Default, JsonSchema, Deserialize)]
#[schemars(rename = "PurchaseRequest")]
struct PurchaseBody {
    #[serde(default, deserialize_with = "present")]
    /// The click's own id, 1 to 64 bytes: one id has one outcome, however often it is sent. The
    /// `Idempotency-Key` header serves where it is left out.
    #[schemars(length(min = 1, max = REQUEST_ID_BYTES_MAX), example = "my-first-click")]
    client_request_id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    /// One where it is left out.
    quantity: Option<Units>,
}

/// Buying.
pub(super) fn routes() -> Api {
    Api::new().post(
        ROUTE,
        purchase,
        Operation::new(Tag::Sale, "purchase", "Buy")
            .about(
                "202 once the purchase is on disk. The same `client_request_id` again is the same \
                 purchase, with its present status. After a 503 or a broken connection repeat it \
                 with the same id: `overloaded` has reserved nothing, after `log_unavailable` the \
                 outcome is unknown until the repeat tells it.",
            )
            .header(
                "X-Canary",
                false,
                |_| json_schema!({"type": "string", "examples": ["canary"]}),
                "`stable` or `canary`: the set of rules to be under, for operators and testers. \
                 From others, and any other word, it is ignored.",
            )
            .header(
                "X-Admission-Token",
                false,
                |_| json_schema!({"type": "string"}),
                "From `POST /api/flashsales/{id}/admission`, where the rules ask for it.",
            )
            .takes::<PurchaseBody>()
            .body_is_optional()
            .answers::<AcceptedJson<'_>>(202, "It is on disk, and will be an order")
            .with_header(
                "Idempotency-Replayed",
                false,
                "`true` where this id was known: this is the first answer's purchase.",
            )
            .refuses(&[
                Code::Blacklisted,
                Code::AdmissionRequired,
                Code::ActivityNotFound,
                Code::NotStarted,
                Code::Ended,
                Code::OffSale,
                Code::Paused,
                Code::SoldOut,
                Code::LimitReached,
                Code::RequestIdReused,
                Code::RateLimited,
            ])
            .writes()
            .asks_sql(),
    )
}

/// What came of a purchase that was accepted, now or before: how it is counted, and the body of a
/// 202.
type Accepted = (PurchaseOutcome, Vec<u8>);

/// What SQL says of a purchase that was made before, if it was.
type Asked<'a> = Pin<Box<dyn Future<Output = Result<Option<Accepted>, Problem>> + Send + 'a>>;

/// What came of it.
pub(super) type Bought = Result<Accepted, Problem>;

/// Reserves units for the caller. The answer is sent once the reservation is on disk.
pub(super) async fn purchase(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    client: Client,
    segment: Segment,
    key: IdempotencyKey,
    request: Request,
) -> Response {
    let wanted = read(&shared, key, request).await;
    let bought = buy(&shared, caller, &client, segment.activity().ok(), wanted).await;
    let (kind, body) = match bought {
        Ok(accepted) => accepted,
        Err(problem) => return problem.into_response(),
    };
    let mut response = (StatusCode::ACCEPTED, body).into_response();
    for (name, value) in headers(kind) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The headers of a 202.
pub(super) fn headers(kind: PurchaseOutcome) -> impl Iterator<Item = (HeaderName, &'static str)> {
    let replayed = (kind == PurchaseOutcome::Replayed).then_some((IDEMPOTENCY_REPLAYED, "true"));
    [(header::CONTENT_TYPE, "application/json")].into_iter().chain(replayed)
}

/// Buys what is `wanted`, and counts what came of it.
pub(super) async fn buy(
    shared: &Shared,
    caller: Caller,
    client: &Client,
    activity: Option<ActivityId>,
    wanted: Result<Wanted, Problem>,
) -> Bought {
    let bought = match wanted {
        Ok(wanted) => decide(shared, caller, client, activity, &wanted).await,
        Err(problem) => Err(problem),
    };
    let kind = match &bought {
        Ok((kind, _)) => *kind,
        Err(problem) => PurchaseOutcome::Refused(problem.code),
    };
    shared.metrics.purchase(kind);
    shared.gate.counts.purchase(shared.gate.arm(caller, client.arm), kind);
    bought
}

async fn decide(
    shared: &Shared,
    caller: Caller,
    client: &Client,
    activity: Option<ActivityId>,
    wanted: &Wanted,
) -> Bought {
    let (app, gate) = (shared.app()?, &shared.gate);
    // The rest of its shape: one unit costs no more than an amount may be.
    if wanted.quantity > 1
        && let Some(activity) = activity
        && app.engine.is_beyond_amounts(activity, wanted.quantity)
    {
        return Err(Problem::invalid("price times quantity must be at most 2^53"));
    }
    let now_ms = app.engine.now_ms();
    let device = client.device.as_deref();
    gate.refuse_listed(Some(caller.user), client.ip, device, now_ms)?;
    if !app.engine.is_stopped() && gate.is_open() {
        let decided = turn::engine(app).reserve(
            activity.ok_or(Code::ActivityNotFound)?,
            caller.user,
            &wanted.request_id,
            wanted.quantity,
            Front::Http,
        )?;
        let decided = turn::durable(app, decided).await?;
        if decided.as_ref().is_err_and(|refused| refused.refusal == Refusal::Ended)
            && let Some(known) = known_in_sql(shared, client, activity, caller, wanted)
            && let Some(replayed) = known.await?
        {
            return Ok(replayed);
        }
        return told(shared, client, decided);
    }
    if let Some(activity) = activity
        && let Some(known) =
            app.engine.find_request(activity, caller.user, &wanted.request_id, wanted.quantity)?
    {
        return told(shared, client, turn::durable(app, known).await?);
    }
    if let Some(known) = known_in_sql(shared, client, activity, caller, wanted)
        && let Some(replayed) = known.await?
    {
        return Ok(replayed);
    }
    if app.engine.is_stopped() {
        gate.counts.refused(Reason::Stopped, Some(caller.user), client.ip);
        return Err(Code::Paused.into());
    }
    let buyer = Buyer {
        caller,
        ip: client.ip,
        wanted_arm: client.arm,
        admission: client.admission.as_deref(),
    };
    let admitted = gate.admit(buyer, activity, now_ms)?;
    let (request_id, quantity) = (wanted.request_id.as_str(), wanted.quantity);
    let engine = turn::engine(app);
    let activity = activity.ok_or(Code::ActivityNotFound)?;
    let decided = engine.reserve(activity, caller.user, request_id, quantity, Front::Http);
    let decided = decided.inspect_err(|_| gate.not_bought(admitted))?;
    told(shared, client, turn::durable(app, decided).await?)
}

/// The purchase that the request made of an activity that has left the engine's memory, if it made
/// one; `None` at once where it has not. What was never bought is answered as of any activity: the
/// kill switch and the limits come first.
///
/// Boxed: a query is a large future, and every purchase would carry the room for one along.
fn known_in_sql<'a>(
    shared: &'a Shared,
    client: &'a Client,
    activity: Option<ActivityId>,
    caller: Caller,
    wanted: &'a Wanted,
) -> Option<Asked<'a>> {
    let app = shared.app().ok()?;
    let activity = activity?;
    app.engine.archived(activity)?;
    Some(Box::pin(async move {
        let row = archived::replay(app, activity, caller.user, &wanted.request_id).await?;
        let Some(row) = row else { return Ok(None) };
        shared.gate.repeated(&client.peer, shared.http().replays_per_connection.0)?;
        if row.quantity != u64::from(wanted.quantity) {
            return Err(Code::RequestIdReused.into());
        }
        Ok(Some((PurchaseOutcome::Replayed, accepted(&AcceptedJson::from(&row))?)))
    }))
}

fn accepted(body: &AcceptedJson<'_>) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(ACCEPTED_BYTES);
    serde_json::to_writer(&mut bytes, body).map_err(|_| Code::Internal)?;
    Ok(bytes)
}

/// The answer of a decision that is durable.
fn told(shared: &Shared, client: &Client, decided: Result<Purchase, Refused>) -> Bought {
    let reused = |refused: &Refused| refused.refusal == Refusal::RequestIdReused;
    if decided.as_ref().map_or_else(reused, |purchase| purchase.replayed) {
        shared.gate.repeated(&client.peer, shared.http().replays_per_connection.0)?;
    }
    let purchase = decided.map_err(|refused| Problem::from(refused.refusal))?;
    let kind =
        if purchase.replayed { PurchaseOutcome::Replayed } else { PurchaseOutcome::Accepted };
    Ok((kind, accepted(&AcceptedJson::from(&purchase.reservation))?))
}

/// A purchase of the right shape.
pub(super) struct Wanted {
    request_id: String,
    quantity: u32,
}

/// The shape of a purchase: its request id, from body or header, and its quantity.
async fn read(
    shared: &Shared,
    IdempotencyKey(key): IdempotencyKey,
    request: Request,
) -> Result<Wanted, Problem> {
    require_json(request.headers())?;
    let bytes = read_body(request, shared, BODY_BYTES_MAX).await?;
    Wanted::read(&bytes, key)
}

impl Wanted {
    /// What `bytes`, a whole body, ask for; `key` is the header's.
    ///
    /// # Errors
    /// `invalid_request`
    pub(super) fn read(bytes: &[u8], key: Option<String>) -> Result<Self, Problem> {
        // With the id in the header and one unit wanted there is nothing left to say in a body.
        let body: PurchaseBody =
            if bytes.is_empty() { PurchaseBody::default() } else { parse_object(bytes)? };
        let request_id = body.client_request_id.or(key).ok_or_else(|| {
            Problem::invalid("client_request_id (or the Idempotency-Key header) is required")
        })?;
        if !(1..=REQUEST_ID_BYTES_MAX).contains(&request_id.len()) {
            return Err(Problem::invalid("client_request_id must have 1 to 64 bytes"));
        }
        Ok(Self { request_id, quantity: body.quantity.map_or(1, |units| units.0) })
    }
}
