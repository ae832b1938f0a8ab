//! Keys for readers of the system whose keys begin with `seckill:`.
//!
//! | key | value | life |
//! |---|---|---|
//! | `seckill:stock:<sku>` | units available | until an hour after the end |
//! | `seckill:stock:total:<sku>` | all units | until an hour after the end |
//! | `seckill:user:<sku>:<user>` | `1` while the user holds a unit | until a day after the end |
//! | `seckill:session:<activity>` | hash, times in milliseconds | until an hour after the end |
//! | `risk:blacklist:user:<user>` | `1` | while blacklisted |
//!
//! `status` is `ONGOING` while the activity is on sale and not paused, else `INIT`; whether the
//! window is open readers see from the times.

use engine::core::ids::{ActivityId, UserId};

use super::{DAY_MS, HOUR_MS, Known, Subject, decimal};
use crate::redis::writes::{Write, Writes};

fn until(it: &Known) -> Option<u64> {
    Some(it.end_ms.saturating_add(HOUR_MS))
}

/// What units ask for.
pub fn units(it: &Known, out: &mut Writes) {
    out.text(format!("seckill:stock:{}", it.sku), it.figures.available, until(it));
    out.text(format!("seckill:stock:total:{}", it.sku), it.figures.total(), until(it));
}

/// What an activity as such asks for.
pub fn activity(it: &Known, out: &mut Writes) {
    units(it, out);
    let status = if it.flags.on_sale && !it.is_paused() { "ONGOING" } else { "INIT" };
    let fields = vec![
        ("startTime", it.start_ms.to_string()),
        ("endTime", it.end_ms.to_string()),
        ("status", status.to_owned()),
        ("limitPerUser", it.per_user_limit.to_string()),
    ];
    out.put(format!("seckill:session:{}", it.id), Write::Hash { fields, ends_ms: until(it) });
}

/// What a user's `held` units ask for.
pub fn user(it: &Known, user: UserId, held: u32, out: &mut Writes) {
    let key = format!("seckill:user:{}:{user}", it.sku);
    match held {
        0 => out.absent(key),
        _ => out.text(key, 1, Some(it.end_ms.saturating_add(DAY_MS))),
    }
}

/// What the blacklist asks for.
pub fn blacklisted(user: UserId, entry: Option<Option<u64>>, out: &mut Writes) {
    let key = format!("risk:blacklist:user:{user}");
    match entry {
        Some(ends_ms) => out.text(key, 1, ends_ms),
        None => out.absent(key),
    }
}

/// What a key is about.
pub(super) fn subject(key: &str) -> Option<Subject> {
    let (kind, name) = key.rsplit_once(':')?;
    let name = decimal(name)?;
    match kind {
        "seckill:stock" | "seckill:stock:total" => Some(Subject::Sku(name)),
        "seckill:session" => ActivityId::new(name).map(Subject::Activity),
        "risk:blacklist:user" => UserId::new(name).map(Subject::Blacklisted),
        _ => {
            let sku = decimal(kind.strip_prefix("seckill:user:")?)?;
            UserId::new(name).map(|user| Subject::UserOfSku(sku, user))
        }
    }
}
