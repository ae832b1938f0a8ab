//! The intake: where records wait for the next commit. One lane a shard, one for control records.
//!
//! A caller reserves room *before* it decides ([`Intake::begin`]), holding the lane from then on,
//! and appends under the same hold: log order is decision order, and nothing can fail after the
//! decision. The committer takes whole chunks; a command never straddles two chunks, so it never
//! straddles two frames.

use crossbeam_utils::CachePadded;

use crate::bell::Bell;
use crate::error::Busy;
use crate::ids::Lsn;
use crate::limits::{BATCH_FRAME_DIVISOR, CONTROL_SHARD, IN_FLIGHT_RESERVED_DIVISOR};
use crate::pool::Pool;
use crate::record;
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

mod lane;

use lane::{Chunk, LaneState};

/// How urgent room in the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// New work, which its callers can try again: the first to be refused.
    New,
    /// What must go on when new work is refused: settling, stopping, giving back.
    Reserved,
}

/// Whose batches are let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Everyone's.
    All,
    /// Only what must go on: room ahead is short.
    Reserved,
    /// No one's: the disk is full, and what is left of the segment is for what is in flight.
    Nothing,
}

impl Admission {
    const ALL: [Self; 3] = [Self::All, Self::Reserved, Self::Nothing];

    fn lets_in(self, class: Class) -> bool {
        match self {
            Self::All => true,
            Self::Reserved => class == Class::Reserved,
            Self::Nothing => false,
        }
    }
}

/// Records waiting to be committed.
pub(crate) struct Intake {
    lanes: Box<[CachePadded<Mutex<LaneState>>]>,
    /// A buffer a lane, where all of them are busy.
    pool: Pool,
    in_flight_bytes: CachePadded<AtomicU64>,
    in_flight_bytes_max: u64,
    chunk_bytes_max: usize,
    admission: AtomicU64,
    /// New work is held, whatever the admission: too much is undelivered.
    new_held: AtomicBool,
    closed: AtomicBool,
    bell: Bell,
}

impl Intake {
    /// An empty intake that goes on after `last_seqs`, the last sequence of each lane.
    ///
    /// # Panics
    /// Where there is no control lane, or a frame would not be let in whole: a batch as long as it
    /// may be would be refused for ever.
    pub(crate) fn new(last_seqs: &[u64], frame_bytes_max: usize, in_flight_bytes_max: u64) -> Self {
        assert!(!last_seqs.is_empty(), "every log has a control lane");
        assert!(frame_bytes_max as u64 <= in_flight_bytes_max, "a frame is in flight whole");
        let lane = |last_seq: &u64| CachePadded::new(Mutex::new(LaneState::after(*last_seq)));
        Self {
            lanes: last_seqs.iter().map(lane).collect(),
            pool: Pool::new(last_seqs.len()),
            in_flight_bytes: CachePadded::new(AtomicU64::new(0)),
            in_flight_bytes_max,
            chunk_bytes_max: frame_bytes_max / BATCH_FRAME_DIVISOR,
            admission: AtomicU64::new(Admission::All as u64),
            new_held: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            bell: Bell::new(),
        }
    }

    /// Index of the control lane.
    pub(crate) fn control_lane(&self) -> usize {
        self.lanes.len() - 1
    }

    fn lane(&self, shard: u16) -> usize {
        if shard == CONTROL_SHARD { self.control_lane() } else { usize::from(shard) }
    }

