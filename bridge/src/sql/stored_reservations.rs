//! Reservations of earlier batches, read back from their rows.

use std::collections::BTreeSet;

use engine::core::ids::ReservationId;

use super::dead_letters::{DeadLetter, State};
use super::fault::SinkError;
use super::reservations::{Order, Reservation, Status};
use super::split::Split;
use super::store::{Lookup, Record, StoreError, Transaction, Value};

static RESERVATIONS_BY_ID: Lookup = Lookup {
    columns: &[
        "p.id",
        "p.order_no",
        "p.user_id",
        "p.activity_id",
        "p.sku_id",
        "p.price",
        "p.quantity",
        "p.status",
        "p.reason",
        "p.attempts",
        "p.last_error",
        "p.rolled_back_at",
        "p.created_at",
        "p.updated_at",
        "d.status",
        "d.reason",
        "d.created_at",
        "d.resolved_at",
        "d.needs_address",
        "d.order_status",
        "d.payment_no",
        "d.paid_at",
        "d.cancelled_at",
    ],
    from: "flashsale_pre_deductions p LEFT JOIN dead_letters d ON d.id = p.id",
    key: "p.id",
    part: None,
    only: None,
};

/// Of dead letters whose pre-deduction was refused.
static WITHOUT_ROW_BY_ID: Lookup = Lookup {
    columns: &[
        "d.id",
        "d.order_no",
        "d.user_id",
        "d.activity_id",
        "d.sku_id",
        "d.price",
        "d.quantity",
        "d.status",
        "d.reason",
        "d.created_at",
        "d.resolved_at",
        "d.needs_address",
        "d.order_status",
        "d.payment_no",
        "d.paid_at",
        "d.cancelled_at",
        "d.request_hash",
        "d.accepted_at",
    ],
    from: "dead_letters d",
    key: "d.id",
    part: None,
    only: None,
};

static ORDERS_BY_NO: Lookup = Lookup {
    columns: &[
        "purchase_slot",
        "status",
        "user_activity_key",
        "payment_no",
        "paid_at",
        "cancelled_at",
    ],
    from: "orders",
    key: "order_no",
    part: None,
    only: None,
};

/// The dead letter whose status, reason and times stand in `record` from column `first` on.
fn dead_letter(record: &Record, first: usize) -> Result<DeadLetter<'static>, StoreError> {
    let state = State::from_name(record.text(first)?);
    Ok(DeadLetter {
        is_stored: true,
        state: state.ok_or(StoreError::Unreadable { column: first })?,
        reason: Value::text(record.text(first + 1)?.to_owned()),
        opened_ms: record.number(first + 2)?,
        resolved_ms: record.number_or_null(first + 3)?,
    })
}

/// The hash of a request in column `index` of `record`, where one is kept there.
fn lone_hash(record: &Record, index: usize) -> Result<Option<u128>, StoreError> {
    if matches!(record.0.get(index), Some(Value::Null)) {
        return Ok(None);
    }
    let bytes = record.bytes(index)?.try_into();
    bytes
        .map(|bytes| Some(u128::from_le_bytes(bytes)))
        .map_err(|_| StoreError::Unreadable { column: index })
}

