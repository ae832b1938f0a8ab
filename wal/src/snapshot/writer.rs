//! Writes a snapshot, piece by piece.
//!
//! Under a draft name until it is whole and synced: a crash leaves no snapshot or a whole one. It
//! is synced as it grows: the log shares the disk, and its own syncs must not wait behind a file
//! of many megabytes that goes out at once.

use std::io;
use std::sync::Arc;

use crc32fast::Hasher;

use super::format::{
    Footer, Header, ITEM_HEADER_BYTES, PIECE_BYTES_MAX, PIECE_HEADER_BYTES, PieceHeader,
};
use super::{DRAFT_PATH, SnapshotInfo};
use crate::block::{BLOCK, Blocks, round_up};
use crate::checksum;
use crate::device::{Device, File, write_full};
use crate::ids::{LogIdentity, Lsn};
use crate::limits::{BLOCK_BYTES, CONTROL_SHARD};
use crate::names;
use crate::planted::{self, Bug};

/// Bytes written between two syncs.
const SYNC_EVERY_BYTES: u64 = 1 << 20;
const _: () = assert!(SYNC_EVERY_BYTES >= BLOCK, "no block is synced twice for its own sake");

/// A lane of a snapshot, as its owner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The shard, or [`CONTROL_SHARD`].
    pub shard: u16,
    /// Sequence of its last record up to the snapshot's LSN.
    pub seq: u64,
    /// The owner's digest of its state then.
    pub digest: u128,
}

/// A snapshot being written: all lanes in ascending order, each with its items.
pub struct SnapshotWriter {
    device: Arc<dyn Device>,
    file: Arc<dyn File>,
    header: Header,
    lane: Option<Lane>,
    /// The piece being filled: room for its header, then items.
    piece: Blocks,
    piece_bytes: usize,
    piece_items: u32,
    item: Vec<u8>,
    offset: u64,
    synced: u64,
    pieces: u64,
    items: u64,
    lanes: u32,
    /// Records that the lanes begun so far count.
    records: u64,
    total: Hasher,
}

impl SnapshotWriter {
    pub(crate) fn create(
        device: Arc<dyn Device>,
        identity: LogIdentity,
        shard_count: u16,
        lsn: Lsn,
    ) -> io::Result<Self> {
        // A draft that a crash left may stand there: it is replaced.
        device.create_zeroed(DRAFT_PATH, 0)?;
        let file = device.open(DRAFT_PATH)?;
        let header = Header {
            shard_count,
            stamp: device.random()?,
            epoch: identity.epoch,
            lsn,
            log_uuid: identity.uuid,
            created_unix_ms: device.now_us() / 1000,
        };
        let mut writer = Self {
            device,
            file,
            header,
            lane: None,
            piece: Blocks::for_bytes(PIECE_BYTES_MAX),
            piece_bytes: PIECE_HEADER_BYTES,
            piece_items: 0,
            item: Vec::new(),
            offset: 0,
            synced: 0,
            pieces: 0,
            items: 0,
            lanes: 0,
            records: 0,
            total: Hasher::new(),
        };
        let head = header.encode();
        writer.piece.bytes_mut()[..head.len()].copy_from_slice(&head);
        writer.write(head.len())?;
        assert!(writer.offset == BLOCK, "pieces begin behind the head");
        Ok(writer)
    }

    /// Begins the next lane.
    ///
    /// # Errors
    /// The disk's: the snapshot is given up.
    ///
    /// # Panics
    /// Where lanes do not ascend, or are further on than the snapshot's LSN.
    pub fn lane(&mut self, lane: Lane) -> io::Result<()> {
        let shard_count = self.header.shard_count;
        let expected = match u16::try_from(self.lanes) {
            Ok(next) if next < shard_count => next,
            _ => CONTROL_SHARD,
        };
        assert!(lane.shard == expected, "lanes ascend, each once");
        assert!(self.lanes <= u32::from(shard_count), "nothing comes behind the control lane");
        self.end_lane()?;
        self.lanes += 1;
        self.records += lane.seq;
        assert!(self.records <= self.header.lsn.0, "W14: the lanes are ahead of the snapshot");
        self.lane = Some(lane);
        Ok(())
    }

