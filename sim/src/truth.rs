//! What really happened, kept apart from the log: every record appended, where frames ended, and
//! how far the log ever said it was durable.

use std::sync::Arc;

use wal::{CONTROL_SHARD, Record};

/// Lanes of the simulated log: two shards and the control records.
pub const LANES: usize = 3;

/// A number of records for each lane.
pub type Counts = [u64; LANES];

/// The ground truth of one log.
#[derive(Clone, Default)]
pub struct Truth {
    lanes: [Vec<Arc<[u8]>>; LANES],
    /// How many records each lane had when a frame was taken, oldest first.
    frames: Vec<Counts>,
    /// The highest durable LSN the log ever showed.
    pub acked: u64,
    /// How far the sink that pins the log has confirmed; `None` where none is registered.
    pub sink: Option<u64>,
}

/// The lane of a shard.
fn lane(shard: u16) -> Option<usize> {
    match shard {
        CONTROL_SHARD => Some(LANES - 1),
        shard => Some(usize::from(shard)).filter(|lane| *lane < LANES - 1),
    }
}

impl Truth {
    /// Notes a record that was appended, and returns its place in its lane.
    pub fn append(&mut self, shard: u16, body: Arc<[u8]>) -> u64 {
        let lane = &mut self.lanes[lane(shard).expect("workloads name their own shards")];
        lane.push(body);
        lane.len() as u64
    }

    /// Records in each lane, durable or not.
    pub fn counts(&self) -> Counts {
        std::array::from_fn(|lane| self.lanes[lane].len() as u64)
    }

    /// Notes that a frame takes all that was appended so far; returns its last LSN.
    pub fn frame(&mut self) -> u64 {
        let counts = self.counts();
        self.frames.push(counts);
        counts.iter().sum()
    }

    /// Goes on from what a recovery found: it is the truth from then on, and durable.
    pub fn recovered(&mut self, counts: Counts) {
        for (lane, count) in self.lanes.iter_mut().zip(counts) {
            lane.truncate(usize::try_from(count).expect("a workload is small"));
        }
        self.frames.retain(|frame| frame.iter().zip(counts).all(|(end, count)| *end <= count));
        self.acked = counts.iter().sum();
    }

    /// How many records each lane had at LSN `lsn`, where a frame ends there.
    pub fn counts_at(&self, lsn: u64) -> Option<Counts> {
        let all = [[0; LANES]].into_iter().chain(self.frames.iter().copied());
        all.into_iter().find(|counts| counts.iter().sum::<u64>() == lsn)
    }

    /// A hash of the first `count` records of a lane: what a snapshot holds of it.
    pub fn hash(&self, lane: usize, count: u64) -> u64 {
        let count = usize::try_from(count).expect("a workload is small");
        let bytes = self.lanes[lane].iter().take(count).flat_map(|body| body.iter());
        bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }

    /// Checks records as a recovery or a reader hands them over, from the first on.
    pub fn check(&self) -> Check<'_> {
        self.check_after([0; LANES])
    }

    /// Checks records as they are handed over after those that `counts` names.
    pub fn check_after(&self, counts: Counts) -> Check<'_> {
        Check { truth: self, counts, violation: None }
    }
}

/// A running comparison of what a log hands over with what was put in.
pub struct Check<'a> {
    truth: &'a Truth,
    counts: Counts,
    violation: Option<String>,
}

impl Check<'_> {
    /// Compares one record.
    pub fn record(&mut self, record: &Record<'_>) {
        if self.violation.is_none() {
            self.violation = self.wrong(record);
        }
    }

    fn wrong(&mut self, record: &Record<'_>) -> Option<String> {
        let Record { lsn, shard, shard_seq, .. } = *record;
        let next = self.counts.iter().sum::<u64>() + 1;
        if lsn.0 != next {
            return Some(format!("W4: LSN {lsn} where {next} was to come"));
        }
        let Some(lane) = lane(shard) else { return Some(format!("shard {shard} does not exist")) };
        self.counts[lane] += 1;
        if shard_seq != self.counts[lane] {
            return Some(format!("W4: sequence {shard_seq} in lane {lane} at LSN {lsn}"));
        }
        let index = usize::try_from(shard_seq - 1).expect("a workload is small");
        match self.truth.lanes[lane].get(index) {
            None => Some(format!("O4: a ghost at LSN {lsn}: nobody appended it")),
            Some(body) if **body != *record.body => {
                Some(format!("O3: LSN {lsn} does not read as it was appended"))
            }
            Some(_) => None,
        }
    }

    /// Ends the comparison: nothing acknowledged may be missing, and the end must be a frame's.
    pub fn finish(self, acked: u64) -> Result<Counts, String> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let total: u64 = self.counts.iter().sum();
        if total < acked {
            return Err(format!("O2: {acked} records were acknowledged, {total} are there"));
        }
        let whole = total == 0 || self.truth.frames.contains(&self.counts);
        whole.then_some(self.counts).ok_or_else(|| {
            format!("O3: the log ends inside a frame, at LSN {total} ({:?})", self.counts)
        })
    }
}
