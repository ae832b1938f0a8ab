//! Tables in memory: rows by key, unique keys, and the few ways in which the projection looks
//! them up.

use std::collections::BTreeMap;
use std::rc::Rc;

use bridge::sql::store::{Lookup, Record, Value};

/// Keys that must be unique beside a table's own, as the migrations have them.
const UNIQUE: [(&str, &[&str]); 5] = [
    ("flashsale_activities", &["ordinal"]),
    ("flashsale_pre_deductions", &["order_no"]),
    ("flashsale_pre_deductions", &["user_id", "activity_id", "client_request_id"]),
    ("orders", &["user_activity_key"]),
    ("stock_flows", &["biz_type", "biz_id"]),
];

/// A row, by its columns.
pub(super) type Row = BTreeMap<&'static str, Value<'static>>;

/// A key as bytes that no other key has.
pub(super) type Key = Vec<u8>;

#[derive(Clone, Default)]
pub(super) struct Relation {
    pub(super) rows: BTreeMap<Key, Rc<Row>>,
    /// For each unique key, in the order of [`UNIQUE`]: whose row holds it.
    unique: Vec<BTreeMap<Key, Key>>,
}

#[derive(Clone, Default)]
pub(super) struct Database {
    pub(super) relations: BTreeMap<&'static str, Relation>,
}

impl Database {
    /// Sets or takes away a row; what was there.
    pub(super) fn set(
        &mut self,
        table: &'static str,
        key: &Key,
        row: Option<Rc<Row>>,
    ) -> Option<Rc<Row>> {
        let relation = self.relations.entry(table).or_default();
        let columns = || UNIQUE.iter().filter(move |(name, _)| *name == table);
        relation.unique.resize(columns().count(), BTreeMap::new());
        let before = match row.clone() {
            Some(row) => relation.rows.insert(key.clone(), row),
            None => relation.rows.remove(key),
        };
        for ((_, columns), index) in columns().zip(&mut relation.unique) {
            if let Some(old) = before.as_deref().and_then(|row| unique_key(row, columns)) {
                index.remove(&old);
            }
            if let Some(new) = row.as_deref().and_then(|row| unique_key(row, columns)) {
                index.insert(new, key.clone());
            }
        }
        before
    }

    pub(super) fn is_taken(&self, table: &str, key: &Key, row: &Row) -> bool {
        let Some(relation) = self.relations.get(table) else { return false };
        let columns = UNIQUE.iter().filter(|(name, _)| *name == table);
        relation.rows.contains_key(key)
            || columns.zip(&relation.unique).any(|((_, columns), index)| {
                unique_key(row, columns).is_some_and(|key| index.contains_key(&key))
            })
    }

    /// The rows whose columns `names` hold `wanted`, the first of which begin the table's key.
    pub(super) fn find(
        &self,
        table: &str,
        names: &[&str],
        wanted: &[Value<'_>],
    ) -> Vec<(Key, Rc<Row>)> {
        let Some(relation) = self.relations.get(table) else { return Vec::new() };
        // The first column of every key that is searched for is the table's own, or its first.
        let prefix = key_of(wanted.iter().take(1));
        let from_prefix = relation.rows.range(prefix.clone()..);
        let holds = |row: &Row| names.iter().zip(wanted).all(|(name, it)| row[name] == owned(it));
        let found = from_prefix.take_while(|(key, _)| key.starts_with(&prefix));
        let found = found.filter(|(_, row)| holds(row));
        found.map(|(key, row)| (key.clone(), Rc::clone(row))).collect()
    }

    pub(super) fn select(&self, lookup: &Lookup, keys: &[Value<'_>]) -> Vec<Record> {
        match lookup.from.split_once(" p LEFT JOIN ") {
            None => self.select_plain(lookup, keys),
            Some((left, right)) => {
                let right = right.split(' ').next().unwrap_or_default();
                self.select_joined(lookup, left, right, keys)
            }
        }
    }

    fn select_plain(&self, lookup: &Lookup, keys: &[Value<'_>]) -> Vec<Record> {
        let Some(relation) = self.relations.get(lookup.from) else { return Vec::new() };
        let record = |row: &Row| Record(lookup.columns.iter().map(|it| row[it].clone()).collect());
        let is_wanted = |row: &Row| match lookup.only {
            Some((column, text)) => row.get(column) == Some(&Value::text(text)),
            None => true,
        };
        let mut records = Vec::new();
        for key in keys {
            let by_key: Vec<_> = self.find(lookup.from, &[lookup.key], std::slice::from_ref(key));
            if by_key.is_empty() {
                let holds =
                    |row: &&Rc<Row>| row.get(lookup.key) == Some(&owned(key)) && is_wanted(row);
                records.extend(relation.rows.values().filter(holds).map(|row| record(row)));
            } else {
                let wanted = by_key.iter().filter(|(_, row)| is_wanted(row));
                records.extend(wanted.map(|(_, row)| record(row)));
            }
        }
        records
    }

    /// `left p LEFT JOIN right d ON d.id = p.id`: the one join that the projection makes.
    fn select_joined(
        &self,
        lookup: &Lookup,
        left: &str,
        right: &str,
        keys: &[Value<'_>],
    ) -> Vec<Record> {
        let mut records = Vec::new();
        for key in keys {
            for (_, row) in self.find(left, &["id"], std::slice::from_ref(key)) {
                let joined = self.find(right, &["id"], std::slice::from_ref(key));
                let joined = joined.first().map(|(_, row)| row);
                let value = |name: &&str| match name.split_once('.') {
                    Some(("p", name)) => row[name].clone(),
                    Some((_, name)) => joined.map_or(Value::Null, |row| row[name].clone()),
                    None => panic!("{name} of a join names its table"),
                };
                records.push(Record(lookup.columns.iter().map(value).collect()));
            }
        }
        records
    }
}

/// The unique key of a row; `None` where a part of it is NULL, which equals nothing.
fn unique_key(row: &Row, columns: &[&str]) -> Option<Key> {
    let values = columns.iter().map(|column| &row[column]);
    if values.clone().any(|value| *value == Value::Null) { None } else { Some(key_of(values)) }
}

pub(super) fn key_of<'a, 'v: 'a>(values: impl Iterator<Item = &'a Value<'v>>) -> Key {
    let mut key = Vec::new();
    for value in values {
        let bytes: &[u8] = match value {
            Value::Null => &[],
            Value::Integer(value) => &value.to_be_bytes(),
            Value::Text(value) => value.as_bytes(),
            Value::Bytes(value) => value,
        };
        key.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        key.extend_from_slice(bytes);
    }
    key
}

pub(super) fn owned(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Null => Value::Null,
        Value::Integer(value) => Value::Integer(*value),
        Value::Text(value) => Value::text(value.to_string()),
        Value::Bytes(value) => Value::bytes(value.to_vec()),
    }
}
