//! The key space of a server, to be compared: every key with its value and its end.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;

/// By key: type and value, and when the key ends, Unix milliseconds.
pub type Keys = BTreeMap<String, (String, Option<u64>)>;

/// Every key that matches `pattern`.
pub fn present(connection: &mut Connection, pattern: &str) -> Keys {
    let names: Vec<String> = redis::cmd("KEYS").arg(pattern).query(connection).unwrap();
    names.into_iter().filter_map(|name| Some((name.clone(), entry(connection, &name)?))).collect()
}

/// `None` for a key that has ended meanwhile.
fn entry(connection: &mut Connection, name: &str) -> Option<(String, Option<u64>)> {
    let ask = |command: &str| {
        let mut command = redis::cmd(command);
        command.arg(name);
        command
    };
    let (kind, get) = (ask("TYPE"), [ask("GET"), ask("HGETALL"), ask("SMEMBERS")]);
    let ends = ask("PEXPIRETIME");
    let kind: String = kind.query(connection).unwrap();
    let value = match kind.as_str() {
        "string" => get[0].query::<Option<String>>(connection).unwrap()?,
        "hash" => {
            let fields: BTreeMap<String, String> = get[1].query(connection).unwrap();
            format!("{fields:?}")
        }
        "set" => {
            let members: BTreeSet<String> = get[2].query(connection).unwrap();
            format!("{members:?}")
        }
        "none" => return None,
        other => other.to_owned(),
    };
    let ends: i64 = ends.query(connection).unwrap();
    (ends != -2).then(|| (value, u64::try_from(ends).ok()))
}

/// Holds one key space against another.
pub fn assert_same(found: &Keys, expected: &Keys, what: &str) {
    let only = |here: &Keys, there: &Keys| -> Keys {
        let differs = |(key, value): &(&String, _)| there.get(*key) != Some(*value);
        here.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let (extra, missing) = (only(found, expected), only(expected, found));
    assert!(
        extra.is_empty() && missing.is_empty(),
        "{what}\nthe mirror has {extra:#?}\nwhat was expected is {missing:#?}"
    );
}
