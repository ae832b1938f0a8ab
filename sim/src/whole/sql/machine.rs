//! What befalls the machine of the database, and what outlasts it.

use engine::core::ids::ReservationId;

use bridge::sql::store::Value;

use super::{Database, Shared, SimSql, key_of};

/// Older selves that are kept.
const OLDER_KEPT: usize = 4;

impl Shared {
    fn come_back_as(&mut self, database: Database) {
        self.database = database;
        self.unsynced.clear();
        self.stranger = None;
        self.fail_overs += 1;
    }
}

impl SimSql {
    /// Its machine stops and starts again; how many commits that took back.
    pub(in crate::whole) fn power_cut(&self) -> u64 {
        let mut shared = self.shared.borrow_mut();
        shared.lives += 1;
        let most = shared.unsynced.len() + 1;
        let kept = shared.random.index(most);
        let lost = shared.unsynced.split_off(kept);
        let count = lost.len() as u64;
        lost.into_iter().rev().for_each(|undo| shared.take_back(undo));
        // What came through is on the disk that it was read from.
        shared.unsynced.clear();
        count
    }

    /// Keeps what it holds now, to come back as.
    pub(in crate::whole) fn remember(&self) {
        let mut shared = self.shared.borrow_mut();
        let now = shared.database.clone();
        shared.older.push(now);
        if shared.older.len() > OLDER_KEPT {
            shared.older.remove(0);
        }
    }

    /// Comes back as one of its older selves; whether there was one.
    pub(in crate::whole) fn fail_over(&self) -> bool {
        let mut shared = self.shared.borrow_mut();
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
    pub(in crate::whole) fn replace(&self) {
        self.shared.borrow_mut().come_back_as(Database::default());
    }

    /// Whether the reservation has a row that outlasts the machine.
    pub(in crate::whole) fn holds(&self, id: ReservationId) -> bool {
        const TABLE: &str = "flashsale_pre_deductions";
        let key = key_of([Value::integer(id.get())].iter());
        let shared = self.shared.borrow();
        // The oldest commit that may be undone says what was there before all of them.
        let unsynced = shared.unsynced.iter().flatten();
        let mut before = unsynced.filter(|(table, at, _)| *table == TABLE && *at == key);
        match before.next() {
            Some((_, _, before)) => before.is_some(),
            None => {
                let relation = shared.database.relations.get(TABLE);
                relation.is_some_and(|relation| relation.rows.contains_key(&key))
            }
        }
    }

    /// Whether it always was what it said it was.
    pub(in crate::whole) fn never_failed_over(&self) -> bool {
        self.shared.borrow().fail_overs == 0
    }
}
