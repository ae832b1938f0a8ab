//! What of the log is still needed, and by whom.
//!
//! A segment can be given back once every record in it comes before the last one that the *older*
//! of the two snapshots kept covers, and before the last one that each registered sink has
//! confirmed: who goes on from a place finds the frame that ends there, and holds it against what
//! he noted of it. The last [`RETIRE_MARGIN_SEGMENTS`] of those stay all the same. With fewer than
//! two snapshots nothing is given back.
//!
//! A sink that must deliver holds the log for as long as it takes: past the hard limit of
//! undelivered log new work is refused instead, and let in again by itself. A sink that can be
//! rebuilt from a snapshot holds it up to the soft limit only; then it is passed by, and finds its
//! place retired.

use std::collections::VecDeque;

use crate::control::{RegisteredSink, SINK_NAME_BYTES};
use crate::ids::{Epoch, Lsn, SegmentId};
use crate::limits::{
    BACKLOG_BYTES_HARD, BACKLOG_BYTES_SOFT, RETIRE_MARGIN_SEGMENTS, SINKS_MAX, SNAPSHOTS_KEPT,
};
use crate::planted::{self, Bug};
use crate::segment::SegmentHeader;
use crate::snapshot::SnapshotInfo;
use crate::sync::Mutex;

/// What becomes of a sink that lags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkClass {
    /// The log waits for it.
    MustDeliver,
    /// It can be filled anew from a snapshot: the log passes it by where it lags too far.
    Rebuildable,
}

impl SinkClass {
    const fn code(self) -> u32 {
        match self {
            Self::MustDeliver => 0,
            Self::Rebuildable => 1,
        }
    }

    /// A class of a later version is one that the log waits for.
    const fn of(code: u32) -> Self {
        if code == 1 { Self::Rebuildable } else { Self::MustDeliver }
    }
}

/// A registered sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SinkState {
    /// Its name.
    pub name: String,
    /// What becomes of it when it lags.
    pub class: SinkClass,
    /// It holds everything up to here, for good.
    pub confirmed_lsn: Lsn,
    /// Bytes of segments that it has not confirmed.
    pub backlog_bytes: u64,
}

/// Why a sink can't be registered or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Its name is empty, longer than CONTROL holds, or holds a zero.
    #[error("a sink's name has 1 to 32 bytes")]
    BadName,
    /// There are as many as CONTROL holds.
    #[error("there are 16 sinks: drop one that is no longer fed with `sluice sink drop`")]
    TooMany,
    /// No sink has that name.
    #[error("no sink has that name")]
    Unknown,
    /// The log has failed.
    #[error(transparent)]
    LogUnavailable(#[from] crate::error::LogUnavailable),
}

/// How much log there may be, and must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionLimits {
    /// Beyond it an operator should look, and sinks that can be rebuilt are passed by.
    pub soft_bytes: u64,
    /// Beyond it new work is refused.
    pub hard_bytes: u64,
    /// Segments that stay though nobody needs them.
    pub margin_segments: usize,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self {
            soft_bytes: BACKLOG_BYTES_SOFT,
            hard_bytes: BACKLOG_BYTES_HARD,
            margin_segments: RETIRE_MARGIN_SEGMENTS,
        }
    }
}

/// A segment that is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) id: SegmentId,
    pub(crate) first_lsn: Lsn,
    pub(crate) epoch: Epoch,
    /// The run before this one ended cleanly in it.
    pub(crate) closed: bool,
}

/// A segment to be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retirable {
    pub(crate) id: SegmentId,
    /// Its run went on after it, or ended cleanly: no error can have gone unnoticed.
    pub(crate) reusable: bool,
}

#[derive(Default)]
struct State {
    /// Ascending; the last is the one being filled.
    kept: VecDeque<Kept>,
    sinks: Vec<RegisteredSink>,
    /// Ascending.
    snapshots: Vec<SnapshotInfo>,
    limits: RetentionLimits,
    /// When the last was begun.
    active_since_ms: u64,
}

