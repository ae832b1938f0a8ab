//! `/api/admin/limits`, the share of the canary, and the kill switch: what operators change while
//! a sale runs. Each is a control in the log: durable before it is answered, heeded from then on,
//! kept over restarts, and audited there.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::core::control::keys::STOP;
use engine::core::event::Actor;
use engine::core::limits::CONTROL_VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::activities::name;
use crate::app::Shared;
use crate::gate::RULES;
use crate::http::input::{Admin, Json};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::limits::{Limits, Rules, RulesError, merge};

#[derive(Serialize)]
struct RulesJson<'a> {
    #[serde(flatten)]
    limits: &'a Limits,
    canary: CanaryJson<'a>,
    /// What operators set; the rest is the file's.
    overrides: Value,
    stopped: bool,
    /// The speed that the machine's load allows, of the limits that span users.
    load_speed_percent: u32,
}

#[derive(Serialize)]
struct CanaryJson<'a> {
    percent: f64,
    testers: &'a [u64],
    limits: &'a Limits,
}

fn shown(shared: &Shared, rules: &Rules) -> Result<Response, Problem> {
    json(&RulesJson {
        limits: &rules.stable,
        canary: CanaryJson {
            percent: rules.canary.percent(),
            testers: rules.canary.testers(),
            limits: &rules.trial,
        },
        overrides: shared.gate.controls.overrides(),
        stopped: shared.app()?.engine.is_stopped(),
        load_speed_percent: shared.gate.load_speed().thousandths() / 10,
    })
    .map(IntoResponse::into_response)
}

/// `GET /api/admin/limits`
pub(super) async fn show(State(shared): State<Arc<Shared>>, _: Admin) -> Result<Response, Problem> {
    shown(&shared, &shared.gate.rules())
}

/// `PUT /api/admin/limits`: the fields that are named win over the file; `null` takes one back.
pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Json(fields): Json<Map<String, Value>>,
) -> Result<Response, Problem> {
    set(&shared, &admin, &request_id, Value::Object(fields)).await?;
    shown(&shared, &shared.gate.rules())
}

/// `{percent}`
#[derive(Deserialize)]
pub(super) struct Share {
    percent: f64,
}

/// `POST /api/admin/canary`: who is in it; 0 ends the trial at once.
pub(super) async fn canary(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Json(share): Json<Share>,
) -> Result<Response, Problem> {
    let fields = serde_json::json!({"canary": {"percent": share.percent}});
    set(&shared, &admin, &request_id, fields).await?;
    shown(&shared, &shared.gate.rules())
}

async fn set(
    shared: &Shared,
    admin: &Admin,
    request_id: &RequestId,
    fields: Value,
) -> Result<(), Problem> {
    let app = shared.app()?;
    // One change at a time: each is laid over what the one before it left.
    let _changing = shared.changing_limits.lock().await;
    let mut overrides = shared.gate.controls.overrides();
    merge(&mut overrides, &fields);
    let fits = shared.gate.rules_with(&overrides);
    fits.map_err(|error: RulesError| Problem::invalid(error.to_string()))?;
    let value = serde_json::to_vec(&overrides).map_err(|_| Code::Internal)?;
    if value.len() > CONTROL_VALUE_BYTES_MAX {
        let most = CONTROL_VALUE_BYTES_MAX;
        let detail = format!("what is set has more than {most} bytes: put it into the file");
        return Err(Problem::invalid(detail));
    }
    let actor = Actor { name: &name(admin), request_id: request_id.as_str() };
    shared.gate.set(app, actor, RULES, Some(&value), 0).await?;
    Ok(())
}

/// `POST /api/admin/stop`: no purchase anywhere is accepted from now on.
pub(super) async fn stop(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
) -> Result<StatusCode, Problem> {
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    shared.gate.set(shared.app()?, actor, STOP, Some(b"1"), 0).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/admin/start`: lifts [`stop`].
pub(super) async fn start(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
) -> Result<StatusCode, Problem> {
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    shared.gate.set(shared.app()?, actor, STOP, None, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}
