//! The segment header: block 0 of every segment, little endian, the rest of the block zero.
//!
//! | off | size | field            | meaning                                                      |
//! |----:|-----:|------------------|--------------------------------------------------------------|
//! |   0 |    8 | magic            | catches text mangling (CR LF, 0x1A), as that of PNG does     |
//! |   8 |    2 | format_version   | 1                                                            |
//! |  10 |    2 | header_len       | 128                                                          |
//! |  12 |    4 | feature_incompat | an unknown bit set: refuse                                   |
//! |  16 |    4 | feature_compat   | an unknown bit set: ignore                                   |
//! |  20 |    4 | block_size       | 4096                                                         |
//! |  24 |    8 | segment_id       | dense, one more a segment                                    |
//! |  32 |    8 | stamp            | drawn anew for every life of the file; seeds every CRC in it |
//! |  40 |    8 | epoch            | incarnation of the process that opened it                    |
//! |  48 |    8 | first_lsn        | LSN of the first record to come                              |
//! |  56 |   16 | log_uuid         | identity of the log                                          |
//! |  72 |    8 | prev_segment_id  | predecessor, 0 for the first                                 |
//! |  80 |    8 | prev_end_offset  | the seal: the predecessor is valid exactly up to here        |
//! |  88 |    8 | prev_last_lsn    | first_lsn - 1                                                |
//! |  96 |    4 | prev_chain       | header CRC of the predecessor's last frame                   |
//! | 100 |    4 | segment_blocks   | size / block_size                                            |
//! | 104 |    8 | created_unix_ms  | for humans                                                   |
//! | 112 |    8 | stale_stamp      | stamp of the file's life before this one, 0 if zero-filled   |
//! | 120 |    4 | reserved         | zero, checked                                                |
//! | 124 |    4 | header_crc       | CRC-32 over 0..124                                           |
//!
//! `stale_stamp` is what lets recovery tell a frame of the file's earlier life, which is no
//! evidence of anything, from the damaged remains of a frame of this one.

use crate::block::{Blocks, is_zero};
use crate::checksum;
use crate::control::LogEnd;
use crate::features;
use crate::fields::Fields;
use crate::ids::{Epoch, LogUuid, Lsn, SegmentId};
use crate::limits::BLOCK_BYTES;

pub(crate) const HEADER_BYTES: usize = 128;
const MAGIC: [u8; 8] = [0x8B, b'S', b'L', b'W', 0x0D, 0x0A, 0x1A, 0x0A];
/// The format this build writes and the newest it reads.
pub const FORMAT_VERSION: u16 = 1;

const FORMAT_VERSION_AT: usize = 8;
const HEADER_LEN_AT: usize = FORMAT_VERSION_AT + 2;
const FEATURE_INCOMPAT_AT: usize = HEADER_LEN_AT + 2;
const FEATURE_COMPAT_AT: usize = FEATURE_INCOMPAT_AT + 4;
const BLOCK_SIZE_AT: usize = FEATURE_COMPAT_AT + 4;
const SEGMENT_ID_AT: usize = BLOCK_SIZE_AT + 4;
const STAMP_AT: usize = SEGMENT_ID_AT + 8;
const EPOCH_AT: usize = STAMP_AT + 8;
const FIRST_LSN_AT: usize = EPOCH_AT + 8;
const LOG_UUID_AT: usize = FIRST_LSN_AT + 8;
const PREV_SEGMENT_ID_AT: usize = LOG_UUID_AT + 16;
const PREV_END_OFFSET_AT: usize = PREV_SEGMENT_ID_AT + 8;
const PREV_LAST_LSN_AT: usize = PREV_END_OFFSET_AT + 8;
const PREV_CHAIN_AT: usize = PREV_LAST_LSN_AT + 8;
const SEGMENT_BLOCKS_AT: usize = PREV_CHAIN_AT + 4;
const CREATED_UNIX_MS_AT: usize = SEGMENT_BLOCKS_AT + 4;
const STALE_STAMP_AT: usize = CREATED_UNIX_MS_AT + 8;
const RESERVED_AT: usize = STALE_STAMP_AT + 8;
const HEADER_CRC_AT: usize = RESERVED_AT + 4;
const _: () = assert!(HEADER_CRC_AT + 4 == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES <= BLOCK_BYTES, "block 0 holds the header");

