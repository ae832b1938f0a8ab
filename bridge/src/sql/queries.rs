//! What the server asks the database. Reads see committed rows and never wait for a writer.

use std::collections::BTreeSet;

use engine::core::ids::{ActivityId, SkuId, UserId};

use super::accounts::{Address, Role, Sku};
use super::chunks::placeholders;
use super::database::{Database, UrlError};
use super::readers::{Readers, Snapshot};
use super::split::Split;
use super::store::{Part, Record, StoreError, Value, part_name};

/// SKUs in one look-up; a larger list is read in several.
const IDS_PER_QUERY: usize = 500;

/// What [`order`] reads.
const ORDER_COLUMNS: &str = "order_no, user_id, status, activity_id, purchase_slot, total_amount, \
     pay_amount, payment_no, paid_at, cancelled_at, expire_at, created_at, updated_at, \
     receiver, phone, province, city, district, detail";

/// Where an order is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the statuses of the contract, by their names there")]
pub enum OrderStatus {
    PendingPayment,
    Paid,
    Shipped,
    Completed,
    Cancelled,
    Timeout,
    Refunding,
    Refunded,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::PendingPayment,
        Self::Paid,
        Self::Shipped,
        Self::Completed,
        Self::Cancelled,
        Self::Timeout,
        Self::Refunding,
        Self::Refunded,
    ];

    /// Its name in SQL and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::PendingPayment => "pending_payment",
            Self::Paid => "paid",
            Self::Shipped => "shipped",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// An order with what it holds and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Its number.
    pub order_no: String,
    /// Its buyer.
    pub user_id: u64,
    /// Where it is in its life.
    pub status: OrderStatus,
    /// Its activity.
    pub activity_id: u64,
    /// The reservation behind it.
    pub reservation_id: u64,
    /// Price of everything in it.
    pub total_amount: u64,
    /// What is to be paid.
    pub pay_amount: u64,
    /// The payment that paid it.
    pub payment_no: Option<String>,
    /// The buyer's default address when the order was made, if there was one.
    pub address: Option<Address>,
    /// What it holds.
    pub items: Vec<OrderItem>,
    /// Paid at, Unix milliseconds.
    pub paid_ms: Option<u64>,
    /// Cancelled or timed out at, Unix milliseconds.
    pub cancelled_ms: Option<u64>,
    /// Unpaid, it is given back after this instant, Unix milliseconds.
    pub expire_ms: u64,
    /// Made at, Unix milliseconds.
    pub created_ms: u64,
    /// Last changed at, Unix milliseconds.
    pub updated_ms: u64,
}

/// One line of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderItem {
    /// The SKU.
    pub sku_id: u64,
    /// The activity's title when the order was made.
    pub title: String,
    /// Price of a unit.
    pub price: u64,
    /// Units.
    pub quantity: u64,
    /// Price of all of them.
    pub amount: u64,
}

/// Some of a list of orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderPage {
    /// Those of the window, newest first.
    pub orders: Vec<Order>,
    /// How many there are in all.
    pub total: u64,
    /// Those of the numbers that were asked for which are orders, in whatever status.
    pub known: BTreeSet<String>,
}

/// Which rows of a list: `count` of them from `offset` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Rows before the first.
    pub offset: u64,
    /// Rows at most.
    pub count: u32,
}

/// What a login is checked against.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// Whose it is.
    pub user: UserId,
    /// What its tokens allow.
    pub role: Role,
    /// Hash of the password; `None` where there is none to log in by.
    pub password_hash: Option<String>,
}

/// Reads the database.
#[derive(Clone, Debug)]
pub struct Queries {
    readers: Readers,
    split: Split,
}

impl Queries {
    /// Queries to the database at `url`, whose orders are spread as `split` says; connects when
    /// first used. The bridge makes the schema.
    ///
    /// # Errors
    /// Where the URL can't be used.
    pub fn open(url: &str, split: Split) -> Result<Self, UrlError> {
        Ok(Self { readers: Readers::of(&Database::at(url)?), split })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        snapshot.rows("SELECT 1 FROM bridge_cursor LIMIT 1", &[]).await?;
        Ok(())
    }

