//! The snapshot: what an owner's state was after one record of the log, in one file.
//!
//! A file `snap/snap-<lsn, 16 hex digits>.snap` is a header block, then pieces, then a footer
//! block; each begins on a block boundary and is padded with zeros to the next. Little endian.
//!
//! The header:
//!
//! | off | size | field            | meaning                                                  |
//! |----:|-----:|------------------|----------------------------------------------------------|
//! |   0 |    8 | magic            | catches text mangling, as that of a segment              |
//! |   8 |    2 | format_version   | 1                                                        |
//! |  10 |    2 | header_len       | 128                                                      |
//! |  12 |    4 | feature_incompat | an unknown bit set: refuse                               |
//! |  16 |    4 | feature_compat   | an unknown bit set: ignore                               |
//! |  20 |    4 | shard_count      | the log's: there is one lane a shard, and the control    |
//! |     |      |                  | lane                                                     |
//! |  24 |    8 | stamp            | drawn for this file; seeds the CRCs of its pieces        |
//! |  32 |    8 | epoch            | incarnation that wrote it                                |
//! |  40 |    8 | lsn              | the last record whose effect is in it; a frame ends here |
//! |  48 |   16 | log_uuid         | identity of the log                                      |
//! |  64 |    8 | created_unix_ms  | for humans                                               |
//! |  72 |   52 | reserved         | zero, checked                                            |
//! | 124 |    4 | header_crc       | CRC-32 over 0..124                                       |
//!
//! A piece: one lane's content or a part of it, at most 1 MiB with its header.
//!
//! | off | size | field       | meaning                                                       |
//! |----:|-----:|-------------|---------------------------------------------------------------|
//! |   0 |    4 | magic       |                                                               |
//! |   4 |    2 | shard_id    | 0xFFFF: control; lanes ascend, each is there                  |
//! |   6 |    1 | last        | 1: the last piece of its lane                                 |
//! |   7 |    1 | header_len  | 64                                                            |
//! |   8 |    4 | payload_len | bytes of items                                                |
//! |  12 |    4 | item_count  |                                                               |
//! |  16 |    8 | lane_seq    | sequence of the lane's last record up to `lsn`                |
//! |  24 |   16 | lane_digest | the owner's digest of the lane's state (W14)                  |
//! |  40 |    8 | index       | number of the piece in the file, from 0                       |
//! |  48 |    4 | payload_crc | CRC-32 over the payload, seeded by stamp                      |
//! |  52 |    8 | reserved    | zero, checked                                                 |
//! |  60 |    4 | header_crc  | CRC-32 over 0..60, seeded by stamp                            |
//!
//! An item: u16 length of its body, u8 kind, u8 version of that kind, then the body, the owner's.
//! Items are never split over pieces.
//!
//! The footer:
//!
//! | off | size | field       | meaning                                                       |
//! |----:|-----:|-------------|---------------------------------------------------------------|
//! |   0 |    4 | magic       |                                                               |
//! |   4 |    4 | footer_len  | 64                                                            |
//! |   8 |    8 | piece_count |                                                               |
//! |  16 |    8 | item_count  |                                                               |
//! |  24 |    8 | file_bytes  | this block included                                           |
//! |  32 |    8 | lsn         | as in the header                                              |
//! |  40 |    4 | chain       | header CRC of the frame that ends at `lsn`: a log that differs |
//! |     |      |             | anywhere before differs in it                                 |
//! |  44 |    4 | total_crc   | CRC-32 over every byte before the footer                      |
//! |  48 |   12 | reserved    | zero, checked                                                 |
//! |  60 |    4 | footer_crc  | CRC-32 over 0..60                                             |

use crate::checksum;
use crate::fields::Fields;
use crate::ids::{Epoch, LogUuid, Lsn};
use crate::limits::{BLOCK_BYTES, FRAME_BYTES_MAX};

/// A piece with its header: what a reader holds in memory at once.
pub(super) const PIECE_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Bytes of an item before its body.
pub(super) const ITEM_HEADER_BYTES: usize = 4;

/// The snapshot format this build writes and the newest it reads.
const FORMAT_VERSION: u16 = 1;

