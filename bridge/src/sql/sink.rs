//! One transaction a batch: orders, units, flows and the cursor, all or nothing.
//!
//! The cursor is fenced: its row moves only from where this sink left it, in this server's epoch.
//! Two servers on one database therefore never both write: the later epoch takes the cursor over
//! ([`SqlSink::claim`]) and the other one's next transaction hits no row.
//!
//! Nothing is remembered over an error. The activities that the sink knows are forgotten, the
//! store drops its connection, and whoever drives the sink reads the cursor again: a COMMIT whose
//! answer was lost has either happened or not, and the cursor says which.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::core::ids::ReservationId;
use engine::core::request::RequestHasher;
use wal::{Epoch, LogIdentity, LogUuid, Lsn};

use super::activities::Activities;
use super::audit::Trail;
use super::fault::SinkError;
use super::fold::{Fold, Site};
use super::needs::{Needs, decode};
use super::orders::{self, ReservationRows};
use super::refunds::Refunds;
use super::reservations::{Order, Reservation};
use super::split::Split;
use super::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value};
use super::stored_reservations;
use crate::cursor::{Cursor, Standing};
use crate::host::Host;
use crate::place;
use crate::tail::Batch;

/// The name under which this sink's cursor and marks are kept.
pub const SINK_NAME: &str = engine::ORDERS_SINK;

/// Under this name stands how far a filling will reach, as long as it is not whole: see
/// [`fill`](super::fill).
pub(crate) const FILLING_NAME: &str = "sql-filling";

pub(crate) static CURSOR: Table = Table {
    name: "bridge_cursor",
    columns: &["sink", "log_uuid", "epoch", "lsn", "chain", "request_hash_key", "updated_at"],
    key_columns: 1,
};

/// The cursor's move: the key is where it must stand, the rest is where it goes.
static CURSOR_MOVE: Table = Table {
    name: "bridge_cursor",
    columns: &["sink", "log_uuid", "epoch", "lsn", "chain", "epoch", "lsn", "chain", "updated_at"],
    key_columns: 5,
};

pub(super) static CURSOR_BY_SINK: Lookup = Lookup {
    columns: &["log_uuid", "epoch", "lsn", "chain"],
    from: "bridge_cursor",
    key: "sink",
    part: None,
    only: None,
};

static STANDING_BY_SINK: Lookup =
    Lookup { columns: &["log_uuid", "epoch", "lsn", "chain", "sink"], ..CURSOR_BY_SINK };

/// How orders are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderOptions {
    /// How many tables they are spread over.
    pub split: Split,
    /// No order over HTTP for a buyer who has no default address.
    pub require_address: bool,
}

/// Reservations of a batch that no order can hold.
#[derive(Clone, Debug, Default)]
pub struct Undeliverable {
    reasons: BTreeMap<ReservationId, String>,
    /// Those of them whose own row is refused as well: their dead letter stands alone.
    without_row: BTreeSet<ReservationId>,
}

impl Undeliverable {
    /// Why no order can hold `id`, if it is one of them.
    pub fn reason(&self, id: ReservationId) -> Option<&str> {
        self.reasons.get(&id).map(String::as_str)
    }

    /// Adds `ids`, for that reason.
    pub fn add(&mut self, ids: impl IntoIterator<Item = ReservationId>, why: &str) {
        self.reasons.extend(ids.into_iter().map(|id| (id, why.to_owned())));
    }

    /// Leaves the rows of `ids` out; whether that is anything new.
    pub fn leave_rows_out(&mut self, ids: &[ReservationId]) -> bool {
        let before = self.without_row.len();
        self.without_row.extend(ids);
        self.without_row.len() > before
    }

    /// Makes dead letters of those of `reservations` that no order can hold.
    pub(super) fn settle<'a>(&'a self, reservations: &mut [Reservation<'a>]) {
        for reservation in reservations {
            if let (Order::Due(_), Some(why)) = (&reservation.order, self.reason(reservation.id)) {
                reservation.dead_letter(why, reservation.updated_ms);
            }
            if self.without_row.contains(&reservation.id) {
                reservation.leave_row_out();
            }
        }
    }
}

/// The SQL sink over a store of any dialect.
#[derive(Debug)]
pub struct SqlSink<S> {
    pub(crate) store: S,
    pub(super) options: OrderOptions,
    site: Site,
    pub(super) identity: LogIdentity,
    pub(super) request_hash_key: [u8; 16],
    activities: Activities,
}

