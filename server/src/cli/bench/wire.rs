//! The bytes of requests and answers: HTTP/1.1, as much of it as a load generator needs.
//!
//! A purchase is composed by copying prepared parts into a connection's buffer; an answer is
//! read in place. Nothing here allocates once a buffer has its size: the generator shares the
//! machine with the server, and every cycle it takes is one the server does not have.

use std::borrow::Cow;
use std::io::Write as _;

use serde::Deserialize;

use super::drive::{Expected, Parsed, Protocol};
use super::header::Header;
use super::plan::Request;
use super::tally::Outcome;
use super::tokens::TokenTable;

/// Headers of one answer; more is an answer from something that is not Sluice.
const HEADERS_MAX: usize = 32;

/// The longest answer that is read; only lists come near it.
pub(super) const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a client request id as [`write_request_id`] writes it.
const REQUEST_ID_BYTES: usize = 36;

/// The parts of a purchase that are the same for all shoppers.
pub(super) struct PurchaseTemplate {
    before_token: Vec<u8>,
    before_id: &'static [u8],
    after_id: &'static [u8],
    run: u32,
}

impl PurchaseTemplate {
    /// The template for purchases of one unit of `activity` at `authority` (host and port), with
    /// `headers` besides its own. `run` sets the ids of this run apart from those of every other.
    pub(super) fn new(authority: &str, activity: u64, headers: &[Header], run: u32) -> Self {
        let headers: String = headers.iter().map(Header::to_string).collect();
        let before_id: &[u8] = b"\r\n\r\n{\"client_request_id\":\"";
        let after_id: &[u8] = b"\",\"quantity\":1}";
        let body_bytes = before_id.len() - 4 + REQUEST_ID_BYTES + after_id.len();
        let before_token = format!(
            "POST /api/flashsales/{activity}/purchase HTTP/1.1\r\nHost: {authority}\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {body_bytes}\r\n\
             Authorization: Bearer "
        );
        Self { before_token: before_token.into_bytes(), before_id, after_id, run }
    }

    /// Appends the purchase of `shopper` with its `attempt`-th id to `out`.
    pub(super) fn compose(&self, token: &str, shopper: u32, attempt: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_token);
        out.extend_from_slice(token.as_bytes());
        out.extend_from_slice(self.before_id);
        write_request_id(self.run, shopper, attempt, out);
        out.extend_from_slice(self.after_id);
    }
}

/// Writes a request id shaped like a UUID, as real clients send: 8 digits of the run, 12 of the
/// attempt, 12 of the shopper, with the version and variant digits in their places.
pub(super) fn write_request_id(run: u32, shopper: u32, attempt: u64, out: &mut Vec<u8>) {
    let (high, middle, low) = (attempt >> 24 & 0xFFFF, attempt >> 12 & 0xFFF, attempt & 0xFFF);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{run:08x}-{high:04x}-4{middle:03x}-8{low:03x}-{shopper:012x}");
}

/// Puts a request of the set-up or the checks into `out`, replacing what was there.
pub(super) fn compose_call(
    (method, path): (&str, &str),
    authority: &str,
    token: &str,
    body: &str,
    out: &mut Vec<u8>,
) {
    out.clear();
    let _ = write!(out, "{method} {path} HTTP/1.1\r\nHost: {authority}\r\n");
    let _ = write!(out, "Authorization: Bearer {token}\r\n");
    if !body.is_empty() {
        let _ = write!(out, "Content-Type: application/json\r\n");
    }
    if method != "GET" {
        let _ = write!(out, "Content-Length: {}\r\n", body.len());
    }
    let _ = write!(out, "\r\n{body}");
}

/// The head of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// The status code.
    pub(super) status: u16,
    /// Where the body begins.
    pub(super) head_bytes: usize,
    /// The length of the body.
    pub(super) body_bytes: usize,
    /// `Idempotency-Replayed: true` was there.
    pub(super) is_replay: bool,
    /// The server closes the connection after this answer.
    pub(super) is_last: bool,
}

/// The answer is no HTTP/1.1 answer of the kind Sluice gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Reads the head of an answer; `None` while it is not complete.
pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head_bytes = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let status = response.code.ok_or(Malformed)?;
    let mut head = Head { status, head_bytes, body_bytes: 0, is_replay: false, is_last: false };
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = str::from_utf8(header.value).map_err(|_| Malformed)?;
            head.body_bytes = length.trim().parse().map_err(|_| Malformed)?;
        } else if header.name.eq_ignore_ascii_case("idempotency-replayed") {
            head.is_replay = header.value == b"true";
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.is_last = header.value.eq_ignore_ascii_case(b"close");
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // Sluice knows the length of every answer of these endpoints.
            return Err(Malformed);
        }
    }
    Ok(Some(head))
}

/// The body of a 202.
#[derive(Deserialize)]
struct AcceptedBody {
    pre_deduction_id: u64,
}

/// The body of a problem, as far as it is counted.
#[derive(Deserialize)]
struct ProblemBody<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
}

/// Refusals that a sale is full of: their names are not copied for each.
const COMMON_CODES: [&str; 8] = [
    "sold_out",
    "limit_reached",
    "not_in_window",
    "off_sale",
    "paused",
    "rate_limited",
    "overloaded",
    "request_id_reused",
];

