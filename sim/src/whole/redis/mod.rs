//! A Redis in memory, as the mirror sees one, that fails in the ways a Redis does.
//!
//! It answers the few commands that the mirror sends, with the mirror's functions in Rust
//! (`library`). What is lost when it ends depends on what it keeps:
//!
//! | what befalls it | what is left |
//! |---|---|
//! | a connection is lost before a call, or behind it | what the calls before it wrote |
//! | killed, with an append-only file | all that was synced, and some of the calls behind that |
//! | killed, with snapshots or nothing | an older self, or no key and no function |
//! | failover to a replica that was behind | an older self |
//! | FLUSHALL, FUNCTION FLUSH | no key; no function |
//! | eviction, tampering | all but that key |

mod commands;
pub mod keyspace;
mod library;
mod masters;
mod servers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge::redis::layouts::Layout;
use engine::TimeSource as _;
use redis::Cmd;

use self::keyspace::{Content, Copy, Entry, Keyspace};
use super::host::SimTime;
use crate::fates::Random;

pub use commands::Answer;
pub(super) use masters::Masters;
pub(super) use servers::SimServers;

/// Older selves that are kept.
const OLDER_KEPT: usize = 4;

/// How often an operation fails, in a thousand.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rates {
    /// The connection is lost before a call arrives.
    pub(super) lost_before: u64,
    /// The call is done, its answer lost.
    pub(super) lost_behind: u64,
    /// WAITAOF gives up before the file is synced.
    pub(super) slow_sync: u64,
}

struct Shared {
    keys: Keyspace,
    older: Vec<Copy>,
    random: Random,
    rates: Rates,
    keeps_file: bool,
    is_down: bool,
    /// Connections of earlier lives are broken.
    life: u64,
    /// The text of the functions that were loaded last.
    library: String,
    /// SCAN cursors that were given: the key that each stands behind.
    scans: Vec<String>,
    calls: u64,
    faults: u64,
}

/// A Redis; clones are the same one.
#[derive(Clone)]
pub struct SimRedis {
    shared: Arc<Mutex<Shared>>,
    time: Arc<SimTime>,
}

impl std::fmt::Debug for SimRedis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimRedis").finish_non_exhaustive()
    }
}

impl SimRedis {
    /// An empty one, whose clock shows `now_ms` for good.
    pub fn standing_at(now_ms: u64) -> Self {
        Self::new(0, Arc::new(SimTime::new(now_ms)))
    }

