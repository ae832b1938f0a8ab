//! What SQL and Redis must hold once they have caught up, computed from nothing but what buyers
//! were told: every row, every key, no other.
#![allow(dead_code, reason = "each test binary uses its own part of the stores")]

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

/// What became of a reservation, as its buyer was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Unpaid,
    Paid,
    Cancelled,
    TimedOut,
    /// No order can hold it, and so its unit went back.
    DeadLetter,
}

impl Fate {
    /// Whether its unit is free again.
    pub(crate) fn is_given_back(self) -> bool {
        matches!(self, Self::Cancelled | Self::TimedOut | Self::DeadLetter)
    }
}

/// A reservation of one unit.
#[derive(Clone, Debug)]
pub(crate) struct Bought {
    pub(crate) id: u64,
    pub(crate) order_no: String,
    pub(crate) user: u64,
    pub(crate) activity: u64,
    pub(crate) fate: Fate,
}

/// Everything that was ever told.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Units of each activity.
    pub(crate) activities: BTreeMap<u64, u64>,
    pub(crate) bought: Vec<Bought>,
}

/// Units of an activity, as the three stores know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) locked: u64,
    pub(crate) sold: u64,
    pub(crate) reservations: u64,
    pub(crate) rolled_back: u64,
}

impl Account {
    /// The figures of `activity`.
    pub(crate) fn figures(&self, activity: u64) -> Figures {
        let count = |is: fn(Fate) -> bool| {
            let of = self.bought.iter().filter(|it| it.activity == activity && is(it.fate));
            of.count() as u64
        };
        let total = self.activities[&activity];
        let (locked, sold) = (count(|fate| fate == Fate::Unpaid), count(|fate| fate == Fate::Paid));
        Figures {
            total,
            available: total.checked_sub(locked + sold).expect("more was sold than there is"),
            locked,
            sold,
            reservations: count(|_| true),
            rolled_back: count(Fate::is_given_back),
        }
    }

    /// Compares SQL with the account.
    ///
    /// # Errors
    /// The first table that differs, and how; or why nothing was read.
    pub(crate) fn compare_sql(&self, url: &str) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connected = MySqlConnection::connect(url).await;
            let mut database = connected.map_err(|error| error.to_string())?;
            let queries = [
                (ORDERS, self.orders()),
                (PRE_DEDUCTIONS, BTreeSet::from([self.bought.len().to_string()])),
                (ACTIVITIES, self.rows_of_activities()),
                (FLOWS, self.flows()),
            ];
            for (sql, expected) in queries {
                let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut database).await;
                let rows: Vec<String> = rows.map_err(|error| error.to_string())?;
                let count = rows.len();
                let found = BTreeSet::from_iter(rows);
                if found != expected || found.len() != count {
                    return Err(format!("{sql}: {}", difference(&found, &expected)));
                }
            }
            Ok(())
        })
    }

    /// Compares the compatibility keys of Redis with the account.
    ///
    /// # Errors
    /// What differs; or why nothing was read.
    pub(crate) fn compare_redis(&self, url: &str) -> Result<(), String> {
        let found = keys(url).map_err(|error| error.to_string())?;
        let expected = self.keys();
        if found == expected { Ok(()) } else { Err(difference(&found, &expected)) }
    }

    fn orders(&self) -> BTreeSet<String> {
        let row = |it: &Bought| {
            let Bought { id, order_no, user, activity, fate } = it;
            let taken = format!("{user}:{activity}:{id}");
            let rest = match fate {
                Fate::Unpaid => format!("pending_payment|{taken}|ordered|-|1"),
                Fate::Paid => format!("paid|{taken}|ordered|-|1"),
                Fate::Cancelled => "cancelled|-|rolled_back|cancelled|1".to_owned(),
                Fate::TimedOut => "timeout|-|rolled_back|timeout|1".to_owned(),
                Fate::DeadLetter => return None,
            };
            Some(format!("{order_no}|{rest}"))
        };
        self.bought.iter().filter_map(row).collect()
    }

    fn rows_of_activities(&self) -> BTreeSet<String> {
        let row = |id: &u64| {
            let Figures { total, available, locked, sold, .. } = self.figures(*id);
            format!("{id}|{total}|{available}|{locked}|{sold}")
        };
        self.activities.keys().map(row).collect()
    }

    fn flows(&self) -> BTreeSet<String> {
        let mut rows = BTreeSet::new();
        for id in self.activities.keys() {
            let Figures { total, reservations, rolled_back, .. } = self.figures(*id);
            rows.insert(format!("{id}|INIT|1|{total}"));
            if reservations > 0 {
                rows.insert(format!("{id}|DEDUCT|{reservations}|-{reservations}"));
            }
            if rolled_back > 0 {
                rows.insert(format!("{id}|RECOVER|{rolled_back}|{rolled_back}"));
            }
        }
        rows
    }

    fn keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        let mut held: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for activity in self.activities.keys() {
            let available = self.figures(*activity).available;
            keys.insert(format!("flashsale:stock:{activity} = {available}"));
        }
        for Bought { id, user, activity, fate, .. } in &self.bought {
            match fate {
                Fate::Unpaid => keys.insert(format!("flashsale:reservation:{id} = {id}")),
                Fate::Paid => false,
                Fate::Cancelled | Fate::TimedOut | Fate::DeadLetter => {
                    keys.insert(format!("flashsale:reservation:{id} = rolled_back:{id}"))
                }
            };
            if !fate.is_given_back() {
                keys.insert(format!("flashsale:idem:{activity}:{user}:{id} = {id}"));
                *held.entry((*activity, *user)).or_default() += 1;
            }
        }
        let count =
            |((activity, user), units)| format!("flashsale:count:{activity}:{user} = {units}");
        keys.extend(held.into_iter().map(count));
        keys
    }
}

