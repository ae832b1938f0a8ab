//! The committer: the only code that writes log bytes, assigns LSNs and moves the durable marks.
//!
//! One commit at a time. A commit takes what is waiting, frames it, writes once, syncs once, then
//! publishes. While one sync is in flight the next batch fills, so the slower the disk, the larger
//! the batch, without a timer. There is no window to wait in before a write either: whoever comes
//! during a sync is in the next frame anyway, and on an idle disk a window would be added to every
//! answer.

use std::sync::Arc;
use std::task::Waker;

use crate::block::{Blocks, round_up};
use crate::control::{Control, LogEnd};
use crate::device::{Device, File, write_full};
use crate::error::LogUnavailable;
use crate::failure::{Failure, Seen, condemn, fail, fail_spare, set_aside};
use crate::fatal::OnFatal;
use crate::frame::{self, FrameSpec};
use crate::ids::{Lsn, SegmentId};
use crate::intake::{Committed, Intake};
use crate::limits::BLOCK_BYTES;
use crate::metrics::Counters;
use crate::names;
use crate::planted::{self, Bug};
use crate::recover::FRAMES_AT;
use crate::retention::Retention;
use crate::segment::SegmentHeader;
use crate::spares::{Failed, Spare, SpareMade, Spares};
use crate::watermark::{PassOn, Watermark};

mod invariants;

/// The parts of an open log that the tail works with.
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) intake: Intake,
    pub(crate) watermark: Watermark,
    pub(crate) spares: Spares,
    pub(crate) retention: Retention,
    pub(crate) counters: Counters,
    pub(crate) on_fatal: OnFatal,
}

/// The end of the log, as the process that writes it knows it. Whoever holds it commits.
pub(crate) struct Tail {
    control: Control,
    control_file: Arc<dyn File>,
    /// The segment being filled; `None` only while the log is being opened.
    segment: Option<(SegmentHeader, Arc<dyn File>)>,
    offset: u64,
    /// What a successful sync covers of the segment: every frame promises so much (W6).
    synced: u64,
    last_lsn: Lsn,
    chain: u32,
    /// Chain of the last frame with records, where this process wrote or read it.
    data_chain: Option<u32>,
    commit_us: u64,
    /// Whether every frame is promised by a later one.
    promised: bool,
    start_lane: usize,
    frame: Blocks,
    marks: Vec<(usize, u64)>,
    woken: Vec<Waker>,
}