    pub(super) fn new(seed: u64, time: Arc<SimTime>) -> Self {
        let mut random = Random(seed);
        let keeps_file = random.below(3) > 0;
        let shared = Shared {
            keys: Keyspace::default(),
            older: Vec::new(),
            random,
            rates: Rates::default(),
            keeps_file,
            is_down: false,
            life: 0,
            library: String::new(),
            scans: Vec::new(),
            calls: 0,
            faults: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)), time }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it answers to a command.
    pub fn command(&self, command: &Cmd) -> Answer {
        self.lock().command(command, self.time.wall_ms())
    }

    /// Sets a key to what is not the mirror's, or deletes it.
    pub fn tamper(&self, key: &str, entry: Option<Entry>) {
        self.lock().tamper(key, entry);
    }

    /// Looks at the keys, and at the clock.
    pub fn look<T>(&self, read: impl FnOnce(&Keyspace, u64) -> T) -> T {
        read(&self.lock().keys, self.time.wall_ms())
    }

    /// Fails this often from now on.
    pub(super) fn set_rates(&self, rates: Rates) {
        self.lock().rates = rates;
    }

    /// Goes away, or comes back with what it has.
    pub(super) fn set_down(&self, is_down: bool) {
        let mut shared = self.lock();
        shared.is_down = is_down;
        shared.life += u64::from(is_down);
    }

    /// Whether it keeps an append-only file.
    pub(super) fn keeps_file(&self) -> bool {
        self.lock().keeps_file
    }

    /// Keeps what it holds now, to come back as.
    pub(super) fn remember(&self) {
        let mut shared = self.lock();
        let now = shared.keys.copy();
        shared.older.push(now);
        if shared.older.len() > OLDER_KEPT {
            shared.older.remove(0);
        }
    }

    /// It is killed, and starts again with what its disk has.
    pub(super) fn crash(&self) {
        let mut shared = self.lock();
        shared.begin_life();
        if shared.keeps_file {
            let unsynced = shared.keys.unsynced_calls();
            let lost = shared.random.index(unsynced + 1);
            shared.keys.lose(lost);
        } else {
            shared.come_back();
        }
    }

    /// Another server takes over its address, one that was behind.
    pub(super) fn fail_over(&self) {
        let mut shared = self.lock();
        shared.begin_life();
        shared.come_back();
    }

    /// FLUSHALL.
    pub(super) fn flush(&self) {
        let mut shared = self.lock();
        shared.faults += 1;
        shared.keys.flush();
    }

    /// FUNCTION FLUSH.
    pub(super) fn flush_functions(&self) {
        let mut shared = self.lock();
        shared.faults += 1;
        shared.keys.set_library(false);
    }

    /// A key is evicted, or changed by somebody, among keys of `layout`; its name.
    pub(super) fn disturb(&self, layout: Layout) -> Option<String> {
        let (mut shared, now_ms) = (self.lock(), self.time.wall_ms());
        let count = shared.keys.keys("", now_ms).count();
        let at = shared.random.index(count);
        let (key, entry) =
            shared.keys.keys("", now_ms).nth(at).map(|(key, it)| (key.to_owned(), it.clone()))?;
        let choice = shared.random.below(8);
        let wrong = match (choice, entry.content) {
            (0..4, _) => None,
            (4, _) => Some(Content::Hash([("a".to_owned(), "b".to_owned())].into())),
            (5, Content::Hash(mut fields)) => {
                fields.pop_first();
                (!fields.is_empty()).then_some(Content::Hash(fields))
            }
            (_, Content::Hash(mut fields)) => {
                fields.values_mut().for_each(|text| text.insert(0, 'x'));
                Some(Content::Hash(fields))
            }
            (5, content) => {
                // Its end is taken away.
                shared.tamper(&key, Some(Entry { content, ends_ms: None }));
                return Some(key);
            }
            (6, _) => {
                // A key of nobody, named like one of ours.
                let number = 1 + shared.random.below(9);
                let stray = match layout {
                    Layout::Flashsale => format!("flashsale:count:{number}:99"),
                    // A cluster takes no key that belongs on another server.
                    Layout::Cluster => format!("flashsale:count:{}:99", tag_of(&key)?),
                    Layout::FlashSale => format!("flash_sale:user:buy:99:{number}"),
                    Layout::Seckill => format!("seckill:user:{number}:99"),
                };
                shared.tamper(&stray, Some(Entry::text(7, None)));
                return Some(stray);
            }
            (_, _) => Some(Content::Text("7777".to_owned())),
        };
        let entry = wrong.map(|content| Entry { content, ends_ms: entry.ends_ms });
        shared.faults += 1;
        shared.tamper(&key, entry);
        Some(key)
    }

    /// Its lives and its connections', counted: as long as it stands, a session can go on.
    pub(super) fn life(&self) -> u64 {
        self.lock().life
    }

    /// Calls that were done, and faults that befell it.
    pub(super) fn counts(&self) -> (u64, u64) {
        let shared = self.lock();
        (shared.calls, shared.faults)
    }
}

/// The part of a key that says on which server it lies, braces included.
fn tag_of(key: &str) -> Option<&str> {
    let (from, to) = (key.find('{')?, key.find('}')?);
    key.get(from..=to)
}

impl Shared {
    fn tamper(&mut self, key: &str, entry: Option<Entry>) {
        self.keys.tamper(key, entry);
        self.keys.end_call();
    }

    fn begin_life(&mut self) {
        self.life += 1;
        self.faults += 1;
        self.is_down = false;
    }

    /// Comes back as an older self, sometimes as nothing.
    fn come_back(&mut self) {
        let count = self.older.len();
        let at = self.random.index(count + 1);
        // What is newer than that self never happened.
        self.older.truncate(at + 1);
        let copy = self.older.get(at).cloned().unwrap_or_default();
        self.keys.come_back(copy);
    }
}
