//! The engine's state as it is now: what a resync writes and the scrubber compares with.

use std::time::{SystemTime, UNIX_EPOCH};

use engine::core::activity::Activity;
use engine::core::ids::{ActivityId, Position, ReservationId, UserId};
use engine::core::reservation::Slot;
use engine::core::side::DeadLetter;
use wal::{Lsn, SinkClass};

use super::layouts::{Known, Reserved};
use crate::host::Host;

/// The name under which the log is kept for the mirror.
const MIRROR_SINK: &str = "redis";

/// Controls that blacklist a user: this and the user's id.
pub(super) const BLACKLIST_PREFIX: &str = "blacklist/user/";

/// A host whose state can be read. It may be ahead of what is durable.
pub trait Present: Host {
    /// The activities in memory.
    fn activities(&self) -> Vec<ActivityId>;

    /// What `read`, which must be short, makes of an activity.
    fn look<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> Option<T>;

    /// The activity whose reservation `id` is, where the id says so.
    fn activity_of(&self, id: ReservationId) -> Option<ActivityId>;

    /// The reservation whose order has that number.
    fn reservation_of_order(&self, _order_no: &str) -> Option<ReservationId> {
        None
    }

    /// Waits until everything that was applied before is durable; an LSN at or behind the last of
    /// it, `None` where the log has failed.
    fn settle(&self) -> Option<Lsn>;

    /// The mirror holds everything up to `lsn` in an append-only file: the log need not be kept
    /// for it any longer.
    fn mirror_confirmed(&self, _lsn: Lsn) {}

    /// The clock that a record's age is told by, Unix microseconds.
    fn wall_us(&self) -> u64 {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
    }

    /// The run-time controls whose key begins with `prefix`, each with its end (Unix milliseconds,
    /// 0 for never).
    fn controls(&self, prefix: &str) -> Vec<(String, u64)>;
}

impl Present for engine::Engine {
    fn activities(&self) -> Vec<ActivityId> {
        self.live_activities()
    }

    fn look<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> Option<T> {
        self.peek(id, read)
    }

    fn activity_of(&self, id: ReservationId) -> Option<ActivityId> {
        engine::Engine::activity_of(self, id)
    }

    fn reservation_of_order(&self, order_no: &str) -> Option<ReservationId> {
        engine::Engine::reservation_of_order(self, order_no)
    }

    fn settle(&self) -> Option<Lsn> {
        self.all_durable().ok()
    }

    fn mirror_confirmed(&self, lsn: Lsn) {
        // A Redis that never confirms is never registered: nothing would be gained by keeping the
        // log for it, the mirror is written anew from the engine's state.
        if self.sinks().iter().all(|sink| sink.name != MIRROR_SINK)
            && let Err(error) = self.register_sink(MIRROR_SINK, SinkClass::Rebuildable)
        {
            tracing::warn!(%error, "the log is not kept for the mirror, which may be written anew");
        }
        self.sink_confirmed(MIRROR_SINK, lsn);
    }

    fn controls(&self, prefix: &str) -> Vec<(String, u64)> {
        self.controls_under(prefix)
    }
}

/// A reservation with what its user holds.
pub(super) type Held = (Reserved, u32);

/// A reservation of `activity`, as it is now.
pub(super) fn reservation(activity: &Activity, id: ReservationId) -> Option<Held> {
    let slot = activity.slot(id)?;
    Some(held(activity, id, slot))
}

fn held(activity: &Activity, id: ReservationId, slot: &Slot) -> Held {
    let reserved = Reserved {
        id,
        user: slot.user(),
        status: slot.status(),
        created_ms: Some(slot.created_ms()),
        updated_ms: slot.updated_ms(),
        is_dead_letter: activity.dead_letter(id).is_some_and(DeadLetter::is_open),
        order_no: brought(activity, id),
    };
    (reserved, activity.held(slot.user()))
}

/// The order number that a reservation was taken over with; one that was accepted here has none.
fn brought(activity: &Activity, id: ReservationId) -> Option<Box<str>> {
    if id.ordinal() == activity.ordinal() {
        return None;
    }
    let adopted = activity.adopted_reservation(id)?;
    (!adopted.order_no.is_empty()).then(|| adopted.order_no.clone())
}

/// The same, where only the reservation's id is known; it never changes.
pub(super) fn order_no(host: &impl Present, of: &Known, id: ReservationId) -> Option<Box<str>> {
    if id.ordinal() == of.ordinal {
        return None;
    }
    host.look(of.id, |activity: &Activity| brought(activity, id))?
}

/// At most `max` reservations of `activity` behind the first `from`, those accepted here first,
/// then the adopted ones.
pub(super) fn reservations(activity: &Activity, from: usize, max: usize) -> Vec<Held> {
    let count = activity.slots().len();
    let own = (from.min(count)..count.min(from.saturating_add(max))).filter_map(|index| {
        let id = ReservationId::compose(activity.ordinal(), Position::after(index)?);
        Some(held(activity, id, activity.slots().get(index)?))
    });
    let mut found: Vec<Held> = own.collect();
    let left = max.saturating_sub(found.len());
    let adopted = activity.adopted().skip(from.saturating_sub(count)).take(left);
    found.extend(adopted.map(|(id, adopted)| held(activity, id, &adopted.slot)));
    found
}

/// The reservations of `user`, those accepted here and the adopted ones. The engine keeps them by
/// user: nothing is walked but what is found.
pub(super) fn reservations_of(activity: &Activity, user: UserId) -> Vec<Held> {
    let ids = activity.reservations_of(user).into_iter();
    ids.filter_map(|id| reservation(activity, id)).collect()
}

/// The user that a control's key blacklists.
pub(super) fn blacklisted(key: &str) -> Option<UserId> {
    key.strip_prefix(BLACKLIST_PREFIX)?.parse().ok().and_then(UserId::new)
}

/// When a reservation was accepted; it never changes.
pub(super) fn created_ms(host: &impl Present, of: ActivityId, id: ReservationId) -> Option<u64> {
    let look = |activity: &Activity| activity.slot(id).map(Slot::created_ms);
    host.look(of, look)?
}