/// Codes that say for sure that nothing was reserved, though the status is a 5xx.
const NOTHING_RESERVED: [&str; 2] = ["overloaded", "recovering"];

/// What an answer with `status` and `body` says of the purchase.
pub(super) fn outcome(status: u16, is_replay: bool, body: &[u8]) -> Outcome {
    if status == 202
        && let Ok(AcceptedBody { pre_deduction_id }) = serde_json::from_slice(body)
    {
        return Outcome::Reserved { id: pre_deduction_id, is_replay };
    }
    let problem: Option<ProblemBody<'_>> = serde_json::from_slice(body).ok();
    let code = problem.as_ref().map_or("without_code", |problem| &problem.code);
    let is_unknown = status < 400 || status >= 500 && !NOTHING_RESERVED.contains(&code);
    let code = match COMMON_CODES.iter().find(|common| **common == code) {
        Some(common) => Cow::Borrowed(*common),
        None => Cow::Owned(code.to_owned()),
    };
    Outcome::Refused { code, is_unknown }
}

/// What the load speaks: purchases of shoppers with tokens, one at a time on a connection.
pub(super) struct Http {
    /// The purchase's bytes.
    pub(super) template: PurchaseTemplate,
    /// The shoppers' tokens.
    pub(super) tokens: TokenTable,
}

impl Protocol for Http {
    fn depth_open(&self) -> usize {
        1
    }

    fn greet(&self, _: &mut Vec<u8>) -> bool {
        false
    }

    fn compose(&self, request: Request, out: &mut Vec<u8>) {
        let token = self.tokens.get(request.shopper);
        self.template.compose(token, request.shopper, request.attempt, out);
    }

    fn seals(&self) -> bool {
        false
    }

    fn seal(&self, _: &mut Vec<u8>) {}

    fn parse(&self, bytes: &[u8], _: Expected) -> Result<Option<Parsed>, Malformed> {
        let Some(head) = parse_head(bytes)? else { return Ok(None) };
        if head.body_bytes > ANSWER_BYTES_MAX {
            return Err(Malformed);
        }
        let length = head.head_bytes + head.body_bytes;
        let Some(body) = bytes.get(head.head_bytes..length) else { return Ok(None) };
        let outcome = Some(outcome(head.status, head.is_replay, body));
        Ok(Some(Parsed { length, outcome, is_last: head.is_last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composed_purchase_states_the_length_it_has() {
        let header: Header = "X-Shop: 7".parse().unwrap();
        let template = PurchaseTemplate::new("127.0.0.1:8080", 30_001, &[header], 0xABCD);
        let mut bytes = Vec::new();
        template.compose("t.o.k", 41, 3, &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(head.contains("\r\nx-shop: 7\r\n"), "{head}");
        assert!(head.ends_with("Authorization: Bearer t.o.k"));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["client_request_id"].as_str().unwrap().len(), REQUEST_ID_BYTES);
        assert_eq!(body["quantity"], 1);
    }

    #[test]
    fn ids_of_different_runs_shoppers_and_attempts_differ() {
        let id = |run, shopper, attempt| {
            let mut out = Vec::new();
            write_request_id(run, shopper, attempt, &mut out);
            out
        };
        let mut ids = vec![id(1, 1, 1), id(2, 1, 1), id(1, 2, 1), id(1, 1, 0)];
        ids.extend([id(1, 1, 1 << 12), id(1, 1, 1 << 24), id(1, 1, 1 << 30), id(1, u32::MAX, 1)]);
        assert!(ids.iter().all(|id| id.len() == REQUEST_ID_BYTES));
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let answer =
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 12\r\nIdempotency-Replayed: true\r\n\
            connection: close\r\n\r\n{\"a\":\"body\"}";
        let head_bytes = answer.len() - 12;
        for cut in 0..head_bytes {
            assert_eq!(parse_head(&answer[..cut]), Ok(None), "cut at {cut}");
        }
        let head = Head { status: 202, head_bytes, body_bytes: 12, is_replay: true, is_last: true };
        assert_eq!(parse_head(answer), Ok(Some(head)));
    }

    #[test]
    fn only_an_outcome_that_is_unknown_is_asked_again() {
        for (body, status, unknown) in [
            (r#"{"code":"sold_out"}"#, 409, false),
            (r#"{"code":"overloaded"}"#, 503, false),
            (r#"{"code":"log_unavailable"}"#, 503, true),
            ("<html>", 500, true),
            ("", 202, true),
            ("", 400, false),
        ] {
            let Outcome::Refused { is_unknown, .. } = outcome(status, false, body.as_bytes())
            else {
                panic!("{status} {body}")
            };
            assert_eq!(is_unknown, unknown, "{status} {body}");
        }
        let body = br#"{"pre_deduction_id":4294967297,"status":"pending_order"}"#;
        let reserved = Outcome::Reserved { id: 4_294_967_297, is_replay: true };
        assert_eq!(outcome(202, true, body), reserved);
    }

    #[test]
    fn what_is_not_our_kind_of_answer_is_malformed() {
        for bytes in [
            &b"+PONG\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(parse_head(bytes), Err(Malformed));
        }
    }
}
