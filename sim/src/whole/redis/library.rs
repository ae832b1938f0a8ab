//! The mirror's function library over keys in memory: what `mirror.lua` does, in Rust. A test holds
//! the two against each other, call by call, on a real Valkey.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::keyspace::{Content, Entry, Keyspace};

/// Arguments of a call, read one by one.
struct Words<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.words.get(self.at - 1).map(String::as_str)
    }

    fn count(&mut self) -> Option<usize> {
        self.next()?.parse().ok()
    }

    fn ends_ms(&mut self) -> Option<Option<u64>> {
        match self.next()? {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }
    }
}

/// An item of a group: what a key, or a part of it, shall be.
enum Item<'a> {
    Text { key: &'a str, value: &'a str, ends_ms: Option<u64> },
    Absent { key: &'a str },
    Hash { key: &'a str, fields: BTreeMap<String, String>, ends_ms: Option<u64> },
    Field { key: &'a str, name: &'a str, value: Option<&'a str> },
    Member { key: &'a str, name: &'a str, ends_ms: Option<u64>, is_in: bool },
}

impl<'a> Item<'a> {
    fn read(op: &str, words: &mut Words<'a>) -> Option<Self> {
        let key = words.next()?;
        Some(match op {
            "set" => Self::Text { key, value: words.next()?, ends_ms: None },
            "until" => Self::Text { key, value: words.next()?, ends_ms: words.ends_ms()? },
            "del" => Self::Absent { key },
            "hash" => {
                let (ends_ms, count) = (words.ends_ms()?, words.count()?);
                let mut fields = BTreeMap::new();
                for _ in 0..count {
                    fields.insert(words.next()?.to_owned(), words.next()?.to_owned());
                }
                Self::Hash { key, fields, ends_ms }
            }
            "field" => Self::Field { key, name: words.next()?, value: Some(words.next()?) },
            "unfield" => Self::Field { key, name: words.next()?, value: None },
            "add" => {
                let (name, ends_ms) = (words.next()?, words.ends_ms()?);
                Self::Member { key, name, ends_ms, is_in: true }
            }
            "remove" => Self::Member { key, name: words.next()?, ends_ms: None, is_in: false },
            _ => return None,
        })
    }

    const fn key(&self) -> &'a str {
        match *self {
            Self::Text { key, .. }
            | Self::Absent { key }
            | Self::Hash { key, .. }
            | Self::Field { key, .. }
            | Self::Member { key, .. } => key,
        }
    }

    /// The end of an item that has one.
    const fn ends_ms(&self) -> Option<u64> {
        match *self {
            Self::Text { ends_ms, .. }
            | Self::Hash { ends_ms, .. }
            | Self::Member { ends_ms, .. } => ends_ms,
            _ => None,
        }
    }

    fn write(&self, keys: &mut Keyspace, now_ms: u64) {
        let key = self.key();
        let found = keys.get(key, now_ms).cloned();
        let entry = match self {
            Self::Text { value, ends_ms, .. } => Some(Entry::text(value, *ends_ms)),
            Self::Absent { .. } => None,
            Self::Hash { fields, ends_ms, .. } => {
                Some(Entry { content: Content::Hash(fields.clone()), ends_ms: *ends_ms })
            }
            Self::Field { name, value, .. } => {
                let (mut fields, ends_ms) = match found {
                    Some(Entry { content: Content::Hash(fields), ends_ms }) => (fields, ends_ms),
                    _ => (BTreeMap::new(), None),
                };
                match value {
                    Some(value) => _ = fields.insert((*name).to_owned(), (*value).to_owned()),
                    None => _ = fields.remove(*name),
                }
                (!fields.is_empty()).then_some(Entry { content: Content::Hash(fields), ends_ms })
            }
            Self::Member { name, ends_ms, is_in, .. } => {
                let (mut members, before) = match found {
                    Some(Entry { content: Content::Set(members), ends_ms }) => (members, ends_ms),
                    _ => (BTreeSet::new(), None),
                };
                match is_in {
                    true => _ = members.insert((*name).to_owned()),
                    false => _ = members.remove(*name),
                }
                let ends_ms = if *is_in { *ends_ms } else { before };
                (!members.is_empty()).then_some(Entry { content: Content::Set(members), ends_ms })
            }
        };
        let lives = |entry: &Entry| entry.ends_ms.is_none_or(|ends_ms| ends_ms > now_ms);
        let entry = entry.filter(lives);
        // The rest of a key that somebody changed is still theirs.
        let is_part = matches!(self, Self::Field { .. } | Self::Member { .. });
        if is_part && keys.is_strange(key) {
            keys.tamper(key, entry);
        } else {
            keys.put(key, entry);
        }
    }

    /// Whether the key is as the item says.
    fn is_right(&self, keys: &Keyspace, now_ms: u64) -> bool {
        let found = keys.get(self.key(), now_ms);
        match self {
            Self::Text { value, ends_ms, .. } => found.is_some_and(|it| {
                matches!(&it.content, Content::Text(text) if text == value)
                    && it.ends_ms == *ends_ms
            }),
            Self::Absent { .. } => found.is_none(),
            Self::Hash { fields, ends_ms, .. } => found.is_some_and(|it| {
                matches!(&it.content, Content::Hash(have) if have == fields)
                    && it.ends_ms == *ends_ms
            }),
            Self::Field { name, value, .. } => match found.map(|it| &it.content) {
                Some(Content::Hash(fields)) => fields.get(*name).map(String::as_str) == *value,
                Some(_) => false,
                None => value.is_none(),
            },
            Self::Member { name, ends_ms, is_in, .. } => match found {
                Some(Entry { content: Content::Set(members), ends_ms: ends }) => {
                    members.contains(*name) == *is_in && (!is_in || ends == ends_ms)
                }
                Some(_) => false,
                None => !is_in,
            },
        }
    }
}

/// A string; what is none counts as empty.
fn text<'k>(keys: &'k Keyspace, key: &str, now_ms: u64) -> &'k str {
    match keys.get(key, now_ms).map(|entry| &entry.content) {
        Some(Content::Text(text)) => text,
        _ => "",
    }
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// What a call changes beside the keys that it names, in the order in which it does.
pub(super) enum Part {
    /// The keys and `sluice:stale`.
    Keys,
    /// The cursor.
    Cursor,
}