/// What is needed of an open log.
pub(crate) struct Retention {
    state: Mutex<State>,
    /// Held by whoever retires: one at a time.
    pub(crate) turn: Mutex<()>,
    segment_bytes: u64,
}

impl Retention {
    /// `closed` tells whether the run before ended cleanly, in the last of `headers`.
    pub(crate) fn new(
        headers: &[SegmentHeader],
        sinks: Vec<RegisteredSink>,
        snapshots: Vec<SnapshotInfo>,
        segment_bytes: u64,
        closed: bool,
    ) -> Self {
        let is_dense =
            |one: &SegmentHeader, next: &SegmentHeader| one.segment_id.plus(1) == next.segment_id;
        assert!(headers.is_sorted_by(is_dense), "W7: the log that is kept has a gap");
        assert!(sinks.len() <= SINKS_MAX, "CONTROL has no room for {} sinks", sinks.len());
        let mut kept: VecDeque<_> = headers.iter().map(Kept::of).collect();
        if let Some(last) = kept.back_mut() {
            last.closed = closed;
        }
        let state = State { kept, sinks, snapshots, ..State::default() };
        Self { state: Mutex::new(state), turn: Mutex::new(()), segment_bytes }
    }

    /// Notes that a segment was begun.
    pub(crate) fn begun(&self, header: &SegmentHeader) {
        assert!(header.segment_bytes == self.segment_bytes, "the log is counted in segments");
        let mut state = self.state.lock();
        let begun = Kept::of(header);
        if let Some(last) = state.kept.back() {
            begun.assert_follows(last);
        }
        state.kept.push_back(begun);
        state.active_since_ms = header.created_unix_ms;
    }

    /// When the segment being filled was begun, Unix milliseconds.
    pub(crate) fn active_since_ms(&self) -> u64 {
        self.state.lock().active_since_ms
    }

    pub(crate) fn set_limits(&self, limits: RetentionLimits) {
        self.state.lock().limits = limits;
    }

    /// The sinks, as CONTROL holds them.
    pub(crate) fn registered(&self) -> Vec<RegisteredSink> {
        self.state.lock().sinks.clone()
    }

    /// The sinks, as people know them.
    pub(crate) fn sinks(&self) -> Vec<SinkState> {
        let state = self.state.lock();
        let told = |sink: &RegisteredSink| SinkState {
            name: text(&sink.name),
            class: SinkClass::of(sink.class),
            confirmed_lsn: sink.lsn,
            backlog_bytes: state.bytes_beyond(sink.lsn) * self.segment_bytes,
        };
        state.sinks.iter().map(told).collect()
    }

    /// Adds a sink, or changes the class of one.
    pub(crate) fn register(&self, name: &str, class: SinkClass) -> Result<(), SinkError> {
        let name = padded(name).ok_or(SinkError::BadName)?;
        let mut state = self.state.lock();
        if let Some(sink) = state.sinks.iter_mut().find(|sink| sink.name == name) {
            sink.class = class.code();
            return Ok(());
        }
        if state.sinks.len() >= SINKS_MAX {
            return Err(SinkError::TooMany);
        }
        let (lsn, epoch, chain) = (Lsn(0), Epoch(0), 0);
        state.sinks.push(RegisteredSink { name, lsn, epoch, chain, class: class.code() });
        Ok(())
    }

    pub(crate) fn drop_sink(&self, name: &str) -> Result<(), SinkError> {
        let mut state = self.state.lock();
        let before = state.sinks.len();
        state.sinks.retain(|sink| padded(name) != Some(sink.name));
        if state.sinks.len() == before { Err(SinkError::Unknown) } else { Ok(()) }
    }

    /// Notes how far a sink has confirmed; one that says less than before says nothing (W13).
    pub(crate) fn confirm(&self, name: &str, lsn: Lsn) {
        let mut state = self.state.lock();
        if let Some(sink) = state.sinks.iter_mut().find(|sink| padded(name) == Some(sink.name)) {
            sink.lsn = sink.lsn.max(lsn);
        }
    }

