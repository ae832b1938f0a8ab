//! `GET /api/admin/audit`: who did what, as the log has it and SQL lists it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::audit_list::{AuditFilter, AuditRow};
use bridge::sql::queries::Window;
use engine::core::ids::ActivityId;
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::http::input::{Admin, Params};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::time::Instant;

/// Rows of a page where nobody says.
const PAGE_SIZE: u32 = 20;

/// The largest page.
const PAGE_SIZE_MAX: u32 = 100;

/// `?actor=&action=&activity_id=&page=&page_size=`, from 1.
#[derive(Deserialize)]
pub(super) struct Wanted {
    actor: Option<String>,
    action: Option<String>,
    activity_id: Option<u64>,
    page: Option<u32>,
    page_size: Option<u32>,
}

#[derive(Serialize)]
struct ListJson<'a> {
    total: u64,
    page: u32,
    page_size: u32,
    items: Vec<ActionJson<'a>>,
}

#[derive(Serialize)]
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
    created_at: Instant,
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
            created_at: Instant(row.created_ms),
        }
    }
}

/// The newest first.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let (page, page_size) = (wanted.page.unwrap_or(1), wanted.page_size.unwrap_or(PAGE_SIZE));
    if page == 0 || !(1..=PAGE_SIZE_MAX).contains(&page_size) {
        let problem = format!("page starts at 1, page_size is 1 to {PAGE_SIZE_MAX}");
        return Err(Problem::invalid(problem));
    }
    let activity = match wanted.activity_id {
        None => None,
        Some(id) => {
            Some(ActivityId::new(id).ok_or_else(|| Problem::invalid("activity_id is no id"))?)
        }
    };
    let filter = AuditFilter { actor: wanted.actor, action: wanted.action, activity };
    let window = Window { offset: u64::from(page - 1) * u64::from(page_size), count: page_size };
    let orders = &shared.app()?.orders;
    let found = orders.breaker.call(orders.queries.audit(&filter, window)).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items = found.rows.iter().map(ActionJson::from).collect();
    json(&ListJson { total: found.total, page, page_size, items }).map(IntoResponse::into_response)
}