/// What block 0 of a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    /// Incompatible features in it.
    pub(crate) features: u32,
    pub(crate) segment_id: SegmentId,
    pub(crate) stamp: u64,
    pub(crate) epoch: Epoch,
    pub(crate) first_lsn: Lsn,
    pub(crate) log_uuid: LogUuid,
    pub(crate) prev_segment_id: SegmentId,
    pub(crate) prev_end_offset: u64,
    pub(crate) prev_chain: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) created_unix_ms: u64,
    pub(crate) stale_stamp: u64,
}

/// Why block 0 is no header of a segment this build can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentHeaderError {
    /// Not one of our files, or damaged.
    Damaged(&'static str),
    /// Written by a newer version.
    TooNew { format_version: u16, feature_incompat: u32 },
}

impl SegmentHeader {
    /// The header's block.
    pub(crate) fn encode(&self) -> Blocks {
        let mut fields = Fields::<HEADER_BYTES>::zero();
        fields.put(0, &MAGIC);
        fields.put_u16(FORMAT_VERSION_AT, FORMAT_VERSION);
        fields.put_u16(HEADER_LEN_AT, 128);
        fields.put_u32(FEATURE_INCOMPAT_AT, self.features);
        fields.put_u32(BLOCK_SIZE_AT, 4096);
        fields.put_u64(SEGMENT_ID_AT, self.segment_id.0);
        fields.put_u64(STAMP_AT, self.stamp);
        fields.put_u64(EPOCH_AT, self.epoch.0);
        fields.put_u64(FIRST_LSN_AT, self.first_lsn.0);
        fields.put(LOG_UUID_AT, &self.log_uuid.0);
        fields.put_u64(PREV_SEGMENT_ID_AT, self.prev_segment_id.0);
        fields.put_u64(PREV_END_OFFSET_AT, self.prev_end_offset);
        fields.put_u64(PREV_LAST_LSN_AT, self.first_lsn.0 - 1);
        fields.put_u32(PREV_CHAIN_AT, self.prev_chain);
        fields.put_u32(SEGMENT_BLOCKS_AT, blocks(self.segment_bytes));
        fields.put_u64(CREATED_UNIX_MS_AT, self.created_unix_ms);
        fields.put_u64(STALE_STAMP_AT, self.stale_stamp);
        fields.put_u32(HEADER_CRC_AT, checksum::plain(&fields.0[..HEADER_CRC_AT]));
        let mut block = Blocks::new(1);
        block.bytes_mut()[..HEADER_BYTES].copy_from_slice(&fields.0);
        assert_eq!(Self::parse(block.bytes()), Ok(*self), "a segment header must read back");
        block
    }

    /// Reads block 0.
    pub(crate) fn parse(block: &[u8]) -> Result<Self, SegmentHeaderError> {
        use SegmentHeaderError::{Damaged, TooNew};
        let fields = Fields::<HEADER_BYTES>::of(block).ok_or(Damaged("file too short"))?;
        if fields.array(0) != MAGIC {
            return Err(Damaged("no segment magic"));
        }
        if fields.u32(HEADER_CRC_AT) != checksum::plain(&fields.0[..HEADER_CRC_AT]) {
            return Err(Damaged("segment header checksum"));
        }
        let format_version = fields.u16(FORMAT_VERSION_AT);
        let feature_incompat = fields.u32(FEATURE_INCOMPAT_AT);
        if format_version != FORMAT_VERSION || !features::known(feature_incompat) {
            return Err(TooNew { format_version, feature_incompat });
        }
        let header = Self {
            features: feature_incompat,
            segment_id: SegmentId(fields.u64(SEGMENT_ID_AT)),
            stamp: fields.u64(STAMP_AT),
            epoch: Epoch(fields.u64(EPOCH_AT)),
            first_lsn: Lsn(fields.u64(FIRST_LSN_AT)),
            log_uuid: LogUuid(fields.array(LOG_UUID_AT)),
            prev_segment_id: SegmentId(fields.u64(PREV_SEGMENT_ID_AT)),
            prev_end_offset: fields.u64(PREV_END_OFFSET_AT),
            prev_chain: fields.u32(PREV_CHAIN_AT),
            segment_bytes: u64::from(fields.u32(SEGMENT_BLOCKS_AT)) * BLOCK_BYTES as u64,
            created_unix_ms: fields.u64(CREATED_UNIX_MS_AT),
            stale_stamp: fields.u64(STALE_STAMP_AT),
        };
        let shape = fields.u16(HEADER_LEN_AT) == 128
            && fields.u32(BLOCK_SIZE_AT) == 4096
            && fields.is_zero(RESERVED_AT, HEADER_CRC_AT)
            && header.first_lsn.0 >= 1
            && fields.u64(PREV_LAST_LSN_AT) == header.first_lsn.0 - 1
            && block.get(HEADER_BYTES..BLOCK_BYTES).is_some_and(is_zero);
        if shape { Ok(header) } else { Err(Damaged("segment header fields")) }
    }