const HEADER_MAGIC: [u8; 8] = [0x8B, b'S', b'L', b'S', 0x0D, 0x0A, 0x1A, 0x0A];
pub(super) const HEADER_BYTES: usize = 128;
const FORMAT_VERSION_AT: usize = 8;
const HEADER_LEN_AT: usize = FORMAT_VERSION_AT + 2;
const FEATURE_INCOMPAT_AT: usize = HEADER_LEN_AT + 2;
const FEATURE_COMPAT_AT: usize = FEATURE_INCOMPAT_AT + 4;
const SHARD_COUNT_AT: usize = FEATURE_COMPAT_AT + 4;
const STAMP_AT: usize = SHARD_COUNT_AT + 4;
const EPOCH_AT: usize = STAMP_AT + 8;
const LSN_AT: usize = EPOCH_AT + 8;
const LOG_UUID_AT: usize = LSN_AT + 8;
const CREATED_AT: usize = LOG_UUID_AT + 16;
const HEADER_RESERVED_AT: usize = CREATED_AT + 8;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

const _: () = assert!(HEADER_RESERVED_AT == 72 && HEADER_CRC_AT == 124, "the table is the layout");
const _: () = assert!(HEADER_BYTES <= BLOCK_BYTES, "the header is one block");

/// What the first block says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) shard_count: u16,
    pub(super) stamp: u64,
    pub(super) epoch: Epoch,
    pub(super) lsn: Lsn,
    pub(super) log_uuid: LogUuid,
    pub(super) created_unix_ms: u64,
}

/// Why a block is no header that this build can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderError {
    /// Not one of ours, or damaged.
    Damaged,
    /// Written by a newer version.
    TooNew { format_version: u32, feature_incompat: u32 },
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut fields = Fields::<HEADER_BYTES>::zero();
        fields.put(0, &HEADER_MAGIC);
        fields.put_u16(FORMAT_VERSION_AT, FORMAT_VERSION);
        fields.put_u16(HEADER_LEN_AT, 128);
        fields.put_u32(SHARD_COUNT_AT, u32::from(self.shard_count));
        fields.put_u64(STAMP_AT, self.stamp);
        fields.put_u64(EPOCH_AT, self.epoch.0);
        fields.put_u64(LSN_AT, self.lsn.0);
        fields.put(LOG_UUID_AT, &self.log_uuid.0);
        fields.put_u64(CREATED_AT, self.created_unix_ms);
        fields.put_u32(HEADER_CRC_AT, checksum::plain(&fields.0[..HEADER_CRC_AT]));
        assert_eq!(Self::parse(&fields.0), Ok(*self), "a snapshot's header must read back");
        fields.0
    }

    pub(super) fn parse(block: &[u8]) -> Result<Self, HeaderError> {
        use HeaderError::{Damaged, TooNew};
        let fields = Fields::<HEADER_BYTES>::of(block).ok_or(Damaged)?;
        let checked = fields.u32(HEADER_CRC_AT) == checksum::plain(&fields.0[..HEADER_CRC_AT]);
        if fields.array(0) != HEADER_MAGIC || !checked {
            return Err(Damaged);
        }
        let format_version = fields.u16(FORMAT_VERSION_AT);
        let feature_incompat = fields.u32(FEATURE_INCOMPAT_AT);
        if format_version != FORMAT_VERSION || feature_incompat != 0 {
            return Err(TooNew { format_version: u32::from(format_version), feature_incompat });
        }
        if !fields.is_zero(HEADER_RESERVED_AT, HEADER_CRC_AT) || fields.u16(HEADER_LEN_AT) != 128 {
            return Err(Damaged);
        }
        Ok(Self {
            shard_count: u16::try_from(fields.u32(SHARD_COUNT_AT)).map_err(|_| Damaged)?,
            stamp: fields.u64(STAMP_AT),
            epoch: Epoch(fields.u64(EPOCH_AT)),
            lsn: Lsn(fields.u64(LSN_AT)),
            log_uuid: LogUuid(fields.array(LOG_UUID_AT)),
            created_unix_ms: fields.u64(CREATED_AT),
        })
    }
}

