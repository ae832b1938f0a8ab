//! What callers send, strictly read: nothing reaches the engine that isn't what the contract says
//! a request is.
//!
//! JSON bodies are objects; a field that is named twice, of another type or `null` is refused, an
//! unknown one is ignored (clients and servers are upgraded at different times), and bytes behind
//! the object are refused. Depth needs no bound of its own: unknown values are skipped without
//! recursion, known ones are flat, and a body has a few KiB.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use bytes::Bytes;
use engine::core::ids::{ActivityId, ReservationId, SkuId, UserId};
use engine::core::limits::{REQUEST_ID_BYTES_MAX, UNITS_MAX};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use super::problem::{Code, Problem};
use crate::app::Shared;
use crate::identity::{Caller, Role, bearer};

/// The largest JSON body: a whole activity with its longest title, escaped, fits.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// The largest CSV body: some 50,000 users.
pub(crate) const CSV_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A field's complaint that goes back to the caller is cut here: it may quote what they sent.
const DETAIL_CHARS_MAX: usize = 200;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let header = single(&parts.headers, &header::AUTHORIZATION)
            .map_err(|_| Code::Unauthenticated)?
            .ok_or(Code::Unauthenticated)?;
        Ok(shared.tokens()?.verify(bearer(header).ok_or(Code::Unauthenticated)?)?)
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
        decimal(&self.0).and_then(ActivityId::new).ok_or(Code::ActivityNotFound.into())
    }

    /// The reservation it names. What is no id names none.
    pub(crate) fn reservation(&self) -> Result<ReservationId, Problem> {
        decimal(&self.0).and_then(ReservationId::new).ok_or(Code::PurchaseNotFound.into())
    }
}

fn decimal(text: &str) -> Option<u64> {
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

/// The `Idempotency-Key` header, where there is one: a structured-field string, or the bare key.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = single(&parts.headers, &IDEMPOTENCY_KEY)? else { return Ok(Self(None)) };
        let key = unquoted(value)
            .filter(|key| (1..=REQUEST_ID_BYTES_MAX).contains(&key.len()))
            .ok_or_else(|| Problem::invalid("Idempotency-Key must be a key of 1 to 64 bytes"))?;
        Ok(Self(Some(key)))
    }
}

impl IdempotencyKey {
    /// The key, where the endpoint can't do without.
    pub(crate) fn required(self) -> Result<String, Problem> {
        self.0.ok_or_else(|| Problem::invalid("the Idempotency-Key header is required"))
    }
}

/// The value of `name`; two of them are an error, since which one a proxy read is unknowable.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (values.next(), value.to_str()) {
        (None, Ok(text)) => Ok(Some(text)),
        _ => Err(Problem::invalid(format!("{name} must be one header of visible ASCII"))),
    }
}

/// `"key"` (RFC 8941, 3.3.3) or `key`; `None` where a quoted one is malformed.
fn unquoted(value: &str) -> Option<String> {
    let Some(rest) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let mut key = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(key),
            '\\' => match chars.next()? {
                escaped @ ('"' | '\\') => key.push(escaped),
                _ => return None,
            },
            plain => key.push(plain),
        }
    }
}

/// The version that `If-Match` names: `3`, `"3"`, or `None` for any.
pub(crate) struct IfMatch(pub(crate) Option<u32>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match single(&parts.headers, &header::IF_MATCH)? {
            None | Some("*") => Ok(Self(None)),
            Some(value) => unquoted(value)
                .and_then(|text| decimal(&text))
                .and_then(|version| u32::try_from(version).ok())
                .map(|version| Self(Some(version)))
                .ok_or_else(|| Problem::invalid("If-Match must be a version")),
        }
    }
}

/// A JSON object as a `T`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        require_json(request.headers())?;
        parse_object(&read_body(request, shared, BODY_BYTES_MAX).await?).map(Self)
    }
}

/// Refuses a body that says that it is something other than JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers)? {
        None => Ok(()),
        Some(media) if media == "application/json" || media.ends_with("+json") => Ok(()),
        Some(_) => Err(Code::UnsupportedMediaType.into()),
    }
}

/// The media type in small letters, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let value = single(headers, &header::CONTENT_TYPE)?;
    Ok(value.map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()))
}

