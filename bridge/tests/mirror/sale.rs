//! A sale in memory, as the engine has it: shards, a log behind them, and a random crowd.
//!
//! Where the sale is restless, more happens whenever somebody looks at its state, and what happened
//! last is not durable: the state that a resync reads is of many instants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bridge::host::{Busy, Failure, Host};
use bridge::redis::Present;
use engine::core::activity::Activity;
use engine::core::apply::apply;
use engine::core::codec;
use engine::core::command::{Command, Reserve, Status};
use engine::core::decide::{Outcome, decide};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Event, Front, LatePayment, RestoreReason,
};
use engine::core::ids::{ActivityId, OrderPrefix, Ordinal, ReservationId, SkuId, UserId};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use wal::{CONTROL_SHARD, LogIdentity, Lsn};

use crate::support::{HASH_KEY, MemoryHost, MemorySource, Random};

pub const SHARDS: u64 = 2;
pub const HOUR_MS: u64 = 3_600_000;
pub const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "req-1" };

pub fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(elapsed.as_millis()).unwrap()
}

pub fn activity_id(index: u64) -> ActivityId {
    ActivityId::new(30_001 + index).unwrap()
}

struct Inner {
    shards: Vec<Shard>,
    controls: BTreeMap<String, u64>,
    control_seq: u64,
    random: Random,
    at_ms: u64,
    requests: u64,
    activities: u64,
    /// Whose reservations have this ordinal.
    ordinals: BTreeMap<Ordinal, ActivityId>,
    reservations: Vec<(ActivityId, ReservationId)>,
    frame: Vec<(u16, u64, Vec<u8>, u8)>,
    restless: u64,
    /// The clock that a record's age is told by; `None`: the real one.
    wall_us: Option<u64>,
}

#[derive(Clone)]
pub struct Sale {
    pub memory: MemoryHost,
    inner: Arc<Mutex<Inner>>,
}

fn shard_of(activity: ActivityId) -> usize {
    usize::try_from(activity.get() % SHARDS).unwrap()
}

impl Sale {
    /// A sale in which nothing exists yet.
    pub fn empty(seed: u64) -> Self {
        let requests = RequestHasher::new(&HASH_KEY);
        let shard = || Shard::new(ShardSeed { table_seed: 1, requests });
        let inner = Inner {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            controls: BTreeMap::new(),
            control_seq: 0,
            random: Random::new(seed),
            at_ms: now_ms(),
            requests: 0,
            activities: 0,
            ordinals: BTreeMap::new(),
            reservations: Vec::new(),
            frame: Vec::new(),
            restless: 0,
            wall_us: None,
        };
        Self { memory: MemoryHost::new(), inner: Arc::new(Mutex::new(inner)) }
    }

    /// A sale with activities, each of an SKU of its own, on sale.
    pub fn open(seed: u64, activities: u64) -> Self {
        let sale = Self::empty(seed);
        for index in 0..activities {
            sale.create(20_001 + index, 40);
            sale.command(activity_id(index), Command::Publish { actor: ACTOR });
        }
        sale.commit();
        sale
    }

    /// Another activity of `sku`, off sale, open for an hour from now.
    pub fn create(&self, sku: u64, total: u32) -> ActivityId {
        let mut inner = self.inner.lock().unwrap();
        let id = activity_id(inner.activities);
        inner.activities += 1;
        let ordinal = Ordinal::new(u32::try_from(inner.activities).unwrap()).unwrap();
        let definition = Definition {
            sku: SkuId::new(sku).unwrap(),
            title: "限量 'sneaker'",
            price: 1_999,
            per_user_limit: 3,
            start_ms: inner.at_ms,
            end_ms: inner.at_ms + HOUR_MS,
            payment_ttl_ms: 600_000,
            late_payment: LatePayment::ReinstateOrRefund,
            dead_letter: DeadLetterPolicy::Hold,
            publish_at_ms: 0,
        };
        let create = Command::Create { actor: ACTOR, ordinal, total, definition };
        assert!(inner.command(id, create));
        id
    }

    /// The same directory, opened once more.
    pub fn reopened(&self) -> Self {
        Self { memory: self.memory.reopened(), inner: Arc::clone(&self.inner) }
    }

    /// Lets `steps` things happen, in frames of random sizes; all of it is durable then.
    pub fn run(&self, steps: u64) {
        for _ in 0..steps {
            let ends = {
                let mut inner = self.inner.lock().unwrap();
                inner.step();
                inner.random.below(4) == 0
            };
            if ends {
                self.commit();
            }
        }
        self.commit();
    }

