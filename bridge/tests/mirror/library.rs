//! The function library as the oracle: a log, replayed as calls of it.
//!
//! Every event that the library has a call for is called at the event's own time; the key space it
//! leaves is what the mirror must leave. The other events are claimed one by one elsewhere.

use bridge::host::Host;
use bridge::tail::{Batch, EventSource as _};
use engine::core::codec;
use engine::core::event::{Body, DecreaseKey, Event};
use redis::{Cmd, Connection, Value};
use wal::Lsn;

/// The library in a database of its own, which has seen the log up to some place.
pub struct Library {
    pub connection: Connection,
    seen: Lsn,
}

impl Library {
    pub fn load(connection: Connection) -> Self {
        let mut library = Self { connection, seen: Lsn(0) };
        library.reload();
        library
    }

    /// Loads it where it was flushed; its keys are still there.
    pub fn reload(&mut self) {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(functions::LIBRARY);
        let () = load.query(&mut self.connection).unwrap();
    }

    /// Calls what happened up to `end`.
    pub fn replay(&mut self, host: &impl Host, end: Lsn) {
        let mut source = host.source();
        source.seek(Lsn(0)).unwrap();
        let mut batch = Batch::default();
        loop {
            batch.fill(&mut source, 1_000).unwrap();
            if batch.is_empty() {
                break;
            }
            for entry in batch.entries().filter(|it| it.lsn > self.seen && it.lsn <= end) {
                let event = codec::decode(entry.kind, entry.version, entry.body).unwrap();
                if let Some((call, expected)) = call(&event) {
                    let answer: Value = call.query(&mut self.connection).unwrap();
                    let code = match &answer {
                        Value::Array(items) => items[0].clone(),
                        other => other.clone(),
                    };
                    let done = expected.is_none_or(|expected| code == Value::Int(expected));
                    assert!(done, "{event:?}: {answer:?}");
                }
            }
        }
        self.seen = end;
    }
}

/// The call that makes `event` happen, and the code that it answers then.
pub fn call(event: &Event<'_>) -> Option<(Cmd, Option<i64>)> {
    let fcall = |name: &str, activity: u64| {
        let mut call = redis::cmd("FCALL");
        call.arg(name).arg(1).arg(activity);
        call
    };
    let (mut call, code) = match event.body {
        Body::ActivityCreated { activity, total, definition: it, .. } => {
            let mut call = fcall("sluice_warm", activity.get());
            call.arg(it.sku.get()).arg(it.price).arg(total).arg(it.per_user_limit);
            call.arg(it.start_ms).arg(it.end_ms);
            (call, Some(1))
        }
        Body::Published { activity, .. } => (fcall("sluice_publish", activity.get()), Some(1)),
        Body::Unpublished { activity, .. } => (fcall("sluice_unpublish", activity.get()), Some(1)),
        Body::Paused { activity, .. } => (fcall("sluice_pause", activity.get()), Some(1)),
        Body::Resumed { activity, .. } => (fcall("sluice_resume", activity.get()), Some(1)),
        Body::Restocked { activity, op, quantity, figures, .. } => {
            let mut call = fcall("sluice_restock", activity.get());
            call.arg(op).arg(quantity);
            (call, Some(figures.available.into()))
        }
        Body::Decreased { activity, op: DecreaseKey::Caller(op), quantity, figures, .. } => {
            let mut call = fcall("sluice_decrease", activity.get());
            call.arg(op).arg(quantity);
            (call, Some(figures.available.into()))
        }
        Body::Reserved { activity, user, request_id, quantity, .. } => {
            let mut call = fcall("sluice_reserve", activity.get());
            call.arg(user.get()).arg(request_id).arg(quantity);
            (call, Some(1))
        }
        Body::Confirmed { activity, reservation, payment_no, .. } => {
            let mut call = fcall("sluice_confirm", activity.get());
            call.arg(reservation.get()).arg(payment_no);
            (call, Some(1))
        }
        Body::Restored { activity, reservation, .. } => {
            let mut call = fcall("sluice_restore", activity.get());
            call.arg(reservation.get());
            (call, Some(1))
        }
        _ => return None,
    };
    call.arg(event.at_ms);
    Some((call, code))
}
