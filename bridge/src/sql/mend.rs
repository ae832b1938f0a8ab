//! Rows mended toward the log, for [`reconcile`](crate::reconcile).
//!
//! A mend is one transaction that begins by locking the sink's cursor, as a batch does: between
//! the two nothing moves. Then the engine is asked once more; only where it still says what the
//! difference was found by is anything written. Each mend leaves a `REPAIR` row in `stock_flows`;
//! what is set aside stands in that row's remark, and nowhere else.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::core::event::Status as EngineStatus;
use engine::core::ids::{ActivityId, OrderPrefix};

use super::activities::{ACTIVITIES, Activities, Activity};
use super::database::{Database, DatabaseTransaction};
use super::fault::SinkError;
use super::flows::STOCK_FLOWS;
use super::orders::{
    ORDER_ITEM_KEYS, ORDER_KEYS, ORDERS, PRE_DEDUCTIONS, ReservationRows, load_addresses,
};
use super::reservations::{Order, Reservation, Status, terms};
use super::sink::{CURSOR_BY_SINK, SINK_NAME, cursor, move_cursor, now_ms, update_all};
use super::split::Split;
use super::store::{
    Lookup, Part, Record, Rows, Store as _, StoreError, Table, Transaction as _, Value,
};
use crate::cursor::Cursor;
use crate::reconcile::compare::{Expected, Units};
use crate::redis::Present;

/// Times that a cursor which moved meanwhile is looked at again.
const ATTEMPTS_MAX: usize = 8;

/// The sink announces where it stands once that outlasts the machine: every other second while
/// orders come fast, or when it meets its database anew. For longer nobody waits.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);
const ANNOUNCED_POLL: Duration = Duration::from_millis(20);

/// Characters of a remark: what its column holds.
const REMARK_CHARS_MAX: usize = 1_000;

static PRE_DEDUCTION_KEYS: Table =
    Table { name: "flashsale_pre_deductions", columns: &["id"], key_columns: 1 };

/// A row that may be set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Aside {
    /// A row of `flashsale_pre_deductions` and the order under its number, if it is its own.
    Reservation(u64),
    /// An order without a reservation.
    Order(String),
}

/// Mends rows of one database.
#[derive(Debug)]
pub(crate) struct Mender<'m, H> {
    pub(crate) host: &'m H,
    pub(crate) database: &'m Database,
    pub(crate) split: Split,
}

