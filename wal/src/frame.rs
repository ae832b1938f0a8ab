//! The frame: one group commit, one sync. All records of a frame live or die together.
//!
//! A frame starts on a block boundary; header and payload are padded with zeros to the next one.
//!
//! | off | size | field          | meaning                                                        |
//! |----:|-----:|----------------|----------------------------------------------------------------|
//! |   0 |    4 | magic          | non-zero: an all-zero block is never a frame                   |
//! |   4 |    1 | kind           | 1 data, 2 watermark (no records)                               |
//! |   5 |    1 | flags          | 0                                                              |
//! |   6 |    2 | header_len     | 64                                                             |
//! |   8 |    4 | payload_len    | <= FRAME_BYTES_MAX - 64                                        |
//! |  12 |    4 | record_count   | 0 for a watermark                                              |
//! |  16 |    8 | first_lsn      | previous last LSN + 1 (W4)                                     |
//! |  24 |    8 | synced_through | bytes of this segment below it were covered by a successful    |
//! |     |      |                | sync before this frame was submitted (W5, W6)                  |
//! |  32 |    8 | epoch          | the segment's                                                  |
//! |  40 |    8 | commit_us      | wall clock, forced non-decreasing; informational               |
//! |  48 |    4 | chain          | header CRC of the previous frame (or the segment's prev_chain) |
//! |  52 |    4 | payload_crc    | CRC-32 over the payload, seeded by the segment's stamp         |
//! |  56 |    4 | reserved       | 0, checked                                                     |
//! |  60 |    4 | header_crc     | CRC-32 over 0..60, seeded by the segment's stamp               |
//!
//! A frame is *valid at offset P* when its header checks (magic and header CRC), its fields have
//! the only values allowed above, it lies within the segment, its payload CRC checks, its padding
//! is zero, and it is *next*: epoch, first_lsn and chain follow from the frame before. The length
//! is trusted only after the header has checked.

use crate::block::{is_zero, round_up};
use crate::checksum;
use crate::fields::Fields;
use crate::ids::{Epoch, Lsn};
use crate::planted::{self, Bug};

pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x4657_4C53; // "SLWF"

const KIND_AT: usize = 4;
const FLAGS_AT: usize = KIND_AT + 1;
const HEADER_LEN_AT: usize = FLAGS_AT + 1;
const PAYLOAD_LEN_AT: usize = HEADER_LEN_AT + 2;
const RECORD_COUNT_AT: usize = PAYLOAD_LEN_AT + 4;
const FIRST_LSN_AT: usize = RECORD_COUNT_AT + 4;
const SYNCED_THROUGH_AT: usize = FIRST_LSN_AT + 8;
const EPOCH_AT: usize = SYNCED_THROUGH_AT + 8;
const COMMIT_US_AT: usize = EPOCH_AT + 8;
const CHAIN_AT: usize = COMMIT_US_AT + 8;
const PAYLOAD_CRC_AT: usize = CHAIN_AT + 4;
const RESERVED_AT: usize = PAYLOAD_CRC_AT + 4;
const HEADER_CRC_AT: usize = RESERVED_AT + 4;
const _: () = assert!(HEADER_CRC_AT + 4 == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES.is_multiple_of(8), "a payload's records are aligned");

/// Frames among which one is read back whole before it is written: in release builds seldom enough
/// to cost nothing, often enough to find a memory or a processor that errs.
const READ_BACK_ONE_IN: u32 = if cfg!(debug_assertions) { 1 } else { 1_024 };

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    /// Carries records.
    Data,
    /// Carries a promise alone.
    Watermark,
}

/// A frame's header, its CRC checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) payload_bytes: u32,
    pub(crate) record_count: u32,
    pub(crate) first_lsn: Lsn,
    pub(crate) synced_through: u64,
    pub(crate) epoch: Epoch,
    pub(crate) commit_us: u64,
    pub(crate) chain: u32,
    pub(crate) payload_crc: u32,
    /// This header's own CRC: the next frame's `chain`.
    pub(crate) header_crc: u32,
}

/// A frame to be written.
#[derive(Clone, Copy)]
pub(crate) struct FrameSpec {
    pub(crate) record_count: u32,
    pub(crate) first_lsn: Lsn,
    pub(crate) synced_through: u64,
    pub(crate) epoch: Epoch,
    pub(crate) commit_us: u64,
    pub(crate) chain: u32,
}

