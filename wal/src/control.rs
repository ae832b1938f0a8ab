//! CONTROL: two 4 KiB slots, written in turn; the valid one with the higher `slot_seq` counts.
//!
//! | off  | size    | field                 | meaning                                             |
//! |-----:|--------:|-----------------------|-----------------------------------------------------|
//! |    0 |       8 | magic                 |                                                     |
//! |    8 |       4 | format_version        | 1                                                   |
//! |   12 |       4 | feature_incompat      | an unknown bit set: refuse                          |
//! |   16 |       8 | slot_seq              | one more a write; slot = seq mod 2                  |
//! |   24 |      16 | log_uuid              | drawn at format                                     |
//! |   40 |       8 | epoch                 | of the last process that opened to write (W11)      |
//! |   48 |       4 | shard_count           | fixed at format                                     |
//! |   52 |       4 | frame_bytes_max       | fixed at format                                     |
//! |   56 |       8 | in_flight_bytes_max   | fixed at format                                     |
//! |   64 |       8 | segment_bytes         | fixed at format                                     |
//! |   72 |      64 | owner                 | the owner's constants, fixed at format              |
//! |  136 |       8 | active_segment_id     | a segment that exists at least (0: none yet)        |
//! |  144 |       8 | active_stamp          | its stamp                                           |
//! |  152 |       8 | snapshot_lsn          | covered by the newest snapshot                      |
//! |  160 |       8 | oldest_needed_segment | the first that must be there                        |
//! |  168 |       8 | clean                 | 1: the last process closed the log at the next four |
//! |  176 | 8+8+8+4 | clean_end             | segment, offset, last LSN, chain                    |
//! |  204 |       4 | sink_count            | <= 16                                               |
//! |  208 |       4 | never_recycle_count   | <= 64                                               |
//! |  212 |       4 | reserved              | 0, checked                                          |
//! |  216 | 16 x 64 | sinks                 | name (32, zero-padded), LSN, epoch, chain, class    |
//! |      |         |                       | (u32; 0: must deliver, 1: can be rebuilt)           |
//! | 1240 |  64 x 8 | never_recycle         | segment ids that saw an I/O error                   |
//! | 4092 |       4 | crc                   | CRC-32 over 0..4092                                 |
//!
//! Written when a process opens the log (before it appends), at rotations, when a snapshot is
//! whole, before segments are given back, when a sink comes or goes, and at a clean end; never for
//! a commit. It is a witness that the log reaches *at least* so far, not where it ends.

use std::io;

use crate::block::Blocks;
use crate::checksum;
use crate::device::{Device, File, read_full, write_full};
use crate::features;
use crate::fields::Fields;
use crate::ids::{Epoch, LogUuid, Lsn, SegmentId};
use crate::limits::{BLOCK_BYTES, NEVER_RECYCLE_MAX, SHARDS_MAX, SINKS_MAX};
use crate::planted::{self, Bug};
use std::sync::Arc;

pub(crate) const CONTROL_PATH: &str = "CONTROL";
pub(crate) const CONTROL_DRAFT_PATH: &str = "CONTROL.tmp";

const MAGIC: [u8; 8] = [0x8B, b'S', b'L', b'C', 0x0D, 0x0A, 0x1A, 0x0A];
const FORMAT_VERSION: u32 = 1;
pub(crate) const SINK_NAME_BYTES: usize = 32;
const SINK_BYTES: usize = 64;