impl<H: Present> Mender<'_, H> {
    /// Writes the row of an activity as the engine has it; whether it could.
    pub(crate) async fn activity(&self, units: &Units) -> Result<bool, SinkError> {
        let read = |it: &engine::core::activity::Activity| {
            let is_same = it.changed_seq() == units.changed_seq;
            is_same.then(|| activity_row(units.id, it))
        };
        let mut store = self.database.store_beside_others();
        let mut transaction = self.locked(&mut store).await?;
        let Some(mut row) = self.host.look(units.id, read).flatten() else { return Ok(false) };
        let mut known = Activities::default();
        known.load(std::iter::once(units.id), &mut transaction).await?;
        let before = known.get_mut(units.id).ok().map(|row| row.clone());
        row.created_ms = before.as_ref().map_or(row.created_ms, |before| before.created_ms);
        let mut rows = Rows::new(&ACTIVITIES);
        rows.push(row.row());
        match &before {
            Some(_) => update_all(&mut transaction, &rows).await?,
            None => transaction.insert(&rows).await?,
        }
        let stock = before.map_or(0, |before| before.figures.available);
        let remark = "the activity's row was written right";
        let change = (stock, row.figures.available);
        transaction.insert(&repair_rows(&row, change, remark)).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Writes the rows of a reservation as the engine has it; whether it could. Rows in their
    /// place that are another purchase's are set aside.
    pub(crate) async fn reservation(
        &self,
        expected: &Expected,
        prefix: OrderPrefix,
    ) -> Result<bool, SinkError> {
        // What a dead letter's order would be stands in rows of its own.
        if expected.letter.is_some() {
            return Ok(false);
        }
        let mut store = self.database.store_beside_others();
        let mut transaction = self.locked(&mut store).await?;
        let look = |it: &engine::core::activity::Activity| {
            Expected::of(expected.activity, it, expected.id, prefix)
        };
        let now = self.host.look(expected.activity, look).flatten();
        if now.as_ref() != Some(expected) {
            return Ok(false);
        }
        let mut known = Activities::default();
        known.load(std::iter::once(expected.activity), &mut transaction).await?;
        let Ok(activity) = known.get_mut(expected.activity).cloned() else { return Ok(false) };
        let part = self.split.part(expected.user.get());
        let row = by_key(&mut transaction, &PRE_DEDUCTIONS, None, id_of(expected)).await?;
        let order_no = Value::text(expected.order_no.clone());
        let order = by_key(&mut transaction, &ORDERS, part, order_no).await?;
        let mut said = "the reservation was written right".to_owned();
        let mut attempts = 1;
        let has_row = match row {
            Some(row) if is_ours(&row, &RESERVATION_OWNER, expected)? => {
                attempts = row.number(12)?;
                true
            }
            Some(row) => {
                said = set_aside(&mut transaction, &PRE_DEDUCTIONS, None, &row).await?;
                false
            }
            None => false,
        };
        let has_order = match order {
            Some(order) if is_ours(&order, &ORDER_OWNER, expected)? => true,
            Some(order) => {
                said = set_aside(&mut transaction, &ORDERS, part, &order).await?;
                false
            }
            None => false,
        };
        let new = rebuilt(expected, &activity, (has_row, has_order), attempts);
        let new = vec![new];
        let addresses = match has_order {
            true => HashMap::new(),
            false => load_addresses(&new, &mut transaction).await?,
        };
        ReservationRows::new(new, &addresses, self.split).write(&mut transaction).await?;
        let stock = activity.figures.available;
        transaction.insert(&repair_rows(&activity, (stock, stock), &said)).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Sets a row aside that the log knows nothing of, or that stood there before the log came so
    /// far; whether it could.
    pub(crate) async fn aside(
        &self,
        what: &Aside,
        of: ActivityId,
        is_foreign: impl FnOnce() -> bool,
    ) -> Result<bool, SinkError> {
        let deadline = Instant::now() + ANNOUNCED_WITHIN;
        loop {
            let mut store = self.database.store_beside_others();
            let mut transaction = self.locked(&mut store).await?;
            // The marks in the log must be those of this very cursor: else a row that the sink has
            // just written would look like a stranger's.
            let key = [Value::text(SINK_NAME)];
            let mut records = transaction.select(&CURSOR_BY_SINK, &key).await?;
            let at = records.pop().as_ref().map(cursor).transpose()?;
            let announced = self.host.announced_lsn(SINK_NAME);
            if at.is_some_and(|at| at.lsn == announced) {
                return match is_foreign() {
                    true => self.set_aside(what, of, transaction).await,
                    false => Ok(false),
                };
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            drop(transaction);
            tokio::time::sleep(ANNOUNCED_POLL).await;
        }
    }

    /// Sets the row aside, in a transaction that holds the cursor.
    async fn set_aside(
        &self,
        what: &Aside,
        of: ActivityId,
        mut transaction: DatabaseTransaction<'_>,
    ) -> Result<bool, SinkError> {
        let mut said = Vec::new();
        let order_no = match what {
            Aside::Order(order_no) => Some(order_no.clone()),
            Aside::Reservation(id) => {
                let id = Value::integer(*id);
                match by_key(&mut transaction, &PRE_DEDUCTIONS, None, id).await? {
                    None => None,
                    Some(row) => {
                        said.push(set_aside(&mut transaction, &PRE_DEDUCTIONS, None, &row).await?);
                        Some(row.text(9)?.to_owned())
                    }
                }
            }
        };
        for part in self.split.parts() {
            let Some(order_no) = order_no.clone() else { break };
            let key = Value::text(order_no);
            if let Some(row) = by_key(&mut transaction, &ORDERS, part, key).await? {
                said.push(set_aside(&mut transaction, &ORDERS, part, &row).await?);
            }
        }
        let mut known = Activities::default();
        known.load(std::iter::once(of), &mut transaction).await?;
        let (sku, stock) = known.get_mut(of).map_or((0, 0), |row| (row.sku, row.figures.available));
        let mut rows = Rows::new(&STOCK_FLOWS);
        for said in &said {
            push_repairs(&mut rows, (sku, of.get()), (stock, stock), said);
        }
        transaction.insert(&rows).await?;
        transaction.commit().await?;
        Ok(!said.is_empty())
    }

    /// A transaction that holds the sink's cursor.
    async fn locked<'t>(
        &self,
        store: &'t mut super::database::DatabaseStore,
    ) -> Result<DatabaseTransaction<'t>, SinkError> {
        let identity = self.host.identity();
        let mut transaction = store.begin().await?;
        let key = [Value::text(SINK_NAME)];
        // Without a lock first, for the row alone says where the cursor stands: on a server the
        // sink may move it in between, and then it is read again.
        for _ in 0..ATTEMPTS_MAX {
            let records = transaction.select(&CURSOR_BY_SINK, &key).await?;
            let at = records.first().map(cursor).transpose()?;
            let is_its = |at: &Cursor| at.uuid == identity.uuid && at.epoch == identity.epoch;
            let at = at.filter(is_its).ok_or(SinkError::CursorMoved)?;
            match move_cursor(&mut transaction, &at, &at).await {
                Ok(()) => return Ok(transaction),
                Err(SinkError::CursorMoved) => {}
                Err(error) => return Err(error),
            }
        }
        Err(SinkError::CursorMoved)
    }
}

/// Columns that say whose a row is, by their places in a table: user, then the reservation or the
/// activity, quantity and order number.
struct Owner {
    user: usize,
    reservation: usize,
    rest: Option<(usize, usize, usize)>,
}

const RESERVATION_OWNER: Owner = Owner { user: 1, reservation: 0, rest: Some((2, 7, 9)) };
const ORDER_OWNER: Owner = Owner { user: 1, reservation: 5, rest: None };