const PIECE_MAGIC: u32 = 0x5053_4C53; // "SLSP"
pub(super) const PIECE_HEADER_BYTES: usize = 64;
const SHARD_AT: usize = 4;
const LAST_AT: usize = SHARD_AT + 2;
const PIECE_HEADER_LEN_AT: usize = LAST_AT + 1;
const PAYLOAD_LEN_AT: usize = PIECE_HEADER_LEN_AT + 1;
const PIECE_ITEMS_AT: usize = PAYLOAD_LEN_AT + 4;
const LANE_SEQ_AT: usize = PIECE_ITEMS_AT + 4;
const LANE_DIGEST_AT: usize = LANE_SEQ_AT + 8;
const INDEX_AT: usize = LANE_DIGEST_AT + 16;
const PAYLOAD_CRC_AT: usize = INDEX_AT + 8;
const PIECE_RESERVED_AT: usize = PAYLOAD_CRC_AT + 4;
const PIECE_CRC_AT: usize = PIECE_RESERVED_AT + 8;
const _: () = assert!(PIECE_CRC_AT + 4 == PIECE_HEADER_BYTES);
const _: () = assert!(PIECE_BYTES_MAX.is_multiple_of(BLOCK_BYTES), "a full piece has its padding");
const _: () = assert!(
    PIECE_HEADER_BYTES + ITEM_HEADER_BYTES + u16::MAX as usize <= PIECE_BYTES_MAX,
    "the longest item fits a piece"
);

/// What a piece's header says, its CRC checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PieceHeader {
    pub(super) shard: u16,
    pub(super) last: bool,
    pub(super) payload_bytes: u32,
    pub(super) items: u32,
    pub(super) lane_seq: u64,
    pub(super) lane_digest: u128,
    pub(super) index: u64,
    pub(super) payload_crc: u32,
}

impl PieceHeader {
    pub(super) fn encode(&self, stamp: u64) -> [u8; PIECE_HEADER_BYTES] {
        let mut fields = Fields::<PIECE_HEADER_BYTES>::zero();
        fields.put_u32(0, PIECE_MAGIC);
        fields.put_u16(SHARD_AT, self.shard);
        fields.put(LAST_AT, &[u8::from(self.last), 64]);
        fields.put_u32(PAYLOAD_LEN_AT, self.payload_bytes);
        fields.put_u32(PIECE_ITEMS_AT, self.items);
        fields.put_u64(LANE_SEQ_AT, self.lane_seq);
        fields.put(LANE_DIGEST_AT, &self.lane_digest.to_le_bytes());
        fields.put_u64(INDEX_AT, self.index);
        fields.put_u32(PAYLOAD_CRC_AT, self.payload_crc);
        fields.put_u32(PIECE_CRC_AT, checksum::seeded(stamp, &[&fields.0[..PIECE_CRC_AT]]));
        assert_eq!(Self::parse(&fields.0, stamp), Some(*self), "a piece must read back");
        fields.0
    }

    pub(super) fn parse(block: &[u8], stamp: u64) -> Option<Self> {
        let fields = Fields::<PIECE_HEADER_BYTES>::of(block)?;
        let crc = checksum::seeded(stamp, &[&fields.0[..PIECE_CRC_AT]]);
        let fixed = fields.u32(0) == PIECE_MAGIC
            && fields.u32(PIECE_CRC_AT) == crc
            && fields.0[PIECE_HEADER_LEN_AT] == 64
            && fields.0[LAST_AT] <= 1
            && fields.is_zero(PIECE_RESERVED_AT, PIECE_CRC_AT);
        let payload_bytes = fields.u32(PAYLOAD_LEN_AT);
        let fits = payload_bytes as usize <= PIECE_BYTES_MAX - PIECE_HEADER_BYTES;
        (fixed && fits).then(|| Self {
            shard: fields.u16(SHARD_AT),
            last: fields.0[LAST_AT] == 1,
            payload_bytes,
            items: fields.u32(PIECE_ITEMS_AT),
            lane_seq: fields.u64(LANE_SEQ_AT),
            lane_digest: u128::from_le_bytes(fields.array(LANE_DIGEST_AT)),
            index: fields.u64(INDEX_AT),
            payload_crc: fields.u32(PAYLOAD_CRC_AT),
        })
    }
}