    /// Notes a snapshot that is whole; returns those that are no longer kept.
    pub(crate) fn snapshot_made(&self, made: SnapshotInfo) -> Vec<SnapshotInfo> {
        let mut state = self.state.lock();
        state.snapshots.retain(|it| it.lsn != made.lsn);
        // W7: the older of the two decides what is given back.
        let ascends = state.snapshots.last().is_none_or(|newest| newest.lsn < made.lsn);
        assert!(ascends, "W7: a snapshot of {} is older than the newest", made.lsn);
        state.snapshots.push(made);
        let surplus = state.snapshots.len().saturating_sub(SNAPSHOTS_KEPT);
        state.snapshots.drain(..surplus).collect()
    }

    /// Forgets the newest snapshot.
    pub(crate) fn pass_over_snapshot(&self) -> Option<SnapshotInfo> {
        self.state.lock().snapshots.pop()
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Option<SnapshotInfo> {
        self.state.lock().snapshots.last().copied()
    }

    /// The last record before the segment being filled: what a snapshot made of sealed segments
    /// alone can cover.
    pub(crate) fn sealed_lsn(&self) -> Lsn {
        let state = self.state.lock();
        state.kept.back().map_or(Lsn(0), |kept| Lsn(kept.first_lsn.0.saturating_sub(1)))
    }

    /// Bytes of segments that hold anything the newest snapshot does not.
    pub(crate) fn bytes_beyond_snapshot(&self) -> u64 {
        let state = self.state.lock();
        let lsn = state.snapshots.last().map_or(Lsn(0), |it| it.lsn);
        state.bytes_beyond(lsn) * self.segment_bytes
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().kept.len() as u64 * self.segment_bytes
    }

    /// Undelivered bytes: what the slowest sink that must deliver has not confirmed.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let state = self.state.lock();
        let must =
            state.sinks.iter().filter(|it| SinkClass::of(it.class) == SinkClass::MustDeliver);
        must.map(|sink| state.bytes_beyond(sink.lsn)).max().unwrap_or(0) * self.segment_bytes
    }

    /// Whether there is more undelivered log than new work may add to.
    pub(crate) fn is_overdue(&self) -> bool {
        let hard_bytes = self.state.lock().limits.hard_bytes;
        self.backlog_bytes() > hard_bytes
    }

    /// Whether an operator should look.
    pub(crate) fn is_late(&self) -> bool {
        let soft_bytes = self.state.lock().limits.soft_bytes;
        self.backlog_bytes() > soft_bytes
    }

    /// The segments that nobody needs, oldest first.
    pub(crate) fn retirable(&self) -> Vec<Retirable> {
        let state = self.state.lock();
        let needed_from = state.needed_from(self.segment_bytes);
        let pairs = state.kept.iter().zip(state.kept.iter().skip(1));
        let mut free: Vec<_> = pairs
            .take_while(|(_, next)| next.first_lsn <= needed_from)
            .map(|(kept, next)| {
                let reusable = kept.epoch == next.epoch || kept.closed;
                Retirable {
                    id: kept.id,
                    reusable: reusable || planted::has(Bug::FileReusedAfterError),
                }
            })
            .collect();
        free.truncate(free.len().saturating_sub(state.limits.margin_segments));
        if let Some(next) = state.kept.get(free.len()).filter(|_| !free.is_empty()) {
            state.assert_unneeded_before(next.first_lsn, self.segment_bytes);
        }
        assert!(free.len() < state.kept.len().max(1), "W7: the segment being filled stays");
        free
    }

    /// Forgets every segment before `oldest`.
    pub(crate) fn forget_before(&self, oldest: SegmentId) {
        let mut state = self.state.lock();
        state.kept.retain(|kept| kept.id >= oldest);
        let first = state.kept.front().map(|kept| kept.id);
        assert!(first == Some(oldest), "W7: {oldest} is the oldest, and {first:?} is there");
    }
}

impl State {
    /// Segments that hold a record beyond `lsn`, or may get one.
    fn bytes_beyond(&self, lsn: Lsn) -> u64 {
        let covered = self.kept.iter().skip(1).take_while(|next| next.first_lsn.0 <= lsn.0 + 1);
        (self.kept.len() - covered.count()) as u64
    }