fn is_ours(row: &Record, owner: &Owner, of: &Expected) -> Result<bool, StoreError> {
    let ids = (row.number(owner.user)?, row.number(owner.reservation)?);
    let mut ours = ids == (of.user.get(), of.id.get());
    if let Some((activity, quantity, order_no)) = owner.rest {
        ours &= row.number(activity)? == of.activity.get();
        ours &= row.number(quantity)? == u64::from(of.quantity);
        ours &= row.text(order_no)? == of.order_no;
    }
    Ok(ours)
}

fn id_of(of: &Expected) -> Value<'static> {
    Value::integer(of.id.get())
}

async fn by_key(
    transaction: &mut DatabaseTransaction<'_>,
    table: &'static Table,
    part: Part,
    key: Value<'_>,
) -> Result<Option<Record>, StoreError> {
    let key_column = table.columns[0];
    let lookup =
        Lookup { columns: table.columns, from: table.name, key: key_column, part, only: None };
    Ok(transaction.select(&lookup, &[key]).await?.pop())
}

/// Takes a row out; what it was.
async fn set_aside(
    transaction: &mut DatabaseTransaction<'_>,
    table: &'static Table,
    part: Part,
    row: &Record,
) -> Result<String, SinkError> {
    let mut said = format!("set aside: {}", table.name);
    for (column, value) in table.columns.iter().zip(&row.0) {
        // A server tells texts that are compared byte by byte as bytes.
        let text = match value {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        };
        let is_shown = |text: &&str| !text.contains(char::is_control);
        // Writing to a String cannot fail.
        let _ = match text.filter(is_shown) {
            Some(text) => write!(said, " {column}={text:?}"),
            None => write!(said, " {column}={value}"),
        };
    }
    let Some(key) = row.0.first() else { return Ok(said) };
    let keys: &[&'static Table] = match table.name {
        "orders" => &[&ORDER_ITEM_KEYS, &ORDER_KEYS],
        _ => &[&PRE_DEDUCTION_KEYS],
    };
    for table in keys {
        let mut rows = Rows::of_part(table, part);
        rows.push([key.clone()]);
        transaction.delete(&rows).await?;
    }
    Ok(said)
}

/// The row of an activity, as the engine has it.
fn activity_row(id: ActivityId, it: &engine::core::activity::Activity) -> Activity {
    let flags = it.flags();
    let definition = it.terms().definition();
    let row = Activity::new(id, it.ordinal().get(), it.figures(), &definition, now_ms());
    Activity {
        version: it.version(),
        on_sale: flags.on_sale,
        paused: flags.paused,
        drained: flags.drained,
        ..row
    }
}

/// A reservation as its rows must say; what is there already is updated.
fn rebuilt<'a>(
    of: &'a Expected,
    activity: &Activity,
    (has_row, has_order): (bool, bool),
    attempts: u64,
) -> Reservation<'a> {
    let request = (None, of.request_hash);
    let order_no = of.order_no.clone();
    let mut new =
        Reservation::new(of.id, order_no, of.user, of.quantity, activity, request, of.created_ms);
    match of.status {
        EngineStatus::Reserved => {}
        EngineStatus::Confirmed => new.confirm(&of.payment_no, of.updated_ms),
        EngineStatus::RolledBack(reason) => new.restore(reason, of.updated_ms),
    }
    if of.status == EngineStatus::Confirmed {
        new.set_order_status(of.order_status(), of.updated_ms);
    }
    if of.frees_limit {
        new.user_activity_key = Value::Null;
    }
    if has_row {
        new.birth = None;
    }
    new.attempts = attempts;
    new.order = if has_order { Order::Present } else { Order::Due(terms(activity, of.created_ms)) };
    debug_assert!(new.status != Status::DeadLetter, "dead letters are left alone");
    new
}

fn repair_rows(activity: &Activity, change: (u32, u32), remark: &str) -> Rows<'static> {
    let mut rows = Rows::new(&STOCK_FLOWS);
    push_repairs(&mut rows, (activity.sku, activity.id.get()), change, remark);
    rows
}

/// One row, and more where the remark needs them.
fn push_repairs(
    rows: &mut Rows<'static>,
    (sku, activity): (u64, u64),
    (before, after): (u32, u32),
    remark: &str,
) {
    let characters: Vec<char> = remark.chars().collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    for (index, piece) in characters.chunks(REMARK_CHARS_MAX).enumerate() {
        let before = if index == 0 { before } else { after };
        let number = format!("repair-{now:x}-{}-{index}", rows.len());
        rows.push([
            Value::text(number.clone()),
            Value::integer(sku),
            Value::integer(activity),
            Value::text("REPAIR"),
            Value::Integer(i64::from(after) - i64::from(before)),
            Value::integer(before),
            Value::integer(after),
            Value::text("repair"),
            Value::text(number),
            Value::text(piece.iter().collect::<String>()),
            Value::integer(now_ms()),
        ]);
    }
}