impl FrameHeader {
    /// The header at the start of `block`, or `None` where its magic or CRC does not check under
    /// `stamp`. Fields are judged by [`FrameHeader::fields_ok`].
    pub(crate) fn probe(block: &[u8], stamp: u64) -> Option<Self> {
        let fields = Fields::<HEADER_BYTES>::of(block)?;
        let header_crc = fields.u32(HEADER_CRC_AT);
        if fields.u32(0) != MAGIC
            || header_crc != checksum::seeded(stamp, &[&fields.0[..HEADER_CRC_AT]])
        {
            return None;
        }
        let kind = match fields.0[KIND_AT] {
            1 => FrameKind::Data,
            2 => FrameKind::Watermark,
            _ => return None,
        };
        let fixed = fields.0[FLAGS_AT] == 0
            && fields.u16(HEADER_LEN_AT) == 64
            && fields.is_zero(RESERVED_AT, HEADER_CRC_AT);
        fixed.then(|| Self {
            kind,
            payload_bytes: fields.u32(PAYLOAD_LEN_AT),
            record_count: fields.u32(RECORD_COUNT_AT),
            first_lsn: Lsn(fields.u64(FIRST_LSN_AT)),
            synced_through: fields.u64(SYNCED_THROUGH_AT),
            epoch: Epoch(fields.u64(EPOCH_AT)),
            commit_us: fields.u64(COMMIT_US_AT),
            chain: fields.u32(CHAIN_AT),
            payload_crc: fields.u32(PAYLOAD_CRC_AT),
            header_crc,
        })
    }

    /// Whether the fields are such as a writer could have written at `offset` of a segment.
    pub(crate) fn fields_ok(&self, offset: u64, frame_bytes_max: usize) -> bool {
        let payload = self.payload_bytes as usize;
        let counts = match self.kind {
            FrameKind::Data => self.record_count > 0 && payload > 0,
            FrameKind::Watermark => self.record_count == 0 && payload == 0,
        };
        counts && payload <= frame_bytes_max - HEADER_BYTES && self.synced_through <= offset
    }

    /// Bytes of the whole frame, padding included.
    pub(crate) fn frame_bytes(&self) -> usize {
        round_up(HEADER_BYTES + self.payload_bytes as usize)
    }

    /// The LSN of the frame's last record (for a watermark: of the record before it).
    pub(crate) fn last_lsn(&self) -> Lsn {
        Lsn((self.first_lsn.0 + u64::from(self.record_count)).saturating_sub(1))
    }

    /// Whether the whole frame in `bytes` (header, payload, padding) carries what its header says.
    pub(crate) fn body_ok(&self, bytes: &[u8], stamp: u64) -> bool {
        let Some(body) = bytes.get(HEADER_BYTES..self.frame_bytes()) else { return false };
        let (payload, padding) = body.split_at(self.payload_bytes as usize);
        let checks = checksum::seeded(stamp, &[payload]) == self.payload_crc;
        (checks || planted::has(Bug::PayloadUnchecked))
            && (is_zero(padding) || planted::has(Bug::PaddingUnchecked))
    }
}

/// Completes the frame in `bytes`, whose payload already stands after the header, `payload_bytes`
/// long; zeroes the padding, writes the header, returns it.
///
/// # Panics
/// Where the frame would not parse back: nothing that recovery would refuse may reach the disk.
pub(crate) fn seal(
    bytes: &mut [u8],
    payload_bytes: usize,
    spec: FrameSpec,
    stamp: u64,
) -> FrameHeader {
    let frame_bytes = round_up(HEADER_BYTES + payload_bytes);
    let (header_bytes, body) = bytes[..frame_bytes].split_at_mut(HEADER_BYTES);
    body[payload_bytes..].fill(0);
    let payload_len = u32::try_from(payload_bytes).expect("a frame is bounded");
    let mut fields = Fields::<HEADER_BYTES>::zero();
    fields.put_u32(0, MAGIC);
    fields.put(KIND_AT, &[if spec.record_count == 0 { 2 } else { 1 }]);
    fields.put_u16(HEADER_LEN_AT, 64);
    fields.put_u32(PAYLOAD_LEN_AT, payload_len);
    fields.put_u32(RECORD_COUNT_AT, spec.record_count);
    fields.put_u64(FIRST_LSN_AT, spec.first_lsn.0);
    fields.put_u64(SYNCED_THROUGH_AT, spec.synced_through);
    fields.put_u64(EPOCH_AT, spec.epoch.0);
    fields.put_u64(COMMIT_US_AT, spec.commit_us);
    fields.put_u32(CHAIN_AT, spec.chain);
    fields.put_u32(PAYLOAD_CRC_AT, checksum::seeded(stamp, &[&body[..payload_bytes]]));
    fields.put_u32(HEADER_CRC_AT, checksum::seeded(stamp, &[&fields.0[..HEADER_CRC_AT]]));
    header_bytes.copy_from_slice(&fields.0);
    let header = FrameHeader::probe(&fields.0, stamp).expect("a frame must read back");
    assert_eq!(header.frame_bytes(), frame_bytes, "a frame must read back whole");
    sample(READ_BACK_ONE_IN, &header, &bytes[..frame_bytes], stamp);
    header
}