    /// Those of `ids` that are in the catalogue, ascending.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn skus(&self, ids: &[SkuId]) -> Result<Vec<Sku>, StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        let mut skus = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_PER_QUERY) {
            let list = placeholders(ids.len());
            let text = format!("SELECT id, title, price FROM skus WHERE id IN {list}");
            let ids: Vec<_> = ids.iter().map(|id| Value::integer(id.get())).collect();
            for record in snapshot.rows(text, &ids).await? {
                skus.extend(sku(&record)?);
            }
        }
        skus.sort_by_key(|sku| sku.id);
        Ok(skus)
    }

    /// The account of that name, compared byte by byte.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn login(&self, username: &str) -> Result<Option<Login>, StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        let text = "SELECT id, role, password_hash FROM users WHERE username = ?";
        let records = snapshot.rows(text, &[Value::text(username)]).await?;
        let Some(record) = records.first() else { return Ok(None) };
        let user = UserId::new(record.number(0)?).ok_or(StoreError::Unreadable { column: 0 })?;
        let role = Role::from_name(record.text(1)?).ok_or(StoreError::Unreadable { column: 1 })?;
        let password_hash = record.text_or_null(2)?.map(str::to_owned);
        Ok(Some(Login { user, role, password_hash }))
    }

    /// `user`'s orders, newest first, all or those with `status`; and which of `order_nos` are
    /// orders at the same moment.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn orders_of(
        &self,
        user: UserId,
        status: Option<OrderStatus>,
        window: Window,
        order_nos: &[&str],
    ) -> Result<OrderPage, StoreError> {
        let mut values = vec![Value::integer(user.get()); 2];
        values.extend(status.map(|status| Value::text(status.name())));
        // By way of the reservations, whose unique key begins with the user: an index of its own
        // would be one more page to write for every order.
        let of_user = "user_id = ? AND order_no IN \
                       (SELECT order_no FROM flashsale_pre_deductions WHERE user_id = ?)";
        let wanted = match status {
            Some(_) => format!("{of_user} AND status = ?"),
            None => of_user.to_owned(),
        };
        // One snapshot for the count, the page and its items.
        let mut snapshot = self.readers.snapshot().await?;
        let part = self.split.part(user.get());
        let orders_table = part_name("orders", part);
        let count = format!("SELECT COUNT(*) FROM {orders_table} WHERE {wanted}");
        let count = snapshot.rows(count, &values).await?;
        let total = count.first().map_or(Ok(0), |record| record.number(0))?;
        let text = format!(
            "SELECT {ORDER_COLUMNS} FROM {orders_table} WHERE {wanted} \
             ORDER BY created_at DESC, order_no DESC LIMIT ? OFFSET ?"
        );
        values.push(Value::integer(window.count));
        values.push(Value::integer(window.offset));
        let records = snapshot.rows(text, &values).await?;
        let mut orders = records.iter().map(order).collect::<Result<Vec<_>, _>>()?;
        for order in &mut orders {
            order.items = items(&order.order_no, part, &mut snapshot).await?;
        }
        let mut known = BTreeSet::new();
        for numbers in order_nos.chunks(IDS_PER_QUERY) {
            let list = placeholders(numbers.len());
            let text = format!("SELECT order_no FROM {orders_table} WHERE order_no IN {list}");
            let numbers: Vec<_> = numbers.iter().map(|number| Value::text(*number)).collect();
            for record in snapshot.rows(text, &numbers).await? {
                known.insert(record.text(0)?.to_owned());
            }
        }
        Ok(OrderPage { orders, total, known })
    }

    pub(super) fn split(&self) -> Split {
        self.split
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.readers.snapshot().await
    }

    /// The default address of `user`, if there is one.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn default_address(&self, user: UserId) -> Result<Option<Address>, StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        let text = "SELECT receiver, phone, province, city, district, detail \
                    FROM user_addresses WHERE default_user_id = ?";
        let records = snapshot.rows(text, &[Value::integer(user.get())]).await?;
        records.first().map_or(Ok(None), |record| address(record, 0))
    }

    /// The order of that number, where it is `user`'s.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order(&self, user: UserId, order_no: &str) -> Result<Option<Order>, StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        let part = self.split.part(user.get());
        let orders = part_name("orders", part);
        let text =
            format!("SELECT {ORDER_COLUMNS} FROM {orders} WHERE order_no = ? AND user_id = ?");
        let values = [Value::text(order_no), Value::integer(user.get())];
        let records = snapshot.rows(text, &values).await?;
        let Some(record) = records.first() else { return Ok(None) };
        let mut order = order(record)?;
        order.items = items(order_no, part, &mut snapshot).await?;
        Ok(Some(order))
    }

    /// How many orders `activity` has in each status, of those that it has.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order_counts(
        &self,
        activity: ActivityId,
    ) -> Result<Vec<(OrderStatus, u64)>, StoreError> {
        let mut snapshot = self.readers.snapshot().await?;
        let text = "SELECT status, COUNT(*) FROM orders WHERE activity_id = ? \
                    GROUP BY status ORDER BY status";
        let records = snapshot.rows(text, &[Value::integer(activity.get())]).await?;
        records.iter().map(|record| Ok((status(record, 0)?, record.number(1)?))).collect()
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.readers.close().await;
    }
}

