//! `flashsale_pre_deductions`, `orders` and `order_items`: the rows that the reservations of a
//! batch become. A new one is inserted into each table, an older one is updated.

use std::collections::HashMap;

use super::reservations::{Birth, Reservation};
use super::store::{Lookup, Rows, StoreError, Table, Transaction, Value};

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
    columns: &["id", "status", "reason", "last_error", "rolled_back_at", "updated_at"],
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

static DEFAULT_ADDRESSES: Lookup = Lookup {
    columns: &["user_id", "receiver", "phone", "province", "city", "district", "detail"],
    from: "user_addresses",
    key: "default_user_id",
};

/// The address that an order keeps: receiver, phone, province, city, district, detail.
pub(super) type AddressSnapshot = [Value<'static>; 6];

/// The default addresses of `users`, of those that have one.
pub(super) async fn load_addresses(
    users: &[u64],
    transaction: &mut impl Transaction,
) -> Result<HashMap<u64, AddressSnapshot>, StoreError> {
    let keys: Vec<_> = users.iter().map(|user| Value::integer(*user)).collect();
    let mut addresses = HashMap::with_capacity(users.len());
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

/// The rows of all reservations of a batch, table by table.
#[derive(Debug)]
pub(super) struct ReservationRows<'a> {
    pub(super) pre_deductions: Rows<'a>,
    pub(super) orders: Rows<'a>,
    pub(super) items: Rows<'a>,
    pub(super) pre_deduction_changes: Rows<'a>,
    pub(super) order_changes: Rows<'a>,
}

impl<'a> ReservationRows<'a> {
    /// The rows of `reservations`; new orders take their address from `addresses`.
    pub(super) fn new(
        reservations: Vec<Reservation<'a>>,
        addresses: &HashMap<u64, AddressSnapshot>,
    ) -> Self {
        let mut rows = Self {
            pre_deductions: Rows::new(&PRE_DEDUCTIONS),
            orders: Rows::new(&ORDERS),
            items: Rows::new(&ORDER_ITEMS),
            pre_deduction_changes: Rows::new(&PRE_DEDUCTION_CHANGES),
            order_changes: Rows::new(&ORDER_CHANGES),
        };
        for mut reservation in reservations {
            match reservation.birth.take() {
                Some(birth) => {
                    let address = addresses.get(&reservation.user).cloned();
                    rows.insert(reservation, birth, address.unwrap_or([const { Value::Null }; 6]));
                }
                None => rows.update(reservation),
            }
        }
        rows
    }

    fn insert(&mut self, new: Reservation<'a>, birth: Birth<'a>, address: AddressSnapshot) {
        let amount = new.amount();
        self.pre_deductions.push([
            Value::integer(new.id.get()),
            Value::integer(new.user),
            Value::integer(new.activity),
            Value::bytes(birth.request_id.as_bytes()),
            Value::bytes(birth.request_hash.to_le_bytes().to_vec()),
            Value::integer(birth.sku),
            Value::integer(new.price),
            Value::integer(new.quantity),
            Value::integer(new.id.get()),
            Value::text(new.order_no.clone()),
            new.status,
            new.reason,
            Value::integer(1u64),
            new.last_error,
            Value::integer(birth.created_ms),
            new.rolled_back_at,
            Value::integer(birth.created_ms),
            Value::integer(new.updated_ms),
        ]);
        self.items.push([
            Value::text(new.order_no.clone()),
            Value::integer(birth.sku),
            Value::text(birth.title.to_string()),
            Value::integer(new.price),
            Value::integer(new.quantity),
            Value::integer(amount),
        ]);
        let [receiver, phone, province, city, district, detail] = address;
        self.orders.push([
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
            Value::integer(birth.expire_ms),
            Value::integer(birth.created_ms),
            Value::integer(new.updated_ms),
        ]);
    }

    fn update(&mut self, changed: Reservation<'a>) {
        self.pre_deduction_changes.push([
            Value::integer(changed.id.get()),
            changed.status,
            changed.reason,
            changed.last_error,
            changed.rolled_back_at,
            Value::integer(changed.updated_ms),
        ]);
        self.order_changes.push([
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