/// Reads the frame back where it is the one among so many whose turn it is.
///
/// # Panics
/// Where it is, and recovery would refuse it.
#[inline]
fn sample(frames: u32, header: &FrameHeader, frame: &[u8], stamp: u64) {
    if is_one_in(frames, header.chain) {
        read_back(header, frame, stamp);
    }
}

/// Whether a frame that follows the one of this chain is the one among so many that is read back:
/// the chain, a checksum, is as good as a random number.
const fn is_one_in(frames: u32, chain: u32) -> bool {
    chain.is_multiple_of(frames)
}

/// Reads a frame's body as recovery will.
///
/// # Panics
/// Where recovery would refuse it.
#[cold]
fn read_back(header: &FrameHeader, frame: &[u8], stamp: u64) {
    assert!(header.body_ok(frame, stamp), "a frame's body must read back");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BLOCK_BYTES, FRAME_BYTES_MAX};

    const SPEC: FrameSpec = FrameSpec {
        record_count: 3,
        first_lsn: Lsn(10),
        synced_through: 4096,
        epoch: Epoch(2),
        commit_us: 77,
        chain: 5,
    };

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xAA; round_up(HEADER_BYTES + payload.len())];
        bytes[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        seal(&mut bytes, payload.len(), SPEC, 99);
        bytes
    }

    #[test]
    fn a_frame_reads_back_under_its_own_stamp_alone() {
        let bytes = frame(&[7; 5000]);
        let header = FrameHeader::probe(&bytes, 99).unwrap();
        assert_eq!((header.first_lsn, header.last_lsn()), (Lsn(10), Lsn(12)));
        assert_eq!(header.frame_bytes(), 2 * BLOCK_BYTES);
        assert!(header.fields_ok(4096, FRAME_BYTES_MAX) && header.body_ok(&bytes, 99));
        assert!(FrameHeader::probe(&bytes, 98).is_none());
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_found() {
        let bytes = frame(&[3; 100]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let valid =
                FrameHeader::probe(&damaged, 99).is_some_and(|header| header.body_ok(&damaged, 99));
            assert!(!valid, "bit {bit}");
        }
    }

    /// A frame's header with other bytes at `at`, its checksum made right again.
    fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut header = frame(&[3; 100])[..HEADER_BYTES].to_vec();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = checksum::seeded(99, &[&header[..HEADER_CRC_AT]]);
        header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    #[test]
    fn a_header_with_a_right_checksum_and_what_no_writer_writes_is_none() {
        assert!(FrameHeader::probe(&forged(KIND_AT, &[1]), 99).is_some(), "unchanged");
        for (at, bytes) in [
            (0, &[0x00][..]),
            (KIND_AT, &[0]),
            (KIND_AT, &[3]),
            (FLAGS_AT, &[1]),
            (HEADER_LEN_AT, &[65]),
            (RESERVED_AT, &[0, 0, 0, 1]),
        ] {
            assert!(FrameHeader::probe(&forged(at, bytes), 99).is_none(), "{bytes:?} at {at}");
        }
        assert!(FrameHeader::probe(&frame(&[3; 100])[..HEADER_BYTES - 1], 99).is_none(), "cut");
    }

    #[test]
    fn only_frames_with_records_carry_bytes_and_none_is_longer_than_the_longest() {
        const MAX: usize = 8192;
        let header = FrameHeader::probe(&frame(&[3; 100]), 99).unwrap();
        let ok = |kind, record_count, payload_bytes| {
            FrameHeader { kind, record_count, payload_bytes, ..header }.fields_ok(4096, MAX)
        };
        let longest = u32::try_from(MAX - HEADER_BYTES).unwrap();
        for (kind, records, bytes, expected) in [
            (FrameKind::Data, 1, 1, true),
            (FrameKind::Data, 1, longest, true),
            (FrameKind::Data, 1, longest + 1, false),
            (FrameKind::Data, 0, 1, false),
            (FrameKind::Data, 1, 0, false),
            (FrameKind::Data, 0, 0, false),
            (FrameKind::Watermark, 0, 0, true),
            (FrameKind::Watermark, 1, 0, false),
            (FrameKind::Watermark, 0, 1, false),
        ] {
            assert_eq!(ok(kind, records, bytes), expected, "{kind:?} {records} {bytes}");
        }
    }

    #[test]
    fn a_watermark_is_a_block_that_ends_where_the_frame_before_it_does() {
        let mut bytes = vec![0xAA; BLOCK_BYTES];
        let spec = FrameSpec { record_count: 0, ..SPEC };
        let sealed = seal(&mut bytes, 0, spec, 99);
        assert_eq!(FrameHeader::probe(&bytes, 99), Some(sealed));
        assert_eq!((sealed.kind, sealed.frame_bytes()), (FrameKind::Watermark, BLOCK_BYTES));
        assert_eq!(sealed.last_lsn(), Lsn(9), "no record of its own");
        assert!(sealed.fields_ok(4096, FRAME_BYTES_MAX) && sealed.body_ok(&bytes, 99));
        assert!(bytes[HEADER_BYTES..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_frame_says_what_it_was_given() {
        let bytes = frame(&[7; 5000]);
        let header = FrameHeader::probe(&bytes, 99).unwrap();
        let FrameHeader {
            record_count, first_lsn, synced_through, epoch, commit_us, chain, ..
        } = header;
        let said = (record_count, first_lsn, synced_through, epoch, commit_us, chain);
        assert_eq!(said, (3, Lsn(10), 4096, Epoch(2), 77, 5));
        assert_eq!((header.kind, header.payload_bytes), (FrameKind::Data, 5000));
    }

    #[test]
    fn a_body_that_is_cut_or_has_anything_behind_its_payload_is_none() {
        let bytes = frame(&[7; 5000]);
        let header = FrameHeader::probe(&bytes, 99).unwrap();
        assert!(header.body_ok(&bytes, 99) && !header.body_ok(&bytes, 98));
        assert!(!header.body_ok(&bytes[..bytes.len() - 1], 99), "cut");
        for at in [HEADER_BYTES, HEADER_BYTES + 4999, HEADER_BYTES + 5000, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(!header.body_ok(&damaged, 99), "byte {at}");
        }
    }

    #[test]
    fn a_frame_in_a_thousand_is_read_back_whole_and_each_where_that_costs_nothing() {
        let chains = || (0..1_u32 << 20).map(|number| checksum::plain(&number.to_le_bytes()));
        let read_back = chains().filter(|chain| is_one_in(1_024, *chain)).count();
        assert!((900..1_150).contains(&read_back), "{read_back} of a million");
        assert!(chains().take(1_000).all(|chain| is_one_in(1, chain)));
    }

    /// A frame that follows the one of this chain, and that recovery would refuse.
    fn damaged_after(chain: u32) -> (FrameHeader, Vec<u8>) {
        let mut bytes = vec![7; 2 * BLOCK_BYTES];
        let header = seal(&mut bytes, 5000, FrameSpec { chain, ..SPEC }, 99);
        bytes[4500] ^= 1;
        (header, bytes)
    }

    #[test]
    #[should_panic = "a frame's body must read back"]
    fn a_body_that_recovery_would_refuse_is_not_written_where_its_turn_has_come() {
        let (header, bytes) = damaged_after(3 * 1_024);
        sample(1_024, &header, &bytes, 99);
    }

    #[test]
    fn a_frame_whose_turn_has_not_come_is_not_read_back() {
        let (header, bytes) = damaged_after(3 * 1_024 + 1);
        sample(1_024, &header, &bytes, 99);
        assert!(!header.body_ok(&bytes, 99), "it would have been refused");
    }

    #[test]
    fn a_promise_beyond_the_frame_itself_is_no_promise() {
        let header = FrameHeader::probe(&frame(&[1; 8]), 99).unwrap();
        assert!(header.fields_ok(4096, FRAME_BYTES_MAX));
        assert!(!header.fields_ok(4095, FRAME_BYTES_MAX), "W6");
    }
}