impl Tail {
    /// The tail of a log that recovery found to end at `end`.
    ///
    /// # Panics
    /// Where that is another end than the one that CONTROL, or `last_lsn`, speaks of.
    pub(crate) fn new(
        control: Control,
        control_file: Arc<dyn File>,
        end: Option<LogEnd>,
        last_lsn: Lsn,
        data_chain: Option<u32>,
    ) -> Self {
        let last_segment = end.map_or(SegmentId(0), |end| end.segment);
        assert!(last_segment >= control.active_segment, "W9: CONTROL knows of a later segment");
        assert!(end.is_none_or(|end| end.last_lsn == last_lsn), "W4: the log ends at two LSNs");
        Self {
            frame: Blocks::for_bytes(control.format.frame_bytes_max as usize),
            control,
            control_file,
            segment: None,
            offset: end.map_or(0, |end| end.offset),
            // Recovery has synced what it read.
            synced: end.map_or(0, |end| end.offset),
            last_lsn,
            chain: end.map_or(0, |end| end.chain),
            data_chain,
            commit_us: 0,
            promised: true,
            start_lane: 0,
            marks: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// Number of the segment being filled.
    pub(crate) fn segment_id(&self) -> SegmentId {
        self.segment.as_ref().map_or(SegmentId(0), |(header, _)| header.segment_id)
    }

    /// Chain of the last frame with records.
    pub(crate) const fn data_chain(&self) -> Option<u32> {
        self.data_chain
    }

    /// Writes CONTROL as things stand.
    pub(crate) fn save(&mut self, parts: &Parts) -> Result<(), LogUnavailable> {
        if parts.watermark.is_poisoned() {
            return Err(LogUnavailable);
        }
        self.write_control(parts).map_err(|failure| self.fail(parts, failure))
    }

    /// Says in CONTROL that the log begins at `oldest` from now on (W7: before a file is touched).
    /// Returns the segments whose files must never be used again.
    pub(crate) fn give_back(
        &mut self,
        parts: &Parts,
        oldest: SegmentId,
    ) -> Result<Vec<SegmentId>, LogUnavailable> {
        let before = self.control.oldest_needed_segment;
        assert!(
            before < oldest && oldest <= self.control.active_segment,
            "W7: what is needed stays"
        );
        let never_recycle = self.control.never_recycle.clone();
        // Those of an earlier time have been dealt with.
        self.control.never_recycle.retain(|id| *id >= before);
        self.control.oldest_needed_segment = oldest;
        self.save(parts)?;
        Ok(never_recycle)
    }

    /// Opens a segment that seals the log where it ends now, or fails the log.
    pub(crate) fn open_segment(
        &mut self,
        parts: &Parts,
        sealed: SegmentId,
    ) -> Result<(), LogUnavailable> {
        self.rotate(parts, sealed).map_err(|failure| self.fail(parts, failure))
    }

    /// Makes what is waiting durable, in one frame, and publishes it. `pass_on` is the committing
    /// thread's: it has wake-ups passed on, and waits for no long batch, since it is rung when one
    /// has more. Whoever else commits wakes all, and waits for what holds a lane: it may be theirs.
    pub(crate) fn commit(
        &mut self,
        parts: &Parts,
        pass_on: Option<PassOn>,
    ) -> Result<Committed, LogUnavailable> {
        if parts.watermark.is_poisoned() {
            return Err(LogUnavailable);
        }
        self.assert_at_rest(parts);
        let frame_bytes_max = self.control.format.frame_bytes_max as usize;
        let payload = &mut self.frame.bytes_mut()[frame::HEADER_BYTES..frame_bytes_max];
        self.marks.clear();
        let waits = pass_on.is_none();
        let taken = parts.intake.take(self.start_lane, waits, payload, &mut self.marks);
        if taken.records == 0 {
            return Ok(Committed::Nothing);
        }
        self.start_lane = (self.start_lane + 1) % (parts.intake.control_lane() + 1);
        let last_lsn = self.last_lsn.plus(u64::from(taken.records));
        if planted::has(Bug::PublishOneFrameEarly) {
            parts.watermark.publish(&self.marks, last_lsn, pass_on, &mut self.woken);
        }
        let room = self.control.format.segment_bytes - self.offset;
        let rotated = match round_up(frame::HEADER_BYTES + taken.bytes) as u64 > room {
            true => self.rotate(parts, self.segment_id()),
            false => Ok(()),
        };
        rotated
            .and_then(|()| self.write_frame(parts, taken.records, taken.bytes))
            .map_err(|failure| self.fail(parts, failure))?;
        assert!(self.last_lsn == last_lsn, "W4: a frame has another end than what was taken");
        self.promised = false;
        parts.intake.release(taken.bytes);
        parts.watermark.publish(&self.marks, self.last_lsn, pass_on, &mut self.woken);
        // A full frame may have left records behind whose callers commit once and then wait.
        if parts.intake.may_have_left(taken.bytes, frame_bytes_max - frame::HEADER_BYTES) {
            parts.intake.interrupt();
        }
        self.look_ahead(parts)?;
        Ok(Committed::Frame { last_lsn: self.last_lsn, records: taken.records })
    }

    /// Makes the next segment's spare itself where nobody has, while the present segment still has
    /// room for all that can be in flight. On a full disk nothing more is let in from here on, so
    /// that what was let in finds its place: the log waits for room instead of failing for it.
    fn look_ahead(&mut self, parts: &Parts) -> Result<(), LogUnavailable> {
        let format = &self.control.format;
        let in_flight = format.in_flight_bytes_max;
        // A half more for headers and padding: a long batch has a frame for each of its chunks
        // (`limits` holds what they cost against it).
        let needed = in_flight + in_flight / 2 + 2 * u64::from(format.frame_bytes_max);
        let room = format.segment_bytes - self.offset;
        if room >= needed.min(format.segment_bytes / 2) || parts.spares.len() > 0 {
            return Ok(());
        }
        match parts.spares.make(&*parts.device, &parts.intake) {
            Ok(SpareMade::NoRoom) => parts.spares.let_nothing_in(&parts.intake),
            Ok(SpareMade::Made | SpareMade::Enough) => {}
            Err(failed) => return Err(fail_spare(parts, failed)),
        }
        Ok(())
    }

    /// Writes a watermark where the last frame has no later one that promises it.
    pub(crate) fn seal_idle(&mut self, parts: &Parts) -> Result<(), LogUnavailable> {
        if parts.watermark.is_poisoned() {
            return Err(LogUnavailable);
        }
        let room = self.control.format.segment_bytes - self.offset;
        // A full segment needs none: its successor's header seals it.
        if self.promised || room < BLOCK_BYTES as u64 {
            return Ok(());
        }
        self.assert_at_rest(parts);
        self.marks.clear();
        self.write_frame(parts, 0, 0).map_err(|failure| self.fail(parts, failure))?;
        self.promised = true;
        Ok(())
    }

    /// Writes into CONTROL that the log ends here.
    pub(crate) fn close(&mut self, parts: &Parts) -> Result<(), LogUnavailable> {
        self.seal_idle(parts)?;
        self.assert_at_rest(parts);
        self.assert_promised();
        parts.intake.assert_drained(|lane| parts.watermark.durable(lane));
        self.control.clean_end = Some(LogEnd {
            segment: self.segment_id(),
            offset: self.offset,
            last_lsn: self.last_lsn,
            chain: self.chain,
        });
        self.write_control(parts).map_err(|failure| self.fail(parts, failure))
    }

    fn write_frame(&mut self, parts: &Parts, records: u32, bytes: usize) -> Result<(), Failure> {
        let (header, file) = self.segment.as_ref().expect("an open log has a segment");
        let before_us = parts.device.now_us();
        self.commit_us = self.commit_us.max(before_us);
        parts.counters.begins(before_us);
        let promise = if planted::has(Bug::SyncedThroughStuckAtZero) { 0 } else { self.synced };
        let spec = FrameSpec {
            record_count: records,
            first_lsn: self.last_lsn.plus(1),
            synced_through: promise,
            epoch: header.epoch,
            commit_us: self.commit_us,
            chain: self.chain,
        };
        let sealed = frame::seal(self.frame.bytes_mut(), bytes, spec, header.stamp);
        self.assert_next(&sealed, &spec);
        let frame_bytes = sealed.frame_bytes();
        let frame = &self.frame.bytes()[..frame_bytes];
        self.assert_writable(frame, header);
        let failure = |op, source| Failure {
            op,
            path: parts.device.display(&names::segment(header.segment_id)),
            source,
            seen: Seen::Segment(header.segment_id),
        };
        write_full(&**file, frame, self.offset).map_err(|source| failure("write", source))?;
        self.offset += frame_bytes as u64;
        self.chain = sealed.header_crc;
        self.last_lsn = sealed.last_lsn();
        if records > 0 {
            self.data_chain = Some(self.chain);
        }
        if planted::has(Bug::AckBeforeSync) {
            parts.watermark.publish(&self.marks, self.last_lsn, None, &mut self.woken);
        }
        match file.sync_data() {
            Err(_) if planted::has(Bug::RetryAfterFailedSync) => {}
            Err(source) => return Err(failure("sync", source)),
            Ok(()) => {}
        }
        self.synced = self.offset;
        let us = parts.device.now_us().saturating_sub(before_us);
        parts.counters.synced(records, frame_bytes, us);
        Ok(())
    }

    /// Heads a spare as the successor of `sealed`, which is valid exactly up to here.
    fn rotate(&mut self, parts: &Parts, sealed: SegmentId) -> Result<(), Failure> {
        let device = &*parts.device;
        let Spare { path: spare, stale_stamp, .. } = parts
            .spares
            .take(device, &parts.intake)
            .map_err(|failed| Failure::of_spare(device, "create", failed))?;
        let id = sealed.plus(1);
        let failure = |op, path: &str, source| Failure {
            op,
            path: device.display(path),
            source,
            seen: Seen::Nothing,
        };
        let of_spare =
            |op, source| Failure::of_spare(device, op, Failed { path: spare.clone(), source });
        let header = SegmentHeader {
            features: self.control.features,
            segment_id: id,
            stamp: match planted::has(Bug::StampNotRenewed) && stale_stamp != 0 {
                true => stale_stamp,
                false => {
                    device.random().map_err(|source| failure("draw a stamp for", &spare, source))?
                }
            },
            epoch: self.control.epoch,
            first_lsn: self.last_lsn.plus(1),
            log_uuid: self.control.log_uuid,
            prev_segment_id: sealed,
            prev_end_offset: self.offset,
            prev_chain: self.chain,
            segment_bytes: self.control.format.segment_bytes,
            created_unix_ms: device.now_us() / 1000,
            stale_stamp,
        };
        self.assert_succeeds(&header, sealed);
        let file =
            device.open_to_append(&spare).map_err(|source| failure("open", &spare, source))?;
        write_full(&*file, header.encode().bytes(), 0)
            .map_err(|source| of_spare("write", source))?;
        if !planted::has(Bug::HeaderNotSynced) {
            file.sync_data().map_err(|source| of_spare("sync", source))?;
        }
        let path = names::segment(id);
        device.rename(&spare, &path).map_err(|source| failure("rename", &spare, source))?;
        if !planted::has(Bug::SkipDirectorySync) {
            device
                .sync_dir(names::WAL_DIR)
                .map_err(|source| failure("sync", names::WAL_DIR, source))?;
        }
        parts.counters.rotations.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.control.active_segment = id;
        self.control.active_stamp = header.stamp;
        parts.retention.begun(&header);
        parts.intake.hold_new(parts.retention.is_overdue());
        self.write_control(parts)?;
        self.segment = Some((header, file));
        (self.offset, self.synced) = (FRAMES_AT, FRAMES_AT);
        self.promised = true;
        Ok(())
    }

    fn write_control(&mut self, parts: &Parts) -> Result<(), Failure> {
        self.control.sinks = parts.retention.registered();
        self.control.snapshot_lsn = parts.retention.snapshot().map_or(Lsn(0), |it| it.lsn);
        self.assert_witnesses();
        self.control.write(&*self.control_file).map_err(|source| Failure {
            op: "write",
            path: parts.device.display(crate::control::CONTROL_PATH),
            source,
            seen: Seen::Nothing,
        })
    }

    /// Fails the log; what is noted of the file that saw the error is the last that this process
    /// writes, and the disk may refuse it.
    fn fail(&mut self, parts: &Parts, failure: Failure) -> LogUnavailable {
        match fail(parts, failure) {
            Seen::Segment(id) => {
                condemn(&mut self.control, id);
                let _ = self.control.write(&*self.control_file);
            }
            Seen::Spare(path) => {
                let _ = set_aside(&*parts.device, &path);
            }
            Seen::Nothing => {}
        }
        LogUnavailable
    }
}
