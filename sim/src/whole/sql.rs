//! A database in memory, as the projection sees one, that fails in the ways databases fail.
//!
//! It keeps what a transaction promises and nothing more: a commit is all or nothing, a key is
//! unique, and what was committed stays, until it is told to come back as an older self
//! ([`SimSql::fail_over`]), as a replica does that was behind, or empty ([`SimSql::replace`]).
//!
//! | what befalls an operation | what is left |
//! |---|---|
//! | refused: a deadlock, a lost connection | nothing of the transaction |
//! | COMMIT is done and its answer lost | all of it, and nobody knows |
//! | COMMIT is lost on its way | nothing of it, and nobody knows |

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use engine::core::ids::ReservationId;

use bridge::sql::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value};

use super::relations::{Database, Key, Row, key_of, owned};
use crate::fates::Random;
use crate::whole::planted::{self, Bug};

/// Every so many users there is one whose orders no table can hold.
pub(super) const POISON_EVERY: i64 = 7;

/// What a stranger's order has beside its number.
const ORDER_COLUMNS: [&str; 2] = ["user_activity_key", "purchase_slot"];

/// Older selves that are kept.
const OLDER_KEPT: usize = 4;

/// How often an operation fails, in a thousand.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rates {
    /// Begin, insert, update, delete or select fails, and the transaction with it.
    pub(super) refused: u64,
    /// COMMIT is done, its answer lost.
    pub(super) answer_lost: u64,
    /// COMMIT never arrives.
    pub(super) commit_lost: u64,
}

struct Shared {
    database: Database,
    older: Vec<Database>,
    random: Random,
    rates: Rates,
    is_down: bool,
    commits: u64,
    fail_overs: u64,
    stranger: Option<Key>,
}

impl Shared {
    fn come_back_as(&mut self, database: Database) {
        self.database = database;
        self.stranger = None;
        self.fail_overs += 1;
    }
}

/// A connection to the database; clones see the same one.
#[derive(Clone)]
pub(super) struct SimSql(Rc<RefCell<Shared>>);

fn lost() -> StoreError {
    sqlx::Error::WorkerCrashed.into()
}

impl SimSql {
    /// An empty database.
    pub(super) fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Shared {
            database: Database::default(),
            older: Vec::new(),
            random: Random(seed),
            rates: Rates::default(),
            is_down: false,
            commits: 0,
            fail_overs: 0,
            stranger: None,
        })))
    }

    /// Fails this often from now on.
    pub(super) fn set_rates(&self, rates: Rates) {
        self.0.borrow_mut().rates = rates;
    }

    /// Goes away, or comes back.
    pub(super) fn set_down(&self, is_down: bool) {
        self.0.borrow_mut().is_down = is_down;
    }

    /// Keeps what it holds now, to come back as.
    pub(super) fn remember(&self) {
        let mut shared = self.0.borrow_mut();
        let now = shared.database.clone();
        shared.older.push(now);
        if shared.older.len() > OLDER_KEPT {
            shared.older.remove(0);
        }
    }

    /// Comes back as one of its older selves; whether there was one.
    pub(super) fn fail_over(&self) -> bool {
        let mut shared = self.0.borrow_mut();
        if shared.older.is_empty() {
            return false;
        }
        let count = shared.older.len();
        let at = shared.random.index(count);
        // What is newer than that self never happened.
        shared.older.truncate(at + 1);
        let older = shared.older[at].clone();
        shared.come_back_as(older);
        true
    }

    /// Another one stands in its place, in which nothing was ever written.
    pub(super) fn replace(&self) {
        self.0.borrow_mut().come_back_as(Database::default());
    }

    /// Puts a row of somebody else where the order of that number belongs, if nothing is there.
    pub(super) fn plant_stranger(&self, order_no: &str) {
        let key = key_of([Value::text(order_no)].iter());
        let names = ORDER_COLUMNS.iter().map(|name| (*name, Value::Null));
        let row: Row = names.chain([("order_no", Value::text(order_no.to_owned()))]).collect();
        let mut shared = self.0.borrow_mut();
        let orders = shared.database.relations.get("orders");
        let is_free = orders.is_none_or(|orders| !orders.rows.contains_key(&key));
        if shared.stranger.is_none() && is_free {
            shared.database.set("orders", &key, Some(Rc::new(row)));
            shared.stranger = Some(key);
        }
    }

    /// Moves the stranger's row aside; whether there was one.
    pub(super) fn move_stranger_aside(&self) -> bool {
        let mut shared = self.0.borrow_mut();
        let Some(key) = shared.stranger.take() else { return false };
        shared.database.set("orders", &key, None);
        true
    }

    /// Whether the reservation has a row.
    pub(super) fn holds(&self, id: ReservationId) -> bool {
        let key = key_of([Value::integer(id.get())].iter());
        let shared = self.0.borrow();
        let relation = shared.database.relations.get("flashsale_pre_deductions");
        relation.is_some_and(|relation| relation.rows.contains_key(&key))
    }

    /// Whether it always was what it said it was.
    pub(super) fn never_failed_over(&self) -> bool {
        self.0.borrow().fail_overs == 0
    }

    /// Transactions committed.
    pub(super) fn commits(&self) -> u64 {
        self.0.borrow().commits
    }

    /// The rows of a table, each by its columns.
    pub(super) fn rows(&self, table: &str) -> Vec<Rc<Row>> {
        let shared = self.0.borrow();
        let relation = shared.database.relations.get(table);
        relation.map_or_else(Vec::new, |it| it.rows.values().cloned().collect())
    }

    fn fails(&self, rate: impl FnOnce(&Rates) -> u64) -> bool {
        let mut shared = self.0.borrow_mut();
        let rate = rate(&shared.rates);
        shared.is_down || shared.random.below(1_000) < rate
    }
}

