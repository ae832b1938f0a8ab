//! Making, changing and switching activities.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::core::command::Refusal;
use engine::core::event::Actor;
use engine::core::ids::ActivityId;
use engine::{ActivityView, Busy, Engine, Pending};
use schemars::JsonSchema;
use serde::Serialize;

use super::fields::ActivityFields;
use crate::app::{App, Shared};
use crate::http::archived;
use crate::http::input::{Admin, IfMatch, Json, Segment};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::http::views::AdminActivityJson;
use crate::time::Instant;

/// What every command about an activity answers.
pub(super) type Answered = Result<Pending<Result<ActivityView, Refusal>>, Busy>;

/// The name of `admin` in the log.
pub(super) fn name(admin: &Admin) -> String {
    admin.0.user.to_string()
}

/// Waits for `answered` to be durable.
pub(super) async fn told(answered: Answered) -> Result<ActivityView, Problem> {
    Ok(answered?.durable().await??)
}

/// `view`, with its version as `ETag`: what `If-Match` wants back.
pub(super) fn shown(
    app: &App,
    status: StatusCode,
    view: &ActivityView,
) -> Result<Response, Problem> {
    let body = json(&AdminActivityJson::at(view, app.engine.now_ms()))?;
    let mut response = (status, body).into_response();
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", view.version)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

/// Activities as operators have them.
pub(super) fn routes() -> Api {
    let etag = "The version, for `If-Match`.";
    Api::new()
        .get(
            "/api/admin/flashsales",
            list,
            Operation::new(Tag::Activities, "listAllActivities", "All activities, in all states")
                .about("Those that are archived come from SQL, and are left out while it is away.")
                .answers::<ListJson<'_>>(200, "All of them by id, and their sums by SKU"),
        )
        .post(
            "/api/admin/flashsales",
            create,
            Operation::new(Tag::Activities, "createActivity", "Make an activity")
                .about(
                    "`sku_id`, `title`, `price`, `stock`, `start_at` and `end_at` are required. It \
                     is off sale until it is published, or until `publish_at`.",
                )
                .answers::<AdminActivityJson<'_>>(201, "The activity, off sale")
                .with_header("ETag", true, etag)
                .refuses(&[Code::SkuOnSale, Code::OrdinalsExhausted])
                .writes(),
        )
        .get(
            "/api/admin/flashsales/{id}",
            detail,
            Operation::new(
                Tag::Activities,
                "getActivityAsOperator",
                "An activity with its figures",
            )
            .answers::<AdminActivityJson<'_>>(200, "The activity")
            .with_header("ETag", false, etag)
            .refuses(&[Code::ActivityNotFound])
            .asks_sql(),
        )
        .put(
            "/api/admin/flashsales/{id}",
            edit,
            Operation::new(Tag::Activities, "editActivity", "Change the fields that are named")
                .about(
                    "Once it is in progress, or anything was ever reserved, only `title` and a \
                     lower `stock` may change.",
                )
                .answers::<AdminActivityJson<'_>>(200, "The activity as it is now")
                .with_header("ETag", true, etag)
                .refuses(&[
                    Code::ActivityNotFound,
                    Code::Ended,
                    Code::LockedWhileInProgress,
                    Code::StockBelowReserved,
                    Code::SkuOnSale,
                ])
                .writes(),
        )
        .merge(switches())
}

/// On and off.
fn switches() -> Api {
    let switch = |id, summary| {
        Operation::new(Tag::Activities, id, summary)
            .answers_nothing("Done, or it was so")
            .refuses(&[Code::ActivityNotFound, Code::Ended])
            .writes()
    };
    let on = switch("publishActivity", "Put on sale")
        .about("Publishing again never resets units.")
        .refuses(&[Code::SkuOnSale]);
    let off = switch("unpublishActivity", "Take off sale")
        .about("New purchases stop at once; reservations live on.");
    let paused = switch("pauseActivity", "Stop new purchases for a while");
    let resumed = switch("resumeActivity", "Lift a pause or a drain");
    let drained = switch("drainActivity", "Sell no more, let what was sold be paid")
        .about("Shows and answers `paused`; paying and cancelling go on. Lifted by resume.");
    Api::new()
        .post("/api/admin/flashsales/{id}/publish", publish, on)
        .post("/api/admin/flashsales/{id}/unpublish", unpublish, off)
        .post("/api/admin/flashsales/{id}/pause", pause, paused)
        .post("/api/admin/flashsales/{id}/resume", resume, resumed)
        .post("/api/admin/flashsales/{id}/drain", drain, drained)
}

/// `POST /api/admin/flashsales`
pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Json(fields): Json<ActivityFields>,
) -> Result<Response, Problem> {
    let wanted = fields.create()?;
    let app = shared.app()?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let view = told(app.engine.create(None, actor, wanted.total, wanted.definition())).await?;
    shown(app, StatusCode::CREATED, &view)
}

