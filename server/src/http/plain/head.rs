//! The head of a plain purchase, read where it lies.
//!
//! | what | plain | goes to the router |
//! |---|---|---|
//! | method, version | `POST`, `HTTP/1.1` | any other |
//! | target | `/api/flashsales/<digits>/purchase` | another, a query, escapes |
//! | framing | `Content-Length`, or no body | `Transfer-Encoding`, `Expect`, `Upgrade` |
//! | body | as long as a purchase may be | longer |
//! | `Connection` | `keep-alive`, or not said | `close`, options that name headers |
//! | `Host` | once | missing, twice |
//! | a header with a meaning | once, visible ASCII | twice, other bytes |
//! | any other header | ignored, as the router does | |
//!
//! The parser is the one that hyper uses, so that there are no two opinions on where a line ends.

use std::mem::MaybeUninit;

use crate::http::input::BODY_BYTES_MAX;

/// Headers of a plain request: browsers behind two proxies send some thirty.
const HEADERS_MAX: usize = 40;

/// Digits of the largest id, 2^53 - 1.
const ID_DIGITS_MAX: usize = 16;

/// A head that is longer is no plain one.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// What every plain request begins with.
const BEGINNING: &[u8] = b"POST /api/flashsales/";

/// Headers that mean something to a purchase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    Host,
    Connection,
    ContentLength,
    ContentType,
    Authorization,
    RequestId,
    TraceParent,
    IdempotencyKey,
    Device,
    Canary,
    Admission,
    ForwardedFor,
    ForwardedProto,
}

/// Their names; with `None`, a request that has one is not plain.
const NAMES: [(&str, Option<Field>); 17] = [
    ("host", Some(Field::Host)),
    ("connection", Some(Field::Connection)),
    ("content-length", Some(Field::ContentLength)),
    ("content-type", Some(Field::ContentType)),
    ("authorization", Some(Field::Authorization)),
    ("x-request-id", Some(Field::RequestId)),
    ("traceparent", Some(Field::TraceParent)),
    ("idempotency-key", Some(Field::IdempotencyKey)),
    ("x-device-id", Some(Field::Device)),
    ("x-canary", Some(Field::Canary)),
    ("x-admission-token", Some(Field::Admission)),
    ("x-forwarded-for", Some(Field::ForwardedFor)),
    ("x-forwarded-proto", Some(Field::ForwardedProto)),
    ("transfer-encoding", None),
    ("expect", None),
    ("upgrade", None),
    ("trailer", None),
];

/// What the bytes of a connection begin with.
#[derive(PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for the length of a look")]
pub(super) enum Verdict<'a> {
    /// A head that is not whole yet, and may become a plain one.
    Incomplete,
    /// The head of a plain purchase.
    Plain(Head<'a>),
    /// Something for the router.
    Elsewhere,
}

/// The head of a plain purchase.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Head<'a> {
    /// The activity, in digits.
    pub(super) activity: &'a str,
    /// Bytes of the head.
    pub(super) bytes: usize,
    /// Bytes of the body behind it.
    pub(super) body_bytes: usize,
    fields: [Option<&'a str>; NAMES.len()],
}

impl<'a> Head<'a> {
    /// The value of a header, where there is one.
    pub(super) const fn get(&self, field: Field) -> Option<&'a str> {
        self.fields[field as usize]
    }
}

/// Reads the beginning of `input`.
pub(super) fn read(input: &[u8]) -> Verdict<'_> {
    let begun = &input[..input.len().min(BEGINNING.len())];
    if begun != &BEGINNING[..begun.len()] {
        return Verdict::Elsewhere;
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(input, &mut headers) {
        Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => Verdict::Incomplete,
        Ok(httparse::Status::Complete(bytes)) => {
            plain(&request, bytes).map_or(Verdict::Elsewhere, Verdict::Plain)
        }
        Ok(httparse::Status::Partial) | Err(_) => Verdict::Elsewhere,
    }
}

fn plain<'a>(request: &httparse::Request<'_, 'a>, bytes: usize) -> Option<Head<'a>> {
    const HTTP_1_1: u8 = 1;
    if request.method != Some("POST") || request.version != Some(HTTP_1_1) {
        return None;
    }
    let path = request.path?.strip_prefix("/api/flashsales/")?;
    let activity = path.strip_suffix("/purchase")?;
    let is_number = (1..=ID_DIGITS_MAX).contains(&activity.len());
    if !is_number || !activity.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut head = Head { activity, bytes, body_bytes: 0, fields: [None; NAMES.len()] };
    for header in request.headers.iter() {
        let known = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(header.name));
        let Some((_, field)) = known else { continue };
        let field = &mut head.fields[(*field)? as usize];
        if field.replace(visible(header.value)?).is_some() {
            return None;
        }
    }
    head.get(Field::Host)?;
    let stays = |options: &str| options.eq_ignore_ascii_case("keep-alive");
    if !head.get(Field::Connection).is_none_or(stays) {
        return None;
    }
    if let Some(length) = head.get(Field::ContentLength) {
        head.body_bytes = length_of(length)?;
    }
    Some(head)
}

/// The text of a header's value, where it is one.
fn visible(value: &[u8]) -> Option<&str> {
    // Without a way out in its middle: many bytes are looked at with one instruction.
    let is_visible = |so_far, byte: &u8| so_far & matches!(byte, b' '..=b'~' | b'\t');
    std::str::from_utf8(value).ok().filter(|_| value.iter().fold(true, is_visible))
}

/// A length in digits alone, of a body that may be read at once.
fn length_of(text: &str) -> Option<usize> {
    const DIGITS_MAX: usize = 5;
    let is_number = (1..=DIGITS_MAX).contains(&text.len());
    if !is_number || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|length| *length <= BODY_BYTES_MAX)
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