    /// Holds what is about to be given back against each who may still need it, one by one: the
    /// snapshots that a start can fall back to, and the sinks that are waited for. Whose place is
    /// gone can only be filled anew.
    ///
    /// # Panics
    /// Where one of them needs a record before `kept` (W7).
    fn assert_unneeded_before(&self, kept: Lsn, segment_bytes: u64) {
        assert!(self.snapshots.len() >= SNAPSHOTS_KEPT, "W7: a start needs two to choose from");
        for snapshot in self.snapshots.iter().rev().take(SNAPSHOTS_KEPT) {
            assert!(kept <= snapshot.lsn, "W7: the snapshot of {} goes on there", snapshot.lsn);
        }
        let ignored = planted::has(Bug::RetireIgnoresSinks);
        for sink in self.sinks.iter().filter(|_| !ignored) {
            let waits = SinkClass::of(sink.class) == SinkClass::MustDeliver
                || self.bytes_beyond(sink.lsn) * segment_bytes <= self.limits.soft_bytes;
            assert!(!waits || kept <= sink.lsn, "W7: a sink at {} goes on there", sink.lsn);
        }
    }

    /// Nobody needs a record before this one.
    fn needed_from(&self, segment_bytes: u64) -> Lsn {
        let older = match self.snapshots.as_slice() {
            [.., older, _] => older.lsn,
            _ => Lsn(0),
        };
        let lapsed = |sink: &&RegisteredSink| {
            SinkClass::of(sink.class) == SinkClass::Rebuildable
                && self.bytes_beyond(sink.lsn) * segment_bytes > self.limits.soft_bytes
        };
        let holding = self.sinks.iter().filter(|sink| !lapsed(sink)).map(|sink| sink.lsn);
        match holding.min() {
            Some(confirmed) if !planted::has(Bug::RetireIgnoresSinks) => older.min(confirmed),
            _ => older,
        }
    }
}

impl Kept {
    fn of(header: &SegmentHeader) -> Self {
        let SegmentHeader { segment_id, first_lsn, epoch, .. } = *header;
        Self { id: segment_id, first_lsn, epoch, closed: false }
    }

    /// # Panics
    /// Where a segment is not the next of the log after `last`.
    fn assert_follows(&self, last: &Self) {
        assert!(self.id == last.id.plus(1), "W4: segment {} after {}", self.id, last.id);
        assert!(self.first_lsn >= last.first_lsn, "W4: LSNs fall in segment {}", self.id);
        assert!(self.epoch >= last.epoch, "W11: epochs fall in segment {}", self.id);
    }
}

/// A sink's name as CONTROL holds it.
pub(crate) fn padded(name: &str) -> Option<[u8; SINK_NAME_BYTES]> {
    let fits = (1..=SINK_NAME_BYTES).contains(&name.len()) && !name.bytes().any(|byte| byte == 0);
    let mut bytes = [0; SINK_NAME_BYTES];
    bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    fits.then_some(bytes)
}

