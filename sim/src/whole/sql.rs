//! A database in memory, as the projection sees one, that fails in the ways databases fail.
//!
//! It keeps what a transaction promises and nothing more: a commit is all or nothing, a key is
//! unique, and what was committed to last stays, until it is told to come back as an older self
//! ([`SimSql::fail_over`]), as a replica does that was behind, or empty ([`SimSql::replace`]).
//!
//! | what befalls it | what is left |
//! |---|---|
//! | an operation is refused: a deadlock, a lost connection | nothing of the transaction |
//! | COMMIT is done and its answer lost | all of it, and nobody knows |
//! | COMMIT is lost on its way | nothing of it, and nobody knows |
//! | its machine stops ([`SimSql::power_cut`]) | what was to last, and the first of what follows |

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use bridge::sql::store::{Lookup, Record, Rows, Store, StoreError, Table, Transaction, Value};

use super::relations::{Database, Key, Row, key_of, owned};
use crate::fates::Random;
use crate::whole::planted::{self, Bug};

mod machine;

/// Every so many users there is one whose orders no table can hold.
pub(super) const POISON_EVERY: i64 = 7;

/// What a stranger's order has beside its number.
const ORDER_COLUMNS: [&str; 2] = ["user_activity_key", "purchase_slot"];

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

/// What takes a transaction back: what was there, in the order in which it was written over.
type Undo = Vec<(&'static str, Key, Option<Rc<Row>>)>;

struct Shared {
    database: Database,
    /// The commits behind the last that lasts, the oldest first.
    unsynced: Vec<Undo>,
    /// Machines that stopped under it: a connection ends with the life in which it began.
    lives: u64,
    older: Vec<Database>,
    random: Random,
    rates: Rates,
    is_down: bool,
    commits: u64,
    fail_overs: u64,
    stranger: Option<Key>,
}

impl Shared {
    fn take_back(&mut self, undo: Undo) {
        for (table, key, before) in undo.into_iter().rev() {
            self.database.set(table, &key, before);
        }
    }
}

/// A connection to the database; clones see the same one.
#[derive(Clone)]
pub(super) struct SimSql {
    shared: Rc<RefCell<Shared>>,
    /// The life of the database that it began in.
    life: u64,
    /// Whether its next commits last.
    lasts: bool,
}

fn lost() -> StoreError {
    sqlx::Error::WorkerCrashed.into()
}

impl SimSql {
    /// An empty database.
    pub(super) fn new(seed: u64) -> Self {
        let shared = Shared {
            database: Database::default(),
            unsynced: Vec::new(),
            lives: 0,
            older: Vec::new(),
            random: Random(seed),
            rates: Rates::default(),
            is_down: false,
            commits: 0,
            fail_overs: 0,
            stranger: None,
        };
        Self { shared: Rc::new(RefCell::new(shared)), life: 0, lasts: true }
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Self {
        let life = self.shared.borrow().lives;
        Self { shared: Rc::clone(&self.shared), life, lasts: true }
    }

    /// Fails this often from now on.
    pub(super) fn set_rates(&self, rates: Rates) {
        self.shared.borrow_mut().rates = rates;
    }

    /// Goes away, or comes back.
    pub(super) fn set_down(&self, is_down: bool) {
        self.shared.borrow_mut().is_down = is_down;
    }

    /// Puts a row of somebody else where the order of that number belongs, if nothing is there.
    pub(super) fn plant_stranger(&self, order_no: &str) {
        let key = key_of([Value::text(order_no)].iter());
        let names = ORDER_COLUMNS.iter().map(|name| (*name, Value::Null));
        let row: Row = names.chain([("order_no", Value::text(order_no.to_owned()))]).collect();
        let mut shared = self.shared.borrow_mut();
        let orders = shared.database.relations.get("orders");
        let is_free = orders.is_none_or(|orders| !orders.rows.contains_key(&key));
        if shared.stranger.is_none() && is_free {
            shared.database.set("orders", &key, Some(Rc::new(row)));
            shared.stranger = Some(key);
        }
    }

    /// Moves the stranger's row aside; whether there was one.
    pub(super) fn move_stranger_aside(&self) -> bool {
        let mut shared = self.shared.borrow_mut();
        let Some(key) = shared.stranger.take() else { return false };
        shared.database.set("orders", &key, None);
        true
    }

    /// Transactions committed.
    pub(super) fn commits(&self) -> u64 {
        self.shared.borrow().commits
    }

    /// The rows of a table, each by its columns.
    pub(super) fn rows(&self, table: &str) -> Vec<Rc<Row>> {
        let shared = self.shared.borrow();
        let relation = shared.database.relations.get(table);
        relation.map_or_else(Vec::new, |it| it.rows.values().cloned().collect())
    }

    fn fails(&self, rate: impl FnOnce(&Rates) -> u64) -> bool {
        let mut shared = self.shared.borrow_mut();
        let rate = rate(&shared.rates);
        shared.is_down || shared.random.below(1_000) < rate
    }
}

impl Store for SimSql {
    type Transaction<'a> = SimTransaction;

    async fn begin(&mut self) -> Result<SimTransaction, StoreError> {
        if self.life != self.shared.borrow().lives || self.fails(|rates| rates.refused) {
            return Err(lost());
        }
        Ok(SimTransaction {
            sql: self.clone(),
            undo: Vec::new(),
            has_changed: false,
            is_done: false,
        })
    }

    fn set_lasting(&mut self, lasting: bool) -> bool {
        self.lasts = lasting;
        lasting || planted::is(Bug::UnsyncedAnnounced)
    }
}

/// A transaction; dropped, it is undone.
pub(super) struct SimTransaction {
    sql: SimSql,
    undo: Undo,
    /// A row is another than before: SQLite syncs no commit that changes nothing.
    has_changed: bool,
    is_done: bool,
}

impl SimTransaction {
    fn meet(&self) -> Result<(), StoreError> {
        if self.sql.fails(|rates| rates.refused) { Err(lost()) } else { Ok(()) }
    }

    /// Puts a row where `key` is, or none; what was there can be put back.
    fn set(&mut self, table: &'static str, key: Key, row: Option<Rc<Row>>) {
        let before = self.sql.shared.borrow_mut().database.set(table, &key, row.clone());
        self.has_changed |= before != row;
        self.undo.push((table, key, before));
    }
}

impl Drop for SimTransaction {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let undo = std::mem::take(&mut self.undo);
        self.sql.shared.borrow_mut().take_back(undo);
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
            let taken = self.sql.shared.borrow().database.is_taken(table.name, &key, &row);
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
            let found = self.sql.shared.borrow().database.find(table.name, names, wanted);
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
            let found = self.sql.shared.borrow().database.find(table.name, names, wanted);
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
        Ok(self.sql.shared.borrow().database.select(lookup, keys))
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        if self.sql.fails(|rates| rates.commit_lost) {
            return if planted::is(Bug::UnclearIsDone) { Ok(()) } else { Err(lost()) };
        }
        self.is_done = true;
        let undo = std::mem::take(&mut self.undo);
        let mut shared = self.sql.shared.borrow_mut();
        shared.commits += 1;
        shared.unsynced.push(undo);
        if self.sql.lasts && self.has_changed {
            shared.unsynced.clear();
        }
        drop(shared);
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
