//! `/api/admin/blacklist`, and accounts that may not act at all. Each entry is a control in the
//! log: effective on the next request, ended by itself where it has an end.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::core::event::Actor;
use engine::core::limits::NOTE_BYTES_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activities::name;
use crate::app::Shared;
use crate::gate::{Kind, Listed, Subject};
use crate::http::input::{
    Admin, BODY_BYTES_MAX, Json, Params, Segment, parse_object, present, read_body, require_json,
};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag};
use crate::http::problem::{Code, Problem};
use crate::http::request_id::RequestId;
use crate::time::Instant;

/// Entries of a page.
const PAGE_SIZE: usize = 100;

/// `{kind, value, reason?, expires_at?}`
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "BlacklistEntry")]
pub(super) struct Entry {
    kind: Kind,
    /// A user's id, an address, or a device's name.
    value: Value,
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(max = NOTE_BYTES_MAX))]
    reason: Option<String>,
    #[serde(default, deserialize_with = "present")]
    /// It ends by itself then; never where it is left out.
    expires_at: Option<Instant>,
}

/// A value as text, or a user's id as the number that it is.
#[derive(JsonSchema, Deserialize)]
#[serde(untagged)]
#[schemars(rename = "BlacklistValue", inline)]
enum Value {
    Text(String),
    Number(u64),
}

/// `?kind=&page=`, and `?kind=&value=` of a delete.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "BlacklistQuery")]
pub(super) struct Wanted {
    kind: Option<Kind>,
    /// Of a delete.
    value: Option<String>,
    /// From 1.
    #[schemars(range(min = 1))]
    page: Option<usize>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "BlacklistedEntry")]
struct EntryJson {
    kind: Kind,
    value: String,
    reason: String,
    created_by: String,
    created_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Instant>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Blacklist")]
struct ListJson {
    total: usize,
    page: usize,
    page_size: usize,
    items: Vec<EntryJson>,
}

/// Who may not come in.
pub(super) fn routes() -> Api {
    let account = |id, summary| {
        Operation::new(Tag::Gate, id, summary)
            .answers_nothing("So it is from the next request on")
            .refuses(&[Code::TooManyControls])
            .writes()
    };
    Api::new()
        .get(
            "/api/admin/blacklist",
            list,
            Operation::new(Tag::Gate, "listBlacklist", "Who may not buy")
                .answers::<ListJson>(200, "A page of it"),
        )
        .post(
            "/api/admin/blacklist",
            add,
            Operation::new(Tag::Gate, "addToBlacklist", "Keep a user, an address or a device out")
                .about("Effective on the next request. Listed again, an entry is replaced.")
                .answers::<EntryJson>(201, "The entry")
                .refuses(&[Code::TooManyControls])
                .writes(),
        )
        .delete(
            "/api/admin/blacklist",
            remove,
            Operation::new(Tag::Gate, "removeFromBlacklist", "Let one of them in again")
                .about("`kind` and `value` in the query, or as a body.")
                .takes::<Entry>()
                .body_is_optional()
                .answers_nothing("It is off the list")
                .refuses(&[Code::NotFound])
                .writes(),
        )
        .post(
            "/api/admin/users/{id}/disable",
            disable,
            account("disableUser", "None of a user's tokens is good, and no login"),
        )
        .post("/api/admin/users/{id}/enable", enable, account("enableUser", "Lift it"))
}

fn subject(kind: Kind, value: &str) -> Result<Subject, Problem> {
    Subject::of(kind, value).ok_or_else(|| {
        Problem::invalid(match kind {
            Kind::User => "value must be a user's id",
            Kind::Ip => "value must be an address",
            Kind::Device => "value must be 1 to 64 visible characters",
        })
    })
}

fn shown(subject: &Subject, listed: &Listed) -> Option<EntryJson> {
    let (kind, value) = match subject {
        Subject::User(id) => (Kind::User, id.to_string()),
        Subject::Ip(ip) => (Kind::Ip, ip.to_string()),
        Subject::Device(device) => (Kind::Device, device.to_string()),
        Subject::Account(_) => return None,
    };
    Some(EntryJson {
        kind,
        value,
        reason: listed.reason.clone(),
        created_by: listed.by.clone(),
        created_at: Instant(listed.created_ms),
        expires_at: (listed.expires_ms > 0).then_some(Instant(listed.expires_ms)),
    })
}

/// `GET /api/admin/blacklist`
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let page = wanted.page.unwrap_or(1);
    if page == 0 {
        return Err(Problem::invalid("page starts at 1"));
    }
    let now_ms = shared.app()?.engine.now_ms();
    let entries = shared.gate.controls.blacklist(wanted.kind, now_ms);
    let items = entries.iter().skip((page - 1).saturating_mul(PAGE_SIZE)).take(PAGE_SIZE);
    let items = items.filter_map(|(subject, listed)| shown(subject, listed)).collect();
    json(&ListJson { total: entries.len(), page, page_size: PAGE_SIZE, items })
        .map(IntoResponse::into_response)
}

