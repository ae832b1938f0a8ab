//! What operators do: activities, their units, the catalogue, accounts, give-backs, and who may
//! come in.
//!
//! Every command carries who gave it and in which request, into the log.

mod accounts;
mod activities;
mod audit;
mod blacklist;
mod dead_letters;
mod export;
mod fields;
mod limits;
mod money;
mod operator;
mod page;
mod reconcile;
mod stock;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};

use crate::app::Shared;

/// Everything below `/api/admin`.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/admin/flashsales", get(activities::list).post(activities::create))
        .route("/api/admin/flashsales/{id}", get(activities::detail).put(activities::edit))
        .route("/api/admin/flashsales/{id}/publish", post(activities::publish))
        .route("/api/admin/flashsales/{id}/unpublish", post(activities::unpublish))
        .route("/api/admin/flashsales/{id}/pause", post(activities::pause))
        .route("/api/admin/flashsales/{id}/resume", post(activities::resume))
        .route("/api/admin/flashsales/{id}/drain", post(activities::drain))
        .route("/api/admin/flashsales/{id}/restock", post(stock::restock))
        .route("/api/admin/flashsales/{id}/decrease", post(stock::decrease))
        .route("/api/admin/reservations/{id}/release", post(stock::release))
        .route("/api/admin/dead-letters", get(dead_letters::list))
        .route("/api/admin/dead-letters/{id}/retry", post(dead_letters::retry))
        .route("/api/admin/dead-letters/{id}/rollback", post(dead_letters::rollback))
        .route("/api/admin/callbacks", get(money::callbacks))
        .route("/api/admin/refunds", get(money::refunds))
        .route("/api/admin/audit", get(audit::list))
        .route("/api/admin/orders.csv", get(export::orders))
        .route("/api/admin/skus", post(accounts::skus))
        .route("/api/admin/users", post(accounts::users))
        .route("/api/admin/users/{id}/password", put(accounts::password))
        .route("/api/admin/users/{id}/disable", post(blacklist::disable))
        .route("/api/admin/users/{id}/enable", post(blacklist::enable))
        .route("/api/admin/stocks", get(reconcile::stocks))
        .route("/api/admin/reconcile", post(reconcile::reconcile))
        .route("/api/admin/resume-timers", post(reconcile::resume_timers))
        .merge(gate_routes())
}

/// Who may come in, and how often.
fn gate_routes() -> Router<Arc<Shared>> {
    let listed = get(blacklist::list).post(blacklist::add).delete(blacklist::remove);
    Router::new()
        .route("/api/admin/blacklist", listed)
        .route("/api/admin/limits", get(limits::show).put(limits::change))
        .route("/api/admin/canary", post(limits::canary))
        .route("/api/admin/stop", post(limits::stop))
        .route("/api/admin/start", post(limits::start))
}
