//! Headers that carry meaning: each at most once, since which one of two a proxy has read is
//! unknowable.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use engine::core::limits::REQUEST_ID_BYTES_MAX;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::url::decimal;
use crate::http::openapi::{Input, Operation, text_schema};
use crate::http::problem::{Code, Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The `Idempotency-Key` header, where there is one: a structured-field string, or the bare key.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = single(&parts.headers, &IDEMPOTENCY_KEY)? else { return Ok(Self(None)) };
        Self::read(value)
    }
}

impl IdempotencyKey {
    /// The key that the header's value holds.
    pub(crate) fn read(value: &str) -> Result<Self, Problem> {
        let key = unquoted(value)
            .filter(|key| (1..=REQUEST_ID_BYTES_MAX).contains(&key.len()))
            .ok_or_else(|| Problem::invalid("Idempotency-Key must be a key of 1 to 64 bytes"))?;
        Ok(Self(Some(key)))
    }

    /// The key, where the endpoint can't do without.
    pub(crate) fn required(self) -> Result<String, Problem> {
        self.0.ok_or_else(|| Problem::invalid("the Idempotency-Key header is required"))
    }
}

impl Input for IdempotencyKey {
    fn describe(operation: &mut Operation) {
        let about = "Once per key, however often it is sent: bare or in double quotes, 64 bytes.";
        operation.takes_header("Idempotency-Key", text_schema::<REQUEST_ID_BYTES_MAX>, about);
    }
}

/// The value of `name`.
pub(crate) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Problem> {
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

impl Input for IfMatch {
    fn describe(operation: &mut Operation) {
        let about = "The `ETag` of the version that is to be changed, such as `\"3\"`; `*` is any.";
        operation.takes_header("If-Match", version_schema, about);
        operation.problem(&[Code::VersionMismatch]);
    }
}

fn version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": r#"^([0-9]{1,9}|"[0-9]{1,9}"|\*)$"#})
}

/// Refuses a body that says that it is something other than JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    match single(headers, &header::CONTENT_TYPE)? {
        Some(value) if !is_json(value) => Err(Code::UnsupportedMediaType.into()),
        _ => Ok(()),
    }
}

/// Whether the value of a `Content-Type` header names JSON, or something that is JSON.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media = media(content_type).as_bytes();
    media.eq_ignore_ascii_case(b"application/json")
        || media.last_chunk().is_some_and(|end: &[u8; 5]| end.eq_ignore_ascii_case(b"+json"))
}

/// The media type in small letters, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let value = single(headers, &header::CONTENT_TYPE)?;
    Ok(value.map(|value| media(value).to_ascii_lowercase()))
}

/// A `Content-Type` without its parameters.
fn media(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