    /// Holds `shard`'s lane with room for `bytes` (the sum of the records' [`record_bytes`]).
    ///
    /// [`record_bytes`]: record::record_bytes
    ///
    /// # Panics
    /// Where the shard does not exist.
    pub(crate) fn begin(&self, shard: u16, bytes: usize, class: Class) -> Result<Batch<'_>, Busy> {
        let lane = self.lane(shard);
        let reserved = bytes as u64;
        let limit = match class {
            _ if !self.admission().lets_in(class) => return Err(self.refusal()),
            Class::New if self.new_held.load(Ordering::Relaxed) => return Err(self.refusal()),
            Class::New => {
                self.in_flight_bytes_max - self.in_flight_bytes_max / IN_FLIGHT_RESERVED_DIVISOR
            }
            Class::Reserved => self.in_flight_bytes_max,
        };
        let before = self.in_flight_bytes.fetch_add(reserved, Ordering::Relaxed);
        if before + reserved > limit {
            self.give_room_back(reserved);
            return Err(Busy::Overloaded);
        }
        let state = self.lanes[lane].lock();
        // Read under the lane's lock: `close` takes every lane after it has closed, so a batch
        // that saw the intake open is in its lane before the last commit looks there.
        if self.closed.load(Ordering::Acquire) {
            drop(state);
            self.give_room_back(reserved);
            return Err(Busy::LogUnavailable);
        }
        Ok(Batch { intake: self, shard, lane: Some(state), reserved, used: 0, rings: true })
    }

    /// Copies chunks of all lanes, round robin from lane `start`, into `payload`, as many as fit.
    /// `marks` gets each lane's last sequence taken.
    pub(crate) fn take(
        &self,
        start: usize,
        payload: &mut [u8],
        marks: &mut Vec<(usize, u64)>,
    ) -> Taken {
        let count = self.lanes.len();
        let mut taken = Taken { records: 0, bytes: 0 };
        for lane in (0..count).map(|step| (start + step) % count) {
            while let Some(chunk) = self.take_chunk(lane, payload.len() - taken.bytes) {
                chunk.copy_to(&mut payload[taken.bytes..]);
                taken.bytes += chunk.bytes.len();
                taken.records += chunk.records;
                match marks.last_mut() {
                    Some((last, seq)) if *last == lane => *seq = chunk.last_seq,
                    _ => marks.push((lane, chunk.last_seq)),
                }
                self.pool.give_back(chunk.bytes);
            }
        }
        assert!((taken.records == 0) == (taken.bytes == 0), "records have bytes, and nothing else");
        assert!(
            taken.records == 0 || !marks.is_empty(),
            "W1: whose records these are is told of it"
        );
        taken
    }

    fn take_chunk(&self, lane: usize, room: usize) -> Option<Chunk> {
        let mut state = self.lanes[lane].lock();
        if let Some(chunk) = state.full.front() {
            let fits = chunk.bytes.len() <= room;
            let chunk = if fits { state.full.pop_front() } else { None };
            return chunk.map(|chunk| state.take(chunk));
        }
        if state.open.records == 0 || state.open.bytes.len() > room {
            return None;
        }
        let chunk = state.replace_open(self.pool.take());
        Some(state.take(chunk))
    }

    /// Gives back the bytes of a frame that is durable now.
    pub(crate) fn release(&self, payload_bytes: usize) {
        self.give_room_back(payload_bytes as u64);
    }

    /// # Panics
    /// Where more is given back than was taken: the count would wrap around, and nothing would
    /// ever be let in again.
    fn give_room_back(&self, bytes: u64) {
        let before = self.in_flight_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "room is given back once: {bytes} of {before}");
    }

    /// Bytes appended and not yet durable.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Lets in whom `admission` names, from now on.
    pub(crate) fn admit(&self, admission: Admission) {
        self.admission.store(admission as u64, Ordering::Relaxed);
    }

    /// Holds new work back, or lets it in again, beside what the admission says.
    pub(crate) fn hold_new(&self, held: bool) {
        self.new_held.store(held, Ordering::Relaxed);
    }

    /// Whether new work is let in.
    pub(crate) fn admits_new(&self) -> bool {
        self.admission() == Admission::All && !self.new_held.load(Ordering::Relaxed)
    }

    /// Whose batches are let in.
    pub(crate) fn admission(&self) -> Admission {
        let code = self.admission.load(Ordering::Relaxed);
        let known = Admission::ALL.iter().find(|known| **known as u64 == code);
        known.copied().unwrap_or(Admission::Nothing)
    }

    /// Why a batch is not let in: a log that has failed says so first.
    fn refusal(&self) -> Busy {
        if self.closed.load(Ordering::Acquire) { Busy::LogUnavailable } else { Busy::Overloaded }
    }

    /// Refuses every batch from now on. Returns once no batch is open.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for lane in &self.lanes {
            drop(lane.lock());
        }
        self.bell.ring();
    }

    /// Holds that a clean end leaves nothing behind: all that was appended was taken, and `durable`
    /// tells of each lane that it is.
    ///
    /// # Panics
    /// Where a record is left: its caller would be told that the log ended well, and the next start
    /// would not find it.
    pub(crate) fn assert_drained(&self, durable: impl Fn(usize) -> u64) {
        assert!(self.closed.load(Ordering::Acquire), "a log takes nothing in while it ends");
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.lock().assert_drained(durable(index));
        }
    }

    /// Whether a frame with room for `room` bytes that took `taken` can have left a chunk behind.
    pub(crate) fn may_have_left(&self, taken: usize, room: usize) -> bool {
        assert!(taken <= room, "a frame of {room} bytes took {taken}");
        taken + self.chunk_bytes_max > room && self.in_flight_bytes() > 0
    }

    /// Ends a wait for work.
    pub(crate) fn interrupt(&self) {
        self.bell.ring();
    }

    /// Sequence of the last record appended to `shard`'s lane.
    pub(crate) fn last_seq(&self, shard: u16) -> u64 {
        self.lanes[self.lane(shard)].lock().last_seq
    }

    /// Waits until something was appended, or about `timeout_ms`. Tells whether something was.
    pub(crate) fn wait(&self, timeout_ms: u64) -> bool {
        self.bell.wait(timeout_ms)
    }
}

