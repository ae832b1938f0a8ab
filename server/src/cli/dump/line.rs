//! One record as one JSON object: where it stands in the log, then the event's own fields under
//! their names in the event set. Times are Unix milliseconds, raw bytes are hexadecimal.

use std::fmt::Write as _;

use engine::Entry;
use engine::core::codec::decode;
use engine::core::codes::{
    DeadLetterPolicy, DeadLetterResolution, Front, LatePayment, PaymentVerdict, RefundScope,
    RestoreReason, Status,
};
use engine::core::event::{Actor, Body, DecreaseKey, Definition, Figures, ShardMarks};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, UserId};
use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// The line of `entry`. A record whose body this version can't read is shown with the reason and
/// its bytes: a dump is where one looks when something is wrong.
pub(in crate::cli) fn line(entry: &Entry) -> Value {
    let mut fields = Fields::new();
    entry.lsn.0.show("lsn", &mut fields);
    entry.epoch.0.show("epoch", &mut fields);
    put(&mut fields, "frame", json!([entry.frame_first_lsn.0, entry.frame_last_lsn.0]));
    entry.commit_us.show("commit_us", &mut fields);
    entry.shard.show("shard", &mut fields);
    entry.shard_seq.show("shard_seq", &mut fields);
    match decode(entry.kind, entry.kind_version, &entry.body) {
        Ok(event) => {
            event.at_ms.show("at_ms", &mut fields);
            show_body(&event.body, &mut fields);
        }
        Err(error) => {
            "unreadable".show("event", &mut fields);
            entry.kind.show("kind", &mut fields);
            entry.kind_version.show("kind_version", &mut fields);
            error.to_string().as_str().show("error", &mut fields);
            entry.body.as_slice().show("bytes", &mut fields);
        }
    }
    Value::Object(fields)
}

