//! `flashsale_pre_deductions`, `orders` and `order_items`: the rows that the reservations of a
//! batch become. A new one is inserted into each table, an older one is updated; a dead letter's
//! order is none, and taken out where there was one.

use std::collections::{BTreeSet, HashMap};

use engine::core::ids::ReservationId;

use super::dead_letters::{DeadLetterRows, has_one_outcome};
use super::fault::SinkError;
use super::reservations::{Birth, Order, Reservation, Terms, hash_bytes};
use super::sink::{Undeliverable, update_all};
use super::split::Split;
use super::store::{Lookup, Part, Rows, StoreError, Table, Transaction, Value};

pub(super) static PRE_DEDUCTIONS: Table = Table {
    name: "flashsale_pre_deductions",
    columns: &[
        "id",
        "user_id",
        "activity_id",
        "client_request_id",
        "request_hash",
        "sku_id",
        "price",
        "quantity",
        "purchase_slot",
        "order_no",
        "status",
        "reason",
        "attempts",
        "last_error",
        "ordered_at",
        "rolled_back_at",
        "created_at",
        "updated_at",
    ],
    key_columns: 1,
};

pub(super) static PRE_DEDUCTION_CHANGES: Table = Table {
    name: "flashsale_pre_deductions",
    columns: &[
        "id",
        "status",
        "reason",
        "attempts",
        "last_error",
        "ordered_at",
        "rolled_back_at",
        "updated_at",
    ],
    key_columns: 1,
};

pub(super) static ORDERS: Table = Table {
    name: "orders",
    columns: &[
        "order_no",
        "user_id",
        "order_type",
        "status",
        "activity_id",
        "purchase_slot",
        "user_activity_key",
        "total_amount",
        "pay_amount",
        "payment_no",
        "receiver",
        "phone",
        "province",
        "city",
        "district",
        "detail",
        "paid_at",
        "cancelled_at",
        "expire_at",
        "created_at",
        "updated_at",
    ],
    key_columns: 1,
};

pub(super) static ORDER_CHANGES: Table = Table {
    name: "orders",
    columns: &[
        "order_no",
        "status",
        "user_activity_key",
        "payment_no",
        "paid_at",
        "cancelled_at",
        "updated_at",
    ],
    key_columns: 1,
};

pub(super) static ORDER_ITEMS: Table = Table {
    name: "order_items",
    columns: &["order_no", "sku_id", "title", "price", "quantity", "amount"],
    key_columns: 2,
};

pub(super) static ORDER_KEYS: Table =
    Table { name: "orders", columns: &["order_no"], key_columns: 1 };

pub(super) static ORDER_ITEM_KEYS: Table =
    Table { name: "order_items", columns: &["order_no"], key_columns: 1 };

static DEFAULT_ADDRESSES: Lookup = Lookup {
    columns: &["user_id", "receiver", "phone", "province", "city", "district", "detail"],
    from: "user_addresses",
    key: "default_user_id",
    part: None,
    only: None,
};

