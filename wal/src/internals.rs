//! What benches measure and no one else may call: feature `internals`.

use crate::frame::{self, FrameHeader, FrameSpec};
use crate::ids::{Epoch, Lsn};

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = frame::HEADER_BYTES;

/// Completes the frame in `bytes`, whose payload stands after the header; returns its length.
pub fn seal_frame(bytes: &mut [u8], payload_bytes: usize, records: u32, stamp: u64) -> usize {
    let spec = FrameSpec {
        record_count: records,
        first_lsn: Lsn(1),
        synced_through: 4096,
        epoch: Epoch(1),
        commit_us: 1,
        chain: 7,
    };
    frame::seal(bytes, payload_bytes, spec, stamp).frame_bytes()
}

/// Checks the frame in `bytes` as recovery does; returns its number of records.
pub fn parse_frame(bytes: &[u8], stamp: u64) -> Option<u32> {
    let header = FrameHeader::probe(bytes, stamp)?;
    header.body_ok(bytes, stamp).then_some(header.record_count)
}