/// The name that CONTROL holds.
fn text(name: &[u8; SINK_NAME_BYTES]) -> String {
    let bytes = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1000;

    /// Six segments of ten records each, the last being filled.
    fn retention() -> Retention {
        let retention = Retention::new(&[], Vec::new(), Vec::new(), SEGMENT, false);
        for id in 1..=6 {
            let (first_lsn, epoch) = (Lsn(id * 10 - 9), Epoch(id / 5));
            let kept = Kept { id: SegmentId(id), first_lsn, epoch, closed: false };
            retention.state.lock().kept.push_back(kept);
        }
        retention
    }

    fn made(retention: &Retention, lsns: &[u64]) {
        for lsn in lsns {
            retention.snapshot_made(SnapshotInfo { lsn: Lsn(*lsn), bytes: 1 });
        }
    }

    fn retirable(retention: &Retention) -> Vec<u64> {
        retention.retirable().iter().map(|it| it.id.0).collect()
    }

    #[test]
    fn the_older_snapshot_and_the_slowest_sink_decide_and_a_margin_stays() {
        let retention = retention();
        assert!(retirable(&retention).is_empty(), "no snapshot");
        made(&retention, &[50]);
        assert!(retirable(&retention).is_empty(), "the only snapshot may turn out damaged");
        made(&retention, &[50, 55]);
        assert_eq!(retirable(&retention), [1, 2], "the fifth holds LSN 50, two more stay");
        retention.register("sql", SinkClass::MustDeliver).unwrap();
        assert!(retirable(&retention).is_empty(), "a new sink has confirmed nothing");
        retention.confirm("sql", Lsn(31));
        assert_eq!(retirable(&retention), [1], "the fourth holds its place");
        retention.confirm("sql", Lsn(7));
        assert_eq!(retirable(&retention), [1], "a sink does not go back");
        retention.drop_sink("sql").unwrap();
        assert_eq!(retirable(&retention), [1, 2]);
    }

    #[test]
    fn a_mirror_that_lags_is_passed_by_and_orders_are_waited_for() {
        let retention = retention();
        made(&retention, &[50, 55]);
        let (soft_bytes, hard_bytes) = (3 * SEGMENT, 4 * SEGMENT);
        let limits = RetentionLimits { soft_bytes, hard_bytes, margin_segments: 1 };
        retention.set_limits(limits);
        retention.register("redis", SinkClass::Rebuildable).unwrap();
        assert_eq!(retirable(&retention), [1, 2, 3], "six segments behind: passed by");
        assert!(!retention.is_late() && !retention.is_overdue());
        retention.confirm("redis", Lsn(30));
        assert_eq!(retirable(&retention), [1], "three behind: waited for");
        retention.register("redis", SinkClass::MustDeliver).unwrap();
        retention.register("sql", SinkClass::MustDeliver).unwrap();
        assert!(retention.is_overdue() && retirable(&retention).is_empty());
        retention.confirm("sql", Lsn(20));
        assert!(retention.is_late() && !retention.is_overdue(), "it resumes by itself");
    }

    #[test]
    fn what_lies_beyond_a_snapshot_is_counted_in_segments() {
        let retention = retention();
        assert_eq!(retention.bytes_beyond_snapshot(), 6 * SEGMENT);
        assert_eq!(retention.sealed_lsn(), Lsn(50));
        made(&retention, &[50]);
        assert_eq!(retention.bytes_beyond_snapshot(), SEGMENT);
        assert_eq!(retention.snapshot_made(SnapshotInfo { lsn: Lsn(60), bytes: 1 }), []);
        let gone = retention.snapshot_made(SnapshotInfo { lsn: Lsn(70), bytes: 1 });
        assert_eq!(gone, [SnapshotInfo { lsn: Lsn(50), bytes: 1 }]);
    }

    #[test]
    fn names_and_numbers_of_sinks_are_bounded() {
        let retention = retention();
        for name in ["", "a\0b", &"x".repeat(33)] {
            let answer = retention.register(name, SinkClass::MustDeliver);
            assert_eq!(answer, Err(SinkError::BadName), "{name:?}");
        }
        for number in 0..SINKS_MAX {
            retention.register(&format!("sink {number}"), SinkClass::Rebuildable).unwrap();
        }
        let one_more = retention.register("one more", SinkClass::Rebuildable);
        assert_eq!(one_more, Err(SinkError::TooMany));
        assert_eq!(retention.drop_sink("one more"), Err(SinkError::Unknown));
        assert_eq!(retention.sinks()[3].name, "sink 3");
    }

    #[test]
    fn a_segment_that_a_restart_sealed_is_used_again_only_after_a_clean_end() {
        let retention = retention();
        made(&retention, &[70, 71]);
        let reusable =
            || -> Vec<_> { retention.retirable().iter().map(|segment| segment.reusable).collect() };
        assert_eq!(reusable(), [true, true, true]);
        retention.state.lock().kept[2].epoch = Epoch(9);
        assert_eq!(reusable(), [true, false, false]);
        retention.state.lock().kept[2].closed = true;
        assert_eq!(reusable(), [true, false, true]);
    }
}