/// The address that an order keeps: receiver, phone, province, city, district, detail.
pub(super) type AddressSnapshot = [Value<'static>; 6];

/// The default addresses of the buyers whose orders are due, of those that have one.
pub(super) async fn load_addresses(
    reservations: &[Reservation<'_>],
    transaction: &mut impl Transaction,
) -> Result<HashMap<u64, AddressSnapshot>, StoreError> {
    let due = reservations.iter().filter(|one| matches!(one.order, Order::Due(_)));
    let buyers: BTreeSet<u64> = due.map(|reservation| reservation.user).collect();
    let keys: Vec<_> = buyers.into_iter().map(Value::integer).collect();
    let mut addresses = HashMap::with_capacity(keys.len());
    for mut record in transaction.select(&DEFAULT_ADDRESSES, &keys).await? {
        let user = record.number(0)?;
        let mut snapshot = [const { Value::Null }; 6];
        for (index, part) in snapshot.iter_mut().enumerate() {
            *part = record.take(index + 1)?;
        }
        addresses.insert(user, snapshot);
    }
    Ok(addresses)
}

/// Finds those that need an address and have none. An order that is dead already goes nowhere.
///
/// # Errors
/// [`SinkError::AddressMissing`] where there are any beside the `known`.
pub(super) fn require_addresses(
    reservations: &[Reservation<'_>],
    addresses: &HashMap<u64, AddressSnapshot>,
    known: &Undeliverable,
) -> Result<(), SinkError> {
    let lacks = |one: &&Reservation<'_>| {
        matches!(one.order, Order::Due(_))
            && one.needs_address
            && !one.had_order
            && one.is_alive()
            && !addresses.contains_key(&one.user)
            && known.reason(one.id).is_none()
    };
    let ids: Vec<_> = reservations.iter().filter(lacks).map(|one| one.id).collect();
    if ids.is_empty() { Ok(()) } else { Err(SinkError::AddressMissing { ids }) }
}

/// Rows of a table, each of which is of one reservation.
#[derive(Debug)]
pub(super) struct Owned<'a> {
    rows: Rows<'a>,
    owners: Vec<ReservationId>,
}

impl<'a> Owned<'a> {
    fn new(table: &'static Table, part: Part) -> Self {
        Self { rows: Rows::of_part(table, part), owners: Vec::new() }
    }

    fn push<const N: usize>(&mut self, owner: ReservationId, row: [Value<'a>; N]) {
        self.rows.push(row);
        self.owners.push(owner);
    }

    /// Inserts the rows.
    ///
    /// # Errors
    /// [`SinkError::Undeliverable`] where some are refused, with their reservations.
    async fn insert(&self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        transaction.insert(&self.rows).await.map_err(|error| match error {
            StoreError::Refused { ref indexes, .. } if !indexes.is_empty() => {
                let ids = indexes.iter().map(|index| self.owners[*index]).collect();
                SinkError::Undeliverable { ids, why: error }
            }
            error => error.into(),
        })
    }
}

/// The rows of one table of orders and of its items.
#[derive(Debug)]
struct PartRows<'a> {
    orders: Owned<'a>,
    items: Owned<'a>,
    changes: Rows<'a>,
    withdrawn_orders: Rows<'a>,
    withdrawn_items: Rows<'a>,
}

/// The rows of all reservations of a batch, table by table.
#[derive(Debug)]
pub(super) struct ReservationRows<'a> {
    split: Split,
    pre_deductions: Owned<'a>,
    pre_deduction_changes: Rows<'a>,
    dead_letters: DeadLetterRows<'a>,
    parts: Vec<PartRows<'a>>,
}

impl<'a> ReservationRows<'a> {
    /// The rows of `reservations`; new orders take their address from `addresses`.
    pub(super) fn new(
        reservations: Vec<Reservation<'a>>,
        addresses: &HashMap<u64, AddressSnapshot>,
        split: Split,
    ) -> Self {
        let part = |part| PartRows {
            orders: Owned::new(&ORDERS, part),
            items: Owned::new(&ORDER_ITEMS, part),
            changes: Rows::of_part(&ORDER_CHANGES, part),
            withdrawn_orders: Rows::of_part(&ORDER_KEYS, part),
            withdrawn_items: Rows::of_part(&ORDER_ITEM_KEYS, part),
        };
        let mut rows = Self {
            split,
            pre_deductions: Owned::new(&PRE_DEDUCTIONS, None),
            pre_deduction_changes: Rows::new(&PRE_DEDUCTION_CHANGES),
            dead_letters: DeadLetterRows::new(),
            parts: split.parts().map(part).collect(),
        };
        for mut reservation in reservations {
            assert!(has_one_outcome(&reservation), "a reservation is one order or one dead letter");
            rows.dead_letters.push(&reservation);
            match reservation.birth.take() {
                Some(birth) => rows.insert_pre_deduction(&reservation, birth),
                None if reservation.has_row => rows.update_pre_deduction(&reservation),
                None => {}
            }
            let part = usize::from(rows.split.part(reservation.user).unwrap_or(0));
            match reservation.order.clone() {
                Order::Due(terms) => {
                    let address = addresses.get(&reservation.user).cloned();
                    let address = address.unwrap_or([const { Value::Null }; 6]);
                    rows.parts[part].insert(reservation, terms, address);
                }
                Order::Present => rows.parts[part].update(reservation),
                Order::Withdrawn => {
                    let order_no = Value::text(reservation.order_no);
                    rows.parts[part].withdrawn_orders.push([order_no.clone()]);
                    rows.parts[part].withdrawn_items.push([order_no]);
                }
                Order::Missing => {}
            }
        }
        rows
    }