    /// From now on `steps` more things happen whenever somebody looks.
    pub fn be_restless(&self, steps: u64) {
        self.inner.lock().unwrap().restless = steps;
    }

    /// From now on it is that late. Each frame is committed at its LSN, in 1970.
    pub fn be_at(&self, wall_us: u64) {
        self.inner.lock().unwrap().wall_us = Some(wall_us);
    }

    pub fn command(&self, activity: ActivityId, command: Command<'_>) -> bool {
        self.inner.lock().unwrap().command(activity, command)
    }

    /// A user buys; the reservation.
    pub fn buy(&self, activity: ActivityId, user: u64, quantity: u32) -> ReservationId {
        let mut inner = self.inner.lock().unwrap();
        let before = inner.reservations.len();
        inner.reserve(activity, user, quantity);
        assert_eq!(inner.reservations.len(), before + 1, "it was bought");
        inner.reservations[before].1
    }

    pub fn event(&self, body: Body<'_>) {
        assert!(self.inner.lock().unwrap().event(body), "{body:?}");
    }

    /// What happened elsewhere, at the time that it says.
    pub fn take_over(&self, kind: u8, bytes: &[u8]) {
        let event = codec::decode(kind, codec::FORMAT_VERSION, bytes).unwrap();
        let mut inner = self.inner.lock().unwrap();
        inner.at_ms = event.at_ms;
        assert!(inner.event(event.body), "{event:?}");
    }

    /// An event of no activity.
    pub fn control(&self, body: Body<'_>) {
        let mut inner = self.inner.lock().unwrap();
        match body {
            Body::ControlSet { key, expires_ms, .. } => {
                inner.controls.insert(key.to_owned(), expires_ms);
            }
            Body::ControlCleared { key, .. } => drop(inner.controls.remove(key)),
            other => panic!("no control: {other:?}"),
        }
        inner.control_seq += 1;
        let event = Event { at_ms: inner.at_ms, body };
        let mut bytes = Vec::new();
        codec::encode(&event, &mut bytes);
        let (seq, kind) = (inner.control_seq, codec::kind(&body));
        inner.frame.push((CONTROL_SHARD, seq, bytes, kind));
    }

    pub fn at_ms(&self) -> u64 {
        self.inner.lock().unwrap().at_ms
    }

    pub fn read<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> T {
        let inner = self.inner.lock().unwrap();
        read(inner.shards[shard_of(id)].activity(id).unwrap())
    }

    /// What happened so far is durable.
    pub fn commit(&self) {
        let mut inner = self.inner.lock().unwrap();
        let frame = std::mem::take(&mut inner.frame);
        if frame.is_empty() {
            return;
        }
        let events: Vec<_> = frame
            .iter()
            .map(|(shard, seq, bytes, kind)| {
                (*shard, *seq, codec::decode(*kind, codec::FORMAT_VERSION, bytes).unwrap())
            })
            .collect();
        self.memory.append(&events);
    }
}

impl Inner {
    fn step(&mut self) {
        self.at_ms += self.random.below(3);
        let index = self.random.below(self.activities);
        let id = activity_id(index);
        match self.random.below(20) {
            0..=9 => {
                let user = 1 + self.random.below(25);
                let quantity = u32::try_from(1 + self.random.below(2)).unwrap();
                self.reserve(id, user, quantity);
            }
            10..=12 => self.settle(true),
            13..=16 => self.settle(false),
            _ => self.operate(id),
        }
    }

    fn reserve(&mut self, id: ActivityId, user: u64, quantity: u32) {
        let user = UserId::new(user).unwrap();
        self.requests += 1;
        let request_id = format!("r'{}", self.requests);
        let request_hash = RequestHasher::new(&HASH_KEY).hash(&request_id);
        let (request_id, front) = (request_id.as_str(), Front::Http);
        let reserve = Reserve { user, request_id, request_hash, quantity, front };
        self.command(id, Command::Reserve(reserve));
    }

    fn settle(&mut self, pays: bool) {
        let unpaid: Vec<_> = self
            .reservations
            .iter()
            .copied()
            .filter(|(of, id)| {
                let it = self.shards[shard_of(*of)].reservation(*of, *id);
                it.is_some_and(|it| it.status == Status::Reserved)
            })
            .collect();
        if unpaid.is_empty() {
            return;
        }
        let pick = self.random.below(unpaid.len() as u64);
        let (of, reservation) = unpaid[usize::try_from(pick).unwrap()];
        if pays {
            let payment_no = format!("P{reservation}");
            self.command(of, Command::Confirm { reservation, payment_no: &payment_no });
        } else {
            let (reason, actor) = (RestoreReason::Timeout, Actor::NONE);
            self.command(of, Command::Restore { reservation, owner: None, reason, actor });
        }
    }

