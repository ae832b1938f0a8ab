//! Reads a snapshot piece by piece, trusting nothing.

use std::io;
use std::sync::Arc;

use crc32fast::Hasher;

use super::format::{
    Footer, Header, HeaderError, ITEM_HEADER_BYTES, PIECE_BYTES_MAX, PIECE_HEADER_BYTES,
    PieceHeader,
};
use super::writer::Lane;
use crate::block::{BLOCK, Blocks, is_zero, round_up};
use crate::checksum;
use crate::device::{Device, File, read_full};
use crate::ids::{Epoch, LogUuid, Lsn};
use crate::limits::{BLOCK_BYTES, CONTROL_SHARD};
use crate::names;
use crate::planted::{self, Bug};
use crate::progress::Progress;

/// Why a snapshot can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A checksum, a length or an order is wrong.
    #[error("{path} at offset {offset}: {what}")]
    Damaged {
        /// The file.
        path: String,
        /// Where.
        offset: u64,
        /// What.
        what: &'static str,
    },
    /// Written by a newer version.
    #[error(
        "{path} was written by a newer version (format {format_version}, features \
         {feature_incompat:#x}): start that version, or a newer one"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its format.
        format_version: u32,
        /// Its incompatible features.
        feature_incompat: u32,
    },
    /// The operating system refused.
    #[error("{op} {path}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: String,
        /// What it said.
        source: io::Error,
    },
}

/// An item of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// What it is, for the owner.
    pub kind: u8,
    /// Version of that kind's body.
    pub kind_version: u8,
    /// The owner's bytes.
    pub body: &'a [u8],
}

/// The items of a piece.
#[derive(Clone, Debug)]
pub struct Items<'a>(&'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (item, rest) = split(self.0)?;
        self.0 = rest;
        Some(item)
    }
}

fn split(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<ITEM_HEADER_BYTES>()?;
    let [low, high, kind, kind_version] = *head;
    let (body, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
    Some((Item { kind, kind_version, body }, rest))
}

/// A part of a lane.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The lane.
    pub lane: Lane,
    /// Nothing of the lane comes after it.
    pub last: bool,
    items: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Its items.
    pub fn items(&self) -> Items<'a> {
        Items(self.items)
    }
}

/// A snapshot that is read from its first lane to its last, in bounded memory.
pub struct SnapshotReader {
    path: String,
    file: Arc<dyn File>,
    header: Header,
    footer: Footer,
    bytes: u64,
    offset: u64,
    /// All of it was read, and holds together.
    is_whole: bool,
    pieces: u64,
    items: u64,
    /// The lane that the next piece continues.
    open: Option<Lane>,
    /// The lanes that were read to their ends.
    lanes: Vec<Lane>,
    buffer: Blocks,
    /// Over the header's block, and over all that was read.
    head: Hasher,
    total: Hasher,
    progress: Progress,
}

/// From this length on a thread reads ahead: a shorter one is read before that has begun.
const AHEAD_BYTES_MIN: u64 = 4 << 20;