/// What [`Intake::take`] took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) records: u32,
    pub(crate) bytes: usize,
}

/// A lane held, with room reserved in it.
pub struct Batch<'a> {
    intake: &'a Intake,
    shard: u16,
    lane: Option<MutexGuard<'a, LaneState>>,
    reserved: u64,
    used: u64,
    rings: bool,
}

impl Batch<'_> {
    /// Wakes nobody when it is dropped: its caller commits. One that then did not would leave its
    /// records, and whoever waits for them, to the next that does.
    pub fn caller_commits(&mut self) {
        self.rings = false;
    }

    #[inline]
    fn lane(&mut self) -> &mut LaneState {
        self.lane.as_mut().expect("the lane is held until the batch is dropped")
    }

    /// Starts a command whose records take `bytes` in all: they will share a frame.
    ///
    /// # Panics
    /// Where they could not: callers bound their commands far below a frame.
    #[inline]
    pub fn command(&mut self, bytes: usize) {
        let chunk_bytes_max = self.intake.chunk_bytes_max;
        assert!(bytes <= chunk_bytes_max, "a command of {bytes} bytes does not fit a chunk");
        let state = self.lane();
        if state.open.records > 0 && state.open.bytes.len() + bytes > chunk_bytes_max {
            self.close_chunk();
        }
    }

    /// Goes on in the next chunk.
    #[cold]
    fn close_chunk(&mut self) {
        let Intake { chunk_bytes_max, pool, .. } = self.intake;
        // A lane that fills a chunk will fill the next: its room is made at once.
        let mut bytes = pool.take();
        bytes.reserve(*chunk_bytes_max);
        let state = self.lane();
        let full = state.replace_open(bytes);
        state.full.push_back(full);
    }

    /// Appends a record of `kind`, whose body `write` appends. Returns its place in the shard.
    ///
    /// # Panics
    /// Where the batch's records outgrow the room it reserved: the reservation is what keeps an
    /// append from failing.
    #[inline]
    pub fn append(&mut self, kind: (u8, u8), write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        self.put(|buffer, shard, seq| record::append(buffer, kind, shard, seq, write))
    }

    /// [`Batch::append`] of a record whose body is `head` and then `tail`.
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn append_parts<const N: usize>(
        &mut self,
        kind: (u8, u8),
        head: &[u8; N],
        tail: &[u8],
    ) -> u64 {
        self.put(|buffer, shard, seq| {
            record::append_parts(buffer, kind, shard, seq, head, tail);
        })
    }

    #[inline]
    fn put(&mut self, append: impl FnOnce(&mut Vec<u8>, u16, u64)) -> u64 {
        let shard = self.shard;
        let state = self.lane();
        let before = state.open.bytes.len();
        let seq = state.last_seq + 1;
        append(&mut state.open.bytes, shard, seq);
        state.last_seq = seq;
        state.open.last_seq = seq;
        state.open.records += 1;
        let bytes = (state.open.bytes.len() - before) as u64;
        self.used += bytes;
        assert!(self.used <= self.reserved, "a batch must stay within the room it reserved");
        seq
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Let go of the lane first: the committer would wake up only to wait for it.
        self.lane = None;
        self.intake.give_room_back(self.reserved.saturating_sub(self.used));
        if self.used > 0 && self.rings {
            self.intake.bell.ring();
        }
    }
}