    /// Adds an item of `kind` to the lane, whose body `write` appends.
    ///
    /// # Errors
    /// The disk's: the snapshot is given up.
    ///
    /// # Panics
    /// Where no lane was begun, or the body is longer than its length field can say: owners bound
    /// their items.
    pub fn item(&mut self, kind: (u8, u8), write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        assert!(self.lane.is_some(), "an item belongs to a lane");
        let mut item = std::mem::take(&mut self.item);
        item.clear();
        item.extend_from_slice(&[0, 0, kind.0, kind.1]);
        write(&mut item);
        assert!(item.get(2..4) == Some(&[kind.0, kind.1]), "a body stands behind its item's head");
        let length = u16::try_from(item.len() - ITEM_HEADER_BYTES)
            .unwrap_or_else(|_| panic!("an item of {} bytes", item.len()));
        item[..2].copy_from_slice(&length.to_le_bytes());
        if self.piece_bytes + item.len() > PIECE_BYTES_MAX {
            self.end_piece(false)?;
        }
        self.piece.bytes_mut()[self.piece_bytes..][..item.len()].copy_from_slice(&item);
        self.piece_bytes += item.len();
        self.piece_items += 1;
        assert!(self.piece_bytes <= PIECE_BYTES_MAX, "a piece fits what its reader has room for");
        self.item = item;
        Ok(())
    }

    /// Completes the snapshot; `chain` is that of the frame that ends at its LSN. From now on the
    /// next start may begin from it.
    ///
    /// # Errors
    /// The disk's: there is no such snapshot.
    ///
    /// # Panics
    /// Where a lane is missing, or the lanes are not those of one instant: each record up to the
    /// LSN is in one of them (W4), so their sequences add up to it. A start from any other state
    /// would leave records out, or make them happen twice.
    pub(crate) fn finish(mut self, chain: u32) -> io::Result<SnapshotInfo> {
        self.end_lane()?;
        assert!(self.lanes == u32::from(self.header.shard_count) + 1, "every lane is there");
        let (records, lsn) = (self.records, self.header.lsn);
        assert!(records == lsn.0, "W14: {records} records in the lanes of a snapshot of {lsn}");
        let file_bytes = self.offset + BLOCK;
        let footer = Footer {
            pieces: self.pieces,
            items: self.items,
            file_bytes,
            lsn: self.header.lsn,
            chain,
            total_crc: self.total.clone().finalize(),
        };
        let foot = footer.encode();
        self.piece.bytes_mut()[..foot.len()].copy_from_slice(&foot);
        self.write(foot.len())?;
        assert!(self.offset == file_bytes, "a snapshot's foot names another length than it has");
        assert!(self.pieces >= u64::from(self.lanes), "each lane has a piece, if an empty one");
        let early = planted::has(Bug::SnapshotRenamedBeforeSync);
        if !early {
            self.file.sync_data()?;
        }
        self.device.rename(DRAFT_PATH, &names::snapshot(self.header.lsn))?;
        self.device.sync_dir(names::SNAP_DIR)?;
        Ok(SnapshotInfo { lsn: self.header.lsn, bytes: file_bytes })
    }

    /// Gives the snapshot up and removes what was written of it.
    pub fn give_up(self) {
        let _ = self.device.remove(DRAFT_PATH);
    }

    fn end_lane(&mut self) -> io::Result<()> {
        if self.lane.is_some() {
            self.end_piece(true)?;
            assert!(self.piece_items == 0, "a lane takes all its items along");
            self.lane = None;
        }
        Ok(())
    }

    fn end_piece(&mut self, last: bool) -> io::Result<()> {
        let Some(lane) = self.lane else { return Ok(()) };
        assert!(last || self.piece_items > 0, "only the end of a lane may be empty");
        let stamp = self.header.stamp;
        let payload = &self.piece.bytes()[PIECE_HEADER_BYTES..self.piece_bytes];
        assert!((self.piece_items == 0) == payload.is_empty(), "a piece's bytes are its items");
        let header = PieceHeader {
            shard: lane.shard,
            last,
            payload_bytes: u32::try_from(payload.len()).expect("a piece is bounded"),
            items: self.piece_items,
            lane_seq: lane.seq,
            lane_digest: lane.digest,
            index: self.pieces,
            payload_crc: checksum::seeded(stamp, &[payload]),
        };
        let head = header.encode(stamp);
        self.piece.bytes_mut()[..head.len()].copy_from_slice(&head);
        self.pieces += 1;
        self.items += u64::from(self.piece_items);
        self.write(self.piece_bytes)?;
        self.piece_bytes = PIECE_HEADER_BYTES;
        self.piece_items = 0;
        Ok(())
    }

    /// Writes the first `bytes` bytes of the piece, padded to whole blocks.
    fn write(&mut self, bytes: usize) -> io::Result<()> {
        let padded = round_up(bytes);
        self.piece.bytes_mut()[bytes..padded].fill(0);
        let written = &self.piece.bytes()[..padded];
        assert!(written.len().is_multiple_of(BLOCK_BYTES), "a piece is whole blocks");
        assert!(self.offset.is_multiple_of(BLOCK), "a piece begins at a block");
        write_full(&*self.file, written, self.offset)?;
        self.total.update(written);
        self.offset += padded as u64;
        assert!(self.synced <= self.offset, "what is synced was written");
        if self.offset - self.synced >= SYNC_EVERY_BYTES {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(())
    }
}