impl SnapshotReader {
    /// Opens the snapshot of `lsn` and reads its two ends.
    pub(crate) fn open(
        device: &dyn Device,
        lsn: Lsn,
        log_uuid: LogUuid,
        shard_count: u16,
    ) -> Result<Self, SnapshotError> {
        let name = names::snapshot(lsn);
        let path = device.display(&name);
        let io = |op| {
            let path = path.clone();
            move |source| SnapshotError::Io { op, path, source }
        };
        let mut file = device.open_uncached(&name).map_err(io("open"))?;
        let bytes = file.length().map_err(io("read"))?;
        let damaged =
            |offset, what| Err(SnapshotError::Damaged { path: path.clone(), offset, what });
        let mut block = Blocks::new(1);
        let read = read_full(&*file, block.bytes_mut(), 0).map_err(io("read"))?;
        let header = match Header::parse(&block.bytes()[..read]) {
            Ok(header) => header,
            Err(HeaderError::Damaged) => return damaged(0, "is no snapshot, or its head is lost"),
            Err(HeaderError::TooNew { format_version, feature_incompat }) => {
                return Err(SnapshotError::TooNew { path, format_version, feature_incompat });
            }
        };
        let ours = header.log_uuid == log_uuid && header.shard_count == shard_count;
        if !ours || header.lsn != lsn || !is_zero(&block.bytes()[super::format::HEADER_BYTES..]) {
            return damaged(0, "belongs to another log, or has a wrong name");
        }
        let mut head = Hasher::new();
        head.update(block.bytes());
        let end = bytes.saturating_sub(BLOCK);
        if !bytes.is_multiple_of(BLOCK) || end < BLOCK {
            return damaged(bytes, "is cut off");
        }
        let read = read_full(&*file, block.bytes_mut(), end).map_err(io("read"))?;
        let padded = is_zero(&block.bytes()[super::format::FOOTER_BYTES..]);
        let footer = match Footer::parse(&block.bytes()[..read]) {
            Some(footer) if footer.lsn == lsn && footer.file_bytes == bytes && padded => footer,
            _ => return damaged(end, "has no end"),
        };
        if bytes >= AHEAD_BYTES_MIN {
            file = device.open_ahead(&name, BLOCK, end).map_err(io("open"))?;
        }
        let buffer_bytes = usize::try_from(bytes).unwrap_or(PIECE_BYTES_MAX);
        let buffer = Blocks::for_bytes(buffer_bytes.min(PIECE_BYTES_MAX));
        let (offset, pieces, items, open) = (BLOCK, 0, 0, None);
        Ok(Self {
            path,
            file,
            header,
            footer,
            bytes,
            offset,
            pieces,
            items,
            open,
            lanes: Vec::new(),
            buffer,
            is_whole: false,
            total: head.clone(),
            head,
            progress: Progress::default(),
        })
    }

    /// Tells `progress` from now on how far the reading has come.
    pub(crate) fn watch(&mut self, progress: &Progress) {
        self.progress = progress.clone();
    }

    /// The last record whose effect is in it.
    pub fn lsn(&self) -> Lsn {
        self.header.lsn
    }

    /// The incarnation that wrote it.
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// The chain of the frame that ends at its LSN.
    pub fn chain(&self) -> u32 {
        self.footer.chain
    }

    /// When it was begun, Unix milliseconds.
    pub fn created_unix_ms(&self) -> u64 {
        self.header.created_unix_ms
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file, for messages.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Goes back to the first lane.
    pub fn rewind(&mut self) {
        (self.offset, self.pieces, self.items) = (BLOCK, 0, 0);
        self.is_whole = false;
        self.open = None;
        self.lanes.clear();
        self.total = self.head.clone();
    }

    /// Reads all of it, and goes back to the first lane: a snapshot that passes here is whole.
    pub(crate) fn check(&mut self) -> Result<Vec<Lane>, SnapshotError> {
        if planted::has(Bug::DamagedSnapshotAccepted) {
            while let Ok(Some(_)) = self.next_piece() {}
        } else {
            while self.next_piece()?.is_some() {}
        }
        let lanes = self.lanes.clone();
        self.rewind();
        Ok(lanes)
    }

    /// The lanes, where all of it was read: [`next_piece`](Self::next_piece) has said `None`.
    pub(crate) fn lanes(&self) -> Option<&[Lane]> {
        self.is_whole.then_some(&self.lanes)
    }

    /// The next piece, or `None` after the last lane: then all of it was read, and is whole.
    ///
    /// # Errors
    /// [`SnapshotError`]: what was read before stands, but the snapshot as a whole does not.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, SnapshotError> {
        if self.offset + BLOCK == self.bytes {
            self.check_end()?;
            self.is_whole = true;
            return Ok(None);
        }
        let header = self.read_piece()?;
        let lane = Lane { shard: header.shard, seq: header.lane_seq, digest: header.lane_digest };
        let expected = match self.open {
            Some(open) => open,
            None => Lane { shard: self.next_shard(), ..lane },
        };
        if lane != expected || header.index != self.pieces {
            return Err(self.damaged("a piece is out of place"));
        }
        let payload = PIECE_HEADER_BYTES..PIECE_HEADER_BYTES + header.payload_bytes as usize;
        let padded = round_up(payload.end);
        assert!(padded <= self.buffer.bytes().len(), "what is summed up was read");
        self.total.update(&self.buffer.bytes()[..padded]);
        self.offset += padded as u64;
        assert!(self.offset + BLOCK <= self.bytes, "pieces end before the foot");
        self.progress.advance(padded as u64);
        self.pieces += 1;
        self.items += u64::from(header.items);
        self.lanes.extend(header.last.then_some(lane));
        self.open = (!header.last).then_some(lane);
        let items = &self.buffer.bytes()[payload];
        Ok(Some(Piece { lane, last: header.last, items }))
    }

