//! Who is calling, out of the `Authorization` header.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;

use super::headers::single;
use crate::app::Shared;
use crate::http::openapi::{Input, Operation};
use crate::http::problem::{Code, Problem};
use crate::identity::{Caller, Role, Verified, bearer};

impl FromRequestParts<Arc<Shared>> for Verified {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let header = single(&parts.headers, &header::AUTHORIZATION)
            .map_err(|_| Code::Unauthenticated)?
            .ok_or(Code::Unauthenticated)?;
        Ok(shared.verify(bearer(header).ok_or(Code::Unauthenticated)?)?)
    }
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        Ok(Verified::from_request_parts(parts, shared).await?.caller)
    }
}

impl Input for Verified {
    fn describe(operation: &mut Operation) {
        operation.needs_token();
    }
}

impl Input for Caller {
    fn describe(operation: &mut Operation) {
        operation.needs_token();
    }
}

/// A caller whose role is `admin`.
pub(crate) struct Admin(pub(crate) Caller);

impl FromRequestParts<Arc<Shared>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, shared).await?;
        match caller.role {
            Role::Admin => Ok(Self(caller)),
            Role::User => Err(Code::Forbidden.into()),
        }
    }
}

impl Input for Admin {
    fn describe(operation: &mut Operation) {
        operation.needs_admin();
    }
}