    fn operate(&mut self, id: ActivityId) {
        let actor = ACTOR;
        self.requests += 1;
        let op = format!("op{}", self.requests);
        let quantity = u32::try_from(1 + self.random.below(5)).unwrap();
        let command = match self.random.below(4) {
            0 => Command::Pause { actor },
            1 => Command::Unpublish { actor },
            2 => Command::Restock { actor, op: &op, quantity },
            _ => Command::Decrease { actor, op: &op, quantity },
        };
        self.command(id, command);
        if self.random.below(3) > 0 {
            self.command(id, Command::Publish { actor });
            self.command(id, Command::Resume { actor });
        }
    }

    /// Decides and applies; whether it was accepted.
    fn command(&mut self, id: ActivityId, command: Command<'_>) -> bool {
        let outcome = decide(&self.shards[shard_of(id)], id, &command, self.at_ms);
        let Outcome::Accepted { events } = outcome else { return false };
        let bodies: Vec<_> = events.iter().map(|event| event.body).collect();
        for body in bodies {
            assert!(self.event(body), "{body:?} was decided");
        }
        true
    }

    fn event(&mut self, body: Body<'_>) -> bool {
        let event = Event { at_ms: self.at_ms, body };
        let id = codec::activity(&body).unwrap();
        let shard = &mut self.shards[shard_of(id)];
        let seq = shard.applied_seq() + 1;
        if apply(shard, &event, seq).is_err() {
            return false;
        }
        if let Body::ActivityCreated { activity, ordinal, .. } = body {
            self.ordinals.insert(ordinal, activity);
        }
        if let Body::Reserved { reservation, .. } = body {
            self.reservations.push((id, reservation));
        }
        let mut bytes = Vec::new();
        codec::encode(&event, &mut bytes);
        let shard = u16::try_from(shard_of(id)).unwrap();
        self.frame.push((shard, seq, bytes, codec::kind(&body)));
        true
    }
}

impl Host for Sale {
    type Source = MemorySource;
    type Images = bridge::images::NoImages;

    fn images(&self) -> Result<Option<Self::Images>, bridge::tail::Unreadable> {
        Ok(None)
    }

    fn identity(&self) -> LogIdentity {
        self.memory.identity()
    }

    fn source(&self) -> MemorySource {
        self.memory.source()
    }

    fn durable_lsn(&self) -> Lsn {
        self.memory.durable_lsn()
    }

    fn wait_durable_beyond(&self, lsn: Lsn, timeout: Duration) -> bool {
        self.memory.wait_durable_beyond(lsn, timeout)
    }

    fn order_prefix(&self) -> OrderPrefix {
        self.memory.order_prefix()
    }

    fn request_hash_key(&self) -> [u8; 16] {
        HASH_KEY
    }

    fn announced_lsn(&self, sink: &str) -> Lsn {
        self.memory.announced_lsn(sink)
    }

    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy> {
        self.memory.sink_advanced(sink, lsn, marks)
    }

    fn dead_letter(&self, failures: &[Failure], why: &str) -> Result<(), Busy> {
        self.memory.dead_letter(failures, why)
    }
}

impl Present for Sale {
    fn activities(&self) -> Vec<ActivityId> {
        let inner = self.inner.lock().unwrap();
        let mut ids: Vec<_> =
            inner.shards.iter().flat_map(|shard| shard.activities().map(|(id, _)| id)).collect();
        ids.sort_unstable();
        ids
    }

    fn look<T>(&self, id: ActivityId, read: impl FnOnce(&Activity) -> T) -> Option<T> {
        let mut inner = self.inner.lock().unwrap();
        for _ in 0..inner.restless {
            inner.step();
        }
        let shard = &inner.shards[shard_of(id)];
        shard.activity(id).map(read)
    }

    fn activity_of(&self, id: ReservationId) -> Option<ActivityId> {
        self.inner.lock().unwrap().ordinals.get(&id.ordinal()).copied()
    }

    fn settle(&self) -> Option<Lsn> {
        self.commit();
        Some(self.durable_lsn())
    }

    fn wall_us(&self) -> u64 {
        let at_us = self.inner.lock().unwrap().wall_us;
        at_us.unwrap_or_else(|| now_ms() * 1_000)
    }

    fn controls(&self, prefix: &str) -> Vec<(String, u64)> {
        let inner = self.inner.lock().unwrap();
        let wanted = inner.controls.iter().filter(|(key, _)| key.starts_with(prefix));
        wanted.map(|(key, expires_ms)| (key.clone(), *expires_ms)).collect()
    }
}
