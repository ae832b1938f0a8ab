//! What SQL says, read page by page in one state of the database: for whoever compares it with the
//! log, or rebuilds a log from it.

use wal::Lsn;

use super::chunks::placeholders;
use super::fill::GONE_SKU;
use super::readers::Snapshot;
use super::sink::SINK_NAME;
use super::store::{Record, StoreError, Value};
use crate::reconcile::compare::{OrderRow, Row, UnitsRow};

/// Rows of a page.
pub(crate) const PAGE_ROWS: usize = 500;

const UNITS: &str = "id, stock, locked_stock, sold_stock, status, paused, drained, version";

/// A row and its order, with the view `orders` where orders are spread over tables.
const ROWS: &str = "SELECT p.id, p.activity_id, p.user_id, p.quantity, p.order_no, p.status, \
     o.user_id, o.purchase_slot, o.status, o.user_activity_key \
     FROM flashsale_pre_deductions p LEFT JOIN orders o ON o.order_no = p.order_no";

/// Where the sink is.
pub(crate) async fn cursor_lsn(snapshot: &mut Snapshot) -> Result<Option<Lsn>, StoreError> {
    let text = "SELECT lsn FROM bridge_cursor WHERE sink = ?";
    let records = snapshot.rows(text, &[Value::text(SINK_NAME)]).await?;
    records.first().map(|record| record.number(0).map(Lsn)).transpose()
}

/// The activities of `ids`, at most a page of them.
pub(crate) async fn units(
    snapshot: &mut Snapshot,
    ids: &[u64],
) -> Result<Vec<UnitsRow>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let list = placeholders(ids.len());
    let text = format!("SELECT {UNITS} FROM flashsale_activities WHERE id IN {list}");
    let ids: Vec<_> = ids.iter().map(|id| Value::integer(*id)).collect();
    snapshot.rows(text, &ids).await?.iter().map(units_row).collect()
}

/// The next page of activities that are not archived, by id behind `after`.
pub(crate) async fn next_units(
    snapshot: &mut Snapshot,
    after: u64,
) -> Result<Vec<UnitsRow>, StoreError> {
    let text = format!(
        "SELECT {UNITS} FROM flashsale_activities \
         WHERE id > ? AND archived_at IS NULL ORDER BY id LIMIT {PAGE_ROWS}"
    );
    snapshot.rows(text, &[Value::integer(after)]).await?.iter().map(units_row).collect()
}

/// The reservations of `ids`, at most a page of them.
pub(crate) async fn rows(snapshot: &mut Snapshot, ids: &[u64]) -> Result<Vec<Row>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!("{ROWS} WHERE p.id IN {}", placeholders(ids.len()));
    let ids: Vec<_> = ids.iter().map(|id| Value::integer(*id)).collect();
    snapshot.rows(text, &ids).await?.iter().map(row).collect()
}

/// The next page of reservations, by id behind `after`: id and activity.
pub(crate) async fn next_ids(
    snapshot: &mut Snapshot,
    after: u64,
) -> Result<Vec<(u64, u64)>, StoreError> {
    let text = format!(
        "SELECT id, activity_id FROM flashsale_pre_deductions WHERE id > ? \
         ORDER BY id LIMIT {PAGE_ROWS}"
    );
    let records = snapshot.rows(text, &[Value::integer(after)]).await?;
    records.iter().map(|record| Ok((record.number(0)?, record.number(1)?))).collect()
}

/// Orders without a reservation, at most a page of them, by number behind `after`.
pub(crate) async fn stray_orders(
    snapshot: &mut Snapshot,
    after: &str,
) -> Result<Vec<(String, u64)>, StoreError> {
    let text = format!(
        "SELECT o.order_no, o.activity_id FROM orders o \
         LEFT JOIN flashsale_pre_deductions p ON p.order_no = o.order_no \
         WHERE o.order_no > ? AND p.id IS NULL ORDER BY o.order_no LIMIT {PAGE_ROWS}"
    );
    let records = snapshot.rows(text, &[Value::text(after)]).await?;
    records.iter().map(|record| Ok((record.text(0)?.to_owned(), record.number(1)?))).collect()
}

/// Activities that were archived and are gone, and reservations whose request id is: what a
/// database that was filled from a snapshot lacks.
pub(crate) async fn gone(snapshot: &mut Snapshot) -> Result<(u64, u64), StoreError> {
    let text = "SELECT (SELECT COUNT(*) FROM flashsale_activities WHERE sku_id = ?), \
                (SELECT COUNT(*) FROM flashsale_pre_deductions WHERE client_request_id IS NULL)";
    let records = snapshot.rows(text, &[Value::integer(GONE_SKU)]).await?;
    let record = records.first().ok_or(StoreError::Unreadable { column: 0 })?;
    Ok((record.number(0)?, record.number(1)?))
}

fn units_row(record: &Record) -> Result<UnitsRow, StoreError> {
    let flag = |index| Ok::<_, StoreError>(record.number(index)? != 0);
    Ok(UnitsRow {
        id: record.number(0)?,
        units: [record.number(1)?, record.number(2)?, record.number(3)?],
        switches: [record.text(4)? == "on_sale", flag(5)?, flag(6)?],
        version: record.number(7)?,
    })
}

fn row(record: &Record) -> Result<Row, StoreError> {
    let order = match record.number_or_null(6)? {
        None => None,
        Some(user) => Some(OrderRow {
            user,
            reservation: record.number(7)?,
            status: record.text(8)?.to_owned(),
            takes_slot: record.text_or_null(9)?.is_some(),
        }),
    };
    Ok(Row {
        id: record.number(0)?,
        activity: record.number(1)?,
        user: record.number(2)?,
        quantity: record.number(3)?,
        order_no: record.text(4)?.to_owned(),
        status: record.text(5)?.to_owned(),
        order,
    })
}
