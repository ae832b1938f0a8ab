//! What always holds of the end of the log: asserted, in release builds too, at the two moments at
//! which a mistake would still be harmless, before a frame and before a segment is written. Each is
//! a handful of comparisons a commit.

use super::{Parts, Tail};
use crate::block::BLOCK;
use crate::control::Control;
use crate::frame::{FrameHeader, FrameSpec};
use crate::ids::SegmentId;
use crate::limits::BLOCK_BYTES;
use crate::planted::{self, Bug};
use crate::recover::FRAMES_AT;
use crate::segment::SegmentHeader;

impl Tail {
    /// Between two commits: all that was written is synced, and published. Else a caller could
    /// have been told of what a power cut takes back, or be left waiting for what is long durable.
    ///
    /// # Panics
    /// Where it does not hold.
    pub(super) fn assert_at_rest(&self, parts: &Parts) {
        let published = parts.watermark.durable_lsn();
        assert!(published == self.last_lsn, "W2: {published} published, {} written", self.last_lsn);
        assert!(self.synced == self.offset, "W2: a commit ends with a sync");
        let Some((header, _)) = &self.segment else { return };
        assert!(self.offset.is_multiple_of(BLOCK), "W5: a frame would share a block");
        assert!(self.offset >= FRAMES_AT, "W5: a frame would lie on the segment's header");
        assert!(self.offset <= header.segment_bytes, "the segment is over-full");
        assert!(header.first_lsn <= self.last_lsn.plus(1), "W4: records before their segment");
        // A crash from here on must find CONTROL naming the segment that holds the frames.
        assert!(header.segment_id == self.control.active_segment, "CONTROL names another segment");
        assert!(header.stamp == self.control.active_stamp, "CONTROL names another life of it");
        assert!(header.epoch == self.control.epoch, "W11: the segment is another incarnation's");
    }

    /// Behind a clean end no frame is left that nothing later vouches for, but where the segment
    /// has no room for a watermark: damage to it could not be told from a torn tail.
    ///
    /// # Panics
    /// Where one is.
    pub(super) fn assert_promised(&self) {
        let room = self.control.format.segment_bytes - self.offset;
        assert!(self.promised || room < BLOCK, "W6: a clean end behind a frame without a promise");
    }

    /// What CONTROL says of the log is there to be found: the next start holds the log against each
    /// of these, and refuses one that is short of any.
    ///
    /// # Panics
    /// Where it is not there.
    pub(super) fn assert_witnesses(&self) {
        let Control { active_segment, oldest_needed_segment: oldest, .. } = self.control;
        assert!(oldest <= active_segment.plus(1), "W7: what the log begins with is not there");
        let Some(end) = self.control.clean_end else { return };
        assert!(end.segment == active_segment, "a clean end in a segment that is not the last");
        assert!(end.offset.is_multiple_of(BLOCK), "a clean end inside a frame");
    }

    /// A frame is what was meant, and the next one by the rule that recovery reads by: a frame that
    /// recovery would not take is an acknowledgement that the next start breaks.
    ///
    /// # Panics
    /// Where it is not.
    pub(super) fn assert_next(&self, sealed: &FrameHeader, spec: &FrameSpec) {
        assert!(sealed.fields_ok(self.offset, self.frame.bytes().len()), "W6");
        assert!(sealed.chain == self.chain, "W8: a frame names the one before it");
        assert!(sealed.first_lsn == self.last_lsn.plus(1), "W4: a gap before a frame");
        let records = u64::from(spec.record_count);
        assert!(sealed.last_lsn() == self.last_lsn.plus(records), "W4: an LSN for each record");
        assert!(sealed.epoch == self.control.epoch, "W11: a frame of another incarnation");
        assert!(sealed.commit_us == self.commit_us, "commit times never fall");
    }

    /// The bytes of a frame as the device wants them: whole blocks, at a block, out of aligned
    /// memory, within the segment, behind everything that a sync has covered.
    ///
    /// # Panics
    /// Where they are not.
    pub(super) fn assert_writable(&self, frame: &[u8], header: &SegmentHeader) {
        assert!(frame.as_ptr().addr().is_multiple_of(BLOCK_BYTES), "direct I/O wants alignment");
        assert!(frame.len().is_multiple_of(BLOCK_BYTES), "a frame is padded to whole blocks");
        assert!(self.offset >= self.synced, "W5: a durable block would be written again");
        let end = self.offset + frame.len() as u64;
        assert!(end <= header.segment_bytes, "a frame stays within its segment");
    }

    /// The head of the segment that follows `sealed` goes on where the log ends, under a number, an
    /// epoch and a stamp that no frame of the past can be taken for.
    ///
    /// # Panics
    /// Where it does not.
    pub(super) fn assert_succeeds(&self, header: &SegmentHeader, sealed: SegmentId) {
        assert!(header.segment_id > self.control.active_segment, "W7: a segment is begun once");
        let reused = header.stamp == header.stale_stamp && !planted::has(Bug::StampNotRenewed);
        assert!(!reused, "W8: two lives of a file under one stamp");
        let end = header.prev_end_offset;
        let is_end = (FRAMES_AT..=header.segment_bytes).contains(&end) && end.is_multiple_of(BLOCK);
        assert!(is_end || sealed == SegmentId(0), "W9: no frame ends at the seal");
        let Some((before, _)) = &self.segment else { return };
        assert!(before.segment_id == sealed, "W9: a seal closes the segment that was filled");
        assert!(before.epoch <= header.epoch, "W11: an epoch never falls");
        assert!(before.first_lsn <= header.first_lsn, "W4: LSNs never fall");
        assert!(self.synced == self.offset, "W9: a seal promises what was synced");
    }
}
