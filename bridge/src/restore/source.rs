//! The database that a restore begins with.

use engine::core::ids::OrderPrefix;

use super::RestoreError;
use crate::cursor::Cursor;
use crate::sql::database::Database;
use crate::sql::readers::Readers;
use crate::sql::sink::{self, FILLING_NAME};
use crate::sql::split::Split;
use crate::sql::store::{StoreError, Value};

/// A database that a lost log was projected into.
#[derive(Debug)]
pub struct Source {
    pub(super) database: Database,
    pub(super) readers: Readers,
    pub(super) cursor: Cursor,
    request_hash_key: [u8; 16],
    order_prefix: Option<OrderPrefix>,
}

impl Source {
    /// Looks at `database`.
    ///
    /// # Errors
    /// [`RestoreError`] where it is none that a server wrote to.
    pub async fn open(database: Database, split: Split) -> Result<Self, RestoreError> {
        database.prepare(split).await?;
        let readers = Readers::of(&database);
        let mut snapshot = readers.snapshot().await?;
        let text = "SELECT log_uuid, epoch, lsn, chain, request_hash_key FROM bridge_cursor \
                    WHERE sink = ?";
        let rows = snapshot.rows(text, &[Value::text(engine::ORDERS_SINK)]).await?;
        let row = rows.first().ok_or(RestoreError::Empty)?;
        if !snapshot.rows(text, &[Value::text(FILLING_NAME)]).await?.is_empty() {
            return Err(RestoreError::Filling);
        }
        let cursor = sink::cursor(row)?;
        let request_hash_key =
            row.bytes(4)?.try_into().map_err(|_| StoreError::Unreadable { column: 4 })?;
        // Ids with an ordinal have an order number that follows from them, and from the prefix.
        let text = "SELECT order_no FROM flashsale_pre_deductions WHERE id > ? ORDER BY id LIMIT 1";
        let rows = snapshot.rows(text, &[Value::integer(u32::MAX)]).await?;
        let order_no = rows.first().map(|row| row.text(0)).transpose()?;
        let order_prefix = order_no
            .and_then(|it| it.get(..it.len().checked_sub(17)?)?.parse().ok())
            .and_then(OrderPrefix::new);
        drop(snapshot);
        Ok(Self { database, readers, cursor, request_hash_key, order_prefix })
    }

    /// The key under which the lost log hashed request ids.
    pub fn request_hash_key(&self) -> [u8; 16] {
        self.request_hash_key
    }

    /// The site's prefix of order numbers, as far as there are any.
    pub fn order_prefix(&self) -> Option<OrderPrefix> {
        self.order_prefix
    }
}
