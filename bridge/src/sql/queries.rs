//! What the server asks the database. Reads see committed rows and never wait for a writer.

use std::time::Duration;

use engine::core::ids::{ActivityId, SkuId, UserId};
use sqlx::query_builder::QueryBuilder;
use sqlx::sqlite::{Sqlite, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{FromRow, Row as _};

use super::accounts::{Address, Sku};
use super::sqlite::{UrlError, connect_options};

/// Readers at one time: SQLite reads in this process, more would only fight for the cores.
const READERS_MAX: u32 = 4;

/// How long a reader waits for its turn before the caller is told that the database is busy.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// SKUs in one look-up; a larger list is read in several.
const IDS_PER_QUERY: usize = 500;

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

/// One page of a list of orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderPage {
    /// The page, newest first.
    pub orders: Vec<Order>,
    /// Orders in all pages.
    pub total: u64,
}

/// Which page: `number` from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// From 1.
    pub number: u32,
    /// Orders in a page.
    pub size: u32,
}

/// Reads the database.
#[derive(Clone, Debug)]
pub struct Queries {
    pool: SqlitePool,
}

impl Queries {
    /// Queries to the database at `url`; connects when first used. The bridge makes the schema.
    ///
    /// # Errors
    /// Where the URL can't be used.
    pub fn open(url: &str) -> Result<Self, UrlError> {
        let options = connect_options(url)?.pragma("query_only", "ON");
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(READER_WAIT_MAX)
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// Where it does not.
    pub async fn ping(&self) -> Result<(), sqlx::Error> {
        sqlx::query("SELECT 1 FROM bridge_cursor LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(())
    }

    /// Those of `ids` that are in the catalogue, ascending.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn skus(&self, ids: &[SkuId]) -> Result<Vec<Sku>, sqlx::Error> {
        let mut skus = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_PER_QUERY) {
            let mut query =
                QueryBuilder::<Sqlite>::new("SELECT id, title, price FROM skus WHERE id IN (");
            let mut list = query.separated(", ");
            for id in ids {
                list.push_bind(signed(id.get()));
            }
            query.push(")");
            for row in query.build().persistent(false).fetch_all(&self.pool).await? {
                skus.extend(sku(&row)?);
            }
        }
        skus.sort_by_key(|sku| sku.id);
        Ok(skus)
    }

    /// A page of `user`'s orders, newest first, all or those with `status`.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn orders_of(
        &self,
        user: UserId,
        status: Option<OrderStatus>,
        page: Page,
    ) -> Result<OrderPage, sqlx::Error> {
        let user = signed(user.get());
        let status = status.map(OrderStatus::name);
        let size = u64::from(page.size);
        let skip = u64::from(page.number.saturating_sub(1)) * size;
        // One snapshot for the count, the page and its items.
        let mut snapshot = self.pool.begin().await?;
        let total: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM orders WHERE user_id = ?1 AND (?2 IS NULL OR status = ?2)",
        )
        .bind(user)
        .bind(status)
        .fetch_one(&mut *snapshot)
        .await?;
        let mut orders: Vec<Order> = sqlx::query_as(
            "SELECT * FROM orders WHERE user_id = ?1 AND (?2 IS NULL OR status = ?2) \
             ORDER BY created_at DESC, order_no DESC LIMIT ?3 OFFSET ?4",
        )
        .bind(user)
        .bind(status)
        .bind(signed(size))
        .bind(signed(skip))
        .fetch_all(&mut *snapshot)
        .await?;
        for order in &mut orders {
            order.items = items(&order.order_no, &mut snapshot).await?;
        }
        snapshot.commit().await?;
        Ok(OrderPage { orders, total: u64::try_from(total).unwrap_or(0) })
    }

    /// The order of that number.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order(&self, order_no: &str) -> Result<Option<Order>, sqlx::Error> {
        let mut snapshot = self.pool.begin().await?;
        let order: Option<Order> = sqlx::query_as("SELECT * FROM orders WHERE order_no = ?")
            .bind(order_no)
            .fetch_optional(&mut *snapshot)
            .await?;
        let Some(mut order) = order else { return Ok(None) };
        order.items = items(order_no, &mut snapshot).await?;
        snapshot.commit().await?;
        Ok(Some(order))
    }

    /// How many orders `activity` has in each status, of those that it has.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn order_counts(
        &self,
        activity: ActivityId,
    ) -> Result<Vec<(OrderStatus, u64)>, sqlx::Error> {
        let rows = sqlx::query(
            "SELECT status, COUNT(*) FROM orders WHERE activity_id = ? \
             GROUP BY status ORDER BY status",
        )
        .bind(signed(activity.get()))
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(|row| Ok((status(row, "status")?, number(row, "COUNT(*)")?))).collect()
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn items(
    order_no: &str,
    snapshot: &mut sqlx::SqliteConnection,
) -> Result<Vec<OrderItem>, sqlx::Error> {
    sqlx::query_as(
        "SELECT sku_id, title, price, quantity, amount FROM order_items \
         WHERE order_no = ? ORDER BY sku_id",
    )
    .bind(order_no)
    .fetch_all(snapshot)
    .await
}

impl FromRow<'_, SqliteRow> for Order {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            order_no: row.try_get("order_no")?,
            user_id: number(row, "user_id")?,
            status: status(row, "status")?,
            activity_id: number(row, "activity_id")?,
            reservation_id: number(row, "purchase_slot")?,
            total_amount: number(row, "total_amount")?,
            pay_amount: number(row, "pay_amount")?,
            payment_no: row.try_get("payment_no")?,
            address: address(row)?,
            items: Vec::new(),
            paid_ms: number_or_null(row, "paid_at")?,
            cancelled_ms: number_or_null(row, "cancelled_at")?,
            expire_ms: number(row, "expire_at")?,
            created_ms: number(row, "created_at")?,
            updated_ms: number(row, "updated_at")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for OrderItem {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            sku_id: number(row, "sku_id")?,
            title: row.try_get("title")?,
            price: number(row, "price")?,
            quantity: number(row, "quantity")?,
            amount: number(row, "amount")?,
        })
    }
}

fn sku(row: &SqliteRow) -> Result<Option<Sku>, sqlx::Error> {
    let (title, price) = (row.try_get("title")?, number_or_null(row, "price")?);
    Ok(SkuId::new(number(row, "id")?).map(|id| Sku { id, title, price }))
}

fn address(row: &SqliteRow) -> Result<Option<Address>, sqlx::Error> {
    let Some(receiver) = row.try_get::<Option<String>, _>("receiver")? else { return Ok(None) };
    Ok(Some(Address {
        receiver,
        phone: row.try_get("phone")?,
        province: row.try_get("province")?,
        city: row.try_get("city")?,
        district: row.try_get("district")?,
        detail: row.try_get("detail")?,
    }))
}

fn status(row: &SqliteRow, column: &'static str) -> Result<OrderStatus, sqlx::Error> {
    let name: &str = row.try_get(column)?;
    OrderStatus::from_name(name).ok_or_else(|| undecodable(column))
}

fn number(row: &SqliteRow, column: &'static str) -> Result<u64, sqlx::Error> {
    number_or_null(row, column)?.ok_or_else(|| undecodable(column))
}

fn number_or_null(row: &SqliteRow, column: &'static str) -> Result<Option<u64>, sqlx::Error> {
    let value: Option<i64> = row.try_get(column)?;
    value.map(|value| u64::try_from(value).map_err(|_| undecodable(column))).transpose()
}

fn undecodable(column: &'static str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "the schema does not allow this value".into(),
    }
}

/// Ids stay below 2^53, so nothing is lost.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
