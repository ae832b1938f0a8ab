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
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::activities::name;
use crate::app::Shared;
use crate::gate::RULES;
use crate::http::input::{Admin, Json};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::limits::{Limits, Rules, RulesError, merge};

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Rules")]
struct RulesJson<'a> {
    #[serde(flatten)]
    limits: &'a Limits,
    canary: CanaryJson<'a>,
    /// What operators set; the rest is the file's.
    overrides: Value,
    /// The kill switch: no purchase anywhere.
    stopped: bool,
    /// The speed that the machine's load allows, of the limits that span users.
    load_speed_percent: u32,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Canary")]
struct CanaryJson<'a> {
    /// Users under the second set of rules.
    #[schemars(range(min = 0.0, max = 100.0))]
    percent: f64,
    /// Users who may ask for an arm by `X-Canary`.
    testers: &'a [u64],
    limits: &'a Limits,
}

/// What an operator may set: any of the fields; `null` takes one back to what the file says.
#[derive(JsonSchema)]
#[schemars(transform = takes_null)]
#[expect(dead_code, reason = "the shape of a body that is read as a patch, for the document")]
struct RulesPatch {
    #[serde(flatten)]
    limits: Limits,
    canary: Option<CanaryPatch>,
}

/// The share of the canary, and what differs for it.
#[derive(JsonSchema)]
#[schemars(transform = takes_null)]
#[expect(dead_code, reason = "the shape of a body that is read as a patch, for the document")]
struct CanaryPatch {
    #[schemars(range(min = 0.0, max = 100.0))]
    percent: Option<f64>,
    #[schemars(length(max = 1000))]
    testers: Option<Vec<u64>>,
    limits: Option<Limits>,
}

/// Every field of a patch may be `null`, however deep it lies.
fn takes_null(patch: &mut Schema) {
    if let Some(fields) = patch.as_object_mut() {
        or_null(fields);
    }
}

fn or_null(schema: &mut Map<String, Value>) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    let fields = fields.into_iter().flat_map(|fields| fields.values_mut());
    for field in fields {
        if let Value::Object(schema) = field {
            or_null(schema);
            schema.remove("default");
        }
        *field = serde_json::json!({"oneOf": [field, {"type": "null"}]});
    }
    if let Some(Value::Object(any)) = schema.get("additionalProperties") {
        let any = serde_json::json!({"oneOf": [any, {"type": "null"}]});
        schema.insert("additionalProperties".to_owned(), any);
    }
}

/// Rules and switches.
pub(super) fn routes() -> Api {
    let set = |id, summary| {
        Operation::new(Tag::Gate, id, summary).refuses(&[Code::TooManyControls]).writes()
    };
    let file_wins_back = "Fields that are named win over the file, over restarts too; `null` takes \
                          one back. Effective at once, and audited.";
    Api::new()
        .get(
            "/api/admin/limits",
            show,
            Operation::new(Tag::Gate, "getLimits", "The rules that hold")
                .answers::<RulesJson<'_>>(200, "The rules"),
        )
        .put(
            "/api/admin/limits",
            change,
            set("setLimits", "Change rules while a sale runs")
                .about(file_wins_back)
                .takes_in_particular::<RulesPatch>()
                .answers::<RulesJson<'_>>(200, "The rules that hold now"),
        )
        .post(
            "/api/admin/canary",
            canary,
            set("setCanary", "Set the share of users under the second set of rules")
                .about("0 ends the trial at once.")
                .answers::<RulesJson<'_>>(200, "The rules that hold now"),
        )
        .post(
            "/api/admin/stop",
            stop,
            set("stopPurchases", "The kill switch: no purchase anywhere")
                .answers_nothing("None is accepted from now on"),
        )
        .post(
            "/api/admin/start",
            start,
            set("startPurchases", "Lift the kill switch").answers_nothing("They are accepted"),
        )
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
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "CanaryShare")]
pub(super) struct Share {
    #[schemars(range(min = 0.0, max = 100.0))]
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
