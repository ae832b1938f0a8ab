//! Logging in and out.
//!
//! A wrong name and a wrong password are the same answer after the same work. What a login takes
//! from the account's limit is given back where it was the owner's, so that only failures count.
//! Logging out is a record in the log: a token stays revoked, whatever is restarted, without SQL.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts;
use engine::core::event::Actor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{Client, Json};
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use super::request_id::RequestId;
use crate::app::Shared;
use crate::gate::{Reason, token_key};
use crate::identity::{PasswordError, Role, Verified};
use crate::time::{Instant, wall_seconds};

/// Bytes of a name or a password that are looked at: 255 characters.
const CREDENTIAL_BYTES_MAX: usize = 1020;

/// In and out.
pub(super) fn routes() -> Api {
    Api::new()
        .post(
            "/api/auth/login",
            login,
            Operation::new(Tag::Accounts, "login", "Get a token for a name and a password")
                .about(
                    "A wrong name and a wrong password are the same answer after the same work. \
                     `404 not_found` where tokens are made elsewhere.",
                )
                .answers::<TokenJson>(200, "A token")
                .refuses(&[
                    Code::Unauthenticated,
                    Code::Blacklisted,
                    Code::NotFound,
                    Code::RateLimited,
                    Code::Overloaded,
                ])
                .asks_sql(),
        )
        .post(
            "/api/auth/logout",
            logout,
            Operation::new(Tag::Accounts, "logout", "Revoke the token of this request")
                .about("It stays revoked, whatever is restarted.")
                .answers_nothing("The token is none from now on")
                .refuses(&[Code::TooManyControls])
                .writes(),
        )
}

/// A name and a password.
#[derive(JsonSchema, Deserialize)]
pub(super) struct Credentials {
    /// The account's name.
    #[schemars(length(min = 1, max = CREDENTIAL_BYTES_MAX))]
    username: String,
    #[schemars(length(min = 1, max = CREDENTIAL_BYTES_MAX))]
    password: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Token")]
struct TokenJson {
    /// What goes behind `Authorization: Bearer`.
    token: String,
    expires_at: Instant,
}

/// `POST /api/auth/login`
pub(super) async fn login(
    State(shared): State<Arc<Shared>>,
    client: Client,
    Json(Credentials { username, password }): Json<Credentials>,
) -> Result<Response, Problem> {
    for (name, text) in [("username", &username), ("password", &password)] {
        if text.is_empty() || text.len() > CREDENTIAL_BYTES_MAX {
            let detail = format!("{name} must have 1 to {CREDENTIAL_BYTES_MAX} bytes");
            return Err(Problem::invalid(detail));
        }
    }
    let (app, gate, tokens) = (shared.app()?, &shared.gate, shared.tokens()?);
    if !tokens.can_sign() {
        return Err(Problem::with(Code::NotFound, "logins are made elsewhere"));
    }
    let now_ms = app.engine.now_ms();
    gate.refuse_listed(None, client.ip, client.device.as_deref(), now_ms)?;
    gate.admit_login(&username, client.ip)?;
    let found = app.orders.breaker.call(app.orders.queries.login(&username)).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable).inspect_err(|_| {
        gate.login_succeeded(&username);
    })?;
    let hash = found.as_ref().and_then(|login| login.password_hash.clone());
    let same = shared.passwords.verify(password, hash).await.map_err(|error| {
        gate.login_succeeded(&username);
        refused(error)
    })?;
    let known = found.filter(|login| same && !gate.controls.is_disabled(login.user, now_ms));
    let Some(login) = known else {
        gate.counts.refused(Reason::BadPassword, None, client.ip);
        return Err(Problem::with(Code::Unauthenticated, "the name or the password is wrong"));
    };
    gate.login_succeeded(&username);
    let role = match login.role {
        accounts::Role::Admin => Role::Admin,
        accounts::Role::User => Role::User,
    };
    let expires = wall_seconds().saturating_add(shared.login_ttl.as_secs());
    let token = tokens.sign_until(login.user, role, expires).map_err(|_| Code::Internal)?;
    let expires_at = Instant(expires.saturating_mul(1000));
    json(&TokenJson { token, expires_at }).map(IntoResponse::into_response)
}

fn refused(error: PasswordError) -> Problem {
    match error {
        PasswordError::Busy => Code::Overloaded.into(),
        PasswordError::Failed => Code::Internal.into(),
    }
}

/// `POST /api/auth/logout`: the token of this request is none from now on.
pub(super) async fn logout(
    State(shared): State<Arc<Shared>>,
    verified: Verified,
    request_id: RequestId,
) -> Result<StatusCode, Problem> {
    let app = shared.app()?;
    let name = verified.caller.user.to_string();
    let actor = Actor { name: &name, request_id: request_id.as_str() };
    // The second after the last in which it is good: the log forgets the revocation by itself.
    let expires_ms = verified.expires.saturating_add(1).saturating_mul(1000);
    shared.gate.set(app, actor, &token_key(&verified.id), Some(b"1"), expires_ms).await?;
    Ok(StatusCode::NO_CONTENT)
}