/// `PUT /api/admin/flashsales/{id}`. Without `If-Match` the version that the unnamed fields were
/// taken from has to hold still.
pub(super) async fn edit(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
    IfMatch(version): IfMatch,
    Json(fields): Json<ActivityFields>,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let id = segment.activity()?;
    let view = app.engine.activity(id).ok_or_else(|| match app.engine.archived(id) {
        Some(_) => Code::Ended,
        None => Code::ActivityNotFound,
    })?;
    let version = version.unwrap_or(view.version);
    let wanted = fields.edit(&view)?;
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    let edited = app.engine.edit(id, actor, Some(version), wanted.total, wanted.definition());
    shown(app, StatusCode::OK, &told(edited).await?)
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        pub(super) async fn $name(
            State(shared): State<Arc<Shared>>,
            admin: Admin,
            request_id: RequestId,
            segment: Segment,
        ) -> Result<StatusCode, Problem> {
            switch(&shared, &admin, &request_id, &segment, Engine::$name).await
        })*
    };
}

switches! {
    /// `POST /api/admin/flashsales/{id}/publish`
    publish;
    /// `POST /api/admin/flashsales/{id}/unpublish`
    unpublish;
    /// `POST /api/admin/flashsales/{id}/pause`
    pause;
    /// `POST /api/admin/flashsales/{id}/resume`
    resume;
    /// `POST /api/admin/flashsales/{id}/drain`
    drain;
}

async fn switch(
    shared: &Shared,
    admin: &Admin,
    request_id: &RequestId,
    segment: &Segment,
    command: fn(&Engine, ActivityId, Actor<'_>) -> Answered,
) -> Result<StatusCode, Problem> {
    let app = shared.app()?;
    let actor = Actor { name: &name(admin), request_id: request_id.as_str() };
    told(command(&app.engine, segment.activity()?, actor)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /api/admin/flashsales/{id}`
pub(super) async fn detail(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    segment: Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let id = segment.activity()?;
    let Some(view) = app.engine.activity(id) else {
        let row = archived::activity(app, id).await?;
        return json(&AdminActivityJson::archived(&row)).map(IntoResponse::into_response);
    };
    shown(app, StatusCode::OK, &view)
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ActivitiesOfOperators")]
struct ListJson<'a> {
    server_time: Instant,
    items: Vec<AdminActivityJson<'a>>,
    /// Without what is archived.
    skus: Vec<SkuJson>,
    /// Activities that are archived. Those of the highest ids are among the items, as far as SQL
    /// answers.
    archived: usize,
}

/// Archived activities of the list: they grow by the year, the others don't.
const ARCHIVED_LISTED_MAX: usize = 500;

/// The figures of all activities of one SKU.
#[derive(Default, JsonSchema, Serialize)]
#[schemars(rename = "SkuFigures")]
struct SkuJson {
    sku_id: u64,
    activities: u32,
    total: u64,
    available: u64,
    locked: u64,
    sold: u64,
}

/// `GET /api/admin/flashsales`: all of them, by id, and their sums by SKU.
pub(super) async fn list(State(shared): State<Arc<Shared>>, _: Admin) -> Result<Response, Problem> {
    let app = shared.app()?;
    let now_ms = app.engine.now_ms();
    let views = app.engine.activities();
    let gone = app.engine.archived_activities();
    let newest = gone.get(gone.len().saturating_sub(ARCHIVED_LISTED_MAX)..).unwrap_or_default();
    let rows = archived::activities(app, newest).await.unwrap_or_default();
    let mut skus: BTreeMap<u64, SkuJson> = BTreeMap::new();
    for view in &views {
        let sku = skus.entry(view.terms.sku.get()).or_default();
        sku.sku_id = view.terms.sku.get();
        sku.activities += 1;
        sku.total += view.total();
        sku.available += u64::from(view.figures.available);
        sku.locked += u64::from(view.figures.locked);
        sku.sold += u64::from(view.figures.sold);
    }
    let live = views.iter().map(|view| AdminActivityJson::at(view, now_ms));
    let mut items: Vec<_> = live.chain(rows.iter().map(AdminActivityJson::archived)).collect();
    items.sort_by_key(AdminActivityJson::id);
    json(&ListJson {
        server_time: Instant(now_ms),
        items,
        skus: skus.into_values().collect(),
        archived: gone.len(),
    })
    .map(IntoResponse::into_response)
}
