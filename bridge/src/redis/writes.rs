//! What a batch leaves behind, key by key: absolute values, the last one wins.

use std::collections::HashMap;

use redis::Cmd;

/// What a key shall be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// A string; `ends_ms` is Unix milliseconds, `None` where it lives until it is deleted.
    Text {
        /// Its value.
        value: String,
        /// Its end.
        ends_ms: Option<u64>,
    },
    /// A hash with exactly these fields.
    Hash {
        /// Fields and values.
        fields: Vec<(&'static str, String)>,
        /// Its end.
        ends_ms: Option<u64>,
    },
    /// No key.
    Absent,
}

/// Part of a key: a field of a hash, or a member of a set. The rest of the key is left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The field has this value.
    Field(String),
    /// There is no such field.
    NoField,
    /// It is a member of a set that ends at this Unix millisecond.
    Member(u64),
    /// It is no member.
    NoMember,
}

/// Keys and what they shall be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Writes {
    keys: HashMap<String, Write>,
    parts: HashMap<(String, String), Part>,
}

impl Writes {
    /// `key` shall be `write`.
    pub fn put(&mut self, key: String, write: Write) {
        self.keys.insert(key, write);
    }

    /// `key` shall be a string until `ends_ms`.
    pub fn text(&mut self, key: String, value: impl ToString, ends_ms: Option<u64>) {
        self.put(key, Write::Text { value: value.to_string(), ends_ms });
    }

    /// There shall be no `key`.
    pub fn absent(&mut self, key: String) {
        self.put(key, Write::Absent);
    }

    /// `name` in `key` shall be `part`.
    pub fn part(&mut self, key: String, name: String, part: Part) {
        self.parts.insert((key, name), part);
    }

    /// What `key` shall be as a whole, where that is said.
    pub fn get(&self, key: &str) -> Option<&Write> {
        self.keys.get(key)
    }

    /// What is said of whole keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Write)> {
        self.keys.iter().map(|(key, write)| (key.as_str(), write))
    }

    /// What is said of parts: key, name, part; in no order.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str, &Part)> {
        self.parts.iter().map(|((key, name), part)| (key.as_str(), name.as_str(), part))
    }

    /// Whether anything is said of `key`.
    pub fn speaks_of(&self, key: &str) -> bool {
        self.keys.contains_key(key) || self.parts.keys().any(|(of, _)| of == key)
    }

    /// Forgets what `later` says otherwise, or again.
    pub(super) fn without(&mut self, later: &Self) {
        self.keys.retain(|key, _| !later.keys.contains_key(key));
        self.parts.retain(|part, _| !later.parts.contains_key(part));
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.parts.is_empty()
    }

    /// Keys and parts.
    pub fn len(&self) -> usize {
        self.keys.len() + self.parts.len()
    }

    /// Appends them to a call of the library, in its groups.
    pub(super) fn encode(&self, call: &mut Cmd) {
        let ends = |write: &Write| match write {
            Write::Text { ends_ms, .. } | Write::Hash { ends_ms, .. } => *ends_ms,
            Write::Absent => None,
        };
        let group = |call: &mut Cmd, op: &str, wanted: &dyn Fn(&Write) -> bool| {
            let count = self.keys.values().filter(|write| wanted(write)).count();
            if count > 0 {
                call.arg(op).arg(count);
            }
            for (key, write) in self.keys.iter().filter(|(_, write)| wanted(write)) {
                call.arg(key);
                match write {
                    Write::Text { value, ends_ms: None } => _ = call.arg(value),
                    Write::Text { value, ends_ms: Some(ends_ms) } => {
                        call.arg(value).arg(*ends_ms);
                    }
                    Write::Absent => {}
                    Write::Hash { fields, .. } => {
                        let ends_ms = ends(write).map_or_else(String::new, |ms| ms.to_string());
                        call.arg(ends_ms).arg(fields.len());
                        for (name, value) in fields {
                            call.arg(*name).arg(value);
                        }
                    }
                }
            }
        };
        group(call, "set", &|it| matches!(it, Write::Text { ends_ms: None, .. }));
        group(call, "until", &|it| matches!(it, Write::Text { ends_ms: Some(_), .. }));
        group(call, "del", &|it| matches!(it, Write::Absent));
        group(call, "hash", &|it| matches!(it, Write::Hash { .. }));
        self.encode_parts(call);
    }

    fn encode_parts(&self, call: &mut Cmd) {
        let group = |call: &mut Cmd, op: &str, wanted: &dyn Fn(&Part) -> bool| {
            let count = self.parts.values().filter(|part| wanted(part)).count();
            if count > 0 {
                call.arg(op).arg(count);
            }
            for ((key, name), part) in self.parts.iter().filter(|(_, part)| wanted(part)) {
                call.arg(key).arg(name);
                match part {
                    Part::Field(value) => _ = call.arg(value),
                    Part::Member(ends_ms) => _ = call.arg(*ends_ms),
                    Part::NoField | Part::NoMember => {}
                }
            }
        };
        group(call, "field", &|it| matches!(it, Part::Field(_)));
        group(call, "unfield", &|it| matches!(it, Part::NoField));
        group(call, "add", &|it| matches!(it, Part::Member(_)));
        group(call, "remove", &|it| matches!(it, Part::NoMember));
    }
}
