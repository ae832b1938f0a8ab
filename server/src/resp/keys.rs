//! The compatibility keys of layout `flashsale`, read from the engine's state: what pages and
//! scripts of an older system look at, without a Redis.

use engine::core::event::Status;
use engine::core::ids::{ActivityId, ReservationId, UserId};
use engine::core::shard::Shard;
use engine::{Busy, Engine, Pending};

use super::arguments::canonical;
use super::reply::Reply;

const SECOND_MS: u64 = 1000;
const HOUR_MS: u64 = 3600 * SECOND_MS;

/// Stock and counters, after the end of the activity.
const PUBLIC_MS: u64 = HOUR_MS;

/// The token of a request, after its acceptance.
const IDEM_MS: u64 = HOUR_MS / 2;

/// What is left of a reservation that was given back.
const TOMBSTONE_MS: u64 = 24 * HOUR_MS;

/// The name of a key that can exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    /// `flashsale:stock:<activity>`
    Stock(ActivityId),
    /// `flashsale:pause:<activity>`
    Pause(ActivityId),
    /// `flashsale:count:<activity>:<user>`
    Count(ActivityId, UserId),
    /// `flashsale:idem:<activity>:<user>:<reservation>`
    Idem(ActivityId, UserId, ReservationId),
    /// `flashsale:reservation:<reservation>`
    Reservation(ReservationId),
}

/// A key that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    value: Value,
    /// Unix milliseconds; `None` for a key that lives until it is deleted.
    ends_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Number(u64),
    RolledBack(ReservationId),
}

/// What is asked of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Its value.
    Get,
    /// Seconds until it ends.
    Ttl,
    /// Milliseconds until it ends.
    Pttl,
    /// What kind of value it has.
    Type,
}

fn parse(name: &[u8]) -> Option<Key> {
    let mut parts = name.strip_prefix(b"flashsale:")?.split(|byte| *byte == b':');
    let kind = parts.next()?;
    let mut number = || parts.next().and_then(canonical);
    let key = match kind {
        b"stock" => Key::Stock(ActivityId::new(number()?)?),
        b"pause" => Key::Pause(ActivityId::new(number()?)?),
        b"count" => Key::Count(ActivityId::new(number()?)?, UserId::new(number()?)?),
        b"idem" => {
            let (activity, user) = (ActivityId::new(number()?)?, UserId::new(number()?)?);
            Key::Idem(activity, user, ReservationId::new(number()?)?)
        }
        b"reservation" => Key::Reservation(ReservationId::new(number()?)?),
        _ => return None,
    };
    parts.next().is_none().then_some(key)
}

/// The key of that name, once it is durable; `None` where no key can have that name.
///
/// # Errors
/// [`Busy::LogUnavailable`] where the log has failed.
pub(super) fn look(engine: &Engine, name: &[u8]) -> Result<Option<Pending<Option<Entry>>>, Busy> {
    let Some(key) = parse(name) else { return Ok(None) };
    let activity = match key {
        Key::Stock(id) | Key::Pause(id) | Key::Count(id, _) | Key::Idem(id, ..) => Some(id),
        Key::Reservation(id) => engine.activity_of(id),
    };
    let Some(activity) = activity else { return Ok(None) };
    let now_ms = engine.now_ms();
    let lives = |entry: &Entry| entry.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms);
    engine.look(activity, |shard| entry(shard, activity, key).filter(lives)).map(Some)
}

fn entry(shard: &Shard, id: ActivityId, key: Key) -> Option<Entry> {
    let activity = shard.activity(id)?;
    let public = Some(activity.terms().end_ms + PUBLIC_MS);
    let number = |value: u64, ends_ms| Some(Entry { value: Value::Number(value), ends_ms });
    match key {
        Key::Stock(_) => number(activity.figures().available.into(), public),
        Key::Pause(_) => {
            let flags = activity.flags();
            (flags.paused || flags.drained).then_some(1).and_then(|one| number(one, None))
        }
        Key::Count(_, user) => match activity.held(user) {
            0 => None,
            held => number(held.into(), public),
        },
        Key::Idem(_, user, reservation) => {
            let slot = activity.slot(reservation).filter(|slot| slot.user() == user)?;
            let is_held = !matches!(slot.status(), Status::RolledBack(_));
            let ends_ms = Some(slot.created_ms() + IDEM_MS);
            is_held.then_some(reservation.get()).and_then(|token| number(token, ends_ms))
        }
        Key::Reservation(reservation) => {
            let slot = activity.slot(reservation)?;
            match slot.status() {
                Status::Reserved => number(reservation.get(), None),
                Status::Confirmed => None,
                Status::RolledBack(_) => Some(Entry {
                    value: Value::RolledBack(reservation),
                    ends_ms: Some(slot.updated_ms() + TOMBSTONE_MS),
                }),
            }
        }
    }
}

/// Answers `question` of what `look` found.
pub(super) fn answer(question: Question, found: Option<Entry>, now_ms: u64, reply: &mut Reply<'_>) {
    let left_ms = match found {
        None => Err(-2),
        Some(Entry { ends_ms: None, .. }) => Err(-1),
        Some(Entry { ends_ms: Some(ends_ms), .. }) => Ok(ends_ms.saturating_sub(now_ms)),
    };
    let left = |unit_ms: u64| match left_ms {
        Err(code) => code,
        // To the nearest, as Redis rounds.
        Ok(left_ms) => i64::try_from((left_ms + unit_ms / 2) / unit_ms).unwrap_or(i64::MAX),
    };
    match (question, found) {
        (Question::Ttl, _) => reply.integer(left(SECOND_MS)),
        (Question::Pttl, _) => reply.integer(left(1)),
        (Question::Type, Some(_)) => reply.simple("string"),
        (Question::Type, None) => reply.simple("none"),
        (Question::Get, None) => reply.null(),
        (Question::Get, Some(entry)) => match entry.value {
            Value::Number(number) => reply.decimal(number),
            Value::RolledBack(token) => reply.text(&format!("rolled_back:{token}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_layout_are_keys() {
        let (activity, user) = (ActivityId::new(30_001).unwrap(), UserId::new(7).unwrap());
        let reservation = ReservationId::new(4_294_967_297).unwrap();
        for (name, expected) in [
            ("flashsale:stock:30001", Some(Key::Stock(activity))),
            ("flashsale:pause:30001", Some(Key::Pause(activity))),
            ("flashsale:count:30001:7", Some(Key::Count(activity, user))),
            ("flashsale:idem:30001:7:4294967297", Some(Key::Idem(activity, user, reservation))),
            ("flashsale:reservation:4294967297", Some(Key::Reservation(reservation))),
            ("flashsale:stock:030001", None),
            ("flashsale:stock:0", None),
            ("flashsale:stock:", None),
            ("flashsale:stock", None),
            ("flashsale:stock:1:2", None),
            ("flashsale:count:1", None),
            ("flashsale:other:1", None),
            ("Flashsale:stock:1", None),
            ("", None),
        ] {
            assert_eq!(parse(name.as_bytes()), expected, "{name}");
        }
    }
}
