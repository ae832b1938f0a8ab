//! Controls that SQL knows: who may not buy, and whose account is disabled.

use engine::core::control::keys::BLACKLIST_PREFIX;
use serde_json::{Value as Json, json};

use crate::sql::readers::Snapshot;
use crate::sql::store::{Record, StoreError, Value};

/// A control as it is to be set: its key, its value, and its end (Unix milliseconds, 0 for never).
pub(super) type Control = (String, Vec<u8>, u64);

/// The blacklist. What stands there was put there by `by` at `made_ms` at the latest.
pub(super) async fn blacklist(
    snapshot: &mut Snapshot,
    by: &str,
    made_ms: u64,
) -> Result<Vec<Control>, StoreError> {
    let text = "SELECT kind, value, reason, expires_at FROM blacklist ORDER BY kind, value";
    let rows = snapshot.rows(text, &[]).await?;
    let control = |row: &Record| {
        let (kind, value, reason) = (row.text(0)?, row.text(1)?, row.text(2)?);
        let entry = json!({"reason": reason, "by": by, "created_ms": made_ms});
        let key = format!("{BLACKLIST_PREFIX}{kind}/{value}");
        Ok((key, entry.to_string().into_bytes(), row.number_or_null(3)?.unwrap_or_default()))
    };
    rows.iter().map(control).collect()
}

/// Accounts that are disabled. They have no row of their own: the newest audit row of each control
/// says what it is set to, and nothing where it was cleared.
pub(super) async fn disabled_accounts(snapshot: &mut Snapshot) -> Result<Vec<Control>, StoreError> {
    let text = "SELECT control_key, after_value FROM audit \
                WHERE control_key LIKE ? AND after_value IS NOT NULL ORDER BY control_key";
    let accounts = Value::text(format!("{BLACKLIST_PREFIX}account/%"));
    let rows = snapshot.rows(text, &[accounts]).await?;
    let control = |row: &Record| {
        let set: Json = serde_json::from_str(row.text(1)?).unwrap_or_default();
        // Whoever is disabled is disabled, whatever can be read of why.
        let entry = set.get("value").filter(|it| it.is_object()).cloned().unwrap_or(json!({}));
        let expires_ms = set.get("expires_at").and_then(Json::as_u64).unwrap_or_default();
        Ok((row.text(0)?.to_owned(), entry.to_string().into_bytes(), expires_ms))
    };
    rows.iter().map(control).collect()
}
