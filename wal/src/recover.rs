//! Recovery: reads the log from the end of a snapshot, or from its first segment, to its last,
//! frame by frame, and hands every record to the owner. Where the frames end, the
//! [verdict](crate::verdict) decides whether that end can be trusted.
//!
//! Recovery writes nothing into existing segments (W10): the next process seals the log at its end
//! by opening a new segment that says so.

use std::sync::Arc;

use crate::block::BLOCK;
use crate::control::{Control, Format, LogEnd};
use crate::device::{Device, File};
use crate::error::OpenError;
use crate::ids::Lsn;
use crate::leftover::{self, Passed};
use crate::limits::CONTROL_SHARD;
use crate::listing::{list_segments, read_header};
use crate::names;
use crate::planted::{self, Bug};
use crate::progress::Progress;
use crate::record::{Record, Records};
use crate::scan::{self, Scanner, Stop, Survey};
use crate::segment::SegmentHeader;
use crate::start::{self, Start};
use crate::verdict::{Case, CleanWitness, Evidence, Found, classify};

/// A torn tail that was cut, for the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornTail {
    /// The segment's file.
    pub path: String,
    /// Where the valid frames end.
    pub offset: u64,
    /// Bytes from there to the end of what was torn. None of it was acknowledged.
    pub bytes: u64,
}

/// What recovery found.
pub(crate) struct Recovered {
    /// The last segment, with where it ends; `None` in a log that has none yet.
    pub(crate) end: Option<LogEnd>,
    pub(crate) last_lsn: Lsn,
    /// Last sequence of each lane, the control lane last.
    pub(crate) shard_seqs: Vec<u64>,
    pub(crate) torn_tail: Option<TornTail>,
    /// The last segment must never be used again.
    pub(crate) unreadable_tail: bool,
    pub(crate) segments: u64,
    /// Chain of the last frame with records, where one was read.
    pub(crate) data_chain: Option<u32>,
    /// The segments that are there, ascending.
    pub(crate) headers: Vec<SegmentHeader>,
}

impl Recovered {
    /// What the checks on the way have come to: the log goes on from one place, whoever asks.
    ///
    /// # Panics
    /// Where its parts name different ones.
    fn assert_coherent(&self, format: &Format) {
        assert!(self.shard_seqs.len() == usize::from(format.shard_count) + 1, "a lane is missing");
        let Some(end) = &self.end else { return };
        assert!(end.last_lsn == self.last_lsn, "W4: the log ends at two LSNs");
        assert!(end.offset.is_multiple_of(BLOCK), "frames end at blocks");
        assert!((FRAMES_AT..=format.segment_bytes).contains(&end.offset), "it ends in a segment");
        let torn = self.torn_tail.as_ref();
        assert!(torn.is_none_or(|it| it.offset == end.offset), "W9: only an end can be torn");
    }
}

/// Which segments are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// What the state needs: from the end of the snapshot on.
    Needed,
    /// All that are there: to check them.
    All,
}

/// The first block of a segment is its header; frames begin after it.
pub(crate) const FRAMES_AT: u64 = BLOCK;

/// How far the last segment is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// To its end, which is judged.
    Everything,
    /// As far as a later frame promises: a process beside this one is still writing.
    Promised,
}

