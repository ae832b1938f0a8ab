//! Engine, SQL and Redis side by side, compared, and mended; and time-outs after a restore.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge::reconcile::compare::{Units, UnitsRow};
use bridge::reconcile::{Report, Scope};
use engine::core::control::keys::TIMERS_HELD;
use engine::core::event::Actor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activities::name;
use super::operator::Operator;
use crate::app::Shared;
use crate::http::input::{Admin, Json, Params};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag, nullable};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::reconcile::{run, side_by_side};

/// Activities of a page where nobody says.
const PAGE_SIZE: usize = 20;

/// The largest page.
const PAGE_SIZE_MAX: usize = 100;

/// `?page=&page_size=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "StocksQuery")]
pub(super) struct Wanted {
    /// From 1.
    #[schemars(range(min = 1))]
    page: Option<usize>,
    /// Activities of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = PAGE_SIZE_MAX))]
    page_size: Option<usize>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Stocks")]
struct StocksJson {
    total: usize,
    page: usize,
    page_size: usize,
    /// How far the log is on disk.
    engine_lsn: u64,
    /// How far SQL has come in it.
    #[schemars(schema_with = "nullable::<u64>")]
    sql_lsn: Option<u64>,
    #[schemars(schema_with = "nullable::<u64>")]
    redis_lsn: Option<u64>,
    items: Vec<StockJson>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Stock")]
struct StockJson {
    id: u64,
    engine: FiguresJson,
    #[schemars(schema_with = "nullable::<FiguresJson>")]
    sql: Option<FiguresJson>,
    #[schemars(schema_with = "nullable::<RedisJson>")]
    redis: Option<RedisJson>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Figures")]
struct FiguresJson {
    total: u64,
    available: u64,
    locked: u64,
    sold: u64,
}

/// Redis holds no more than what is free to buy.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "RedisFigures")]
struct RedisJson {
    #[schemars(schema_with = "nullable::<String>")]
    available: Option<String>,
}

impl From<[u64; 3]> for FiguresJson {
    fn from([available, locked, sold]: [u64; 3]) -> Self {
        Self {
            total: available.saturating_add(locked).saturating_add(sold),
            available,
            locked,
            sold,
        }
    }
}

/// Engine, SQL and Redis beside each other.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/api/admin/stocks",
            stocks,
            Operation::new(Tag::Operations, "compareStocks", "Engine, SQL and Redis side by side")
                .about("Figures differ where a sink is behind: its LSN says how far.")
                .answers::<StocksJson>(200, "A page of activities")
                .reads()
                .asks_sql(),
        )
        .post(
            "/api/admin/reconcile",
            reconcile,
            Operation::new(Tag::Operations, "reconcile", "Compare everything, and mend it")
                .about("Reservation by reservation and in sums, knowing what is in flight.")
                .answers::<ReportJson<'_>>(200, "What differs, and what was mended")
                .writes()
                .asks_sql(),
        )
        .post(
            "/api/admin/resume-timers",
            resume_timers,
            Operation::new(Tag::Operations, "resumeTimers", "Let time-outs run after a restore")
                .answers_nothing("They run")
                .refuses(&[Code::TooManyControls])
                .writes(),
        )
}

/// `GET /api/admin/stocks`: the figures of engine, SQL and Redis, each as it is now, with how far
/// each sink is in the log. Figures differ where a sink is behind; `sluice reconcile` knows what is
/// on its way.
pub(super) async fn stocks(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let (page, page_size) = (wanted.page.unwrap_or(1), wanted.page_size.unwrap_or(PAGE_SIZE));
    if page == 0 || !(1..=PAGE_SIZE_MAX).contains(&page_size) {
        let problem = format!("page starts at 1, page_size is 1 to {PAGE_SIZE_MAX}");
        return Err(Problem::invalid(problem));
    }
    let app = shared.app()?;
    let all = app.engine.live_activities();
    let first = (page - 1).saturating_mul(page_size);
    let ids = all.iter().skip(first).take(page_size).copied().collect();
    let found = side_by_side(app, ids).await?;
    let sql: BTreeMap<u64, UnitsRow> = found.sql.into_iter().map(|row| (row.id, row)).collect();
    let item = |units: &Units| {
        let redis = found.redis.get(&units.id);
        StockJson {
            id: units.id.get(),
            engine: UnitsRow::expected(units).units.into(),
            sql: sql.get(&units.id.get()).map(|row| row.units.into()),
            redis: redis.map(|available| RedisJson { available: available.clone() }),
        }
    };
    json(&StocksJson {
        total: all.len(),
        page,
        page_size,
        engine_lsn: app.engine.durable_lsn().0,
        sql_lsn: found.sql_lsn.map(|lsn| lsn.0),
        redis_lsn: found.redis_lsn.map(|lsn| lsn.0),
        items: found.engine.iter().map(item).collect(),
    })
    .map(IntoResponse::into_response)
}

/// `{repair?: bool}`
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "ReconcileRequest")]
pub(super) struct Asked {
    /// Mends SQL toward the log.
    #[serde(default)]
    #[schemars(schema_with = "nullable::<bool>")]
    repair: Option<bool>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ReconcileReport")]
struct ReportJson<'a> {
    activities: u64,
    reservations: u64,
    in_flight: u64,
    gone_activities: u64,
    gone_request_ids: u64,
    differences: u64,
    repaired: u64,
    mismatches: Vec<MismatchJson<'a>>,
    /// Sides that stand still, and were not compared to their end.
    uncompared: Vec<UncomparedJson<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Uncompared")]
struct UncomparedJson<'a> {
    #[schemars(extend("enum" = ["sql", "redis"]))]
    side: &'static str,
    why: &'a str,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Mismatch")]
struct MismatchJson<'a> {
    kind: &'static str,
    place: &'a str,
    found: &'a str,
    expected: &'a str,
    repaired: bool,
}