/// Matches a body against a table of events with all their fields. The compiler holds the table
/// complete: an event or a field that is missing here does not build.
macro_rules! show_events {
    ($body:expr, $out:expr; $($name:ident { $($field:ident $(as $key:literal)?),* })*) => {
        match $body {
            $(Body::$name { $($field),* } => {
                stringify!($name).show("event", $out);
                $($field.show(show_events!(@key $field $($key)?), $out);)*
            })*
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

#[rustfmt::skip] // A table: one event a line.
fn show_body(body: &Body<'_>, out: &mut Fields) {
    show_events!(body, out;
        ActivityCreated { activity, actor, ordinal, total, definition }
        ActivityEdited { activity, actor, version, figures, definition }
        Published { activity, actor }
        Unpublished { activity, actor }
        Paused { activity, actor }
        Resumed { activity, actor }
        Drained { activity, actor }
        Restocked { activity, actor, op, quantity, version, figures }
        Decreased { activity, actor, op, quantity, version, figures }
        Archived { activity }
        Reserved { activity, front, reservation, user, quantity, held, version, figures,
            request_id }
        PaymentOpened { activity, reservation, attempt, channel, amount, expires_ms }
        PaymentRecorded { activity, reservation, channel, payment_no, transaction, amount, verdict,
            body }
        Confirmed { activity, reservation, user, quantity, held, version, figures, payment_no }
        Reinstated { activity, reservation, user, quantity, held, version, figures, payment_no }
        Restored { activity, reservation, user, quantity, held, version, figures, reason,
            actor }
        RefundRequested { activity, actor, reservation, user, refund_no, scope, restock,
            free_limit, channel, payment_no, transaction, amount, note }
        RefundSettled { activity, reservation, user, held, version, figures, refund_no }
        RefundFailed { activity, reservation, refund_no, note }
        DeadLettered { activity, reservation, note }
        DeadLetterResolved { activity, reservation, resolution, actor }
        SinkAdvanced { sink, lsn as "sink_lsn", shards }
        ActivityAdopted { activity, ordinal, version, figures, on_sale, definition }
        ReservationAdopted { activity, reservation, old_id, order_no, status, user, quantity,
            created_ms, updated_ms, held, figures, request_id, request_hash, payment_no }
        ControlSet { actor, key, value, expires_ms }
        ControlCleared { actor, key }
    );
}

/// A field of an event, put into a line under `key`.
trait Show {
    fn show(&self, key: &str, out: &mut Fields);
}

fn put(out: &mut Fields, key: &str, value: Value) {
    let previous = out.insert(key.to_owned(), value);
    debug_assert!(previous.is_none(), "two fields of a line are called {key}");
}

macro_rules! show_as {
    ($($kind:ty, $self:ident => $value:expr;)*) => {
        $(impl Show for $kind {
            fn show(&$self, key: &str, out: &mut Fields) {
                put(out, key, Value::from($value));
            }
        })*
    };
}

show_as! {
    u8, self => *self;
    u16, self => *self;
    u32, self => *self;
    u64, self => *self;
    u128, self => format!("{self:032x}");
    bool, self => *self;
    &str, self => *self;
    &[u8], self => hex(self);
    ActivityId, self => self.get();
    Option<ActivityId>, self => self.map(ActivityId::get);
    Option<ReservationId>, self => self.map(ReservationId::get);
    RefundScope, self => match self { Self::Order => "order", Self::Payment => "payment" };
    Ordinal, self => self.get();
    ReservationId, self => self.get();
    UserId, self => self.get();
    Front, self => match self { Self::Api => "api", Self::Http => "http", Self::Resp => "resp" };
    LatePayment, self => match self {
        Self::ReinstateOrRefund => "reinstate_or_refund",
        Self::Refund => "refund",
    };
    DeadLetterPolicy, self => match self { Self::Rollback => "rollback", Self::Hold => "hold" };
    DeadLetterResolution, self => match self {
        Self::Delivered => "delivered",
        Self::RolledBack => "rolled_back",
    };
    RestoreReason, self => match self {
        Self::Cancelled => "cancelled",
        Self::Timeout => "timeout",
        Self::DeadLetter => "dead_letter",
        Self::Admin => "admin",
        Self::Api => "api",
    };
    PaymentVerdict, self => match self {
        Self::Accepted => "accepted",
        Self::Repeated => "repeated",
        Self::WrongAmount => "wrong_amount",
        Self::Unknown => "unknown",
        Self::SecondPayment => "second_payment",
        Self::Late => "late",
        Self::Failed => "failed",
    };
    Actor<'_>, self => match *self {
        Self::NONE => Value::Null,
        Self { name, request_id } => json!({ "name": name, "request_id": request_id }),
    };
    DecreaseKey<'_>, self => match self {
        Self::Caller(op) => json!(op),
        Self::Edit => Value::Null,
    };
    ShardMarks<'_>, self => self.iter().map(|(shard, seq)| json!([shard, seq])).collect::<Vec<_>>();
}

impl Show for Figures {
    /// Units stand on the line itself, whatever the event calls them.
    fn show(&self, _key: &str, out: &mut Fields) {
        self.available.show("available", out);
        self.locked.show("locked", out);
        self.sold.show("sold", out);
    }
}

impl Show for Status {
    fn show(&self, key: &str, out: &mut Fields) {
        match self {
            Self::Reserved => "reserved".show(key, out),
            Self::Confirmed => "confirmed".show(key, out),
            Self::RolledBack(reason) => {
                "rolled_back".show(key, out);
                reason.show("reason", out);
            }
        }
    }
}

impl Show for Definition<'_> {
    fn show(&self, key: &str, out: &mut Fields) {
        let mut fields = Fields::new();
        self.sku.get().show("sku", &mut fields);
        self.title.show("title", &mut fields);
        self.price.show("price", &mut fields);
        self.per_user_limit.show("per_user_limit", &mut fields);
        self.start_ms.show("start_ms", &mut fields);
        self.end_ms.show("end_ms", &mut fields);
        self.payment_ttl_ms.show("payment_ttl_ms", &mut fields);
        self.late_payment.show("late_payment", &mut fields);
        self.dead_letter.show("dead_letter", &mut fields);
        self.publish_at_ms.show("publish_at_ms", &mut fields);
        put(out, key, Value::Object(fields));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use engine::core::codec::{encode, kind};
    use engine::core::event::Event;
    use wal::{Epoch, Lsn};

    use super::*;

    fn entry(kind: u8, body: Vec<u8>) -> Entry {
        Entry {
            lsn: Lsn(7),
            epoch: Epoch(2),
            frame_first_lsn: Lsn(5),
            frame_last_lsn: Lsn(9),
            commit_us: 1_000,
            shard: 3,
            shard_seq: 4,
            kind,
            kind_version: 1,
            body,
        }
    }

    #[test]
    fn a_line_names_its_place_in_the_log_and_every_field_of_its_event() {
        let mut marks = Vec::new();
        let body = Body::SinkAdvanced {
            sink: "sql",
            lsn: 6,
            shards: ShardMarks::encode(&[(1, 10), (3, 30)], &mut marks),
        };
        let mut bytes = Vec::new();
        encode(&Event { at_ms: 99, body }, &mut bytes);
        let expected = json!({
            "lsn": 7, "epoch": 2, "frame": [5, 9], "commit_us": 1000, "shard": 3, "shard_seq": 4,
            "at_ms": 99, "event": "SinkAdvanced", "sink": "sql", "sink_lsn": 6,
            "shards": [[1, 10], [3, 30]],
        });
        assert_eq!(line(&entry(kind(&body), bytes)), expected);
    }

    #[test]
    fn a_body_that_cannot_be_read_is_shown_with_its_bytes() {
        let line = line(&entry(0x7F, vec![0xAB, 0x01]));
        assert_eq!((&line["event"], &line["bytes"]), (&json!("unreadable"), &json!("ab01")));
        assert_eq!(line["lsn"], 7);
    }
}
