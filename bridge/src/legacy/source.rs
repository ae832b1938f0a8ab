//! The older system's database, page by page, in one state of it.

use std::collections::{BTreeMap, BTreeSet};

use super::LegacyError;
use super::cells::{Cells, shown};
use super::keys::Keys;
use super::rows::{self, ActivityRow, Candidate, OrderRow};
use super::schema::{self, ACTIVITIES, Found, ITEMS, ORDERS, RESERVATIONS, Table};
use crate::sql::database::without_secrets;
use crate::sql::placeholders;
use crate::sql::readers::{Readers, Snapshot};
use crate::sql::store::{Record, StoreError, Value};

/// Rows of a page.
const PAGE_ROWS: u64 = 500;

/// The older system's database, looked at.
#[derive(Debug)]
pub struct Source {
    pub(super) shown: String,
    readers: Readers,
}

impl Source {
    /// The database at `url`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`LegacyError::Url`].
    pub fn at(url: &str) -> Result<Self, LegacyError> {
        let database = schema::database(url)?;
        Ok(Self { shown: without_secrets(url), readers: Readers::of(&database) })
    }

    pub(super) fn unreadable(&self) -> impl Fn(StoreError) -> LegacyError + '_ {
        |source| LegacyError::Unreadable { database: self.shown.clone(), source }
    }

    /// Opens one state of it, and looks at its tables.
    pub(super) async fn reader(&self) -> Result<Reader, LegacyError> {
        let unreadable = self.unreadable();
        let mut snapshot = self.readers.snapshot().await.map_err(&unreadable)?;
        if schema::is_ours(&mut snapshot).await.map_err(&unreadable)? {
            return Err(LegacyError::Own { database: self.shown.clone() });
        }
        let mut found = Vec::new();
        for table in [&ACTIVITIES, &RESERVATIONS, &ORDERS] {
            let looked = Found::look(&mut snapshot, table).await.map_err(&unreadable)?;
            let schema = |why| LegacyError::Schema { database: self.shown.clone(), why };
            found.push(looked.map_err(schema)?);
        }
        if !reservations_name_orders(&found) {
            let why = "neither do flashsale_pre_deductions name their orders (order_no), nor \
                       orders their reservations (purchase_slot)";
            let database = self.shown.clone();
            return Err(LegacyError::Schema { database, why: why.to_owned() });
        }
        let items = Found::look(&mut snapshot, &ITEMS).await.map_err(&unreadable)?.ok();
        let [activities, reservations, orders] = <[Found; 3]>::try_from(found)
            .unwrap_or_else(|_| unreachable!("three tables were looked at"));
        Ok(Reader { snapshot, activities, reservations, orders, items })
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.readers.close().await;
    }
}

/// Whether a reservation and its order can be told to be one: else each purchase would be taken
/// over twice.
fn reservations_name_orders(found: &[Found]) -> bool {
    matches!(found, [_, reservations, orders]
        if reservations.has("order_no") || orders.has("purchase_slot"))
}

/// Where the next page begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    /// Rows before it.
    rows: u64,
    /// The last key before it.
    after: Option<String>,
}

/// One state of the database.
pub(super) struct Reader {
    snapshot: Snapshot,
    activities: Found,
    reservations: Found,
    orders: Found,
    items: Option<Found>,
}

impl Reader {
    /// The next page of activities, each named, or why it is none.
    pub(super) async fn activities(
        &mut self,
        place: &mut Place,
    ) -> Result<Option<Vec<Result<ActivityRow, String>>>, StoreError> {
        let rows = self.by_id(&ACTIVITIES, place).await?;
        let read = |record: &Record| {
            let cells = Cells { table: &ACTIVITIES, record };
            let id = shown(cells.bytes("id").unwrap_or(b"NULL"));
            rows::activity(cells).map_err(|bad| format!("{} {id}: {bad}", ACTIVITIES.name))
        };
        Ok((!rows.is_empty()).then(|| rows.iter().map(read).collect()))
    }