    /// Writes them all.
    ///
    /// # Errors
    /// [`SinkError::Undeliverable`] where new rows are refused.
    pub(super) async fn write(&self, transaction: &mut impl Transaction) -> Result<(), SinkError> {
        self.pre_deductions.insert(transaction).await?;
        for part in &self.parts {
            part.orders.insert(transaction).await?;
            part.items.insert(transaction).await?;
        }
        update_all(transaction, &self.pre_deduction_changes).await?;
        for part in &self.parts {
            update_all(transaction, &part.changes).await?;
            transaction.delete(&part.withdrawn_items).await?;
            transaction.delete(&part.withdrawn_orders).await?;
        }
        self.dead_letters.write(transaction).await
    }

    fn insert_pre_deduction(&mut self, new: &Reservation<'a>, birth: Birth<'a>) {
        let row = [
            Value::integer(new.id.get()),
            Value::integer(new.user),
            Value::integer(new.activity),
            birth.request_id.map_or(Value::Null, |it| Value::bytes(it.as_bytes())),
            hash_bytes(birth.request_hash),
            Value::integer(new.sku),
            Value::integer(new.price),
            Value::integer(new.quantity),
            Value::integer(new.id.get()),
            Value::text(new.order_no.clone()),
            Value::text(new.status.name()),
            new.reason.clone(),
            Value::integer(new.attempts),
            new.last_error.clone(),
            ordered_at(new),
            new.rolled_back_at.clone(),
            Value::integer(new.created_ms),
            Value::integer(new.updated_ms),
        ];
        self.pre_deductions.push(new.id, row);
    }

    fn update_pre_deduction(&mut self, changed: &Reservation<'a>) {
        self.pre_deduction_changes.push([
            Value::integer(changed.id.get()),
            Value::text(changed.status.name()),
            changed.reason.clone(),
            Value::integer(changed.attempts),
            changed.last_error.clone(),
            ordered_at(changed),
            changed.rolled_back_at.clone(),
            Value::integer(changed.updated_ms),
        ]);
    }
}

/// When the reservation was accepted that has an order: the instant that the order bears, too.
fn ordered_at(reservation: &Reservation<'_>) -> Value<'static> {
    match reservation.order {
        Order::Present | Order::Due(_) => Value::integer(reservation.created_ms),
        Order::Withdrawn | Order::Missing => Value::Null,
    }
}

impl<'a> PartRows<'a> {
    fn insert(&mut self, new: Reservation<'a>, terms: Terms, address: AddressSnapshot) {
        let amount = new.amount();
        let item = [
            Value::text(new.order_no.clone()),
            Value::integer(new.sku),
            Value::text(terms.title.to_string()),
            Value::integer(new.price),
            Value::integer(new.quantity),
            Value::integer(amount),
        ];
        self.items.push(new.id, item);
        let [receiver, phone, province, city, district, detail] = address;
        let order = [
            Value::text(new.order_no),
            Value::integer(new.user),
            Value::text("seckill"),
            new.order_status,
            Value::integer(new.activity),
            Value::integer(new.id.get()),
            new.user_activity_key,
            Value::integer(amount),
            Value::integer(amount),
            new.payment_no,
            receiver,
            phone,
            province,
            city,
            district,
            detail,
            new.paid_at,
            new.cancelled_at,
            Value::integer(terms.expire_ms),
            Value::integer(new.created_ms),
            Value::integer(new.updated_ms),
        ];
        self.orders.push(new.id, order);
    }

    fn update(&mut self, changed: Reservation<'a>) {
        self.changes.push([
            Value::text(changed.order_no),
            changed.order_status,
            changed.user_activity_key,
            changed.payment_no,
            changed.paid_at,
            changed.cancelled_at,
            Value::integer(changed.updated_ms),
        ]);
    }
}
