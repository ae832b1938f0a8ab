//! The answer to a plain purchase, as hyper would write it.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::http::problem::{Code, Problem};
use crate::http::purchase::{Bought, headers};
use crate::http::request_id::{TRACEPARENT, X_REQUEST_ID, append_given};
use crate::metrics::PurchaseOutcome;
use crate::time::wall_seconds;

/// What every answer carries.
pub(super) struct Envelope<'a> {
    /// The request's id, where it came with one.
    pub(super) request_id: Option<&'a str>,
    /// The trace that goes on.
    pub(super) trace: Option<HeaderValue>,
    /// Nothing follows on this connection.
    pub(super) is_last: bool,
}

/// Appends the answer to `out`; its status.
pub(super) fn write(bought: &Bought, envelope: &Envelope<'_>, out: &mut Vec<u8>) -> StatusCode {
    let rendered;
    let (status, body) = match bought {
        Ok((_, body)) => (StatusCode::ACCEPTED, body.as_slice()),
        Err(problem) => {
            rendered = problem.body();
            (problem.code.status(), &*rendered)
        }
    };
    out.extend_from_slice(&beginning(bought));
    for part in [X_REQUEST_ID.as_str(), ": "] {
        out.extend_from_slice(part.as_bytes());
    }
    append_given(envelope.request_id, out);
    out.extend_from_slice(b"\r\n");
    if let Some(trace) = &envelope.trace {
        line(TRACEPARENT.as_str(), trace.as_bytes(), out);
    }
    line("content-length", itoa::Buffer::new().format(body.len()).as_bytes(), out);
    if envelope.is_last {
        line("connection", b"close", out);
    }
    line("date", &date(), out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    status
}

/// The beginnings of the answers that a sale is full of, in the order of [`index`].
static BEGINNINGS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let accepted = [PurchaseOutcome::Accepted, PurchaseOutcome::Replayed];
    let accepted = accepted.into_iter().map(|kind| Ok((kind, Vec::new())));
    let refused = Code::ALL.iter().map(|code| Err(Problem::from(*code)));
    accepted.chain(refused).map(|bought| begin(&bought)).collect()
});

fn index(bought: &Bought) -> usize {
    match bought {
        Ok((PurchaseOutcome::Replayed, _)) => 1,
        Ok(_) => 0,
        Err(problem) => 2 + problem.code as usize,
    }
}

/// The status and the headers that are the answer's own.
fn beginning(bought: &Bought) -> Cow<'static, [u8]> {
    // A limit has its own figures in them.
    let is_common = bought.as_ref().map_or_else(|problem| problem.limited.is_none(), |_| true);
    match BEGINNINGS.get(index(bought)).filter(|_| is_common) {
        Some(beginning) => Cow::Borrowed(beginning),
        None => Cow::Owned(begin(bought)),
    }
}

fn begin(bought: &Bought) -> Vec<u8> {
    let mut out = Vec::new();
    let status =
        bought.as_ref().map_or_else(|problem| problem.code.status(), |_| StatusCode::ACCEPTED);
    let reason = status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    match bought {
        Ok((kind, _)) => {
            headers(*kind).for_each(|(name, value)| line(name.as_str(), value.as_bytes(), &mut out))
        }
        Err(problem) => {
            let mut headers = HeaderMap::new();
            problem.add_headers(&mut headers);
            let headers = headers.iter();
            headers.for_each(|(name, value)| line(name.as_str(), value.as_bytes(), &mut out));
        }
    }
    out
}

fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Bytes of a date, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_BYTES: usize = 29;

thread_local! {
    /// The last second that was written, and how.
    static DATE: Cell<(u64, [u8; DATE_BYTES])> = const { Cell::new((0, [b' '; DATE_BYTES])) };
}

/// The present second: written once in it, by each loop.
fn date() -> [u8; DATE_BYTES] {
    let second = wall_seconds();
    let (written, mut date) = DATE.get();
    if written != second {
        let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        if let Ok(bytes) = text.as_bytes().try_into() {
            date = bytes;
        }
        DATE.set((second, date));
    }
    date
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bought: &Bought, is_last: bool) -> String {
        let envelope = Envelope { request_id: Some("a-1"), trace: None, is_last };
        let mut out = Vec::new();
        write(bought, &envelope, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_answer_has_the_length_it_says_and_what_every_answer_carries() {
        let accepted = |kind| Ok((kind, b"{\"a\":1}".to_vec()));
        let known = "idempotency-replayed: true\r\n";
        for (bought, begins, has) in [
            (accepted(PurchaseOutcome::Accepted), "HTTP/1.1 202 Accepted\r\n", ""),
            (accepted(PurchaseOutcome::Replayed), "HTTP/1.1 202 Accepted\r\n", known),
            (Err(Code::SoldOut.into()), "HTTP/1.1 409 Conflict\r\n", "\"sold_out\""),
            (Err(Code::Overloaded.into()), "HTTP/1.1 503 Service", "\r\nretry-after: 1\r\n"),
            (Err(Problem::invalid("why")), "HTTP/1.1 400 Bad Request\r\n", "\"detail\":\"why\""),
        ] {
            let text = written(&bought, false);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(begins) && text.contains(has), "{text}");
            assert_eq!(text.contains(known), has == known, "{text}");
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{text}");
            assert!(head.contains("\r\nx-request-id: a-1\r\n"), "{text}");
            assert!(head.contains("\r\ndate: ") && head.ends_with(" GMT"), "{text}");
            assert!(!head.contains("\r\nconnection: "), "{text}");
            assert!(written(&bought, true).contains("\r\nconnection: close\r\n"));
        }
    }
}