/// `POST /api/admin/blacklist`: listed again, an entry is replaced.
pub(super) async fn add(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Json(entry): Json<Entry>,
) -> Result<Response, Problem> {
    let value = match entry.value {
        Value::Text(text) => text,
        Value::Number(number) => number.to_string(),
    };
    let subject = subject(entry.kind, &value)?;
    let reason = entry.reason.unwrap_or_default();
    if reason.len() > NOTE_BYTES_MAX {
        return Err(Problem::invalid(format!("reason must have at most {NOTE_BYTES_MAX} bytes")));
    }
    let app = shared.app()?;
    let created_ms = app.engine.now_ms();
    let expires_ms = entry.expires_at.map_or(0, |at| at.0);
    if entry.expires_at.is_some() && expires_ms <= created_ms {
        return Err(Problem::invalid("expires_at must lie ahead"));
    }
    let by = name(&admin);
    let listed = Listed { reason, by, created_ms, expires_ms };
    let value = serde_json::to_vec(&listed).map_err(|_| Code::Internal)?;
    let actor = Actor { name: &listed.by, request_id: request_id.as_str() };
    shared.gate.set(app, actor, &subject.key(), Some(&value), expires_ms).await?;
    let body = json(&shown(&subject, &listed).ok_or(Code::Internal)?)?;
    Ok((StatusCode::CREATED, body).into_response())
}

/// `DELETE /api/admin/blacklist`, `{kind, value}` as a body or as a query.
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    Params(wanted): Params<Wanted>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let (kind, value) = match (wanted.kind, wanted.value) {
        (Some(kind), Some(value)) => (kind, value),
        _ => {
            require_json(request.headers())?;
            let body = read_body(request, &shared, BODY_BYTES_MAX).await?;
            let entry: Entry = parse_object(&body)?;
            match entry.value {
                Value::Text(text) => (entry.kind, text),
                Value::Number(number) => (entry.kind, number.to_string()),
            }
        }
    };
    let subject = subject(kind, &value)?;
    let app = shared.app()?;
    if !shared.gate.controls.is_listed(&subject, app.engine.now_ms()) {
        return Err(Problem::with(Code::NotFound, "it is not on the blacklist"));
    }
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    shared.gate.set(app, actor, &subject.key(), None, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/admin/users/{id}/disable`: none of the user's tokens is good, and no login.
pub(super) async fn disable(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
) -> Result<StatusCode, Problem> {
    let account = segment.user()?;
    if account == admin.0.user {
        return Err(Problem::invalid("an operator can't disable their own account"));
    }
    let app = shared.app()?;
    let (by, created_ms) = (name(&admin), app.engine.now_ms());
    let listed = Listed { reason: String::new(), by, created_ms, expires_ms: 0 };
    let value = serde_json::to_vec(&listed).map_err(|_| Code::Internal)?;
    let actor = Actor { name: &listed.by, request_id: request_id.as_str() };
    let key = Subject::Account(account.get()).key();
    shared.gate.set(app, actor, &key, Some(&value), 0).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/admin/users/{id}/enable`
pub(super) async fn enable(
    State(shared): State<Arc<Shared>>,
    admin: Admin,
    request_id: RequestId,
    segment: Segment,
) -> Result<StatusCode, Problem> {
    let key = Subject::Account(segment.user()?.get()).key();
    let actor = Actor { name: &name(&admin), request_id: request_id.as_str() };
    shared.gate.set(shared.app()?, actor, &key, None, 0).await?;
    Ok(StatusCode::NO_CONTENT)
}
