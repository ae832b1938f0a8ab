//! Who acts, where what is done is no event of the log: accounts, the catalogue, repairs.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use bridge::sql::audit::direct::By;

use super::activities::name;
use crate::app::Shared;
use crate::http::input::Admin;
use crate::http::openapi::{Input, Operation};
use crate::http::problem::Problem;
use crate::http::request_id::{RequestId, unique};

/// An admin and their request, as the audit names them.
pub(super) struct Operator {
    name: String,
    request_id: RequestId,
    number: Arc<str>,
}

impl Operator {
    /// For the audit.
    pub(super) fn by(&self) -> By<'_> {
        By { actor: &self.name, request_id: self.request_id.as_str(), number: &self.number }
    }

    /// Their name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl FromRequestParts<Arc<Shared>> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let admin = Admin::from_request_parts(parts, shared).await?;
        let request_id = RequestId::from_request_parts(parts, shared).await?;
        // The request's own id is the caller's and may come again: rows need one that does not.
        Ok(Self { name: name(&admin), request_id, number: unique() })
    }
}

impl Input for Operator {
    fn describe(operation: &mut Operation) {
        Admin::describe(operation);
    }
}
