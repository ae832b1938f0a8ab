//! The simulated Redis answers and keeps what a real Valkey does, for the calls that a mirror
//! sends: random calls of the mirror's library, tampering between them, key space by key space.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use functions::kit::process::Process;
use redis::{Cmd, Connection, Value};
use sim::fates::Random;
use sim::whole::redis::SimRedis;
use sim::whole::redis::keyspace::{Content, Entry};

/// The mirror's library, as it is loaded.
const LIBRARY: &str = include_str!("../../bridge/src/redis/mirror.lua");

const CALLS: u64 = 4_000;

/// Few keys, so that calls meet: of every type, and the cursor itself.
const KEYS: [&str; 9] = ["cursor", "stale", "a", "b", "c", "d", "e", "f", "g"];

/// No answer takes this long: a test fails rather than hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

struct Pair {
    _process: Process,
    _directory: tempfile::TempDir,
    real: Connection,
    sim: SimRedis,
    random: Random,
    now_ms: u64,
}

impl Pair {
    fn start(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(directory.path(), &["--port", "0", "--appendonly", "no"]);
        let url = format!("redis+unix://{}?protocol=resp3", directory.path().join("s").display());
        let real = redis::Client::open(url).unwrap().get_connection().unwrap();
        real.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now_ms = u64::try_from(since.as_millis()).unwrap();
        let (sim, random) = (SimRedis::standing_at(now_ms), Random(seed));
        Self { _process: process, _directory: directory, real, sim, random, now_ms }
    }

    /// Says it to both; the two answers must be one.
    fn say(&mut self, command: &Cmd) -> Option<Value> {
        let real: Result<Value, _> = command.query(&mut self.real);
        let sim = self.sim.command(command);
        let words = String::from_utf8_lossy(&command.get_packed_command()).replace("\r\n", " ");
        match (real, sim) {
            (Ok(real), Ok(sim)) => {
                assert_eq!(plain(&sim), plain(&real), "{words}");
                Some(real)
            }
            (Err(real), Err(sim)) => {
                assert_eq!(sim.code(), real.code(), "{words}: {real}");
                None
            }
            (real, sim) => panic!("{words}: {sim:?}, Valkey says {real:?}"),
        }
    }

