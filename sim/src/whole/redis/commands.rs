//! The commands that the mirror sends.

use redis::{Arg, Cmd, RedisError, Value};

use super::Shared;
use super::keyspace::{Content, Entry, Keyspace};
use super::library::{self, Part};
use crate::whole::planted::{self, Bug};

/// What a server answers.
pub type Answer = Result<Value, RedisError>;

/// Keys that one SCAN gives at most: fewer than are asked for, so that a walk takes several.
const SCAN_KEYS_MAX: u64 = 40;

/// An error as it comes from a server.
pub(super) fn refused(line: &str) -> RedisError {
    match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(Value::extract_error)
    {
        Err(error) => error,
        Ok(value) => panic!("{line} is no error but {value:?}"),
    }
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn words(command: &Cmd) -> Vec<String> {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => "0".to_owned(),
    };
    command.args_iter().map(word).collect()
}

impl Shared {
    pub(super) fn command(&mut self, command: &Cmd, now_ms: u64) -> Answer {
        let words = words(command);
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match *texts.as_slice() {
            ["GET", key] => match self.keys.get(key, now_ms).map(|entry| &entry.content) {
                Some(Content::Text(text)) => Ok(bulk(text)),
                Some(_) => Err(wrong_type()),
                None => Ok(Value::Nil),
            },
            ["HGETALL", key] => match self.keys.get(key, now_ms).map(|entry| &entry.content) {
                Some(Content::Hash(fields)) => {
                    let pair = |(name, value): (&String, &String)| (bulk(name), bulk(value));
                    Ok(Value::Map(fields.iter().map(pair).collect()))
                }
                Some(_) => Err(wrong_type()),
                None => Ok(Value::Map(Vec::new())),
            },
            ["SET", key, value] => {
                self.keys.put(key, Some(Entry::text(value, None)));
                self.keys.end_call();
                Ok(Value::Okay)
            }
            ["SCAN", at, "MATCH", pattern, "COUNT", _] => self.scan(at, pattern, now_ms),
            ["FUNCTION", "LIST", ..] => Ok(Value::Array(match self.keys.has_library() {
                true => vec![bulk(&self.library)],
                false => Vec::new(),
            })),
            ["FUNCTION", "LOAD", "REPLACE", text] => {
                text.clone_into(&mut self.library);
                self.keys.set_library(true);
                Ok(bulk("sluice_mirror"))
            }
            ["WAITAOF", ..] => self.wait_for_file(),
            ["FCALL", function, ..] => self.call(function, &words[2..], now_ms),
            _ => panic!("the mirror sends {words:?}, which this Redis does not know"),
        }
    }

    fn call(&mut self, function: &str, words: &[String], now_ms: u64) -> Answer {
        if !self.keys.has_library() {
            return Err(refused("ERR Function not found"));
        }
        let count = words.first().and_then(|count| count.parse().ok());
        let (names, words) = count
            .and_then(|count: usize| words[1..].split_at_checked(count))
            .ok_or_else(|| refused("ERR Number of keys can't be greater than number of args"))?;
        let answer = match function {
            "sluice_mirror_apply" => self.apply(names, words, now_ms),
            "sluice_mirror_touch" => library::touch(&mut self.keys, names, now_ms),
            "sluice_mirror_verify" => library::verify(&mut self.keys, names, words, now_ms),
            _ => None,
        };
        self.keys.end_call();
        self.calls += 1;
        answer.ok_or_else(|| refused("ERR the call makes no sense"))
    }

    fn apply(&mut self, names: &[String], words: &[String], now_ms: u64) -> Option<Value> {
        let mut words = words.to_vec();
        let is_rewriting = words.get(1).is_some_and(|to| to.ends_with(" resync"));
        if planted::is(Bug::StaleClearedEarly) && is_rewriting {
            "0".clone_into(&mut words[2]);
        }
        if !planted::is(Bug::CursorApart) {
            return library::apply(&mut self.keys, names, &words, now_ms, |_| true);
        }
        let keys_only = |part: &Part| matches!(part, Part::Keys);
        let answer = library::apply(&mut self.keys, names, &words, now_ms, keys_only);
        self.keys.end_call();
        // The second call does not always arrive.
        if self.random.below(50) > 0 {
            let cursor_only = |part: &Part| matches!(part, Part::Cursor);
            library::apply(&mut self.keys, names, &words, now_ms, cursor_only);
        }
        answer
    }

    fn scan(&mut self, at: &str, pattern: &str, now_ms: u64) -> Answer {
        let prefix = pattern.trim_end_matches('*');
        let at: usize = at.parse().map_err(|_| refused("ERR invalid cursor"))?;
        if planted::is(Bug::StraysKept) {
            return Ok(Value::Array(vec![bulk("0"), Value::Array(Vec::new())]));
        }
        let after = match at.checked_sub(1) {
            None => "",
            Some(index) => self.scans.get(index).map_or("", String::as_str),
        };
        let most = usize::try_from(1 + self.random.below(SCAN_KEYS_MAX)).unwrap_or(1);
        let (found, last) = page(&self.keys, after, now_ms, most);
        let next = match last {
            Some(last) => {
                self.scans.push(last);
                self.scans.len()
            }
            None => 0,
        };
        let ours = found.iter().filter(|key| key.starts_with(prefix)).map(|key| bulk(key));
        Ok(Value::Array(vec![bulk(&next.to_string()), Value::Array(ours.collect())]))
    }

    fn wait_for_file(&mut self) -> Answer {
        if !self.keeps_file {
            return Err(refused(
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ));
        }
        let is_late = self.random.below(1_000) < self.rates.slow_sync;
        if !is_late {
            self.keys.sync();
        }
        Ok(Value::Array(vec![Value::Int(i64::from(!is_late)), Value::Int(0)]))
    }
}

/// At most `most` keys behind `after`, and the last of them where there are more.
fn page(keys: &Keyspace, after: &str, now_ms: u64, most: usize) -> (Vec<String>, Option<String>) {
    let mut keys = keys.keys(after, now_ms).map(|(key, _)| key.to_owned());
    let found: Vec<String> = keys.by_ref().take(most).collect();
    let last = keys.next().and_then(|_| found.last().cloned());
    (found, last)
}

fn wrong_type() -> RedisError {
    refused("WRONGTYPE Operation against a key holding the wrong kind of value")
}
