//! What an earlier life of a segment's file left right behind the end of this one.
//!
//! Whole frames of the earlier life are told by their headers. The one that the last frame of this
//! life was written into has lost its own: what is left of it is the end of a record, whole
//! records, and zeros to the end of a block. They are taken for what they are where
//!
//! - nothing behind the end carries this life's stamp,
//! - the bytes read as records to their end, the first of which begins no further in than the
//!   longest of them is long,
//! - and every one of them has a place in its lane that this log has long passed. A record that
//!   was being written has one that it has not reached.
//!
//! Whatever else lies there is a write that was cut. Neither was ever acknowledged: the difference
//! is what the operator is told.

use crate::block::{Blocks, is_zero};
use crate::control::Format;
use crate::device::{File, read_full};
use crate::ids::Lsn;
use crate::limits::{BLOCK_BYTES, RECORD_BYTES_MAX};
use crate::record;
use crate::recover::lane;
use crate::scan::Survey;
use crate::segment::SegmentHeader;

/// How far this log has come, for records to be held against.
pub(crate) struct Passed<'a> {
    pub(crate) format: &'a Format,
    /// Last sequence of each lane, the control lane last.
    pub(crate) shard_seqs: &'a [u64],
}

/// Whether all that a survey found behind `end` is left over from an earlier life of the file.
pub(crate) fn is_all(
    file: &dyn File,
    header: &SegmentHeader,
    end: u64,
    survey: &Survey,
    passed: &Passed<'_>,
) -> bool {
    let lanes = usize::from(passed.format.shard_count) + 1;
    assert!(passed.shard_seqs.len() == lanes, "each lane has passed something, or nothing yet");
    let of_this_life = header.stale_stamp == 0 || survey.last_lsn.is_some();
    if of_this_life || survey.damage_bytes > u64::from(passed.format.frame_bytes_max) {
        return false;
    }
    let bytes = usize::try_from(survey.damage_bytes).unwrap_or(0);
    let mut left = Blocks::for_bytes(bytes);
    let read = read_full(file, left.bytes_mut(), end);
    read.is_ok_and(|read| read >= bytes) && is_end_of_frame(&left.bytes()[..bytes], passed)
}

/// Whether bytes are the end of a frame that has lost its head: of a payload, then zeros.
fn is_end_of_frame(bytes: &[u8], passed: &Passed<'_>) -> bool {
    let starts = (0..bytes.len().min(RECORD_BYTES_MAX)).step_by(8);
    starts.into_iter().any(|start| longest(&bytes[start..], passed).is_some_and(|it| start <= it))
}

/// Reads `bytes` as passed records and less than a block of zeros; the longest record's length.
fn longest(mut bytes: &[u8], passed: &Passed<'_>) -> Option<usize> {
    let mut longest = 0;
    while let Some((record, rest)) = record::split(bytes, Lsn(0)) {
        let lane = lane(record.shard, passed.format.shard_count)?;
        if !(1..=*passed.shard_seqs.get(lane)?).contains(&record.shard_seq) {
            return None;
        }
        longest = longest.max(bytes.len() - rest.len());
        bytes = rest;
    }
    (longest > 0 && bytes.len() < BLOCK_BYTES && is_zero(bytes)).then_some(longest)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "leftover_tests.rs"]
mod tests;