impl Store for SimSql {
    type Transaction<'a> = SimTransaction;

    async fn begin(&mut self) -> Result<SimTransaction, StoreError> {
        if self.fails(|rates| rates.refused) {
            return Err(lost());
        }
        Ok(SimTransaction { sql: self.clone(), undo: Vec::new(), is_done: false })
    }
}

/// A transaction; dropped, it is undone.
pub(super) struct SimTransaction {
    sql: SimSql,
    undo: Vec<(&'static str, Key, Option<Rc<Row>>)>,
    is_done: bool,
}

impl SimTransaction {
    fn meet(&self) -> Result<(), StoreError> {
        if self.sql.fails(|rates| rates.refused) { Err(lost()) } else { Ok(()) }
    }

    /// Puts a row where `key` is, or none; what was there can be put back.
    fn set(&mut self, table: &'static str, key: Key, row: Option<Rc<Row>>) {
        let before = self.sql.0.borrow_mut().database.set(table, &key, row);
        self.undo.push((table, key, before));
    }
}

impl Drop for SimTransaction {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut shared = self.sql.0.borrow_mut();
        for (table, key, before) in self.undo.drain(..).rev() {
            shared.database.set(table, &key, before);
        }
    }
}

impl Transaction for SimTransaction {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.meet()?;
        let table = rows.table();
        let mut refused = Vec::new();
        for (index, values) in rows.values(0, rows.len()).chunks(table.columns.len()).enumerate() {
            let key = key_of(values[..table.key_columns].iter());
            let row: Row = table.columns.iter().copied().zip(values.iter().map(owned)).collect();
            if table.name == "orders" && is_poison(&row) {
                refused.push(index);
                continue;
            }
            let taken = self.sql.0.borrow().database.is_taken(table.name, &key, &row);
            if taken && planted::is(Bug::InsertIgnore) {
                continue;
            }
            if taken {
                let row = named(table, values);
                let source = sqlx::Error::WorkerCrashed.into();
                return Err(StoreError::Duplicate { row, source });
            }
            self.set(table.name, key, Some(Rc::new(row)));
        }
        if refused.is_empty() {
            return Ok(());
        }
        let (row, source) = (table.name.to_owned(), sqlx::Error::WorkerCrashed.into());
        Err(StoreError::Refused { row, indexes: refused, source })
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        self.meet()?;
        let table = rows.table();
        let mut hit = 0;
        for values in rows.values(0, rows.len()).chunks(table.columns.len()) {
            let (wanted, changes) = values.split_at(table.key_columns);
            let (names, changed) = table.columns.split_at(table.key_columns);
            let found = self.sql.0.borrow().database.find(table.name, names, wanted);
            for (key, row) in found {
                let mut row = Row::clone(&row);
                row.extend(changed.iter().copied().zip(changes.iter().map(owned)));
                self.set(table.name, key, Some(Rc::new(row)));
                if table.name == "bridge_cursor" && planted::is(Bug::CursorOutside) {
                    self.undo.pop();
                }
                hit += 1;
            }
        }
        Ok(hit)
    }

    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        self.meet()?;
        let table = rows.table();
        let mut hit = 0;
        for values in rows.values(0, rows.len()).chunks(table.columns.len()) {
            let names = &table.columns[..table.key_columns];
            let wanted = &values[..table.key_columns];
            let found = self.sql.0.borrow().database.find(table.name, names, wanted);
            for (key, _) in found {
                self.set(table.name, key, None);
                hit += 1;
            }
        }
        Ok(hit)
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.meet()?;
        Ok(self.sql.0.borrow().database.select(lookup, keys))
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        if self.sql.fails(|rates| rates.commit_lost) {
            return if planted::is(Bug::UnclearIsDone) { Ok(()) } else { Err(lost()) };
        }
        self.is_done = true;
        self.sql.0.borrow_mut().commits += 1;
        if self.sql.fails(|rates| rates.answer_lost) { Err(lost()) } else { Ok(()) }
    }
}

/// Whether no order can hold it: some constraint of the shop's own.
fn is_poison(order: &Row) -> bool {
    matches!(order["user_id"], Value::Integer(user) if user % POISON_EVERY == 0)
}

fn named(table: &Table, values: &[Value<'_>]) -> String {
    let mut name = table.name.to_owned();
    for (column, value) in table.columns.iter().zip(values).take(table.key_columns) {
        let _ = write!(name, " {column} = {value}");
    }
    name
}
