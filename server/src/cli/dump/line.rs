//! One record as one JSON object: where it stands in the log, then the event's own fields under
//! their names in the event set. Times are Unix milliseconds, raw bytes are hexadecimal.

use engine::Entry;
use engine::core::codec::decode;
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::{codes::Status, event::*};
use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// The line of `entry`. A record whose body this version can't read is shown with the reason and
/// its bytes: a dump is where one looks when something is wrong.
pub(super) fn record(entry: &Entry) -> Value {
    let mut line = fields(json!({
        "lsn": entry.lsn.0,
        "epoch": entry.epoch.0,
        "frame": [entry.frame_first.0, entry.frame_last.0],
        "commit_us": entry.commit_us,
        "shard": entry.shard,
        "shard_seq": entry.shard_seq,
    }));
    match decode(entry.kind, entry.kind_version, &entry.body) {
        Ok(event) => {
            line.insert("event".to_owned(), name(&event.body).into());
            line.insert("at_ms".to_owned(), event.at_ms.into());
            line.extend(body(&event.body));
        }
        Err(error) => line.extend(fields(json!({
            "event": "unreadable",
            "kind": entry.kind,
            "kind_version": entry.kind_version,
            "error": error.to_string(),
            "bytes": hex(&entry.body),
        }))),
    }
    Value::Object(line)
}

/// An event's own fields.
fn body(body: &Body<'_>) -> Fields {
    match *body {
        Body::ActivityCreated { activity, ordinal, total, .. } => fields(json!({
            "activity": activity.get(), "ordinal": ordinal.get(), "total": total,
        }))
    }
}
