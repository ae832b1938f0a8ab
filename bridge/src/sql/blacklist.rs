//! `blacklist`: who may not buy, a projection of the controls `blacklist/<kind>/<value>`.
//!
//! The value of such a control is a JSON object; what is read of it is its `reason`. Kinds that the
//! table does not know are a later version's, and let be.

use std::collections::BTreeMap;

use engine::core::control::keys::BLACKLIST_PREFIX;
use serde_json::Value as Json;

use super::fault::SinkError;
use super::store::{Lookup, Rows, Table, Transaction, Value};

static BLACKLIST: Table = Table {
    name: "blacklist",
    columns: &["kind", "value", "reason", "created_by", "expires_at", "created_at"],
    key_columns: 2,
};

static BLACKLIST_KEYS: Table =
    Table { name: "blacklist", columns: &["kind", "value"], key_columns: 2 };

static BLACKLIST_BY_KIND: Lookup =
    Lookup { columns: &["kind", "value"], from: "blacklist", key: "kind", part: None, only: None };

const KINDS: [&str; 3] = ["user", "ip", "device"];

/// Characters of a reason: the column holds as many.
const REASON_CHARS_MAX: usize = 1020;

#[derive(Debug)]
struct Entry<'a> {
    reason: String,
    created_by: &'a str,
    expires_ms: Option<u64>,
    created_ms: u64,
}

/// What a batch does to the blacklist.
#[derive(Debug, Default)]
pub(super) struct Blacklist<'a> {
    /// By kind and value; `None` where it was taken off.
    changed: BTreeMap<(&'static str, &'a str), Option<Entry<'a>>>,
}

impl<'a> Blacklist<'a> {
    /// A control was set; by whom and until when (0 for ever).
    pub(super) fn set(
        &mut self,
        key: &'a str,
        value: &[u8],
        created_by: &'a str,
        expires_ms: u64,
        created_ms: u64,
    ) {
        let Some(subject) = subject(key) else { return };
        let document: Option<Json> = serde_json::from_slice(value).ok();
        let reason = document.as_ref().and_then(|it| it.get("reason")?.as_str());
        let reason = reason.unwrap_or_default().chars().take(REASON_CHARS_MAX).collect();
        let expires_ms = (expires_ms != 0).then_some(expires_ms);
        let entry = Entry { reason, created_by, expires_ms, created_ms };
        self.changed.insert(subject, Some(entry));
    }

    /// A control was cleared.
    pub(super) fn clear(&mut self, key: &'a str) {
        if let Some(subject) = subject(key) {
            self.changed.insert(subject, None);
        }
    }

    /// Makes the table what `entries` (key, value, end) say, and nothing beside. Who made them and
    /// when, their values say; those that don't were made at `made_ms` at the latest.
    pub(super) async fn fill<'e>(
        entries: impl Iterator<Item = (&'e str, &'e [u8], u64)>,
        made_ms: u64,
        transaction: &mut impl Transaction,
    ) -> Result<(), SinkError> {
        let kinds = KINDS.map(Value::text);
        let mut there = Rows::new(&BLACKLIST_KEYS);
        for mut record in transaction.select(&BLACKLIST_BY_KIND, &kinds).await? {
            there.push([record.take(0)?, record.take(1)?]);
        }
        transaction.delete(&there).await?;
        let mut rows = Rows::new(&BLACKLIST);
        for (key, value, expires_ms) in entries {
            let Some((kind, subject)) = subject(key) else { continue };
            let document: Json = serde_json::from_slice(value).unwrap_or_default();
            let text = |name: &str| document.get(name).and_then(Json::as_str).unwrap_or_default();
            let created_ms = document.get("created_ms").and_then(Json::as_u64).unwrap_or(made_ms);
            rows.push([
                Value::text(kind),
                Value::text(subject),
                Value::text(text("reason").chars().take(REASON_CHARS_MAX).collect::<String>()),
                Value::text(text("by").to_owned()),
                Value::integer_or_null((expires_ms != 0).then_some(expires_ms)),
                Value::integer(created_ms),
            ]);
        }
        transaction.insert(&rows).await?;
        Ok(())
    }

    pub(super) async fn write(self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        let (mut old, mut new) = (Rows::new(&BLACKLIST_KEYS), Rows::new(&BLACKLIST));
        for ((kind, value), entry) in self.changed {
            old.push([Value::text(kind), Value::text(value)]);
            let Some(entry) = entry else { continue };
            new.push([
                Value::text(kind),
                Value::text(value),
                Value::text(entry.reason),
                Value::text(entry.created_by),
                Value::integer_or_null(entry.expires_ms),
                Value::integer(entry.created_ms),
            ]);
        }
        transaction.delete(&old).await?;
        transaction.insert(&new).await?;
        Ok(())
    }
}

/// The kind and the value that `key` names.
fn subject(key: &str) -> Option<(&'static str, &str)> {
    let (kind, value) = key.strip_prefix(BLACKLIST_PREFIX)?.split_once('/')?;
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    (!value.is_empty()).then_some((kind, value))
}
