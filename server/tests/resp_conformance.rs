//! The same calls to the Redis port, to the engine's core, and to the function library on a real
//! Valkey: answers equal call by call, compatibility keys equal at the end.
//!
//! `SLUICE_CALLS` says how many calls; a full run makes 100,000. A failing history is shrunk to the
//! calls that matter and printed with its seed; `SLUICE_SEED` runs that one again.
//!
//! A history begins in an empty Valkey, but the server under test has sold before: the history's
//! activities get ids that it has not seen, and its reservations the ordinals that come next.
//! Calls and answers are compared in the server's terms.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use common::Server;
use common::resp::{Client, Reply as Wire, request};
use engine::core::ids::OrderPrefix;
use engine::core::limits::ID_MAX;
use functions::kit::call::Call;
use functions::kit::history::{self, Random, Shape, Step};
use functions::kit::keys;
use functions::kit::oracle::Oracle;
use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey;

/// In plain `cargo test`.
const CALLS_DEFAULT: u64 = 10_000;
/// From here on each answer must have been met; with fewer calls chance leaves the rarest out.
const CALLS_TO_MEET_ALL: u64 = 100_000;

/// A server lives for so many: what a hostile time lets expire at once has two minutes' grace.
const CALLS_PER_SERVER: u64 = 10_000;

/// Sizes of pipelines: one call at a time, and what crosses the boundaries of a turn.
const PIPELINES: [usize; 5] = [1, 2, 7, 64, 500];

/// Within this the ends of keys agree.
const ENDS_APART_MS: u64 = 1000;

/// What a run must lead to, beside what the library's own test asks for.
const MUST_BE_SEEN: &[&str] = &[
    "sluice_reserve 1",
    "sluice_reserve 2",
    "sluice_reserve 0",
    "sluice_reserve -1",
    "sluice_reserve -2",
    "sluice_reserve -3",
    "sluice_reserve -4",
    "sluice_reserve -5",
    "sluice_reserve -6",
    "sluice_reserve INVALID",
    "sluice_confirm 1",
    "sluice_confirm 3",
    "sluice_confirm -1",
    "sluice_restore 1",
    "sluice_restore 2",
    "sluice_restore 3",
    "sluice_warm 0",
    "sluice_warm INVALID",
    "sluice_decrease INVALID",
    "sluice_get map",
    "sluice_activity map",
    "sluice_activity empty",
    "keys",
];

type Seen = BTreeMap<String, u64>;

/// The server under test, and how far it has come.
struct Front {
    server: Server,
    client: Client,
    /// Activities it has.
    ordinals: u64,
    next_activity: u64,
}

impl Front {
    fn start() -> Self {
        let args = ["--resp-listen", "127.0.0.1:0", "--test-clock"];
        let server = Server::start_with(&args, &[]);
        let mut client = Client::to(server.resp());
        client.say("HELLO 3");
        Self { server, client, ordinals: 0, next_activity: 5_000_000_000 }
    }
}

/// One history's numbers in the server's terms.
struct Terms {
    ordinals: u64,
    activities: BTreeMap<u64, u64>,
}