const FORMAT_VERSION_AT: usize = 8;
const FEATURE_INCOMPAT_AT: usize = FORMAT_VERSION_AT + 4;
const SLOT_SEQ_AT: usize = FEATURE_INCOMPAT_AT + 4;
const LOG_UUID_AT: usize = SLOT_SEQ_AT + 8;
const EPOCH_AT: usize = LOG_UUID_AT + 16;
const SHARD_COUNT_AT: usize = EPOCH_AT + 8;
const FRAME_BYTES_MAX_AT: usize = SHARD_COUNT_AT + 4;
const IN_FLIGHT_BYTES_MAX_AT: usize = FRAME_BYTES_MAX_AT + 4;
const SEGMENT_BYTES_AT: usize = IN_FLIGHT_BYTES_MAX_AT + 8;
const OWNER_AT: usize = SEGMENT_BYTES_AT + 8;
const ACTIVE_SEGMENT_ID_AT: usize = OWNER_AT + OWNER_BYTES;
const ACTIVE_STAMP_AT: usize = ACTIVE_SEGMENT_ID_AT + 8;
const SNAPSHOT_LSN_AT: usize = ACTIVE_STAMP_AT + 8;
const OLDEST_NEEDED_AT: usize = SNAPSHOT_LSN_AT + 8;
const CLEAN_AT: usize = OLDEST_NEEDED_AT + 8;
const CLEAN_SEGMENT_AT: usize = CLEAN_AT + 8;
const CLEAN_OFFSET_AT: usize = CLEAN_SEGMENT_AT + 8;
const CLEAN_LSN_AT: usize = CLEAN_OFFSET_AT + 8;
const CLEAN_CHAIN_AT: usize = CLEAN_LSN_AT + 8;
const SINK_COUNT_AT: usize = CLEAN_CHAIN_AT + 4;
const NEVER_RECYCLE_COUNT_AT: usize = SINK_COUNT_AT + 4;
const RESERVED_AT: usize = NEVER_RECYCLE_COUNT_AT + 4;
const SINKS_AT: usize = RESERVED_AT + 4;
const NEVER_RECYCLE_AT: usize = SINKS_AT + SINKS_MAX * SINK_BYTES;
const CRC_AT: usize = BLOCK_BYTES - 4;
const _: () = assert!(NEVER_RECYCLE_AT + NEVER_RECYCLE_MAX * 8 <= CRC_AT);
const _: () = assert!(
    OWNER_AT == 72 && SINKS_AT == 216 && NEVER_RECYCLE_AT == 1240 && CRC_AT == 4092,
    "the table above is the layout"
);

/// Bytes the log's owner may fix at format.
pub const OWNER_BYTES: usize = 64;

/// What is fixed when a directory is formatted, so that a log moves between machines unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Lanes of records with a dense sequence of their own.
    pub shard_count: u16,
    /// The largest frame, header included.
    pub frame_bytes_max: u32,
    /// Bytes appended and not yet durable, at most.
    pub in_flight_bytes_max: u64,
    /// A segment's size.
    pub segment_bytes: u64,
    /// The owner's constants.
    pub owner: [u8; OWNER_BYTES],
}

/// Where a clean shutdown left the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) last_lsn: Lsn,
    pub(crate) chain: u32,
}

/// A sink that pins the log, and how far it has confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RegisteredSink {
    pub(crate) name: [u8; SINK_NAME_BYTES],
    pub(crate) lsn: Lsn,
    pub(crate) epoch: Epoch,
    pub(crate) chain: u32,
    pub(crate) class: u32,
}

/// What CONTROL says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Control {
    pub(crate) slot_seq: u64,
    pub(crate) log_uuid: LogUuid,
    pub(crate) epoch: Epoch,
    /// Incompatible features that the log uses.
    pub(crate) features: u32,
    pub(crate) format: Format,
    pub(crate) active_segment: SegmentId,
    pub(crate) active_stamp: u64,
    pub(crate) snapshot_lsn: Lsn,
    pub(crate) oldest_needed_segment: SegmentId,
    pub(crate) clean_end: Option<LogEnd>,
    pub(crate) sinks: Vec<RegisteredSink>,
    pub(crate) never_recycle: Vec<SegmentId>,
}

/// Why CONTROL can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlError {
    /// Neither slot checks.
    Damaged,
    /// Written by a newer version.
    TooNew { format_version: u32, feature_incompat: u32 },
}