    /// The next page of reservations with their orders.
    pub(super) async fn reservations(
        &mut self,
        place: &mut Place,
        keys: &Keys,
    ) -> Result<Option<Vec<Candidate>>, StoreError> {
        let rows = self.by_id(&RESERVATIONS, place).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let cells: Vec<_> =
            rows.iter().map(|record| Cells { table: &RESERVATIONS, record }).collect();
        let numbers: Vec<_> = cells.iter().map(|cells| rows::order_no_of(*cells)).collect();
        let by_number = self.orders_of("order_no", numbers.iter().flatten()).await?;
        let unnumbered = cells.iter().zip(&numbers).filter(|(_, number)| number.is_none());
        let slots: Vec<_> = unnumbered
            .filter_map(|(cells, _)| cells.number("id").ok().flatten().map(|id| id.to_string()))
            .collect();
        let by_slot = match self.orders.has("purchase_slot") {
            true => self.orders_of("purchase_slot", slots.iter()).await?,
            false => Vec::new(),
        };
        let by_number = index(by_number, |order| Some(order.order_no.clone()));
        let by_slot = index(by_slot, |order| {
            order.slot.map(|slot| format!("{}:{}:{slot}", order.activity, order.user))
        });
        let candidates = cells.into_iter().zip(numbers).map(|(cells, number)| {
            let order = match &number {
                Some(number) => by_number.get(number),
                None => {
                    let shown = |column| cells.number(column).ok().flatten().unwrap_or_default();
                    let of = (shown("activity_id"), shown("user_id"), shown("id"));
                    by_slot.get(&format!("{}:{}:{}", of.0, of.1, of.2))
                }
            };
            rows::reservation(cells, order.cloned(), |activity, id| keys.marker(activity, id))
        });
        Ok(Some(candidates.collect()))
    }

    /// The next page of orders that no row of `flashsale_pre_deductions` stands for.
    pub(super) async fn orphans(
        &mut self,
        place: &mut Place,
        price: impl Fn(u64) -> Option<u64>,
    ) -> Result<Option<Vec<Candidate>>, StoreError> {
        let of_sales = match self.orders.has("order_type") {
            true => "activity_id IS NOT NULL AND order_type = 'seckill'",
            false => "activity_id IS NOT NULL",
        };
        let rows = self.page(&ORDERS, of_sales, "order_no", place).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut orders = Vec::new();
        let mut candidates = Vec::new();
        for record in &rows {
            let cells = Cells { table: &ORDERS, record };
            match rows::order(cells) {
                Ok(order) => orders.extend(order),
                Err(bad) => {
                    let number = shown(cells.bytes("order_no").unwrap_or(b"NULL"));
                    let (name, told) = (format!("orders {number}"), Err(bad.into()));
                    candidates.push(Candidate { name, number: None, told });
                }
            }
        }
        let covered = self.covered(&orders).await?;
        orders.retain(|order| !covered.contains(&order.order_no));
        let quantities = self.quantities(&orders).await?;
        candidates.extend(orders.into_iter().map(|mut order| {
            order.quantity = quantities.get(&order.order_no).copied();
            let price = price(order.activity);
            rows::orphan(order, price)
        }));
        Ok(Some(candidates))
    }

    /// Those of `orders` that a row stands for, by its order number or by its slot.
    async fn covered(&mut self, orders: &[OrderRow]) -> Result<BTreeSet<String>, StoreError> {
        let mut covered = BTreeSet::new();
        let numbers = orders.iter().map(|order| &order.order_no);
        if self.reservations.has("order_no") {
            let select = self.reservations.select();
            for row in self.with_keys(&select, "order_no", numbers).await? {
                let cells = Cells { table: &RESERVATIONS, record: &row };
                covered.extend(cells.text("order_no").ok().flatten().map(str::to_owned));
            }
        }
        let slots: Vec<_> =
            orders.iter().filter_map(|it| it.slot).map(|it| it.to_string()).collect();
        let select = self.reservations.select();
        let mut unnumbered = BTreeSet::new();
        for row in self.with_keys(&select, "id", slots.iter()).await? {
            let cells = Cells { table: &RESERVATIONS, record: &row };
            let number = |column| cells.number(column).ok().flatten().unwrap_or_default();
            if rows::order_no_of(cells).is_none() {
                unnumbered.insert((number("id"), number("user_id"), number("activity_id")));
            }
        }
        let is_of_slot = |order: &&OrderRow| {
            order.slot.is_some_and(|slot| unnumbered.contains(&(slot, order.user, order.activity)))
        };
        covered.extend(orders.iter().filter(is_of_slot).map(|order| order.order_no.clone()));
        Ok(covered)
    }

