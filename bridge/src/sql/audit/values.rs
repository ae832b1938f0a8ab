//! What an audited action found and left, as JSON objects. The names are the admin API's.

use engine::core::event::Figures;
use serde_json::{Value as Json, json};

use super::Fields;
use crate::sql::activities::{Activity, dead_letter_name, late_payment_name};
use crate::sql::reservations::Reservation;
use crate::sql::store::Value;

fn fields(document: Json) -> Fields {
    match document {
        Json::Object(fields) => fields,
        other => unreachable!("{other} is no object"),
    }
}

/// An activity's definition, units and switches.
pub(in crate::sql) fn of_activity(row: &Activity) -> Fields {
    let Figures { available, locked, sold } = row.figures;
    fields(json!({
        "sku_id": row.sku,
        "title": &*row.title,
        "price": row.price,
        "total": row.figures.total(),
        "available": available,
        "locked": locked,
        "sold": sold,
        "per_user_limit": row.per_user_limit,
        "status": if row.on_sale { "on_sale" } else { "off_sale" },
        "paused": row.paused,
        "drained": row.drained,
        "version": row.version,
        "start_at": row.start_ms,
        "end_at": row.end_ms,
        "publish_at": row.publish_at_ms,
        "payment_ttl_ms": row.payment_ttl_ms,
        "late_payment": late_payment_name(row.late_payment),
        "dead_letter": dead_letter_name(row.dead_letter),
    }))
}

/// Where a reservation, its order and its dead letter are.
pub(in crate::sql) fn of_reservation(row: &Reservation<'_>) -> Fields {
    fields(json!({
        "status": row.status.name(),
        "reason": value(&row.reason),
        "order_status": value(&row.order_status),
        "dead_letter": row.dead_letter.as_ref().map(|letter| letter.state.name()),
    }))
}

/// Where a refund is; `None` before it was asked for.
pub(in crate::sql) fn of_refund(status: Option<&str>) -> Fields {
    fields(json!({ "refund": status }))
}

/// A control and its end, 0 for never.
pub(super) fn of_control(bytes: &[u8], expires_ms: u64) -> Fields {
    let text = || Json::String(String::from_utf8_lossy(bytes).into_owned());
    let set = serde_json::from_slice(bytes).unwrap_or_else(|_| text());
    let mut control = fields(json!({ "value": set }));
    if expires_ms != 0 {
        control.insert("expires_at".to_owned(), expires_ms.into());
    }
    control
}

fn value(value: &Value<'_>) -> Json {
    match value {
        Value::Text(text) => Json::from(text.as_ref()),
        Value::Integer(number) => Json::from(*number),
        // A dialect may keep text as bytes.
        Value::Bytes(bytes) => Json::from(String::from_utf8_lossy(bytes)),
        Value::Null => Json::Null,
    }
}

/// What is in one and otherwise in the other. Of something new, all of it.
pub(super) fn difference(mut before: Fields, mut after: Fields) -> (Fields, Fields) {
    if before.is_empty() {
        return (before, after);
    }
    let kept = after.clone();
    after.retain(|name, value| before.get(name) != Some(value));
    before.retain(|name, value| kept.get(name) != Some(value));
    (before, after)
}

/// As it is written: NULL for nothing.
pub(super) fn text(fields: Fields) -> Option<String> {
    (!fields.is_empty()).then(|| Json::Object(fields).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(before: Json, after: Json) -> (Json, Json) {
        let (before, after) = difference(fields(before), fields(after));
        (before.into(), after.into())
    }

    #[test]
    fn what_changed_is_told_and_what_did_not_is_not() {
        assert_eq!(
            between(json!({"a": 1, "b": 2, "c": null}), json!({"a": 1, "b": 3, "c": 4})),
            (json!({"b": 2, "c": null}), json!({"b": 3, "c": 4}))
        );
        assert_eq!(between(json!({}), json!({"a": 1})), (json!({}), json!({"a": 1})));
        assert_eq!(between(json!({"a": 1}), json!({})), (json!({"a": 1}), json!({})));
    }

    #[test]
    fn a_control_is_told_whole_and_text_that_is_no_json_as_text() {
        assert_eq!(Json::from(of_control(b"{\"x\":1}", 0)), json!({"value": {"x": 1}}));
        let text = Json::from(of_control(b"not json", 9));
        assert_eq!(text, json!({"value": "not json", "expires_at": 9}));
        assert_eq!(Json::from(of_control(b"\xff", 0)), json!({"value": "\u{fffd}"}));
    }
}