    fn load(&mut self) {
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(LIBRARY);
        self.say(&load);
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.random.index(KEYS.len())]
    }

    /// An end in some hours, or one that has passed.
    fn ends_ms(&mut self) -> u64 {
        match self.random.below(6) {
            0 => 1_000 + self.random.below(3),
            _ => self.now_ms + 3_600_000 * (1 + self.random.below(2)),
        }
    }

    fn groups(&mut self, call: &mut Cmd) {
        for _ in 0..self.random.below(4) {
            let op = ["set", "until", "del", "hash", "field", "unfield", "add", "remove"];
            let op = op[self.random.index(op.len())];
            let count = 1 + self.random.below(3);
            call.arg(op).arg(count);
            for _ in 0..count {
                let (key, ends_ms) = (self.key(), self.ends_ms());
                let (name, value) = (self.random.below(3), self.random.below(3));
                match op {
                    "set" => call.arg(key).arg(value),
                    "until" => call.arg(key).arg(value).arg(ends_ms),
                    "hash" if value == 0 => call.arg(key).arg("").arg(1).arg(name).arg(value),
                    "hash" => call.arg(key).arg(ends_ms).arg(2).arg(7).arg(8).arg(name).arg(value),
                    "field" => call.arg(key).arg(name).arg(value),
                    "add" => call.arg(key).arg(name).arg(ends_ms),
                    "unfield" | "remove" => call.arg(key).arg(name),
                    _ => call.arg(key),
                };
            }
        }
    }

    /// The cursor as it stands, mostly.
    fn cursor(&mut self) -> String {
        let found = self.sim.look(|keys, now_ms| match keys.get("cursor", now_ms) {
            Some(Entry { content: Content::Text(text), .. }) => text.clone(),
            _ => String::new(),
        });
        if self.random.below(8) == 0 { "another".to_owned() } else { found }
    }

    fn call(&mut self) {
        let (mut call, cursor) = (redis::cmd("FCALL"), self.cursor());
        match self.random.below(5) {
            0 => {
                call.arg("sluice_mirror_touch").arg(1).arg("cursor");
            }
            1 | 2 => {
                call.arg("sluice_mirror_verify").arg(1).arg("cursor").arg(cursor);
                self.groups(&mut call);
            }
            _ => {
                let to = ["", "1", "2", "3"][self.random.index(4)];
                call.arg("sluice_mirror_apply").arg(2).arg("cursor").arg("stale").arg(cursor);
                call.arg(to).arg(self.random.below(2));
                self.groups(&mut call);
            }
        }
        self.say(&call);
    }

    /// Somebody changes a key of both.
    fn tamper(&mut self) {
        let (key, number) = (self.key(), self.random.below(3).to_string());
        let () = redis::cmd("DEL").arg(key).query(&mut self.real).unwrap();
        let (command, content) = match self.random.below(4) {
            0 => (redis::cmd("SET").arg(key).arg(&number).clone(), Content::Text(number)),
            1 => {
                let fields = [(number.clone(), number.clone())].into();
                let command = redis::cmd("HSET").arg(key).arg(&number).arg(&number).clone();
                (command, Content::Hash(fields))
            }
            2 => (redis::cmd("SADD").arg(key).arg(&number).clone(), Content::Set([number].into())),
            _ => return self.sim.tamper(key, None),
        };
        let () = command.query(&mut self.real).unwrap();
        self.sim.tamper(key, Some(Entry { content, ends_ms: None }));
    }

    /// Every key, its value and its end.
    fn compare(&mut self) {
        let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut self.real).unwrap();
        let mut real = BTreeMap::new();
        for name in names {
            let ask = |command: &str| redis::cmd(command).arg(&name).clone();
            let kind: String = ask("TYPE").query(&mut self.real).unwrap();
            let content = match kind.as_str() {
                "string" => Content::Text(ask("GET").query(&mut self.real).unwrap()),
                "hash" => Content::Hash(ask("HGETALL").query(&mut self.real).unwrap()),
                _ => Content::Set(ask("SMEMBERS").query(&mut self.real).unwrap()),
            };
            let ends: i64 = ask("PEXPIRETIME").query(&mut self.real).unwrap();
            real.insert(name, Entry { content, ends_ms: u64::try_from(ends).ok() });
        }
        let sim: BTreeMap<String, Entry> = self.sim.look(|keys, now_ms| {
            keys.keys("", now_ms).map(|(key, entry)| (key.to_owned(), entry.clone())).collect()
        });
        assert_eq!(sim, real);
    }

    /// A walk over all keys of a pattern meets each.
    fn walk(&mut self, pattern: &str) -> [BTreeSet<String>; 2] {
        let scan = |at: u64| {
            let mut scan = redis::cmd("SCAN");
            scan.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
            scan
        };
        let mut found = [BTreeSet::new(), BTreeSet::new()];
        for (index, found) in found.iter_mut().enumerate() {
            let mut at = 0;
            loop {
                let answer = match index {
                    0 => scan(at).query::<Value>(&mut self.real).unwrap(),
                    _ => self.sim.command(&scan(at)).unwrap(),
                };
                let (next, keys): (u64, Vec<String>) = redis::from_redis_value(answer).unwrap();
                found.extend(keys);
                at = next;
                if at == 0 {
                    break;
                }
            }
        }
        found
    }
}

/// An answer, whatever the protocol writes it as.
fn plain(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Array(items) => format!("{:?}", items.iter().map(plain).collect::<Vec<_>>()),
        Value::Map(pairs) => {
            let pair = |(name, value): &(Value, Value)| (plain(name), plain(value));
            format!("{:?}", pairs.iter().map(pair).collect::<BTreeMap<_, _>>())
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn the_simulated_redis_is_a_valkey_for_the_mirrors_calls() {
    let mut pair = Pair::start(1);
    assert!(
        pair.say(redis::cmd("FCALL").arg("sluice_mirror_touch").arg(1).arg("cursor")).is_none()
    );
    pair.load();
    for call in 0..CALLS {
        match pair.random.below(12) {
            0 => pair.tamper(),
            1 => {
                let key = pair.key();
                pair.say(redis::cmd("GET").arg(key));
                pair.say(redis::cmd("HGETALL").arg(key));
            }
            _ => pair.call(),
        }
        if call % 8 == 0 {
            pair.compare();
        }
    }
    pair.compare();
    for pattern in ["*", "c*", "nobody:*"] {
        let [real, sim] = pair.walk(pattern);
        assert_eq!(sim, real, "{pattern}");
    }
}