const FOOTER_MAGIC: u32 = 0x4553_4C53; // "SLSE"
pub(super) const FOOTER_BYTES: usize = 64;
const FOOTER_LEN_AT: usize = 4;
const PIECES_AT: usize = FOOTER_LEN_AT + 4;
const ITEMS_AT: usize = PIECES_AT + 8;
const FILE_BYTES_AT: usize = ITEMS_AT + 8;
const FOOTER_LSN_AT: usize = FILE_BYTES_AT + 8;
const CHAIN_AT: usize = FOOTER_LSN_AT + 8;
const TOTAL_CRC_AT: usize = CHAIN_AT + 4;
const FOOTER_RESERVED_AT: usize = TOTAL_CRC_AT + 4;
const FOOTER_CRC_AT: usize = FOOTER_RESERVED_AT + 12;
const _: () = assert!(FOOTER_CRC_AT + 4 == FOOTER_BYTES);
const _: () = assert!(FOOTER_BYTES <= BLOCK_BYTES, "the footer is one block");

/// What the last block says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) pieces: u64,
    pub(super) items: u64,
    pub(super) file_bytes: u64,
    pub(super) lsn: Lsn,
    pub(super) chain: u32,
    pub(super) total_crc: u32,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut fields = Fields::<FOOTER_BYTES>::zero();
        fields.put_u32(0, FOOTER_MAGIC);
        fields.put_u32(FOOTER_LEN_AT, 64);
        fields.put_u64(PIECES_AT, self.pieces);
        fields.put_u64(ITEMS_AT, self.items);
        fields.put_u64(FILE_BYTES_AT, self.file_bytes);
        fields.put_u64(FOOTER_LSN_AT, self.lsn.0);
        fields.put_u32(CHAIN_AT, self.chain);
        fields.put_u32(TOTAL_CRC_AT, self.total_crc);
        fields.put_u32(FOOTER_CRC_AT, checksum::plain(&fields.0[..FOOTER_CRC_AT]));
        assert_eq!(Self::parse(&fields.0), Some(*self), "a snapshot's footer must read back");
        fields.0
    }

    pub(super) fn parse(block: &[u8]) -> Option<Self> {
        let fields = Fields::<FOOTER_BYTES>::of(block)?;
        let fixed = fields.u32(0) == FOOTER_MAGIC
            && fields.u32(FOOTER_CRC_AT) == checksum::plain(&fields.0[..FOOTER_CRC_AT])
            && fields.u32(FOOTER_LEN_AT) == 64
            && fields.is_zero(FOOTER_RESERVED_AT, FOOTER_CRC_AT);
        fixed.then(|| Self {
            pieces: fields.u64(PIECES_AT),
            items: fields.u64(ITEMS_AT),
            file_bytes: fields.u64(FILE_BYTES_AT),
            lsn: Lsn(fields.u64(FOOTER_LSN_AT)),
            chain: fields.u32(CHAIN_AT),
            total_crc: fields.u32(TOTAL_CRC_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        shard_count: 2,
        stamp: 99,
        epoch: Epoch(3),
        lsn: Lsn(77),
        log_uuid: LogUuid([7; 16]),
        created_unix_ms: 5,
    };

    #[test]
    fn a_head_with_a_right_checksum_and_what_no_writer_writes_is_none() {
        let forged = |at: usize, byte: u8| {
            let mut bytes = HEADER.encode();
            bytes[at] = byte;
            let crc = checksum::plain(&bytes[..HEADER_CRC_AT]);
            bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            Header::parse(&bytes)
        };
        assert_eq!(forged(STAMP_AT, 99), Ok(HEADER), "unchanged");
        for (at, byte) in
            [(0, 0), (HEADER_LEN_AT, 127), (HEADER_RESERVED_AT, 1), (SHARD_COUNT_AT + 2, 1)]
        {
            assert_eq!(forged(at, byte), Err(HeaderError::Damaged), "{byte} at {at}");
        }
        for (at, format_version, feature_incompat) in
            [(FORMAT_VERSION_AT, 2, 0), (FEATURE_INCOMPAT_AT, 1, 2)]
        {
            let newer = HeaderError::TooNew { format_version, feature_incompat };
            assert_eq!(forged(at, 2), Err(newer), "{at}");
        }
        assert_eq!(forged(FEATURE_COMPAT_AT, 2), Ok(HEADER), "what may be ignored is");
    }

    #[test]
    fn what_is_cut_short_is_none_of_a_snapshot_s_parts() {
        let short = &[0; FOOTER_BYTES - 1];
        assert_eq!(Header::parse(short), Err(HeaderError::Damaged));
        assert_eq!(PieceHeader::parse(short, 99), None);
        assert_eq!(Footer::parse(short), None);
    }
}
