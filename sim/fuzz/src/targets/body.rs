//! The body of a purchase.

#[path = "../../../../server/src/http/input/object.rs"]
#[allow(dead_code, reason = "the server's own file")]
mod object;

use object::{Units, parse, present};
use serde::Deserialize;
use serde_json::Value;

/// The fields that `POST .../purchase` knows.
#[derive(Deserialize)]
struct Body {
    #[serde(default, deserialize_with = "present")]
    client_request_id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    quantity: Option<Units>,
}

pub(crate) fn run(input: &[u8]) {
    let body = parse::<Body>(input);
    let plain = serde_json::from_slice::<Value>(input);
    let Ok(body) = body else {
        // A plain reader keeps the last of two fields of one name; here they are refused.
        let is_purchase = plain.as_ref().is_ok_and(is_purchase);
        let names = |name: &[u8]| input.windows(name.len()).filter(|it| *it == name).count();
        let doubled = names(b"client_request_id") > 1 || names(b"quantity") > 1;
        let escaped = input.contains(&b'\\');
        assert!(!is_purchase || doubled || escaped, "a purchase was refused");
        return;
    };
    // A plain reader has a bound of depth, which what is skipped does not need.
    let Ok(plain) = plain else { return };
    assert!(is_purchase(&plain), "what is no purchase was accepted");
    let id = plain.get("client_request_id").and_then(Value::as_str);
    assert_eq!(body.client_request_id.as_deref(), id);
    let quantity = plain.get("quantity").and_then(Value::as_u64);
    assert_eq!(body.quantity.map(|units| u64::from(units.0)), quantity);
}

fn is_purchase(plain: &Value) -> bool {
    let Value::Object(fields) = plain else { return false };
    let id = fields.get("client_request_id").is_none_or(Value::is_string);
    let units = |value: &Value| value.as_u64().is_some_and(|it| (1..=0x7FFF_FFFF).contains(&it));
    id && fields.get("quantity").is_none_or(units)
}