impl<'a> From<&'a Report> for ReportJson<'a> {
    fn from(report: &'a Report) -> Self {
        let mismatches = report.mismatches.iter().map(|it| MismatchJson {
            kind: it.kind.name(),
            place: &it.place,
            found: &it.found,
            expected: &it.expected,
            repaired: it.repaired,
        });
        let uncompared = report.uncompared.iter();
        let uncompared = uncompared.map(|it| UncomparedJson { side: it.side.name(), why: &it.why });
        Self {
            activities: report.activities,
            reservations: report.reservations,
            in_flight: report.in_flight,
            gone_activities: report.gone_activities,
            gone_request_ids: report.gone_request_ids,
            differences: report.differences,
            repaired: report.repaired,
            mismatches: mismatches.collect(),
            uncompared: uncompared.collect(),
        }
    }
}

/// `POST /api/admin/reconcile`: everything is compared; with `repair`, mended.
pub(super) async fn reconcile(
    State(shared): State<Arc<Shared>>,
    operator: Operator,
    Json(asked): Json<Asked>,
) -> Result<Response, Problem> {
    let repair = asked.repair.unwrap_or(false);
    tracing::info!(by = operator.name(), repair, "engine, SQL and Redis are compared");
    let app = shared.app()?;
    let report = run(app, Scope::Everything, repair).await?;
    if repair {
        let came_of_it = serde_json::json!({
            "differences": report.differences,
            "repaired": report.repaired,
        });
        let (accounts, now_ms) = (&app.orders.accounts, app.engine.now_ms());
        let told = accounts.audit(operator.by(), "reconcile_repair", came_of_it, now_ms).await;
        told.map_err(|_| Code::DatabaseUnavailable)?;
    }
    json(&ReportJson::from(&report)).map(IntoResponse::into_response)
}

/// `POST /api/admin/resume-timers`: what a restore held back runs again.
pub(super) async fn resume_timers(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
) -> Result<StatusCode, Problem> {
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    shared.gate.set(shared.app()?, actor, TIMERS_HELD, None, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}