/// `sluice_mirror_apply`: keys `cursor stale`, arguments `from to stale groups..`. `None` where the
/// arguments make no sense.
pub(super) fn apply(
    keys: &mut Keyspace,
    names: &[String],
    words: &[String],
    now_ms: u64,
    part: impl Fn(&Part) -> bool,
) -> Option<Value> {
    let ([cursor, stale], [from, to, is_stale, groups @ ..]) = (names, words) else { return None };
    let found = text(keys, cursor, now_ms);
    if found != from {
        return Some(bulk(found));
    }
    if part(&Part::Keys) {
        let mut words = Words { words: groups, at: 0 };
        while let Some(op) = words.next() {
            for _ in 0..words.count()? {
                Item::read(op, &mut words)?.write(keys, now_ms);
            }
        }
        keys.put(stale, (is_stale == "1").then(|| Entry::text(1, None)));
    }
    if part(&Part::Cursor) {
        keys.put(cursor, (!to.is_empty()).then(|| Entry::text(to, None)));
    }
    Some(Value::Int(1))
}

/// `sluice_mirror_touch`: key `cursor`.
pub(super) fn touch(keys: &mut Keyspace, names: &[String], now_ms: u64) -> Option<Value> {
    let [cursor] = names else { return None };
    let found = text(keys, cursor, now_ms).to_owned();
    if !found.is_empty() {
        let is_strange = keys.is_strange(cursor);
        let entry = Some(Entry::text(&found, None));
        // What somebody put there is written to itself as well.
        if is_strange { keys.tamper(cursor, entry) } else { keys.put(cursor, entry) }
    }
    Some(bulk(&found))
}

/// `sluice_mirror_verify`: key `cursor`, arguments `from groups..`.
pub(super) fn verify(
    keys: &mut Keyspace,
    names: &[String],
    words: &[String],
    now_ms: u64,
) -> Option<Value> {
    let ([cursor], [from, groups @ ..]) = (names, words) else { return None };
    let found = text(keys, cursor, now_ms);
    if found != from {
        return Some(bulk(found));
    }
    let soon_ms = (now_ms / 1_000 + 1) * 1_000;
    let (mut words, mut wrong) = (Words { words: groups, at: 0 }, Vec::new());
    while let Some(op) = words.next() {
        for _ in 0..words.count()? {
            let item = Item::read(op, &mut words)?;
            let ends_soon = item.ends_ms().is_some_and(|ends_ms| ends_ms <= soon_ms);
            if !item.is_right(keys, now_ms) && !ends_soon {
                wrong.push(bulk(item.key()));
                wrong.push(bulk(&described(keys, item.key(), now_ms)));
                item.write(keys, now_ms);
            }
        }
    }
    Some(Value::Array(wrong))
}

fn described(keys: &Keyspace, key: &str, now_ms: u64) -> String {
    let Some(Entry { content, ends_ms }) = keys.get(key, now_ms) else {
        return "nothing".to_owned();
    };
    let value = match content {
        Content::Text(text) => text,
        other => other.kind(),
    };
    match ends_ms {
        Some(ends_ms) => format!("{value} until {ends_ms}"),
        None => value.to_owned(),
    }
}