async fn items(
    order_no: &str,
    part: Part,
    snapshot: &mut Snapshot,
) -> Result<Vec<OrderItem>, StoreError> {
    let items = part_name("order_items", part);
    let text = format!(
        "SELECT sku_id, title, price, quantity, amount FROM {items} \
         WHERE order_no = ? ORDER BY sku_id"
    );
    let records = snapshot.rows(text, &[Value::text(order_no)]).await?;
    let item = |record: &Record| {
        Ok(OrderItem {
            sku_id: record.number(0)?,
            title: record.text(1)?.to_owned(),
            price: record.number(2)?,
            quantity: record.number(3)?,
            amount: record.number(4)?,
        })
    };
    records.iter().map(item).collect()
}

/// A row of [`ORDER_COLUMNS`], without its items.
fn order(record: &Record) -> Result<Order, StoreError> {
    Ok(Order {
        order_no: record.text(0)?.to_owned(),
        user_id: record.number(1)?,
        status: status(record, 2)?,
        activity_id: record.number(3)?,
        reservation_id: record.number(4)?,
        total_amount: record.number(5)?,
        pay_amount: record.number(6)?,
        payment_no: record.text_or_null(7)?.map(str::to_owned),
        paid_ms: record.number_or_null(8)?,
        cancelled_ms: record.number_or_null(9)?,
        expire_ms: record.number(10)?,
        created_ms: record.number(11)?,
        updated_ms: record.number(12)?,
        address: address(record, 13)?,
        items: Vec::new(),
    })
}

fn sku(record: &Record) -> Result<Option<Sku>, StoreError> {
    let (title, price) = (record.text(1)?.to_owned(), record.number_or_null(2)?);
    Ok(SkuId::new(record.number(0)?).map(|id| Sku { id, title, price }))
}

/// The address whose parts begin at column `first`.
fn address(record: &Record, first: usize) -> Result<Option<Address>, StoreError> {
    let Some(receiver) = record.text_or_null(first)? else { return Ok(None) };
    let part = |index| Ok::<_, StoreError>(record.text(first + index)?.to_owned());
    Ok(Some(Address {
        receiver: receiver.to_owned(),
        phone: part(1)?,
        province: part(2)?,
        city: part(3)?,
        district: part(4)?,
        detail: part(5)?,
    }))
}

fn status(record: &Record, index: usize) -> Result<OrderStatus, StoreError> {
    OrderStatus::from_name(record.text(index)?).ok_or(StoreError::Unreadable { column: index })
}