    /// Units of `orders`, by their items.
    async fn quantities(
        &mut self,
        orders: &[OrderRow],
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let Some(items) = &self.items else { return Ok(BTreeMap::new()) };
        let select = items.select();
        let mut sums = BTreeMap::new();
        let numbers = orders.iter().map(|order| &order.order_no);
        for row in self.with_keys(&select, "order_no", numbers).await? {
            let cells = Cells { table: &ITEMS, record: &row };
            let order_no = cells.text("order_no").ok().flatten();
            let quantity = cells.number("quantity").ok().flatten();
            if let (Some(order_no), Some(quantity)) = (order_no, quantity) {
                let sum: &mut u64 = sums.entry(order_no.to_owned()).or_default();
                *sum = sum.saturating_add(quantity);
            }
        }
        Ok(sums)
    }

    /// Orders whose `column` is one of `keys`: each, or why it can't be read, by what it was asked.
    async fn orders_of<'k>(
        &mut self,
        column: &str,
        keys: impl Iterator<Item = &'k String>,
    ) -> Result<Vec<Result<OrderRow, (String, String)>>, StoreError> {
        let select = self.orders.select();
        let rows = self.with_keys(&select, column, keys).await?;
        let read = |record: &Record| {
            let cells = Cells { table: &ORDERS, record };
            let order_no = cells.text("order_no").ok().flatten().unwrap_or_default().to_owned();
            rows::order(cells).map_err(|bad| (order_no, bad.to_string())).transpose()
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    async fn with_keys<'k>(
        &mut self,
        select: &str,
        column: &str,
        keys: impl Iterator<Item = &'k String>,
    ) -> Result<Vec<Record>, StoreError> {
        let values: Vec<_> = keys.map(|key| Value::text(key.clone())).collect();
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let text = format!("{select} WHERE {column} IN {}", placeholders(values.len()));
        self.snapshot.rows(text, &values).await
    }

    async fn by_id(
        &mut self,
        table: &'static Table,
        place: &mut Place,
    ) -> Result<Vec<Record>, StoreError> {
        self.page(table, "1 = 1", "id", place).await
    }

    /// The next page of `table` by `key`. A server's is found by its key; in a file, which may
    /// hold anything in any column, rows are counted.
    async fn page(
        &mut self,
        table: &'static Table,
        wanted: &str,
        key: &'static str,
        place: &mut Place,
    ) -> Result<Vec<Record>, StoreError> {
        let found = match table.name {
            name if name == ACTIVITIES.name => &self.activities,
            name if name == RESERVATIONS.name => &self.reservations,
            _ => &self.orders,
        };
        let (select, is_sqlite) = (found.select(), found.is_sqlite());
        let order = format!("ORDER BY {key} LIMIT {PAGE_ROWS}");
        let rows = match &place.after {
            _ if is_sqlite => {
                let text = format!("{select} WHERE {wanted} {order} OFFSET {}", place.rows);
                self.snapshot.rows(text, &[]).await?
            }
            None => self.snapshot.rows(format!("{select} WHERE {wanted} {order}"), &[]).await?,
            // As a number in the text: a string would be compared as a double.
            Some(after) if key == "id" && is_whole(after) => {
                let text = format!("{select} WHERE {wanted} AND {key} > {after} {order}");
                self.snapshot.rows(text, &[]).await?
            }
            Some(after) => {
                let text = format!("{select} WHERE {wanted} AND {key} > ? {order}");
                self.snapshot.rows(text, &[Value::text(after.clone())]).await?
            }
        };
        place.rows += rows.len() as u64;
        if let Some(record) = rows.last() {
            let cells = Cells { table, record };
            let last = cells.text(key).ok().flatten().map(str::to_owned);
            // A key that can't be read, or does not rise, would be read for ever.
            if !is_sqlite && (last.is_none() || last == place.after) {
                return Err(StoreError::Unreadable { column: 0 });
            }
            place.after = last;
        }
        Ok(rows)
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Orders by what they are looked up with. A bad one is found by its order number.
fn index(
    orders: Vec<Result<OrderRow, (String, String)>>,
    key: impl Fn(&OrderRow) -> Option<String>,
) -> BTreeMap<String, Result<OrderRow, String>> {
    let entry = |order| match order {
        Ok(order) => key(&order).map(|key| (key, Ok(order))),
        Err((order_no, why)) => Some((order_no, Err(why))),
    };
    orders.into_iter().filter_map(entry).collect()
}