impl Reservation<'static> {
    fn read(mut record: Record) -> Result<Self, StoreError> {
        let id = record.number(0)?;
        let dead_letter = match record.text_or_null(14)? {
            None => None,
            Some(_) => Some(dead_letter(&record, 14)?),
        };
        Ok(Self {
            id: ReservationId::new(id).ok_or(StoreError::Unreadable { column: 0 })?,
            order_no: record.text(1)?.to_owned(),
            user: record.number(2)?,
            activity: record.number(3)?,
            sku: record.number(4)?,
            price: record.number(5)?,
            quantity: record.number(6)?,
            birth: None,
            has_row: true,
            lone_hash: None,
            order: Order::Missing,
            dead_letter,
            status: Status::from_name(record.text(7)?)
                .ok_or(StoreError::Unreadable { column: 7 })?,
            reason: record.take(8)?,
            attempts: record.number(9)?,
            last_error: record.take(10)?,
            rolled_back_at: record.take(11)?,
            created_ms: record.number(12)?,
            updated_ms: record.number(13)?,
            needs_address: record.number_or_null(18)?.is_some_and(|needs| needs != 0),
            had_order: false,
            order_status: record.take(19)?,
            user_activity_key: Value::Null,
            payment_no: record.take(20)?,
            paid_at: record.take(21)?,
            cancelled_at: record.take(22)?,
        })
    }

    fn read_without_row(mut record: Record) -> Result<Self, StoreError> {
        let letter = dead_letter(&record, 7)?;
        Ok(Self {
            id: ReservationId::new(record.number(0)?)
                .ok_or(StoreError::Unreadable { column: 0 })?,
            order_no: record.text(1)?.to_owned(),
            user: record.number(2)?,
            activity: record.number(3)?,
            sku: record.number(4)?,
            price: record.number(5)?,
            quantity: record.number(6)?,
            birth: None,
            has_row: false,
            lone_hash: lone_hash(&record, 16)?,
            order: Order::Missing,
            status: match letter.state {
                State::Open | State::Delivered => Status::DeadLetter,
                State::RolledBack => Status::RolledBack,
            },
            reason: Value::Null,
            attempts: 1,
            last_error: letter.reason.clone(),
            rolled_back_at: Value::integer_or_null(letter.resolved_ms),
            created_ms: record.number(17)?,
            updated_ms: letter.opened_ms,
            dead_letter: Some(letter),
            needs_address: record.number(11)? != 0,
            had_order: false,
            order_status: record.take(12)?,
            user_activity_key: Value::Null,
            payment_no: record.take(13)?,
            paid_at: record.take(14)?,
            cancelled_at: record.take(15)?,
        })
    }

    /// Takes over what its order says.
    fn take_order(&mut self, mut record: Record) -> Result<(), StoreError> {
        self.order = Order::Present;
        self.order_status = record.take(1)?;
        self.user_activity_key = record.take(2)?;
        self.payment_no = record.take(3)?;
        self.paid_at = record.take(4)?;
        self.cancelled_at = record.take(5)?;
        Ok(())
    }
}

/// The reservations of `ids`, from their rows.
///
/// # Errors
/// Where one has neither an order nor a dead letter, too: somebody took it away.
pub(super) async fn load(
    ids: &[ReservationId],
    split: Split,
    transaction: &mut impl Transaction,
) -> Result<Vec<Reservation<'static>>, SinkError> {
    let loaded = load_rows(ids, split, transaction).await?;
    let lost = |one: &&Reservation<'_>| one.order == Order::Missing && one.dead_letter.is_none();
    match loaded.iter().find(lost) {
        Some(lost) => Err(SinkError::RowMissing { table: "orders", id: lost.id.get() }),
        None => Ok(loaded),
    }
}

/// As [`load`], of rows that may be of any age: one may lack its order.
pub(super) async fn load_rows(
    ids: &[ReservationId],
    split: Split,
    transaction: &mut impl Transaction,
) -> Result<Vec<Reservation<'static>>, SinkError> {
    let keys: Vec<_> = ids.iter().map(|id| Value::integer(id.get())).collect();
    let records = transaction.select(&RESERVATIONS_BY_ID, &keys).await?;
    let mut loaded =
        records.into_iter().map(Reservation::read).collect::<Result<Vec<_>, StoreError>>()?;
    if loaded.len() < ids.len() {
        let found: BTreeSet<_> = loaded.iter().map(|reservation| reservation.id).collect();
        let missing = ids.iter().filter(|id| !found.contains(id));
        let keys: Vec<_> = missing.map(|id| Value::integer(id.get())).collect();
        for record in transaction.select(&WITHOUT_ROW_BY_ID, &keys).await? {
            loaded.push(Reservation::read_without_row(record)?);
        }
    }
    loaded.sort_unstable_by_key(|reservation| reservation.id);
    for part in split.parts() {
        let of_part = loaded.iter().filter(|reservation| split.part(reservation.user) == part);
        let keys: Vec<_> = of_part.map(|one| Value::text(one.order_no.clone())).collect();
        let lookup = Lookup { part, ..ORDERS_BY_NO };
        for record in transaction.select(&lookup, &keys).await? {
            let id = record.number(0)?;
            let index = loaded.binary_search_by_key(&id, |reservation| reservation.id.get());
            // An order under such a number that is of no reservation here is not this one's.
            if let Ok(index) = index {
                loaded[index].take_order(record)?;
            }
        }
    }
    Ok(loaded)
}
