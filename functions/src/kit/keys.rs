//! The compatibility keys: those on the server, and those that the engine's state asks for.

use std::collections::BTreeMap;

use engine::core::activity::Activity;
use engine::core::event::Status;
use engine::core::ids::{Position, ReservationId, UserId};
use engine::core::reservation::Slot;

use super::oracle::Oracle;
use super::valkey::Valkey;

pub const SECOND_MS: u64 = 1000;
pub const MINUTE_MS: u64 = 60 * SECOND_MS;
pub const HOUR_MS: u64 = 60 * MINUTE_MS;

/// By key: the value, and when the key ends; `None` for one that lives until it is deleted.
pub type Keys = BTreeMap<String, (String, Option<u64>)>;

/// Every key of the layout that the server has.
pub fn present(server: &mut Valkey) -> Keys {
    let names: Vec<String> =
        redis::cmd("KEYS").arg("flashsale:*").query(&mut server.connection).unwrap();
    let entry = |name: String| {
        let value = server.value(&name).unwrap();
        let ends_ms = server.ends_ms(&name);
        (name, (value, ends_ms))
    };
    names.into_iter().map(entry).collect()
}

/// Every key that the contract asks for in the oracle's state, at `now_ms` of the server's clock:
/// what a call dated long before has ended since.
pub fn due(oracle: &Oracle, now_ms: u64) -> Keys {
    let mut keys = Keys::new();
    for (id, activity) in oracle.shard.activities() {
        let public_until = Some(activity.terms().end_ms + HOUR_MS);
        let mut put = |name: String, value: String, ends_ms| {
            keys.insert(format!("flashsale:{name}"), (value, ends_ms));
        };
        let available = activity.figures().available.to_string();
        put(format!("stock:{id}"), available, public_until);
        if activity.flags().paused {
            put(format!("pause:{id}"), "1".to_owned(), None);
        }
        for (reservation, slot) in reservations(activity) {
            let user: UserId = slot.user();
            let held = activity.held(user);
            if held > 0 {
                put(format!("count:{id}:{user}"), held.to_string(), public_until);
            }
            let token = reservation.to_string();
            let (key, idem) =
                (format!("reservation:{token}"), format!("idem:{id}:{user}:{reservation}"));
            let idem_until = Some(slot.created_ms() + 30 * MINUTE_MS);
            match slot.status() {
                Status::Reserved => {
                    put(key, token.clone(), None);
                    put(idem, token, idem_until);
                }
                Status::Confirmed => put(idem, token, idem_until),
                Status::RolledBack(_) => {
                    let tombstone_until = Some(slot.updated_ms() + 24 * HOUR_MS);
                    put(key, format!("rolled_back:{token}"), tombstone_until);
                }
            }
        }
    }
    keys.retain(|_, (_, ends_ms)| ends_ms.is_none_or(|ends_ms| ends_ms > now_ms));
    keys
}

fn reservations(activity: &Activity) -> impl Iterator<Item = (ReservationId, &Slot)> {
    activity.slots().iter().enumerate().map(|(index, slot)| {
        let position = Position::after(index).unwrap();
        (ReservationId::compose(activity.ordinal(), position), slot)
    })
}
