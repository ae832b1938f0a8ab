//! What the bridge's tests share: a host whose log is in memory, a history that obeys the rules,
//! a database that fails where it is told to, and the check that SQL says what the engine says.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod check;
pub mod faults;
pub mod follow;
pub mod history;
pub mod images;
pub mod mariadb;
pub mod older;
pub mod place;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge::host::{Busy, Failure, Host};
use bridge::tail::{Batch, Entry, EventSource, FrameEnd, SeekError, Unreadable};
use engine::core::codec;
use engine::core::event::{Body, Event, ShardMarks};
use engine::core::ids::{OrderPrefix, ReservationId};
use wal::{CONTROL_SHARD, Epoch, LogIdentity, LogUuid, Lsn};

pub const HASH_KEY: [u8; 16] = [9; 16];

/// Numbers that look random and are the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

#[derive(Clone)]
struct StoredRecord {
    shard: u16,
    shard_seq: u64,
    kind: u8,
    body: Vec<u8>,
}

#[derive(Clone)]
struct StoredFrame {
    last_lsn: u64,
    chain: u32,
    records: Vec<StoredRecord>,
}

#[derive(Clone, Default)]
pub struct Frames {
    frames: Vec<StoredFrame>,
    control_seq: u64,
    announced: u64,
    marks: std::collections::BTreeMap<u16, u64>,
    busy: bool,
    /// What the sink could make no order of, told and not yet in the log.
    dead_letters: Vec<(ReservationId, String)>,
    retired: usize,
    /// The newest snapshot.
    images: Option<images::MemoryImages>,
    /// What the log is kept for, as the bridge asked: every place, in order; `None` for no longer.
    kept_from: Vec<Option<u64>>,
}

impl Frames {
    pub fn end(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.last_lsn)
    }

    /// As if the newest snapshot were the one that `older` had.
    pub fn use_images_of(&mut self, older: &Self) {
        self.images.clone_from(&older.images);
    }

    fn push(&mut self, salt: u32, records: Vec<StoredRecord>) {
        let last_lsn = self.end() + records.len() as u64;
        let previous = self.frames.last().map_or(0, |frame| frame.chain);
        let mut chain = previous ^ salt;
        for record in &records {
            for byte in &record.body {
                chain = chain.rotate_left(5).wrapping_mul(0x0100_0193) ^ u32::from(*byte);
            }
        }
        self.frames.push(StoredFrame { last_lsn, chain, records });
    }
}

/// A host whose log is a list of frames, all durable.
#[derive(Clone)]
pub struct MemoryHost {
    pub identity: LogIdentity,
    pub frames: Arc<Mutex<Frames>>,
    /// Two hosts with another salt have other chains for the same events.
    pub salt: u32,
}

impl MemoryHost {
    pub fn new() -> Self {
        Self {
            identity: LogIdentity { uuid: LogUuid([7; 16]), epoch: Epoch(1) },
            frames: Arc::default(),
            salt: 0,
        }
    }

    /// The same directory, opened once more.
    pub fn reopened(&self) -> Self {
        let epoch = Epoch(self.identity.epoch.0 + 1);
        Self { identity: LogIdentity { epoch, ..self.identity }, ..self.clone() }
    }

    /// A copy of the directory as it is now: what either does, the other does not see.
    pub fn copied(&self) -> Self {
        let frames = self.frames.lock().unwrap().clone();
        Self { frames: Arc::new(Mutex::new(frames)), ..self.clone() }
    }

