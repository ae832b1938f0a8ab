//! `GET /api/admin/audit`: who did what, as the log has it and SQL lists it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::audit::list::{AuditFilter, AuditRow};
use engine::core::ids::ActivityId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::page::Page;
use crate::app::Shared;
use crate::http::input::{Admin, Params};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag, id_schema, nullable};
use crate::http::problem::{Code, Problem};
use crate::time::Instant;

/// `?actor=&action=&activity_id=&subject=&request_id=&from=&to=&page=&page_size=`; pages from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "AuditQuery")]
pub(super) struct Wanted {
    actor: Option<String>,
    action: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "id_schema")]
    activity_id: Option<u64>,
    /// An operation's key, a refund's number, a control, a reservation, an account, a SKU.
    subject: Option<String>,
    request_id: Option<String>,
    /// Not before this instant.
    from: Option<Instant>,
    /// Before this instant.
    to: Option<Instant>,
    /// From 1.
    #[schemars(range(min = 1, max = u32::MAX))]
    page: Option<u32>,
    /// Rows of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = 100))]
    page_size: Option<u32>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Audit")]
struct ListJson<'a> {
    total: u64,
    page: u32,
    page_size: u32,
    items: Vec<ActionJson<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Action")]
struct ActionJson<'a> {
    audit_no: &'a str,
    actor: &'a str,
    request_id: &'a str,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantity: Option<u64>,
    /// The fields that changed, as they were; `null` where there was nothing.
    #[schemars(schema_with = "nullable::<Map<String, Value>>")]
    before: Option<Map<String, Value>>,
    /// The fields that changed, as they are since; `null` where nothing is left.
    #[schemars(schema_with = "nullable::<Map<String, Value>>")]
    after: Option<Map<String, Value>>,
    created_at: Instant,
}

/// The fields of an action, instants as the API writes them.
fn fields(text: Option<&str>) -> Option<Map<String, Value>> {
    let mut fields: Map<String, Value> = serde_json::from_str(text?).ok()?;
    for (name, value) in &mut fields {
        if let (true, Some(ms)) = (name.ends_with("_at"), value.as_u64()) {
            *value = serde_json::to_value(Instant(ms)).unwrap_or_default();
        }
    }
    Some(fields)
}

impl<'a> From<&'a AuditRow> for ActionJson<'a> {
    fn from(row: &'a AuditRow) -> Self {
        Self {
            audit_no: &row.audit_no,
            actor: &row.actor,
            request_id: &row.request_id,
            action: &row.action,
            activity_id: row.activity_id,
            subject: row.subject.as_deref(),
            quantity: row.quantity,
            before: fields(row.before.as_deref()),
            after: fields(row.after.as_deref()),
            created_at: Instant(row.created_ms),
        }
    }
}

/// Who did what.
pub(super) fn routes() -> Api {
    Api::new().get(
        "/api/admin/audit",
        list,
        Operation::new(Tag::Operations, "listAudit", "Who did what, the newest first")
            .answers::<ListJson<'_>>(200, "A page of it")
            .asks_sql(),
    )
}

/// The newest first.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let page = Page::of(wanted.page, wanted.page_size)?;
    let activity = match wanted.activity_id {
        None => None,
        Some(id) => {
            Some(ActivityId::new(id).ok_or_else(|| Problem::invalid("activity_id is no id"))?)
        }
    };
    let filter = AuditFilter {
        actor: wanted.actor,
        action: wanted.action,
        activity,
        subject: wanted.subject,
        request_id: wanted.request_id,
        from_ms: wanted.from.map(|at| at.0),
        to_ms: wanted.to.map(|at| at.0),
    };
    let orders = &shared.app()?.orders;
    let found = orders.breaker.call(orders.queries.audit(&filter, page.window())).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items = found.rows.iter().map(ActionJson::from).collect();
    json(&ListJson { total: found.total, page: page.number, page_size: page.size, items })
        .map(IntoResponse::into_response)
}