    /// Holds what was read against what the footer says of the whole.
    fn check_end(&self) -> Result<(), SnapshotError> {
        let is_complete = self.pieces == self.footer.pieces
            && self.items == self.footer.items
            && self.lanes.len() == usize::from(self.header.shard_count) + 1
            && self.open.is_none();
        if !is_complete {
            return Err(self.damaged("a piece is missing"));
        }
        let is_sound = self.total.clone().finalize() == self.footer.total_crc;
        if !is_sound && !planted::has(Bug::DamagedSnapshotAccepted) {
            return Err(self.damaged("the sum over the file"));
        }
        Ok(())
    }

    fn next_shard(&self) -> u16 {
        match u16::try_from(self.lanes.len()) {
            Ok(next) if next < self.header.shard_count => next,
            _ => CONTROL_SHARD,
        }
    }

    /// Reads the piece at the offset into the buffer and checks it by itself.
    fn read_piece(&mut self) -> Result<PieceHeader, SnapshotError> {
        let (at, stamp) = (self.offset, self.header.stamp);
        self.read(at, 0, BLOCK_BYTES)?;
        let header = PieceHeader::parse(self.buffer.bytes(), stamp)
            .ok_or_else(|| self.damaged("no piece begins here"))?;
        let end = PIECE_HEADER_BYTES + header.payload_bytes as usize;
        let padded = round_up(end);
        if at + padded as u64 + BLOCK > self.bytes {
            return Err(self.damaged("a piece does not fit the file"));
        }
        if padded > BLOCK_BYTES {
            self.read(at + BLOCK, BLOCK_BYTES, padded)?;
        }
        let (body, padding) =
            self.buffer.bytes()[PIECE_HEADER_BYTES..padded].split_at(header.payload_bytes as usize);
        let sound = checksum::seeded(stamp, &[body]) == header.payload_crc && is_zero(padding);
        if !sound && !planted::has(Bug::DamagedSnapshotAccepted) {
            return Err(self.damaged("a piece's checksum"));
        }
        let count = |(count, bytes): (usize, usize), item: Item<'_>| {
            (count + 1, bytes + ITEM_HEADER_BYTES + item.body.len())
        };
        if Items(body).fold((0, 0), count) != (header.items as usize, body.len()) {
            return Err(self.damaged("a piece's items do not fit it"));
        }
        Ok(header)
    }

    fn read(&mut self, at: u64, from: usize, to: usize) -> Result<(), SnapshotError> {
        let buffer = &mut self.buffer.bytes_mut()[from..to];
        let wanted = buffer.len();
        match read_full(&*self.file, buffer, at) {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) => Err(self.damaged("is cut off")),
            Err(source) => Err(SnapshotError::Io { op: "read", path: self.path.clone(), source }),
        }
    }

    fn damaged(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Damaged { path: self.path.clone(), offset: self.offset, what }
    }
}