impl Control {
    fn encode(&self) -> Blocks {
        let mut fields = Fields::<BLOCK_BYTES>::zero();
        fields.put(0, &MAGIC);
        fields.put_u32(FORMAT_VERSION_AT, FORMAT_VERSION);
        fields.put_u32(FEATURE_INCOMPAT_AT, self.features);
        fields.put_u64(SLOT_SEQ_AT, self.slot_seq);
        fields.put(LOG_UUID_AT, &self.log_uuid.0);
        fields.put_u64(EPOCH_AT, self.epoch.0);
        fields.put_u32(SHARD_COUNT_AT, u32::from(self.format.shard_count));
        fields.put_u32(FRAME_BYTES_MAX_AT, self.format.frame_bytes_max);
        fields.put_u64(IN_FLIGHT_BYTES_MAX_AT, self.format.in_flight_bytes_max);
        fields.put_u64(SEGMENT_BYTES_AT, self.format.segment_bytes);
        fields.put(OWNER_AT, &self.format.owner);
        fields.put_u64(ACTIVE_SEGMENT_ID_AT, self.active_segment.0);
        fields.put_u64(ACTIVE_STAMP_AT, self.active_stamp);
        fields.put_u64(SNAPSHOT_LSN_AT, self.snapshot_lsn.0);
        fields.put_u64(OLDEST_NEEDED_AT, self.oldest_needed_segment.0);
        if let Some(end) = self.clean_end {
            fields.put_u64(CLEAN_AT, 1);
            fields.put_u64(CLEAN_SEGMENT_AT, end.segment.0);
            fields.put_u64(CLEAN_OFFSET_AT, end.offset);
            fields.put_u64(CLEAN_LSN_AT, end.last_lsn.0);
            fields.put_u32(CLEAN_CHAIN_AT, end.chain);
        }
        assert!(self.sinks.len() <= SINKS_MAX && self.never_recycle.len() <= NEVER_RECYCLE_MAX);
        fields.put_u32(SINK_COUNT_AT, count(&self.sinks));
        fields.put_u32(NEVER_RECYCLE_COUNT_AT, count(&self.never_recycle));
        for (index, sink) in self.sinks.iter().enumerate() {
            let at = SINKS_AT + index * SINK_BYTES;
            fields.put(at, &sink.name);
            fields.put_u64(at + SINK_NAME_BYTES, sink.lsn.0);
            fields.put_u64(at + SINK_NAME_BYTES + 8, sink.epoch.0);
            fields.put_u32(at + SINK_NAME_BYTES + 16, sink.chain);
            fields.put_u32(at + SINK_NAME_BYTES + 20, sink.class);
        }
        for (index, segment) in self.never_recycle.iter().enumerate() {
            fields.put_u64(NEVER_RECYCLE_AT + index * 8, segment.0);
        }
        fields.put_u32(CRC_AT, checksum::plain(&fields.0[..CRC_AT]));
        let mut block = Blocks::new(1);
        block.bytes_mut().copy_from_slice(&fields.0);
        assert_eq!(Self::parse(block.bytes()).as_ref(), Ok(self), "CONTROL must read back");
        block
    }

    fn parse(slot: &[u8]) -> Result<Self, ControlError> {
        use ControlError::{Damaged, TooNew};
        let fields = Fields::<BLOCK_BYTES>::of(slot).ok_or(Damaged)?;
        if fields.array(0) != MAGIC || fields.u32(CRC_AT) != checksum::plain(&fields.0[..CRC_AT]) {
            return Err(Damaged);
        }
        let format_version = fields.u32(FORMAT_VERSION_AT);
        let feature_incompat = fields.u32(FEATURE_INCOMPAT_AT);
        if format_version != FORMAT_VERSION || !features::known(feature_incompat) {
            return Err(TooNew { format_version, feature_incompat });
        }
        let sink_count = fields.u32(SINK_COUNT_AT) as usize;
        let never_recycle_count = fields.u32(NEVER_RECYCLE_COUNT_AT) as usize;
        let shard_count = u16::try_from(fields.u32(SHARD_COUNT_AT)).map_err(|_| Damaged)?;
        if sink_count > SINKS_MAX
            || never_recycle_count > NEVER_RECYCLE_MAX
            || !(1..=SHARDS_MAX).contains(&shard_count)
            || fields.u32(RESERVED_AT) != 0
        {
            return Err(Damaged);
        }
        let sink = |index: usize| {
            let at = SINKS_AT + index * SINK_BYTES;
            RegisteredSink {
                name: fields.array(at),
                lsn: Lsn(fields.u64(at + SINK_NAME_BYTES)),
                epoch: Epoch(fields.u64(at + SINK_NAME_BYTES + 8)),
                chain: fields.u32(at + SINK_NAME_BYTES + 16),
                class: fields.u32(at + SINK_NAME_BYTES + 20),
            }
        };
        Ok(Self {
            slot_seq: fields.u64(SLOT_SEQ_AT),
            log_uuid: LogUuid(fields.array(LOG_UUID_AT)),
            epoch: Epoch(fields.u64(EPOCH_AT)),
            features: feature_incompat,
            format: Format {
                shard_count,
                frame_bytes_max: fields.u32(FRAME_BYTES_MAX_AT),
                in_flight_bytes_max: fields.u64(IN_FLIGHT_BYTES_MAX_AT),
                segment_bytes: fields.u64(SEGMENT_BYTES_AT),
                owner: fields.array(OWNER_AT),
            },
            active_segment: SegmentId(fields.u64(ACTIVE_SEGMENT_ID_AT)),
            active_stamp: fields.u64(ACTIVE_STAMP_AT),
            snapshot_lsn: Lsn(fields.u64(SNAPSHOT_LSN_AT)),
            oldest_needed_segment: SegmentId(fields.u64(OLDEST_NEEDED_AT)),
            clean_end: (fields.u64(CLEAN_AT) == 1).then(|| LogEnd {
                segment: SegmentId(fields.u64(CLEAN_SEGMENT_AT)),
                offset: fields.u64(CLEAN_OFFSET_AT),
                last_lsn: Lsn(fields.u64(CLEAN_LSN_AT)),
                chain: fields.u32(CLEAN_CHAIN_AT),
            }),
            sinks: (0..sink_count).map(sink).collect(),
            never_recycle: (0..never_recycle_count)
                .map(|index| SegmentId(fields.u64(NEVER_RECYCLE_AT + index * 8)))
                .collect(),
        })
    }

