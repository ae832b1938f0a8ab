//! The function library's compatibility keys, and the same keys on a cluster.
//!
//! | key | value | life |
//! |---|---|---|
//! | `flashsale:stock:<activity>` | units available | until an hour after the end |
//! | `flashsale:count:<activity>:<user>` | units held; none at zero | until an hour after the end |
//! | `flashsale:idem:<activity>:<user>:<id>` | the id | 30 min from acceptance; not given back |
//! | `flashsale:reservation:<id>` | the id | while unpaid; `rolled_back:<id>` for a day |
//! | `flashsale:pause:<activity>` | `1` | while paused or drained |
//!
//! On a cluster the activity stands in braces, and the reservation's key has it before the id:
//! `flashsale:reservation:{<activity>}:<id>`.

use engine::core::event::Status;
use engine::core::ids::{ActivityId, ReservationId, UserId};

use super::{DAY_MS, HOUR_MS, Known, Reserved, Subject, decimal};
use crate::redis::writes::Writes;

/// After acceptance.
const IDEM_MS: u64 = HOUR_MS / 2;

fn public_until(it: &Known) -> Option<u64> {
    Some(it.end_ms.saturating_add(HOUR_MS))
}

fn of(kind: &str, activity: ActivityId, tagged: bool) -> String {
    match tagged {
        true => format!("flashsale:{kind}:{{{activity}}}"),
        false => format!("flashsale:{kind}:{activity}"),
    }
}

/// The key that says that an activity is paused.
pub fn pause_key(activity: ActivityId, tagged: bool) -> String {
    of("pause", activity, tagged)
}

/// The key of a reservation.
pub fn reservation_key(activity: ActivityId, id: ReservationId, tagged: bool) -> String {
    match tagged {
        true => format!("{}:{id}", of("reservation", activity, true)),
        false => format!("flashsale:reservation:{id}"),
    }
}

/// What the units available ask for.
pub fn units(it: &Known, tagged: bool, out: &mut Writes) {
    out.text(of("stock", it.id, tagged), it.figures.available, public_until(it));
}

/// What an activity as such asks for.
pub fn activity(it: &Known, tagged: bool, out: &mut Writes) {
    units(it, tagged, out);
    match it.is_paused() {
        true => out.text(pause_key(it.id, tagged), 1, None),
        false => out.absent(pause_key(it.id, tagged)),
    }
}

/// What a user's `held` units ask for.
pub fn user(it: &Known, user: UserId, held: u32, tagged: bool, out: &mut Writes) {
    let key = format!("{}:{user}", of("count", it.id, tagged));
    match held {
        0 => out.absent(key),
        _ => out.text(key, held, public_until(it)),
    }
}

/// What a reservation asks for.
pub fn reservation(it: &Known, reserved: &Reserved, tagged: bool, out: &mut Writes) {
    let Reserved { id, user, status, created_ms, updated_ms, .. } = *reserved;
    let key = reservation_key(it.id, id, tagged);
    let idem = || format!("{}:{user}:{id}", of("idem", it.id, tagged));
    match status {
        Status::Reserved => out.text(key, id, None),
        Status::Confirmed => out.absent(key),
        Status::RolledBack(_) => {
            let until = updated_ms.saturating_add(DAY_MS);
            out.text(key, format_args!("rolled_back:{id}"), Some(until));
            out.absent(idem());
            return;
        }
    }
    if let Some(created_ms) = created_ms {
        out.text(idem(), id, Some(created_ms.saturating_add(IDEM_MS)));
    }
}

/// What a key is about.
pub(super) fn subject(key: &str, tagged: bool) -> Option<Subject> {
    let mut words = key.strip_prefix("flashsale:")?.split(':');
    let kind = words.next()?;
    if kind == "reservation" && !tagged {
        let id = decimal(words.next()?).and_then(ReservationId::new)?;
        return words.next().is_none().then_some(Subject::Reservation(id));
    }
    let activity = words.next()?;
    let activity = match tagged {
        true => activity.strip_prefix('{')?.strip_suffix('}')?,
        false => activity,
    };
    let activity = decimal(activity).and_then(ActivityId::new)?;
    let mut next = || words.next().and_then(decimal);
    let subject = match kind {
        "stock" | "pause" => Subject::Activity(activity),
        "count" => Subject::User(activity, UserId::new(next()?)?),
        "reservation" => Subject::Reservation(ReservationId::new(next()?)?),
        "idem" => {
            next()?;
            Subject::Reservation(ReservationId::new(next()?)?)
        }
        _ => return None,
    };
    words.next().is_none().then_some(subject)
}