/// The whole body, at most `bytes_max`, within the body time-out.
pub(crate) async fn read_body(
    request: Request<Body>,
    shared: &Shared,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let announced = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(Code::PayloadTooLarge.into());
    }
    let body = Limited::new(request.into_body(), bytes_max).collect();
    match tokio::time::timeout(shared.http().body_timeout, body).await {
        Err(_) => Err(Code::RequestTimeout.into()),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Code::PayloadTooLarge.into()),
        Ok(Err(_)) => Err(Problem::invalid("the body could not be read")),
    }
}

/// `bytes` as a JSON object.
pub(crate) fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde reads a struct from an array as well; the contract does not.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Problem::invalid("the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| Problem::invalid(clipped(&error.to_string())))
}

fn clipped(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}

/// A field that may be missing but not `null`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A number of units, `1..=UNITS_MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Units(pub(crate) u32);

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer)?;
        let units = u32::try_from(value).ok().filter(|units| (1..=UNITS_MAX).contains(units));
        units.map(Self).ok_or_else(|| D::Error::custom("a quantity must be 1 to 2147483647"))
    }
}

macro_rules! id_field {
    ($(#[$doc:meta])* $name:ident, $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name(pub(crate) $id);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let id = $id::new(u64::deserialize(deserializer)?);
                id.map(Self).ok_or_else(|| D::Error::custom("an id must be 1 to 2^53 - 1"))
            }
        }
    };
}

id_field!(
    /// A SKU's id in a body.
    SkuField, SkuId
);
id_field!(
    /// A user's id in a body.
    UserField, UserId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Debug, PartialEq)]
    struct Order {
        #[serde(default, deserialize_with = "present")]
        quantity: Option<Units>,
        #[serde(default, deserialize_with = "present")]
        id: Option<String>,
    }

    fn quantity(json: &str) -> Option<u32> {
        parse_object::<Order>(json.as_bytes()).ok()?.quantity.map(|units| units.0)
    }

    #[test]
    fn a_quantity_is_a_json_integer_within_bounds() {
        assert_eq!(quantity(r#"{"quantity":1}"#), Some(1));
        assert_eq!(quantity(r#"{"quantity":2147483647}"#), Some(2_147_483_647));
        for bad in [
            "0",
            "-1",
            "1.5",
            "1.0",
            "1e0",
            "\"1\"",
            "null",
            "true",
            "[1]",
            "{}",
            "2147483648",
            "18446744073709551616",
            "-0",
            "01",
            "+1",
            "NaN",
            "",
        ] {
            let json = format!("{{\"quantity\":{bad}}}");
            assert!(parse_object::<Order>(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn a_body_is_one_object_and_nothing_else() {
        for bad in [
            "",
            " ",
            "null",
            "1",
            "\"x\"",
            "[1,\"x\"]",
            "{",
            "{\"quantity\":1",
            "{} {}",
            "{}x",
            "{'quantity':1}",
            "{\"quantity\":1,}",
            "\u{feff}{}",
            "{\"quantity\":1,\"quantity\":1}",
            "{\"id\":\"\\ud800\"}",
        ] {
            assert!(parse_object::<Order>(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse_object::<Order>(b"{\"id\":\"\xff\"}").is_err());
        assert!(parse_object::<Order>(b" \r\n\t{}\n ").is_ok());
    }

    #[test]
    fn an_unknown_field_is_ignored_however_deep_it_is() {
        let deep = format!("{{\"quantity\":3,\"x\":{}{}}}", "[".repeat(8000), "]".repeat(8000));
        // Skipped or refused are both fine; a stack overflow would end the process.
        let outcome = parse_object::<Order>(deep.as_bytes());
        assert!(outcome.is_err() || outcome.is_ok_and(|order| order.quantity == Some(Units(3))));
        assert_eq!(quantity(r#"{"now":"2020-01-01T00:00:00Z","quantity":3}"#), Some(3));
    }

    #[test]
    fn a_complaint_never_grows_with_what_was_sent() {
        let json = format!("{{\"quantity\":\"{}\"}}", "x".repeat(10_000));
        let problem = parse_object::<Order>(json.as_bytes()).unwrap_err();
        assert!(problem.detail.unwrap().len() <= DETAIL_CHARS_MAX * 4);
    }

    #[test]
    fn an_idempotency_key_is_quoted_or_bare() {
        for (value, key) in [
            ("abc", Some("abc")),
            ("\"abc\"", Some("abc")),
            ("\"a\\\"b\\\\c\"", Some("a\"b\\c")),
            ("\"abc", None),
            ("\"abc\"; x=1", None),
            ("\"a\\n\"", None),
            ("\"\"", Some("")),
        ] {
            assert_eq!(unquoted(value).as_deref(), key, "{value}");
        }
    }

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
