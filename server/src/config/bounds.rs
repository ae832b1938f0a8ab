//! What no kind of value can express: bounds, and settings that need one another.

use std::time::Duration;

use bridge::redis::sink::CALL_RECORDS_MAX;
use bridge::sql::split::Split;
use bridge::tail::BATCH_RECORDS_MAX;
use engine::core::limits::{PAYMENT_TTL_MS_MAX, PAYMENT_TTL_MS_MIN};
use serde_json::Value;

use super::{ConfigError, Entry, Settings};
use crate::limits::Rules;

/// Event loops of a front: each is a thread.
const LOOPS_MAX: usize = 256;

/// Whether the engine takes it for a payment's time.
fn is_payment_ttl(ttl: Duration) -> bool {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    (PAYMENT_TTL_MS_MIN..=PAYMENT_TTL_MS_MAX).contains(&ttl_ms)
}

/// Refuses what no kind of value can express.
pub(super) fn check(settings: &Settings, origins: &[Entry]) -> Result<(), ConfigError> {
    let origin = |key: &str| {
        let entry = origins.iter().find(|entry| entry.key == key);
        entry.map_or_else(String::new, |entry| entry.origin.clone())
    };
    let schemes = ["sqlite:", "mysql:", "mariadb:"];
    let known = |url: &String| schemes.iter().any(|scheme| url.starts_with(scheme));
    let urls = [("database", &settings.database), ("legacy_database", &settings.legacy_database)];
    for (key, url) in urls {
        if url.as_ref().is_some_and(|url| !known(url)) {
            return Err(ConfigError::UnsupportedDatabase { key });
        }
    }
    Rules::of(&settings.limits(), &Value::Null)?;
    let segment_bytes = settings.format.segment_bytes;
    let mirror = &settings.mirror;
    let is_loopback = settings.resp_listen.is_none_or(|address| address.ip().is_loopback());
    let has_users = settings.resp.users.is_some() || settings.resp.users_file.is_some();
    let bounds: [(&'static str, bool, &'static str); 12] = [
        ("orders.split", Split::new(settings.orders.split).is_some(), "must be 1 to 64"),
        (
            "resp_listen",
            is_loopback || has_users,
            "must be a loopback address unless resp.users or resp.users_file says who may call",
        ),
        ("payments.ttl", is_payment_ttl(settings.payments.ttl), "must be 1s to 30d"),
        ("resp.connections_max", settings.resp.connections_max > 0, "must be at least 1"),
        ("resp.loops", settings.resp.loops <= LOOPS_MAX, "must be at most 256"),
        ("http.loops", settings.http.loops <= LOOPS_MAX, "must be at most 256"),
        ("http.connections_max", settings.http.connections_max > 0, "must be at least 1"),
        ("http.waiters_max", settings.http.waiters_max > 0, "must be at least 1"),
        (
            "mirror.call_records_max",
            (1..=CALL_RECORDS_MAX).contains(&mirror.call_records_max),
            "must be 1 to 128: a call blocks Redis",
        ),
        (
            "mirror.step_records_max",
            (1..=BATCH_RECORDS_MAX).contains(&mirror.step_records_max),
            "must be 1 to 2000",
        ),
        (
            "format.order_prefix",
            (1..=999).contains(&settings.format.order_prefix),
            "must be 1 to 3 digits",
        ),
        (
            "format.segment_bytes",
            segment_bytes >= 1 << 20 && segment_bytes.is_multiple_of(4096),
            "must be at least 1048576 and a multiple of 4096",
        ),
    ];
    let bounds = bounds.into_iter().chain(settings.retention.bounds(segment_bytes));
    match bounds.into_iter().find(|(_, kept, _)| !kept) {
        None => Ok(()),
        Some((key, _, expected)) => Err(ConfigError::Value {
            key,
            value: origins
                .iter()
                .find(|entry| entry.key == key)
                .and_then(|entry| entry.value.clone())
                .unwrap_or_default(),
            origin: origin(key),
            expected,
        }),
    }
}
