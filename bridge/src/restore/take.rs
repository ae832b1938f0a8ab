//! The database changes hands: one transaction.

use wal::Lsn;

use engine::Engine;

use super::RestoreError;
use super::source::Source;
use crate::cursor::Cursor;
use crate::host::Host as _;
use crate::sql::SinkError;
use crate::sql::sink::{CURSOR, SINK_NAME, now_ms};
use crate::sql::store::{Rows, Store as _, Table, Transaction as _, Value};

/// The row of the cursor, as it was read.
static CURSOR_AS_READ: Table = Table {
    name: "bridge_cursor",
    columns: &["sink", "log_uuid", "epoch", "lsn", "chain"],
    key_columns: 5,
};

static ORDINALS: Table =
    Table { name: "flashsale_activities", columns: &["id", "ordinal"], key_columns: 1 };

/// Activities whose ordinals are written in one statement's rows.
const ORDINALS_PER_WRITE: usize = 500;

/// Makes the database the new log's, from where it was read; the old cursor stays beside it, under
/// a name that no sink has.
pub(super) async fn take(source: &Source, engine: &Engine) -> Result<(), RestoreError> {
    let lsn = engine.durable_lsn();
    let chain = engine.source().seek(lsn).map_err(|_| RestoreError::Log)?;
    let (old, identity) = (source.cursor, engine.identity());
    let new = Cursor { uuid: identity.uuid, epoch: identity.epoch, lsn, chain };
    assert!(lsn > Lsn(0), "a restore writes at least its controls");
    let key = source.request_hash_key();
    let mut store = source.database.store();
    let mut transaction = store.begin().await?;
    let mut as_read = Rows::new(&CURSOR_AS_READ);
    as_read.push(place(SINK_NAME.to_owned(), &old));
    if transaction.delete(&as_read).await? != 1 {
        return Err(RestoreError::Moved);
    }
    let mut rows = Rows::new(&CURSOR);
    // The column holds 32 characters: half of the uuid names it well enough.
    let name = format!("{SINK_NAME}@{}", &old.uuid.to_string()[..16]);
    for (name, cursor) in [(SINK_NAME.to_owned(), &new), (name, &old)] {
        let [sink, uuid, epoch, lsn, chain] = place(name, cursor);
        let key = Value::bytes(key.to_vec());
        rows.push([sink, uuid, epoch, lsn, chain, key, Value::integer(now_ms())]);
    }
    transaction.insert(&rows).await?;
    let live: Vec<_> = engine.activities();
    for views in live.chunks(ORDINALS_PER_WRITE) {
        let mut rows = Rows::new(&ORDINALS);
        for view in views {
            rows.push([Value::integer(view.id.get()), Value::integer(view.ordinal.get())]);
        }
        let hit = transaction.update(&rows).await?;
        if hit != rows.len() as u64 {
            let (table, expected) = (ORDINALS.name, rows.len() as u64);
            return Err(SinkError::RowsMissing { table, hit, expected }.into());
        }
    }
    transaction.commit().await?;
    Ok(())
}

fn place(name: String, cursor: &Cursor) -> [Value<'static>; 5] {
    [
        Value::text(name),
        Value::bytes(cursor.uuid.0.to_vec()),
        Value::integer(cursor.epoch.0),
        Value::integer(cursor.lsn.0),
        Value::integer(cursor.chain),
    ]
}