/// The number that `word` is, where it is one.
fn decimal(word: &[u8]) -> Option<u64> {
    let digits = word.iter().all(u8::is_ascii_digit).then_some(word)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Terms {
    fn activity(&mut self, next: &mut u64, word: &[u8]) -> Vec<u8> {
        let Some(id @ 1..=ID_MAX) = decimal(word) else { return word.to_vec() };
        let known = self.activities.entry(id).or_insert_with(|| {
            *next += 1;
            *next
        });
        known.to_string().into_bytes()
    }

    fn reservation(&self, id: u64) -> u64 {
        match id >> 32 {
            1..1000 => id + (self.ordinals << 32),
            _ => id,
        }
    }

    fn call(&mut self, next: &mut u64, call: &Call) -> Vec<Vec<u8>> {
        let read_only = matches!(call.name, "sluice_get" | "sluice_activity");
        let name = if read_only { "FCALL_RO" } else { "FCALL" };
        let activity = self.activity(next, &call.activity);
        let mut words = vec![name.into(), call.name.into(), b"1".to_vec(), activity];
        words.extend(call.arguments.iter().cloned());
        let named = matches!(call.name, "sluice_confirm" | "sluice_restore" | "sluice_get");
        if let Some(word) = words.get_mut(4).filter(|_| named)
            && let Some(id) = decimal(word)
        {
            *word = self.reservation(id).to_string().into_bytes();
        }
        words
    }

    /// What the server is to answer where the oracle answers `reply`.
    fn reply(&self, call: &Call, reply: &Reply) -> Reply {
        let number = |it: &Reply| match it {
            Reply::Integer(id) => u64::try_from(*id).unwrap(),
            other => panic!("no number: {other:?}"),
        };
        let reservation = |it: &Reply| self.reservation(number(it));
        let order_no = |id| Reply::Text(format!("1{id:017}"));
        match (call.name, reply) {
            ("sluice_reserve", Reply::List(items)) if number_is_positive(&items[1]) => {
                let id = reservation(&items[1]);
                let rest = [order_no(id), items[3].clone()];
                let first = [items[0].clone(), Reply::integer(id)];
                Reply::List(first.into_iter().chain(rest).collect())
            }
            ("sluice_get", Reply::Map(map)) if !map.is_empty() => {
                let mut map = map.clone();
                let id = reservation(&map["id"]);
                let activity = self.activities[&number(&map["activity"])];
                map.insert("id".to_owned(), Reply::integer(id));
                map.insert("order_no".to_owned(), order_no(id));
                map.insert("activity".to_owned(), Reply::integer(activity));
                Reply::Map(map)
            }
            ("sluice_activity", Reply::Map(map)) if !map.is_empty() => {
                let mut map = map.clone();
                let activity = self.activities[&number(&map["id"])];
                map.insert("id".to_owned(), Reply::integer(activity));
                Reply::Map(map)
            }
            (_, reply) => reply.clone(),
        }
    }

    /// A key's name in the server's terms.
    fn key(&self, name: &str) -> String {
        let mut parts: Vec<_> = name.split(':').map(str::to_owned).collect();
        let last = parts.len() - 1;
        let id = |text: &str| text.parse::<u64>().unwrap();
        if parts[1] != "reservation" {
            parts[2] = self.activities.get(&id(&parts[2])).unwrap_or(&ID_MAX).to_string();
        }
        if matches!(parts[1].as_str(), "reservation" | "idem") {
            parts[last] = self.reservation(id(&parts[last])).to_string();
        }
        parts.join(":")
    }

    /// A key's value in the server's terms.
    fn value(&self, name: &str, value: &str) -> String {
        let is_token = name.contains(":idem:") || name.contains(":reservation:");
        match value.rsplit_once(':') {
            _ if !is_token => value.to_owned(),
            Some((state, token)) => format!("{state}:{}", self.reservation(token.parse().unwrap())),
            None => self.reservation(value.parse().unwrap()).to_string(),
        }
    }
}

fn number_is_positive(reply: &Reply) -> bool {
    matches!(reply, Reply::Integer(1..))
}

/// A reply from the wire, as far as the contract fixes it.
fn reply_of(wire: Wire) -> Reply {
    match wire {
        Wire::Null => Reply::Nothing,
        Wire::Integer(number) => Reply::Integer(number),
        Wire::Simple(text) | Wire::Bulk(text) => Reply::Text(text),
        Wire::Error(text) => Reply::error(text.split(' ').next().unwrap()),
        Wire::Array(items) => Reply::List(items.into_iter().map(reply_of).collect()),
        Wire::Map(pairs) => {
            let pair = |(key, value)| match reply_of(key) {
                Reply::Text(key) => (key, reply_of(value)),
                other => panic!("a map's key is {other:?}"),
            };
            Reply::Map(pairs.into_iter().map(pair).collect())
        }
    }
}

#[test]
fn the_port_answers_as_the_engine_and_as_the_library_and_has_its_keys() {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let calls = number("SLUICE_CALLS").unwrap_or(CALLS_DEFAULT);
    let (mut valkey, mut front, mut seen) = (Valkey::start(), Front::start(), Seen::new());
    if let Some(seed) = number("SLUICE_SEED") {
        return run_one(&mut valkey, &mut front, seed, &mut seen);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut seeds = Random(since.as_secs() ^ u64::from(since.subsec_nanos()) << 32);
    let mut served = 0;
    loop {
        run_one(&mut valkey, &mut front, seeds.draw(), &mut seen);
        let made = seen.get("calls").copied().unwrap_or_default();
        if made >= calls {
            break;
        }
        if made - served >= CALLS_PER_SERVER {
            served = made;
            assert_eq!(front.server.stop().code(), Some(0));
            front = Front::start();
        }
    }
    println!("{seen:#?}");
    common::counts::note("resp_conformance", &[("calls", seen["calls"])]);
    if calls >= CALLS_TO_MEET_ALL {
        for name in MUST_BE_SEEN {
            assert!(seen.contains_key(*name), "no history met {name}");
        }
    }
}

#[test]
fn a_planted_difference_is_found_and_shrunk() {
    let (mut valkey, mut front) = (Valkey::start(), Front::start());
    let planted = functions::LIBRARY.replace("held + quantity > activity.limit", "false");
    let load = ["FUNCTION", "LOAD", "REPLACE", planted.as_str()];
    assert_eq!(valkey.command(&load), Reply::text("sluice"));
    let mut fails = |seed: u64| {
        let (shape, pipeline, steps) = make(seed);
        let shape = (&shape, pipeline);
        let differs = run(&mut valkey, &mut front, shape, &steps, &mut Seen::new()).is_err();
        if differs {
            front = Front::start();
        }
        differs
    };
    assert!((0..100).any(&mut fails), "some history meets the limit");
}

/// The history of a seed, and how many of its calls go out together; order numbers begin with this
/// server's prefix.
fn make(seed: u64) -> (Shape, usize, Vec<Step>) {
    let (mut shape, steps) = history::make(seed);
    shape.order_prefix = 1;
    let index = Random(seed).below(PIPELINES.len() as u64);
    (shape, PIPELINES[usize::try_from(index).unwrap()], steps)
}

fn run_one(valkey: &mut Valkey, front: &mut Front, seed: u64, seen: &mut Seen) {
    let (shape, pipeline, steps) = make(seed);
    let Err(first) = run(valkey, front, (&shape, pipeline), &steps, seen) else { return };
    let mut again = |steps: &[Step]| {
        *front = Front::start();
        run(valkey, front, (&shape, pipeline), steps, &mut Seen::new())
    };
    let steps = history::shrink(steps, |fewer| again(fewer).is_err());
    panic!(
        "{}\n{shape:?}, {pipeline} calls at once\nagain: SLUICE_SEED={seed} \
         cargo test -p server --test resp_conformance",
        again(&steps).err().unwrap_or(first)
    );
}

/// Runs a history on all three; an error tells the calls up to the first difference.
fn run(
    valkey: &mut Valkey,
    front: &mut Front,
    (shape, pipeline): (&Shape, usize),
    steps: &[Step],
    seen: &mut Seen,
) -> Result<(), String> {
    assert_eq!(valkey.command(&["FLUSHALL", "SYNC"]), Reply::text("OK"));
    let base_ms = valkey.now_ms();
    let mut oracle = Oracle::new(OrderPrefix::DEFAULT, base_ms);
    let mut terms = Terms { ordinals: front.ordinals, activities: BTreeMap::new() };
    let (mut calls, mut told, mut reservations) = (Vec::new(), String::new(), Vec::new());
    for step in steps {
        let call = history::call(shape, *step, base_ms, &reservations);
        let (engine, library) = (oracle.call(&call), valkey.call(&call));
        told += &format!("{call:?}\n  engine {engine:?}\n");
        if library != engine {
            return Err(format!("{told}  library {library:?}"));
        }
        if let Reply::List(items) = &engine
            && let [Reply::Integer(1), Reply::Integer(id), ..] = items.as_slice()
        {
            reservations.push((call.activity.clone(), u64::try_from(*id).unwrap()));
        }
        count(&call, &engine, seen);
        front.ordinals += u64::from(call.name == "sluice_warm" && engine == Reply::Integer(1));
        let words = terms.call(&mut front.next_activity, &call);
        calls.push((words, terms.reply(&call, &engine), told.len()));
    }
    for pipeline in calls.chunks(pipeline) {
        let bytes: Vec<u8> = pipeline.iter().flat_map(|(words, ..)| encode(words)).collect();
        front.client.send(bytes);
        for (words, expected, until) in pipeline {
            let reply = reply_of(front.client.reply().expect("a reply"));
            if reply != *expected {
                let words: Vec<_> = words.iter().map(|it| it.escape_ascii().to_string()).collect();
                let so_far = &told[..*until];
                return Err(format!("{so_far}  port {reply:?}, wanted {expected:?} to {words:?}"));
            }
        }
    }
    let known = keys::present(valkey);
    compare_keys(front, &terms, &oracle, &known, valkey.now_ms())
        .map_err(|difference| format!("{told}{difference}"))?;
    *seen.entry("keys".to_owned()).or_default() += known.len() as u64;
    Ok(())
}

fn count(call: &Call, reply: &Reply, seen: &mut Seen) {
    *seen.entry("calls".to_owned()).or_default() += 1;
    let label = match (call.name, reply) {
        ("sluice_decrease" | "sluice_restock", Reply::Integer(_)) => "units".to_owned(),
        (_, reply) => reply.label(),
    };
    *seen.entry(format!("{} {label}", call.name)).or_default() += 1;
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Every key that the library has or the engine's state asks for, and those that were deleted, as
/// the port shows them.
fn compare_keys(
    front: &mut Front,
    terms: &Terms,
    oracle: &Oracle,
    library: &keys::Keys,
    now_ms: u64,
) -> Result<(), String> {
    let mut names: BTreeSet<String> = library.keys().cloned().collect();
    for (id, activity) in oracle.shard.activities() {
        names.insert(format!("flashsale:stock:{id}"));
        names.insert(format!("flashsale:pause:{id}"));
        let positions = 1_u64..;
        for (slot, position) in activity.slots().iter().zip(positions) {
            let (user, token) = (slot.user(), u64::from(activity.ordinal().get()) << 32 | position);
            names.insert(format!("flashsale:count:{id}:{user}"));
            names.insert(format!("flashsale:idem:{id}:{user}:{token}"));
            names.insert(format!("flashsale:reservation:{token}"));
        }
    }
    let bytes: Vec<u8> = names
        .iter()
        .map(|name| terms.key(name))
        .flat_map(|key| [request(&["GET", &key]), request(&["PTTL", &key])].concat())
        .collect();
    front.client.send(bytes);
    for name in names {
        let value = reply_of(front.client.reply().expect("a value"));
        let left = reply_of(front.client.reply().expect("a time"));
        let same = match library.get(&name) {
            None => value == Reply::Nothing && left == Reply::Integer(-2),
            Some((expected, ends_ms)) => {
                let ends_alike = match (ends_ms, &left) {
                    (None, Reply::Integer(-1)) => true,
                    (Some(ends_ms), Reply::Integer(left_ms @ 0..)) => {
                        let ends = now_ms + u64::try_from(*left_ms).unwrap();
                        ends_ms.abs_diff(ends) <= ENDS_APART_MS
                    }
                    _ => false,
                };
                ends_alike && value == Reply::Text(terms.value(&name, expected))
            }
        };
        if !same {
            let expected = library.get(&name);
            return Err(format!(
                "{name}: the library has {expected:?}, the port {value:?} for {left:?} ms"
            ));
        }
    }
    Ok(())
}
