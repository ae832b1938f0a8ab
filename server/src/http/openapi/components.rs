//! What the operations of the document share: problem documents, headers, credentials.

use serde_json::{Map, Value, json};

use super::operation::{Access, AnswerHeader};
use crate::http::problem::Code;

const PROBLEM_JSON: &str = "application/problem+json";

/// The answer to a request that is refused with one of `codes`, all of `status`.
pub(super) fn problem_response(status: u16, codes: &[Code]) -> Value {
    let lines = codes.iter().map(|code| format!("- `{}`: {}.", code.as_str(), code.title()));
    let names: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
    let named = |name: &str| (name.to_owned(), reference("headers", name));
    let mut headers = Map::from_iter([named("X-Request-Id")]);
    let more: &[&str] = match status {
        401 if codes.contains(&Code::Unauthenticated) => &["WWW-Authenticate"],
        429 => &["Retry-After", "RateLimit", "RateLimit-Policy"],
        503 => &["Retry-After"],
        _ => &[],
    };
    headers.extend(more.iter().map(|name| named(name)));
    let schema = json!({
        "allOf": [
            reference("schemas", "Problem"),
            {"properties": {"status": {"const": status}, "code": {"enum": names}}},
        ],
    });
    json!({
        "description": lines.collect::<Vec<_>>().join("\n"),
        "headers": headers,
        "content": {PROBLEM_JSON: {"schema": schema}},
    })
}

/// What every refusal is.
pub(super) fn problem_schema() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "description": "What went wrong (RFC 9457).",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": {"type": "string", "format": "uri",
                "description": "The code as a name that is unique in the world.",
                "examples": ["urn:problem-type:sluice:sold_out"]},
            "title": {"type": "string", "description": "The code in words."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "code": {"type": "string", "enum": codes,
                "description": "The stable name, to be matched by programs."},
            "detail": {"type": "string", "description": "What about this one request."},
        },
    })
}

/// A reference to a component.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

/// The headers of a good answer, its operation's own among them.
pub(super) fn good_headers(own: &[AnswerHeader]) -> Map<String, Value> {
    let mut headers =
        Map::from_iter([("X-Request-Id".to_owned(), reference("headers", "X-Request-Id"))]);
    headers.extend(own.iter().map(|AnswerHeader { name, about, required }| {
        let schema = json!({"type": "string"});
        let described = json!({"description": about, "required": required, "schema": schema});
        ((*name).to_owned(), described)
    }));
    headers
}

fn header(about: &str, required: bool, schema: Value) -> Value {
    json!({"description": about, "required": required, "schema": schema})
}

/// The headers that many answers carry.
pub(super) fn headers() -> Value {
    json!({
        "X-Request-Id": header(
            "The request's id: the caller's own where it sent a sane one, else a new one.",
            true,
            json!({"type": "string", "minLength": 1, "maxLength": 64}),
        ),
        "Retry-After": header(
            "Seconds until it is worth another try.",
            true,
            json!({"type": "integer", "minimum": 1}),
        ),
        "RateLimit": header(
            "The limit that refused: its name, what remains, seconds until it passes.",
            false,
            json!({"type": "string", "examples": ["\"user\";r=0;t=2"]}),
        ),
        "RateLimit-Policy": header(
            "That limit: its name, its quota, its window in seconds.",
            false,
            json!({"type": "string", "examples": ["\"user\";q=5;w=10"]}),
        ),
        "WWW-Authenticate": header(
            "How to authenticate, where a token was wanted.",
            true,
            json!({"type": "string", "const": "Bearer"}),
        ),
    })
}

/// How callers say who they are.
pub(super) fn security_schemes() -> Value {
    json!({
        "bearer": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A token from `POST /api/auth/login` or `sluice token`, or of an issuer \
                whose public key is configured. Claims `sub` (the user's id in decimal), `role` \
                (`user` or `admin`), `exp`, `iat`, `jti`.",
        },
        "ticket": {
            "type": "apiKey", "in": "query", "name": "ticket",
            "description": "From `POST /api/events/ticket`: browsers can't set headers where they \
                listen to events.",
        },
        "signature": {
            "type": "apiKey", "in": "header", "name": "X-Signature",
            "description": "HMAC-SHA256 under the channel's secret over \
                `<X-Timestamp>.<raw body>`, in hexadecimal.",
        },
    })
}

/// Which of them an operation takes.
pub(super) fn security(access: Access) -> Value {
    match access {
        Access::Anyone => json!([]),
        Access::User | Access::Admin => json!([{"bearer": []}]),
        Access::UserOrTicket => json!([{"bearer": []}, {"ticket": []}]),
        Access::Provider => json!([{"signature": []}]),
    }
}