/// Order, slot and reservation together.
const ORDERS: &str = "SELECT CONCAT_WS('|', o.order_no, o.status, \
    IFNULL(o.user_activity_key, '-'), p.status, IFNULL(p.reason, '-'), \
    (SELECT COUNT(*) FROM order_items i WHERE i.order_no = o.order_no)) FROM orders o \
    LEFT JOIN flashsale_pre_deductions p ON p.id = o.purchase_slot \
    AND p.order_no = o.order_no AND p.user_id = o.user_id";
const PRE_DEDUCTIONS: &str = "SELECT CAST(COUNT(*) AS CHAR) FROM flashsale_pre_deductions";
const ACTIVITIES: &str = "SELECT CONCAT_WS('|', id, total_stock, stock, locked_stock, sold_stock) \
    FROM flashsale_activities";
const FLOWS: &str = "SELECT CONCAT_WS('|', activity_id, change_type, COUNT(*), SUM(change_qty)) \
    FROM stock_flows GROUP BY activity_id, change_type";

/// Every compatibility key with its value, and the sign of a mirror that is behind.
fn keys(url: &str) -> redis::RedisResult<BTreeSet<String>> {
    let mut redis = redis::Client::open(url)?.get_connection()?;
    let mut names: Vec<String> = redis::cmd("KEYS").arg("flashsale:*").query(&mut redis)?;
    names.push("sluice:stale".to_owned());
    let values: Vec<Option<String>> = redis::cmd("MGET").arg(&names).query(&mut redis)?;
    let pairs = names.into_iter().zip(values);
    Ok(pairs.filter_map(|(name, value)| Some(format!("{name} = {}", value?))).collect())
}

fn difference(found: &BTreeSet<String>, expected: &BTreeSet<String>) -> String {
    let extra: Vec<_> = found.difference(expected).take(5).collect();
    let missing: Vec<_> = expected.difference(found).take(5).collect();
    format!("unexpected {extra:?}, missing {missing:?}")
}