    /// Where this segment ends: where its successor says, and with its file while there is none.
    /// What lies beyond may check in every way and still be none of the log's.
    pub(crate) fn limit(&self, successor: Option<&Self>) -> u64 {
        successor.map_or(self.segment_bytes, |next| next.prev_end_offset)
    }

    /// Whether this is the header of the successor of `predecessor`, which reads up to `end`: a
    /// sealed segment ends exactly there (W9).
    pub(crate) fn seals(&self, predecessor: &Self, end: &LogEnd) -> bool {
        let seal = LogEnd {
            segment: self.prev_segment_id,
            offset: self.prev_end_offset,
            last_lsn: Lsn(self.first_lsn.0 - 1),
            chain: self.prev_chain,
        };
        seal == *end && predecessor.segment_id == end.segment && predecessor.epoch <= self.epoch
    }
}

/// A segment's size in blocks.
///
/// # Panics
/// Where it needs more than 32 bits: sizes are checked when a directory is formatted.
fn blocks(segment_bytes: u64) -> u32 {
    u32::try_from(segment_bytes / BLOCK_BYTES as u64).expect("segment size is checked at format")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn header() -> SegmentHeader {
        SegmentHeader {
            features: 0,
            segment_id: SegmentId(7),
            stamp: 0x1122_3344_5566_7788,
            epoch: Epoch(3),
            first_lsn: Lsn(1001),
            log_uuid: LogUuid([9; 16]),
            prev_segment_id: SegmentId(6),
            prev_end_offset: 8192,
            prev_chain: 0xDEAD_BEEF,
            segment_bytes: 65536,
            created_unix_ms: 1,
            stale_stamp: 0,
        }
    }

    #[test]
    fn every_flipped_bit_of_the_header_block_is_found() {
        let block = header().encode();
        for bit in 0..BLOCK_BYTES * 8 {
            let mut damaged = block.bytes().to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::parse(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_and_an_unknown_incompatible_bit_are_named() {
        for (at, value) in [(FORMAT_VERSION_AT, 2), (FEATURE_INCOMPAT_AT, 1)] {
            let block = header().encode();
            let mut fields = Fields::<HEADER_BYTES>::of(block.bytes()).unwrap();
            fields.put(at, &[value]);
            fields.put_u32(HEADER_CRC_AT, checksum::plain(&fields.0[..HEADER_CRC_AT]));
            let mut changed = block.bytes().to_vec();
            changed[..HEADER_BYTES].copy_from_slice(&fields.0);
            let verdict = SegmentHeader::parse(&changed);
            assert!(matches!(verdict, Err(SegmentHeaderError::TooNew { .. })), "{verdict:?}");
        }
    }

    #[test]
    fn an_unknown_compatible_bit_is_ignored() {
        let block = header().encode();
        let mut fields = Fields::<HEADER_BYTES>::of(block.bytes()).unwrap();
        fields.put_u32(FEATURE_COMPAT_AT, 1 << 31);
        fields.put_u32(HEADER_CRC_AT, checksum::plain(&fields.0[..HEADER_CRC_AT]));
        let mut changed = block.bytes().to_vec();
        changed[..HEADER_BYTES].copy_from_slice(&fields.0);
        assert_eq!(SegmentHeader::parse(&changed), Ok(header()));
    }
}