    /// Reads both slots and takes the valid one with the higher sequence.
    pub(crate) fn read(file: &dyn File) -> io::Result<Result<Self, ControlError>> {
        let mut slots = Blocks::new(2);
        let read = read_full(file, slots.bytes_mut(), 0)?;
        let (first, second) = slots.bytes()[..read.max(BLOCK_BYTES)].split_at(BLOCK_BYTES);
        Ok(match (Self::parse(first), Self::parse(second)) {
            (Ok(first), Ok(second)) if second.slot_seq > first.slot_seq => Ok(second),
            // A slot of a newer version beside one of ours was written later, by an upgrade.
            (Err(error @ ControlError::TooNew { .. }), _)
            | (_, Err(error @ ControlError::TooNew { .. })) => Err(error),
            (Ok(control), _) | (_, Ok(control)) => Ok(control),
            (Err(error), Err(_)) => Err(error),
        })
    }

    /// Writes this state into the slot that does not hold the newest one, and syncs it.
    pub(crate) fn write(&mut self, file: &dyn File) -> io::Result<()> {
        let mut next = self.clone();
        next.slot_seq += 1;
        let slot = if planted::has(Bug::ControlSlotNotAlternating) { 1 } else { next.slot_seq % 2 };
        let offset = slot * BLOCK_BYTES as u64;
        write_full(file, next.encode().bytes(), offset)?;
        file.sync_data()?;
        *self = next;
        Ok(())
    }

    /// Makes the file of a log that is just being formatted, under a draft name first: a crash
    /// leaves no CONTROL or a whole one.
    pub(crate) fn create(&mut self, device: &dyn Device) -> io::Result<Arc<dyn File>> {
        device.create_zeroed(CONTROL_DRAFT_PATH, 2 * BLOCK_BYTES as u64)?;
        let file = device.open(CONTROL_DRAFT_PATH)?;
        self.write(&*file)?;
        device.rename(CONTROL_DRAFT_PATH, CONTROL_PATH)?;
        device.sync_dir("")?;
        device.open(CONTROL_PATH)
    }
}

/// A list's length as the format writes it.
fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).expect("the lists of CONTROL are bounded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control {
            slot_seq: 4,
            log_uuid: LogUuid([3; 16]),
            epoch: Epoch(9),
            features: 0,
            format: Format {
                shard_count: 64,
                frame_bytes_max: 1 << 20,
                in_flight_bytes_max: 8 << 20,
                segment_bytes: 64 << 20,
                owner: [7; OWNER_BYTES],
            },
            active_segment: SegmentId(5),
            active_stamp: 11,
            snapshot_lsn: Lsn(0),
            oldest_needed_segment: SegmentId(1),
            clean_end: Some(LogEnd {
                segment: SegmentId(5),
                offset: 8192,
                last_lsn: Lsn(77),
                chain: 1,
            }),
            sinks: vec![RegisteredSink {
                name: [b's'; SINK_NAME_BYTES],
                lsn: Lsn(3),
                epoch: Epoch(2),
                chain: 8,
                class: 1,
            }],
            never_recycle: vec![SegmentId(2), SegmentId(3)],
        }
    }

    #[test]
    fn a_slot_reads_back_and_every_flipped_bit_is_found() {
        let block = control().encode();
        for bit in 0..BLOCK_BYTES * 8 {
            let mut damaged = block.bytes().to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Control::parse(&damaged), Err(ControlError::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        for at in [FORMAT_VERSION_AT, FEATURE_INCOMPAT_AT] {
            let mut fields = Fields::<BLOCK_BYTES>::of(control().encode().bytes()).unwrap();
            fields.put_u32(at, 2);
            fields.put_u32(CRC_AT, checksum::plain(&fields.0[..CRC_AT]));
            let verdict = Control::parse(&fields.0);
            assert!(matches!(verdict, Err(ControlError::TooNew { .. })), "{verdict:?}");
        }
    }
}