/// What the owner makes of a record.
pub type Replay<'a> =
    dyn FnMut(&Record<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + 'a;

/// The index of a record's lane, or `None` where its shard does not exist.
pub(crate) fn lane(shard: u16, shard_count: u16) -> Option<usize> {
    match shard {
        CONTROL_SHARD => Some(usize::from(shard_count)),
        shard if shard < shard_count => Some(usize::from(shard)),
        _ => None,
    }
}

/// Records that are handed over together: what is fetched for them all is at hand still.
pub const RECORDS_TOGETHER: usize = 128;

/// A record that cannot have happened: the log is refused.
#[derive(Debug)]
pub struct Rejection {
    /// The record.
    pub lsn: Lsn,
    /// What is wrong with it.
    pub why: Box<dyn std::error::Error + Send + Sync>,
}

/// An owner that takes many records at once, so that what they need is fetched from memory side by
/// side.
pub trait Replaying {
    /// Takes the next records, [`RECORDS_TOGETHER`] at most.
    ///
    /// # Errors
    /// The first that cannot have happened.
    fn take(&mut self, records: &[Record<'_>]) -> Result<(), Rejection>;
}

/// One that takes each record by itself.
pub(crate) struct EachRecord<'a, 'b>(pub(crate) &'a mut Replay<'b>);

impl Replaying for EachRecord<'_, '_> {
    fn take(&mut self, records: &[Record<'_>]) -> Result<(), Rejection> {
        records.iter().try_for_each(|record| {
            (self.0)(record).map_err(|why| Rejection { lsn: record.lsn, why })
        })
    }
}

/// Reads the log from `start` on, handing every record after it to `replay`, and judges its end.
pub(crate) fn recover(
    device: &dyn Device,
    control: &Control,
    (reach, extent): (Reach, Extent),
    start: Option<&Start>,
    progress: &Progress,
    replay: &mut dyn Replaying,
) -> Result<Recovered, OpenError> {
    let ids = list_segments(device, control)?;
    let headers: Vec<SegmentHeader> =
        ids.iter().map(|id| read_header(device, control, *id)).collect::<Result<_, _>>()?;
    let first = start::first_needed(device, &headers, start)?;
    let from = if extent == Extent::All { 0 } else { first };
    let lanes = usize::from(control.format.shard_count) + 1;
    let mut recovered = Recovered {
        end: None,
        last_lsn: Lsn(headers.get(from).map_or(0, |header| header.first_lsn.0 - 1)),
        shard_seqs: start.map_or_else(|| vec![0; lanes], |start| start.shard_seqs.clone()),
        torn_tail: None,
        unreadable_tail: false,
        segments: (headers.len() - from) as u64,
        data_chain: None,
        headers: Vec::new(),
    };
    let segments: Vec<_> = (from..headers.len())
        .map(|index| (&headers[index], headers.get(index + 1)))
        .map(|(header, successor)| Segment { device, control, header, successor, start, progress })
        .collect();
    progress.expect(segments.iter().map(Segment::bytes).sum());
    for segment in segments {
        segment.recover(reach, replay, &mut recovered)?;
    }
    // Snapshots hold what was durable: a log that ends before one has lost something.
    let witness = control.snapshot_lsn.max(start.map_or(Lsn(0), |start| start.lsn));
    if recovered.last_lsn < witness {
        return Err(OpenError::Refused {
            path: device.display(names::WAL_DIR),
            offset: 0,
            case: Case::EndBeforeSnapshot,
            first_lost_lsn: recovered.last_lsn.plus(1),
            until: format!(" to LSN {witness}"),
        });
    }
    recovered.assert_coherent(&control.format);
    assert!(recovered.end.is_some() == (from < headers.len()), "a log ends in a segment of it");
    recovered.headers = headers;
    Ok(recovered)
}

/// One segment under recovery.
struct Segment<'a> {
    device: &'a dyn Device,
    control: &'a Control,
    header: &'a SegmentHeader,
    successor: Option<&'a SegmentHeader>,
    start: Option<&'a Start>,
    progress: &'a Progress,
}

impl Segment<'_> {
    /// Bytes to be read, as far as that can be told.
    fn bytes(&self) -> u64 {
        self.header.limit(self.successor)
    }

    fn recover(
        &self,
        reach: Reach,
        replay: &mut dyn Replaying,
        recovered: &mut Recovered,
    ) -> Result<(), OpenError> {
        let Self { device, header, .. } = *self;
        let path = names::segment(header.segment_id);
        let opened = match (self.successor, reach) {
            _ if planted::has(Bug::TailReadThroughCache) => device.open(&path),
            // What is promised is looked for first.
            (None, Reach::Promised) => device.open_uncached(&path),
            _ => device.open_ahead(&path, FRAMES_AT, self.bytes()),
        };
        let file = opened.map_err(|source| OpenError::Io {
            op: "open",
            path: device.display(&path),
            source,
        })?;
        let limit = match (self.successor, reach) {
            (None, Reach::Promised) => {
                scan::survey(&*file, header, FRAMES_AT).promised_through.max(FRAMES_AT)
            }
            _ => self.bytes(),
        };
        let (end, stop) = self.read(Arc::clone(&file), limit, replay, recovered)?;
        assert!(end.segment == header.segment_id, "an end lies in the segment that was read");
        assert!(end.offset <= limit.max(FRAMES_AT), "recovery reads no further than its limit");
        recovered.end = Some(end);
        self.progress.advance(self.bytes().saturating_sub(end.offset - FRAMES_AT));
        match (self.successor, reach) {
            (Some(next), _) => self.check_seal(next, &end),
            (None, Reach::Everything) if self.is_closed(&end, &stop) => Ok(()),
            (None, Reach::Everything) => self.judge(&*file, &end, &stop, recovered),
            (None, Reach::Promised) if end.offset == limit => Ok(()),
            (None, Reach::Promised) => Err(self.refused(&end, Case::PromisedDamage, String::new())),
        }
    }

    /// Reads frames up to `limit`; tells where and why they end.
    fn read(
        &self,
        file: Arc<dyn File>,
        limit: u64,
        replay: &mut dyn Replaying,
        recovered: &mut Recovered,
    ) -> Result<(LogEnd, Stop), OpenError> {
        let format = &self.control.format;
        let mut scanner = Scanner::new(file, *self.header, format.frame_bytes_max as usize);
        let stop = loop {
            let scanned = match scanner.next(limit) {
                Ok(scanned) => scanned,
                Err(stop) => break stop,
            };
            let next_lsn = recovered.last_lsn.plus(1);
            assert!(scanned.header.first_lsn == next_lsn, "W4: LSNs are dense over all segments");
            let mut records = 0;
            let mut left = Records::new(scanned.payload, scanned.header.first_lsn);
            let mut next = Vec::with_capacity(RECORDS_TOGETHER);
            loop {
                let before = records;
                next.clear();
                for record in left.by_ref().take(RECORDS_TOGETHER) {
                    records += 1;
                    let record = record
                        .map_err(|error| OpenError::Rejected { lsn: error.0, why: error.into() })?;
                    match self.start {
                        Some(start) if record.lsn <= start.lsn => {
                            start.pass(&record, format.shard_count)?;
                        }
                        _ => {
                            follow(&record, format.shard_count, recovered)?;
                            next.push(record);
                        }
                    }
                }
                if records == before {
                    break;
                }
                assert!(next.len() <= RECORDS_TOGETHER, "no more than its owner makes room for");
                replay
                    .take(&next)
                    .map_err(|Rejection { lsn, why }| OpenError::Rejected { lsn, why })?;
            }
            if records != scanned.header.record_count {
                let why = format!("its frame names {}", scanned.header.record_count).into();
                return Err(OpenError::Rejected { lsn: scanned.header.last_lsn(), why });
            }
            self.progress.advance(scanned.header.frame_bytes() as u64);
            recovered.last_lsn = scanned.header.last_lsn();
            if records > 0 {
                recovered.data_chain = Some(scanned.header.header_crc);
                self.start.map_or(Ok(()), |start| start.check_frame(&scanned.header))?;
            }
        };
        Ok((scanner.end(), stop))
    }

    /// A sealed segment tolerates no damage at all (W9): it ends exactly where its successor says.
    fn check_seal(&self, next: &SegmentHeader, end: &LogEnd) -> Result<(), OpenError> {
        if next.seals(self.header, end) {
            return Ok(());
        }
        let until = format!(" to LSN {}", next.first_lsn.0.saturating_sub(1));
        Err(self.refused(end, Case::SealedDamage, until))
    }

    /// Judges the end of the last segment by what lies beyond it.
    fn judge(
        &self,
        file: &dyn File,
        end: &LogEnd,
        stop: &Stop,
        recovered: &mut Recovered,
    ) -> Result<(), OpenError> {
        let mut survey = scan::survey(file, self.header, end.offset);
        let passed = Passed { format: &self.control.format, shard_seqs: &recovered.shard_seqs };
        let mut stop = Some(stop);
        // A block that the disk does not give back is news of the file, whatever lies there.
        let is_read = !matches!(stop, Some(Stop::Unreadable(_)));
        if is_read && leftover::is_all(file, self.header, end.offset, &survey, &passed) {
            (stop, survey.damage_bytes) = (None, 0);
        }
        let case = classify(&self.evidence(end, stop, &survey));
        if !case.serves() && !planted::has(Bug::DamageTakenForTornTail) {
            let until = survey.last_lsn.map_or(String::new(), |lsn| format!(" to LSN {lsn}"));
            return Err(self.refused(end, case, until));
        }
        recovered.unreadable_tail = case == Case::UnreadableTail;
        recovered.torn_tail = (case != Case::CleanEnd).then(|| TornTail {
            path: self.device.display(&names::segment(self.header.segment_id)),
            offset: end.offset,
            bytes: survey.damage_bytes,
        });
        Ok(())
    }

    /// Whether CONTROL vouches for this very end: then nobody has written behind it (W10, W11).
    fn is_closed(&self, end: &LogEnd, stop: &Stop) -> bool {
        let is_end = matches!(stop, Stop::Full | Stop::Zero | Stop::Stale);
        let is_vouched_for = is_end && self.control.clean_end == Some(*end);
        is_vouched_for && !planted::has(Bug::CleanEndIgnored)
    }

    fn evidence(&self, end: &LogEnd, stop: Option<&Stop>, survey: &Survey) -> Evidence {
        let format = &self.control.format;
        // Payload blocks of an earlier life's frame have no header of their own to be told by:
        // where there was such a life, one frame of them may follow what was in flight.
        let lived_before = self.header.stale_stamp != 0;
        let stale_bytes = if lived_before { u64::from(format.frame_bytes_max) } else { 0 };
        Evidence {
            found: match stop {
                None | Some(Stop::Full | Stop::Zero | Stop::Stale) => Found::Nothing,
                Some(Stop::Invalid) => Found::Garbage,
                Some(Stop::BrokenLink) => Found::BrokenLink,
                Some(Stop::Unreadable(_)) => Found::Unreadable,
            },
            promised_beyond: survey.promised_through > end.offset,
            damage_too_far: survey.damage_bytes > format.in_flight_bytes_max + stale_bytes,
            anything_beyond: survey.damage_bytes > 0,
            clean: match &self.control.clean_end {
                None => CleanWitness::Silent,
                Some(_) if planted::has(Bug::CleanEndIgnored) => CleanWitness::Silent,
                Some(clean) if clean == end => CleanWitness::Agrees,
                Some(_) => CleanWitness::Differs,
            },
        }
    }

    fn refused(&self, end: &LogEnd, case: Case, until: String) -> OpenError {
        OpenError::Refused {
            path: self.device.display(&names::segment(self.header.segment_id)),
            offset: end.offset,
            case,
            first_lost_lsn: end.last_lsn.plus(1),
            until,
        }
    }
}

/// Holds a record's sequence against that of its shard (W4).
fn follow(
    record: &Record<'_>,
    shard_count: u16,
    recovered: &mut Recovered,
) -> Result<(), OpenError> {
    let rejected = |why| OpenError::Rejected { lsn: record.lsn, why };
    let seq = lane(record.shard, shard_count)
        .and_then(|lane| recovered.shard_seqs.get_mut(lane))
        .ok_or_else(|| rejected("its shard does not exist".into()))?;
    if record.shard_seq != *seq + 1 {
        return Err(rejected(format!("shard sequence {} after {seq}", record.shard_seq).into()));
    }
    *seq = record.shard_seq;
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "recover_tests.rs"]
mod tests;