    /// Appends one frame of (shard, sequence, event).
    pub fn append(&self, events: &[(u16, u64, Event<'_>)]) {
        let records = events.iter().map(|(shard, shard_seq, event)| {
            let mut body = Vec::new();
            codec::encode(event, &mut body);
            StoredRecord {
                shard: *shard,
                shard_seq: *shard_seq,
                kind: codec::kind(&event.body),
                body,
            }
        });
        self.frames.lock().unwrap().push(self.salt, records.collect());
    }

    /// From now on the engine takes no marks, or takes them again.
    pub fn set_busy(&self, busy: bool) {
        self.frames.lock().unwrap().busy = busy;
    }

    /// Takes over a snapshot of the state after the last frame.
    pub fn keep_images(&self, images: Vec<images::StoredImage>) {
        let mut frames = self.frames.lock().unwrap();
        let last = frames.frames.last().unwrap();
        let place = (Lsn(last.last_lsn), last.chain);
        frames.images = Some(images::MemoryImages::new(place, images));
    }

    /// The places from which the log was asked to be kept, `None` where it no longer was.
    pub fn kept_from(&self) -> Vec<Option<u64>> {
        self.frames.lock().unwrap().kept_from.clone()
    }

    /// Gives the first `frames` back.
    pub fn retire(&self, frames: usize) {
        self.frames.lock().unwrap().retired = frames;
    }

    /// Forgets everything from frame `frames` on: a directory that was rolled back.
    pub fn roll_back_to(&self, frames: usize) {
        self.frames.lock().unwrap().frames.truncate(frames);
    }

    /// Takes what the sink could make no order of.
    pub fn take_dead_letters(&self) -> Vec<(ReservationId, String)> {
        std::mem::take(&mut self.frames.lock().unwrap().dead_letters)
    }

    pub fn frame_count(&self) -> usize {
        self.frames.lock().unwrap().frames.len()
    }

    /// What the engine was told: the LSN of the last mark, and every shard's.
    pub fn announced(&self) -> (u64, std::collections::BTreeMap<u16, u64>) {
        let frames = self.frames.lock().unwrap();
        (frames.announced, frames.marks.clone())
    }

    /// As if the last marks had been lost with a crash.
    pub fn forget_announcements(&self) {
        let mut frames = self.frames.lock().unwrap();
        frames.announced = 0;
        frames.marks.clear();
    }
}

impl Host for MemoryHost {
    type Source = MemorySource;
    type Images = images::MemoryImages;

    fn images(&self) -> Result<Option<images::MemoryImages>, Unreadable> {
        Ok(self.frames.lock().unwrap().images.clone())
    }

    fn keep_from(&self, lsn: Lsn) {
        self.frames.lock().unwrap().kept_from.push(Some(lsn.0));
    }

    fn caught_up(&self) {
        self.frames.lock().unwrap().kept_from.push(None);
    }

    fn identity(&self) -> LogIdentity {
        self.identity
    }

    fn source(&self) -> MemorySource {
        MemorySource { frames: Arc::clone(&self.frames), next: 0, epoch: self.identity.epoch }
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(self.frames.lock().unwrap().end())
    }

    fn wait_durable_beyond(&self, lsn: Lsn, _: Duration) -> bool {
        std::thread::yield_now();
        self.durable_lsn() > lsn
    }

    fn order_prefix(&self) -> OrderPrefix {
        OrderPrefix::new(1).unwrap()
    }

    fn request_hash_key(&self) -> [u8; 16] {
        HASH_KEY
    }

    fn announced_lsn(&self, _: &str) -> Lsn {
        Lsn(self.frames.lock().unwrap().announced)
    }

    fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy> {
        let mut frames = self.frames.lock().unwrap();
        if frames.busy {
            return Err(Busy::Overloaded);
        }
        assert!(lsn.0 > frames.announced, "marks only grow");
        assert!(lsn.0 <= frames.end(), "a sink is never ahead of the log (W13)");
        frames.announced = lsn.0;
        for (shard, seq) in marks {
            assert_ne!(*shard, CONTROL_SHARD);
            let mark = frames.marks.entry(*shard).or_default();
            *mark = (*mark).max(*seq);
        }
        let mut buffer = Vec::new();
        let shards = ShardMarks::encode(marks, &mut buffer);
        let body = Body::SinkAdvanced { sink, lsn: lsn.0, shards };
        let mut bytes = Vec::new();
        codec::encode(&Event { at_ms: 1, body }, &mut bytes);
        frames.control_seq += 1;
        let shard_seq = frames.control_seq;
        let kind = codec::kind(&body);
        let record = StoredRecord { shard: CONTROL_SHARD, shard_seq, kind, body: bytes };
        frames.push(self.salt, vec![record]);
        Ok(())
    }

    fn dead_letter(&self, failures: &[Failure], why: &str) -> Result<(), Busy> {
        let mut frames = self.frames.lock().unwrap();
        if frames.busy {
            return Err(Busy::Overloaded);
        }
        for Failure { reservation, shard_seq } in failures {
            assert!(*shard_seq > 0, "a record asked for the order");
            frames.dead_letters.push((*reservation, why.to_owned()));
        }
        Ok(())
    }
}

pub struct MemorySource {
    frames: Arc<Mutex<Frames>>,
    next: usize,
    epoch: Epoch,
}

impl EventSource for MemorySource {
    fn seek(&mut self, lsn: Lsn) -> Result<u32, SeekError> {
        let frames = self.frames.lock().unwrap();
        let end = Lsn(frames.end());
        if lsn > end {
            return Err(SeekError::BeyondEnd { end });
        }
        let retired_lsn =
            frames.retired.checked_sub(1).map_or(0, |last| frames.frames[last].last_lsn);
        if lsn.0 < retired_lsn {
            return Err(SeekError::Retired { oldest: Lsn(retired_lsn + 1) });
        }
        if lsn == Lsn(0) {
            self.next = 0;
            return Ok(0);
        }
        let found = frames.frames.iter().position(|frame| frame.last_lsn == lsn.0);
        let index = found.ok_or(SeekError::NotAFrameEnd)?;
        self.next = index + 1;
        Ok(frames.frames[index].chain)
    }

    fn read_frame(&mut self, batch: &mut Batch) -> Result<bool, Unreadable> {
        let frames = self.frames.lock().unwrap();
        let Some(frame) = frames.frames.get(self.next) else { return Ok(false) };
        self.next += 1;
        let mut lsn = frame.last_lsn - frame.records.len() as u64;
        for record in &frame.records {
            lsn += 1;
            batch.push(Entry {
                lsn: Lsn(lsn),
                shard: record.shard,
                shard_seq: record.shard_seq,
                kind: record.kind,
                version: codec::FORMAT_VERSION,
                body: &record.body,
            });
        }
        batch.end_frame(FrameEnd {
            lsn: Lsn(lsn),
            epoch: self.epoch,
            chain: frame.chain,
            commit_us: lsn,
        });
        Ok(true)
    }
}