impl<S: Store> SqlSink<S> {
    /// A sink for `host`'s log into `store`.
    pub fn new(store: S, host: &impl Host, options: OrderOptions) -> Self {
        let identity = host.identity();
        let request_hash_key = host.request_hash_key();
        let site = Site {
            log: identity.uuid,
            order_prefix: host.order_prefix(),
            hasher: RequestHasher::new(&request_hash_key),
            ordered: host.announced_lsn(SINK_NAME),
        };
        let activities = Activities::default();
        Self { store, options, site, identity, request_hash_key, activities }
    }

    /// What the database says of its place, now.
    ///
    /// # Errors
    /// Where the database does not answer, or a row is none that this schema allows.
    pub async fn read_standing(&mut self) -> Result<Standing, SinkError> {
        let mut transaction = self.store.begin().await?;
        let standing = standing(&mut transaction).await?;
        transaction.commit().await?;
        Ok(standing)
    }

    /// Makes the cursor `found` this server's: writes its epoch into it, or makes the row where
    /// there is none. Returns the cursor that batches then move. What an earlier session committed
    /// lasts from then on: the engine is told of it next.
    ///
    /// # Errors
    /// [`SinkError::CursorMoved`] where it is no longer as it was found.
    pub async fn claim(&mut self, found: Option<Cursor>) -> Result<Cursor, SinkError> {
        let mut transaction = self.store.begin().await?;
        let claimed = match found {
            None => {
                let beginning = Cursor::beginning(self.identity);
                let mut rows = Rows::new(&CURSOR);
                rows.push(cursor_row(SINK_NAME, &beginning, self.request_hash_key));
                transaction.insert(&rows).await?;
                beginning
            }
            Some(found) => {
                let claimed = Cursor { epoch: self.identity.epoch, ..found };
                touch_cursor(&mut transaction, &found, &claimed).await?;
                claimed
            }
        };
        transaction.commit().await?;
        Ok(claimed)
    }

