//! What ties a request to the logs of whoever is around us: `X-Request-Id` and `traceparent`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{Code, Problem};

/// `X-Request-Id`
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// W3C trace context.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An inbound id longer than this is replaced: admin events carry it in the log.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// The id of one request: the caller's own where it is sane, else one of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// The id of the request with `headers`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let inbound = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
        Self(inbound.filter(|id| sane(id)).map_or_else(unique, Arc::from))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as a header's value.
    pub(crate) fn header(&self) -> HeaderValue {
        // Both kinds are visible ASCII; the fallback is there so that no input could panic here.
        HeaderValue::from_str(&self.0).unwrap_or(HeaderValue::from_static("invalid"))
    }
}

/// Letters, digits and a little punctuation: nothing that could break out of a log line.
fn sane(id: &str) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=~".contains(&byte))
}

static COUNTER: AtomicU64 = AtomicU64::new(1);

/// Random bits of this process: ids of two runs must not meet. Without randomness the process id
/// has to do; these ids guard nothing.
static RUN: LazyLock<u64> =
    LazyLock::new(|| getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())));

/// An id that no other of this run has, nor of another run.
pub(crate) fn unique() -> Arc<str> {
    Arc::from(std::str::from_utf8(&digits()).unwrap_or_default())
}

/// Appends the id of the request that came with `inbound` to `out`.
pub(crate) fn append_given(inbound: Option<&str>, out: &mut Vec<u8>) {
    match inbound.filter(|id| sane(id)) {
        Some(id) => out.extend_from_slice(id.as_bytes()),
        None => out.extend_from_slice(&digits()),
    }
}

fn digits() -> [u8; 32] {
    let mut text = [0; 32];
    let (run, count) = text.split_at_mut(16);
    hexadecimal(*RUN, run);
    hexadecimal(COUNTER.fetch_add(1, Ordering::Relaxed), count);
    text
}

/// Writes the sixteen digits of `number`, without the standard library's formatter: every request
/// has an id.
fn hexadecimal(number: u64, digits: &mut [u8]) {
    for (two, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        for (digit, half) in two.iter_mut().zip([byte >> 4, byte & 0xf]) {
            *digit = b"0123456789abcdef"[usize::from(half)];
        }
    }
}

/// The trace context that continues an inbound one: its trace, a new span. `None` where there is
/// none or it is malformed.
pub(crate) fn continued(headers: &HeaderMap) -> Option<HeaderValue> {
    continuing(headers.get(&TRACEPARENT)?.to_str().ok()?)
}

/// The trace context that continues `inbound`; `None` where it is malformed.
pub(crate) fn continuing(inbound: &str) -> Option<HeaderValue> {
    let mut parts = inbound.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let set = |text: &str| text.bytes().any(|byte| byte != b'0');
    // Later versions may have more parts; version 00 has these four, and ff is none.
    let whole = version != "00" || parts.next().is_none();
    let good = hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && set(trace)
        && hex(parent, 16)
        && set(parent)
        && hex(flags, 2)
        && whole;
    if !good {
        return None;
    }
    // An odd multiplier permutes the counter's values: unique within a run, never zero.
    let span = (COUNTER.fetch_add(1, Ordering::Relaxed)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    HeaderValue::from_str(&format!("00-{trace}-{span:016x}-{flags}")).ok()
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or(Code::Internal.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        headers
    }

    #[test]
    fn a_sane_inbound_id_is_kept() {
        for id in ["a", "4bf92f35-77b3-4da6-a3ce-929d0e0e4736", &"x".repeat(64)] {
            assert_eq!(RequestId::of(&headers(X_REQUEST_ID, id)).as_str(), id);
        }
    }

    #[test]
    fn any_other_inbound_id_is_replaced_by_a_new_one() {
        for id in ["", "a b", "a\tb", "\"a\"", "ünique", "a;b", &"x".repeat(65)] {
            let made = RequestId::of(&headers(X_REQUEST_ID, id));
            assert_ne!(made.as_str(), id);
            assert_eq!(made.as_str().len(), 32);
            assert_ne!(made, RequestId::of(&HeaderMap::new()));
        }
    }

    #[test]
    fn a_trace_goes_on_with_a_new_span() {
        let inbound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let out = continued(&headers(TRACEPARENT, inbound)).unwrap();
        let out = out.to_str().unwrap();
        assert_eq!(out.len(), 55);
        assert_eq!(out[..36], inbound[..36]);
        assert_ne!(out[36..52], inbound[36..52]);
        assert_eq!(out[52..], inbound[52..]);
    }

    #[test]
    fn a_malformed_trace_context_is_dropped() {
        for inbound in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(continued(&headers(TRACEPARENT, inbound)), None, "{inbound}");
        }
    }
}