/// What a caller waits for: a record's place in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The shard.
    pub shard: u16,
    /// The record's place in it; everything up to it must be durable.
    pub shard_seq: u64,
}

/// What one commit did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// Nothing was waiting.
    Nothing,
    /// A frame was made durable.
    Frame {
        /// Its last record.
        last_lsn: Lsn,
        /// Its number of records.
        records: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake() -> Intake {
        Intake::new(&[0, 0, 0], 4096, 4096)
    }

    fn put(intake: &Intake, shard: u16, bytes: usize) -> Result<u64, Busy> {
        let room = record::record_bytes(bytes);
        let mut batch = intake.begin(shard, room, Class::Reserved)?;
        batch.command(room);
        Ok(batch.append((1, 1), |out| out.resize(out.len() + bytes, 7)))
    }

    #[test]
    fn a_command_that_does_not_fit_the_chunk_starts_the_next() {
        let intake = intake();
        for _ in 0..3 {
            put(&intake, 0, 500).unwrap();
        }
        let (mut payload, mut marks) = (vec![0; 4000], Vec::new());
        let taken = intake.take(0, &mut payload[..600], &mut marks);
        assert_eq!((taken.records, marks.as_slice()), (1, &[(0, 1)][..]), "a chunk: 1024 bytes");
        let taken = intake.take(0, &mut payload, &mut marks);
        assert_eq!((taken.records, marks.as_slice()), (2, &[(0, 3)][..]));
    }

    #[test]
    fn room_is_refused_before_anything_is_appended_and_comes_back() {
        let intake = intake();
        while put(&intake, 0, 500).is_ok() {}
        assert!(intake.in_flight_bytes() <= 4096);
        let last = intake.last_seq(0);
        assert_eq!(put(&intake, 1, 500), Err(Busy::Overloaded));
        assert_eq!((intake.last_seq(0), intake.last_seq(1)), (last, 0));
        let mut payload = vec![0; 4096];
        let taken = intake.take(0, &mut payload, &mut Vec::new());
        intake.release(taken.bytes);
        assert_eq!(intake.in_flight_bytes(), 0);
        assert_eq!(put(&intake, 1, 500), Ok(1));
    }

    #[test]
    fn new_work_is_refused_first() {
        let intake = intake();
        intake.begin(0, 3600, Class::New).map(drop).unwrap_err();
        intake.begin(0, 3600, Class::Reserved).map(drop).unwrap();
        intake.admit(Admission::Reserved);
        assert_eq!(intake.begin(0, 8, Class::New).map(drop), Err(Busy::Overloaded));
        assert_eq!(intake.begin(0, 8, Class::Reserved).map(drop), Ok(()));
        intake.admit(Admission::Nothing);
        assert_eq!(intake.begin(0, 8, Class::Reserved).map(drop), Err(Busy::Overloaded));
        intake.admit(Admission::All);
        assert_eq!(intake.begin(0, 8, Class::New).map(drop), Ok(()));
        intake.hold_new(true);
        assert_eq!(intake.begin(0, 8, Class::New).map(drop), Err(Busy::Overloaded));
        assert_eq!(intake.begin(0, 8, Class::Reserved).map(drop), Ok(()));
        assert!(!intake.admits_new());
        intake.hold_new(false);
        assert!(intake.admits_new());
    }

    #[test]
    fn a_closed_intake_takes_nothing() {
        let intake = intake();
        intake.close();
        assert_eq!(put(&intake, 0, 8), Err(Busy::LogUnavailable));
        assert_eq!(intake.in_flight_bytes(), 0);
    }
}