    /// Moves the cursor to where it stands: a commit, for what it makes durable.
    ///
    /// # Errors
    /// As [`SqlSink::claim`].
    pub(crate) async fn stay(&mut self, at: &Cursor) -> Result<(), SinkError> {
        let mut transaction = self.store.begin().await?;
        touch_cursor(&mut transaction, at, at).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Writes `batch`, which follows `from`, and moves the cursor to its end; the new cursor.
    /// Reservations that are `undeliverable` become dead letters instead of orders.
    ///
    /// # Errors
    /// [`SinkError::Undeliverable`] where more of them are. Nothing of the batch is written then,
    /// or, where COMMIT itself failed, perhaps all of it: the caller reads the cursor.
    pub async fn apply(
        &mut self,
        batch: &Batch,
        from: &Cursor,
        undeliverable: &Undeliverable,
    ) -> Result<Cursor, SinkError> {
        let end = batch.end().map(|end| (end.lsn, end.chain));
        let Some((lsn, chain)) = end else { return Ok(*from) };
        let to = Cursor { lsn, chain, ..*from };
        let applied = self.write(batch, (from, &to), undeliverable).await;
        if applied.is_err() {
            self.activities.forget();
        }
        applied.map(|()| to)
    }

    async fn write(
        &mut self,
        batch: &Batch,
        (from, to): (&Cursor, &Cursor),
        undeliverable: &Undeliverable,
    ) -> Result<(), SinkError> {
        let split = self.options.split;
        let events = decode(batch)?;
        let needs = Needs::of(&events);
        let mut transaction = self.store.begin().await?;
        // First, so that a sink that was fenced off writes nothing at all.
        move_cursor(&mut transaction, from, to).await?;

        self.activities.load(needs.activities.iter().copied(), &mut transaction).await?;
        let known: Vec<ReservationId> = needs.reservations.iter().copied().collect();
        let loaded = stored_reservations::load(&known, split, &mut transaction).await?;
        let mut refunds = Refunds::default();
        let refunded: Vec<String> = loaded
            .iter()
            .filter(|reservation| needs.refunded.contains(&reservation.id))
            .map(|reservation| reservation.order_no.clone())
            .collect();
        refunds.load(&refunded, &mut transaction).await?;

        let mut audit = Trail::default();
        audit.load(needs.controls.iter().copied(), &mut transaction).await?;

        let mut fold = Fold::new(self.site, &mut self.activities, loaded, refunds, audit);
        for event in &events {
            place::rest();
            fold.take(event)?;
        }
        let (created, touched) = fold.activity_rows()?;
        let addresses = orders::load_addresses(&fold.reservations, &mut transaction).await?;
        if self.options.require_address {
            orders::require_addresses(&fold.reservations, &addresses, undeliverable)?;
        }
        undeliverable.settle(&mut fold.reservations);
        let rows = ReservationRows::new(fold.reservations, &addresses, split);

        transaction.insert(&created).await?;
        update_all(&mut transaction, &touched).await?;
        rows.write(&mut transaction).await?;
        fold.payments.write(&mut transaction).await?;
        fold.refunds.write(&mut transaction).await?;
        fold.blacklist.write(&mut transaction).await?;
        transaction.insert(&fold.flows).await?;
        fold.audit.write(&mut transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Updates `rows`, each of which must be there.
pub(super) async fn update_all(
    transaction: &mut impl Transaction,
    rows: &Rows<'_>,
) -> Result<(), SinkError> {
    let hit = transaction.update(rows).await?;
    let expected = rows.len() as u64;
    if hit == expected {
        Ok(())
    } else {
        Err(SinkError::RowsMissing { table: rows.table().name, hit, expected })
    }
}

/// What the database says of its place.
pub(super) async fn standing(transaction: &mut impl Transaction) -> Result<Standing, StoreError> {
    let names = [SINK_NAME, FILLING_NAME].map(Value::text);
    let mut standing = Standing::default();
    for record in transaction.select(&STANDING_BY_SINK, &names).await? {
        let found = Some(cursor(&record)?);
        match record.text(4)? {
            FILLING_NAME => standing.filling = found,
            _ => standing.cursor = found,
        }
    }
    Ok(standing)
}

/// A new row of [`CURSOR`].
pub(super) fn cursor_row(
    name: &'static str,
    at: &Cursor,
    request_hash_key: [u8; 16],
) -> [Value<'static>; 7] {
    [
        Value::text(name),
        Value::bytes(at.uuid.0.to_vec()),
        Value::integer(at.epoch.0),
        Value::integer(at.lsn.0),
        Value::integer(at.chain),
        Value::bytes(request_hash_key.to_vec()),
        Value::integer(now_ms()),
    ]
}

pub(super) async fn move_cursor(
    transaction: &mut impl Transaction,
    from: &Cursor,
    to: &Cursor,
) -> Result<(), SinkError> {
    move_cursor_at(transaction, from, to, now_ms()).await
}

/// Moves the cursor so that there is something to sync, though it may stay where it is.
///
/// SQLite neither writes nor syncs what a row has already: of two times one is another than its
/// own, whatever the clock says.
async fn touch_cursor(
    transaction: &mut impl Transaction,
    from: &Cursor,
    to: &Cursor,
) -> Result<(), SinkError> {
    let now_ms = now_ms();
    move_cursor_at(transaction, from, to, now_ms.saturating_add(1)).await?;
    move_cursor_at(transaction, to, to, now_ms).await
}

async fn move_cursor_at(
    transaction: &mut impl Transaction,
    from: &Cursor,
    to: &Cursor,
    updated_ms: u64,
) -> Result<(), SinkError> {
    let mut rows = Rows::new(&CURSOR_MOVE);
    rows.push([
        Value::text(SINK_NAME),
        Value::bytes(from.uuid.0.to_vec()),
        Value::integer(from.epoch.0),
        Value::integer(from.lsn.0),
        Value::integer(from.chain),
        Value::integer(to.epoch.0),
        Value::integer(to.lsn.0),
        Value::integer(to.chain),
        Value::integer(updated_ms),
    ]);
    match transaction.update(&rows).await? {
        1 => Ok(()),
        _ => Err(SinkError::CursorMoved),
    }
}

/// The cursor that `record` begins with, in the order of its table.
pub(crate) fn cursor(record: &Record) -> Result<Cursor, StoreError> {
    let uuid = record.bytes(0)?.try_into().map_err(|_| StoreError::Unreadable { column: 0 })?;
    let chain = record.number(3)?;
    Ok(Cursor {
        uuid: LogUuid(uuid),
        epoch: Epoch(record.number(1)?),
        lsn: Lsn(record.number(2)?),
        chain: u32::try_from(chain).map_err(|_| StoreError::Unreadable { column: 3 })?,
    })
}

/// The wall clock, for `updated_at` of the cursor: people read it, nothing rests on it.
pub(crate) fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
