//! What a path and a query name.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use engine::core::ids::{ActivityId, ReservationId, UserId};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::clipped;
use crate::http::openapi::{Input, Operation};
use crate::http::problem::{Code, Problem};

/// The one variable segment of a path.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segment = Path::<String>::from_request_parts(parts, state).await;
        segment.map(|Path(text)| Self(text)).map_err(|_| Code::NotFound.into())
    }
}

impl Segment {
    /// The activity it names. What is no id names none.
    pub(crate) fn activity(&self) -> Result<ActivityId, Problem> {
        activity_named(&self.0).ok_or(Code::ActivityNotFound.into())
    }

    /// The user it names. What is no id names none.
    pub(crate) fn user(&self) -> Result<UserId, Problem> {
        decimal(&self.0).and_then(UserId::new).ok_or(Code::NotFound.into())
    }

    /// The number it is, of whatever.
    pub(crate) fn number(&self) -> Option<u64> {
        decimal(&self.0)
    }

    /// The reservation it names. What is no id names none.
    pub(crate) fn reservation(&self) -> Result<ReservationId, Problem> {
        decimal(&self.0).and_then(ReservationId::new).ok_or(Code::PurchaseNotFound.into())
    }
}

/// Its name and its kind stand in the path.
impl Input for Segment {
    fn describe(operation: &mut Operation) {
        operation.problem(&[Code::NotFound]);
    }
}

/// The activity that `text` names, if it is an id.
pub(crate) fn activity_named(text: &str) -> Option<ActivityId> {
    decimal(text).and_then(ActivityId::new)
}

/// The number that `text` is, in digits alone.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// The query of a URL.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|rejection| {
            Problem::invalid(clipped(&format!("query: {}", rejection.body_text())))
        })
    }
}

impl<T: JsonSchema> Input for Params<T> {
    fn describe(operation: &mut Operation) {
        operation.takes_query::<T>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_segment_that_is_no_id_names_nothing() {
        for text in ["", "0", "-1", "+1", "1.0", "abc", "9007199254740992", "99999999999999999999"]
        {
            assert!(Segment(text.to_owned()).activity().is_err(), "{text}");
            assert!(Segment(text.to_owned()).reservation().is_err(), "{text}");
        }
        assert_eq!(Segment("30001".to_owned()).activity().unwrap().get(), 30001);
    }
}
