//! The intake: where records wait for the next commit. One lane a shard, one for control records.
//!
//! A caller reserves room *before* it decides ([`Intake::begin`]), holding the lane from then on,
//! and appends under the same hold: log order is decision order, and nothing can fail after the
//! decision. The committer takes whole chunks; a command never straddles two chunks, so it never
//! straddles two frames.
//!
//! Chunks that are full lie beside the lane, behind a lock that is held for a moment: the committer
//! takes them while the batch that fills them goes on, so that of a large batch the first part is
//! being written while the last is being decided.

use crossbeam_utils::CachePadded;

use crate::bell::Bell;
use crate::error::Busy;
use crate::ids::Lsn;
use crate::limits::{
    BATCH_FRAME_DIVISOR, CONTROL_SHARD, IN_FLIGHT_RESERVED_DIVISOR, LONG_CHUNK_DIVISOR,
};
use crate::pool::Pool;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

mod batch;
mod lane;

pub use batch::Batch;
use lane::Lane;

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

/// Buffers that are kept beside one for each lane: two batches whose chunks are on their way do
/// with them, and memory that comes and goes is cleared each time it comes.
const CHUNKS_ON_THEIR_WAY: usize = 2 * BATCH_FRAME_DIVISOR;

/// Records waiting to be committed.
pub(crate) struct Intake {
    lanes: Box<[CachePadded<Lane>]>,
    /// A buffer a lane, where all of them are busy, and those that are on their way.
    pool: Pool,
    in_flight_bytes: CachePadded<AtomicU64>,
    in_flight_bytes_max: u64,
    chunk_bytes_max: usize,
    /// Bytes from which on a batch is [long](Lane::is_long).
    long_bytes_min: u64,
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
        let lane = |last_seq: &u64| CachePadded::new(Lane::after(*last_seq));
        let chunk_bytes_max = frame_bytes_max / BATCH_FRAME_DIVISOR;
        Self {
            lanes: last_seqs.iter().map(lane).collect(),
            pool: Pool::new(last_seqs.len() + CHUNKS_ON_THEIR_WAY),
            in_flight_bytes: CachePadded::new(AtomicU64::new(0)),
            in_flight_bytes_max,
            chunk_bytes_max,
            long_bytes_min: (chunk_bytes_max / LONG_CHUNK_DIVISOR) as u64,
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
    /// [`record_bytes`]: crate::record::record_bytes
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
        let lane = &self.lanes[lane];
        let state = lane.lock();
        // Read under the lane's lock: `close` takes every lane after it has closed, so a batch
        // that saw the intake open is in its lane before the last commit looks there.
        if self.closed.load(Ordering::Acquire) {
            drop(state);
            self.give_room_back(reserved);
            return Err(Busy::LogUnavailable);
        }
        let is_long = reserved >= self.long_bytes_min;
        if is_long {
            lane.note_long(true);
        }
        Ok(Batch {
            intake: self,
            lane,
            keeps_others: is_long && state.open.records > 0,
            held: Some(state),
            shard,
            reserved,
            used: 0,
            is_long,
            rings: true,
        })
    }

    /// Copies chunks of all lanes, round robin from lane `start`, into `payload`, as many as fit.
    /// `marks` gets each lane's last sequence taken. Where a long batch is under way only
    /// `waits` has its lane waited for: who does not must be [rung](Intake::wait).
    pub(crate) fn take(
        &self,
        start: usize,
        waits: bool,
        payload: &mut [u8],
        marks: &mut Vec<(usize, u64)>,
    ) -> Taken {
        let count = self.lanes.len();
        let mut taken = Taken { records: 0, bytes: 0 };
        for lane in (0..count).map(|step| (start + step) % count) {
            let next = |room| self.lanes[lane].take(room, waits, || self.pool.take());
            while let Some(chunk) = next(payload.len() - taken.bytes) {
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
        assert!(taken.records == 0 || !marks.is_empty(), "W1: whoever waits for these is told");
        taken
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
            lane.assert_drained(durable(index));
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
    use crate::record;

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
        let taken = intake.take(0, true, &mut payload[..600], &mut marks);
        assert_eq!((taken.records, marks.as_slice()), (1, &[(0, 1)][..]), "a chunk: 1024 bytes");
        let taken = intake.take(0, true, &mut payload, &mut marks);
        assert_eq!((taken.records, marks.as_slice()), (2, &[(0, 3)][..]));
    }

    #[test]
    fn a_long_batch_is_taken_from_while_it_goes_on_and_leaves_nothing_to_the_next() {
        let intake = intake();
        let room = record::record_bytes(500);
        let long = |records| {
            let mut batch = intake.begin(0, records * room, Class::Reserved).unwrap();
            for _ in 0..records {
                batch.command(room);
                batch.append((1, 1), |out| out.resize(out.len() + 500, 7));
            }
            batch
        };
        let take = || {
            let (mut payload, mut marks) = (vec![0; 4000], Vec::new());
            (intake.take(0, false, &mut payload, &mut marks).records, marks)
        };
        let batch = long(3);
        assert_eq!(take(), (2, vec![(0, 2)]), "a chunk has room for one and a half");
        assert!(intake.wait(0), "whoever commits is told of a chunk before the batch ends");
        assert_eq!(take().0, 0, "what is open stays");
        drop(batch);
        assert!(intake.wait(0), "and of the end");
        let next = long(1);
        assert_eq!(take(), (1, vec![(0, 3)]), "of the batch before");
        drop(next);
        assert_eq!(take(), (1, vec![(0, 4)]));
        intake.close();
        intake.assert_drained(|lane| if lane == 0 { 4 } else { 0 });
    }

    #[test]
    fn a_long_batch_that_comes_to_nothing_tells_of_what_waited_before_it() {
        for caller_commits in [false, true] {
            let intake = intake();
            put(&intake, 0, 8).unwrap();
            let mut batch = intake.begin(0, 1024, Class::Reserved).unwrap();
            assert!(intake.wait(0));
            let take = || intake.take(0, false, &mut vec![0; 4000], &mut Vec::new()).records;
            assert_eq!(take(), 0, "the lane is held");
            if caller_commits {
                batch.caller_commits();
            }
            drop(batch);
            assert!(intake.wait(0), "nobody else would come for it");
            assert_eq!(take(), 1);
        }
    }

    #[test]
    fn a_long_batch_whose_caller_commits_tells_nobody() {
        let intake = intake();
        let mut batch = intake.begin(0, 1024, Class::Reserved).unwrap();
        batch.caller_commits();
        for _ in 0..2 {
            batch.command(504);
            batch.append((1, 1), |out| out.resize(out.len() + 480, 7));
            batch.close_chunk();
        }
        drop(batch);
        assert!(!intake.wait(0));
        let taken = intake.take(0, true, &mut vec![0; 4000], &mut Vec::new());
        assert_eq!(taken.records, 2);
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
        let taken = intake.take(0, true, &mut payload, &mut Vec::new());
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
