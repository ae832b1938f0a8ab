//! A snapshot's content for those who must be filled anew: a new, empty database, a mirror that
//! the log has passed by.

use std::path::Path;

use wal::{Epoch, LogUuid, Lsn, SnapshotReader};

use super::super::engine::Engine;
use super::SnapshotLoadError;
use crate::core::snapshot::{Image, decode_image};

/// All state after one record, image by image, in bounded memory.
///
/// # How to fill a store from it
///
/// 1. Register the sink ([`Engine::register_sink`]): the log is kept from now on.
/// 2. Take the images, and note the snapshot's [`lsn`](Self::lsn) and [`chain`](Self::chain) as the
///    sink's cursor once all are in the store. An activity's images follow its `Activity`.
/// 3. Read the log from that LSN on, as ever.
///
/// The content is whole only after [`next`](Self::next) has said `None`: damage is found where it
/// stands, so a store that shows what it was given so far shows it as unfinished. It reads on
/// though the engine makes later snapshots meanwhile.
pub struct SnapshotContents {
    reader: SnapshotReader,
    log_uuid: LogUuid,
    /// The items of the piece that was read last: their kinds, versions and bytes.
    piece: Vec<u8>,
    at: usize,
    shard: u16,
    shard_seq: u64,
}

impl SnapshotContents {
    fn new(reader: SnapshotReader, log_uuid: LogUuid) -> Self {
        Self { reader, log_uuid, piece: Vec::new(), at: 0, shard: 0, shard_seq: 0 }
    }

    /// The last record whose effect is in it.
    pub fn lsn(&self) -> Lsn {
        self.reader.lsn()
    }

    /// The chain of the frame that ends there.
    pub fn chain(&self) -> u32 {
        self.reader.chain()
    }

    /// The log.
    pub fn log_uuid(&self) -> LogUuid {
        self.log_uuid
    }

    /// The incarnation that wrote it.
    pub fn epoch(&self) -> Epoch {
        self.reader.epoch()
    }

    /// When it was made, Unix milliseconds.
    pub fn created_unix_ms(&self) -> u64 {
        self.reader.created_unix_ms()
    }

    /// The shard of the image that came last.
    pub fn last_shard(&self) -> u16 {
        self.shard
    }

    /// Sequence of the last record that the content covers of that shard.
    pub fn shard_seq(&self) -> u64 {
        self.shard_seq
    }

    /// The next image with the shard it is of ([`wal::CONTROL_SHARD`] for what belongs to no
    /// activity), or `None` after the last.
    ///
    /// # Errors
    /// [`SnapshotLoadError`] where the snapshot is damaged or of a newer version.
    #[expect(clippy::should_implement_trait, reason = "an image borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<(u16, Image<'_>)>, SnapshotLoadError> {
        while self.at >= self.piece.len() {
            let Some(piece) = self.reader.next_piece()? else { return Ok(None) };
            self.piece.clear();
            for item in piece.items() {
                let length = u16::try_from(item.body.len());
                let length = length.unwrap_or_else(|_| unreachable!("an item says its length so"));
                let length = length.to_le_bytes();
                self.piece.extend_from_slice(&length);
                self.piece.extend_from_slice(&[item.kind, item.kind_version]);
                self.piece.extend_from_slice(item.body);
            }
            (self.at, self.shard, self.shard_seq) = (0, piece.lane.shard, piece.lane.seq);
        }
        let (head, rest) = self.piece[self.at..].split_first_chunk::<4>().unwrap_or_else(|| {
            unreachable!("what is left of a piece begins with the head of an item")
        });
        let [low, high, kind, version] = *head;
        let bytes = usize::from(u16::from_le_bytes([low, high]));
        self.at += head.len() + bytes;
        assert!(self.at <= self.piece.len(), "an image lies in its piece: else some were left out");
        Ok(Some((self.shard, decode_image(kind, version, &rest[..bytes])?)))
    }
}

impl Engine {
    /// The content of the newest snapshot; `None` where none was made yet: then the log is whole.
    ///
    /// # Errors
    /// [`SnapshotLoadError`] where it can't be opened.
    pub fn snapshot_contents(&self) -> Result<Option<SnapshotContents>, SnapshotLoadError> {
        let reader = self.inner.log.read_snapshot()?;
        Ok(reader.map(|reader| SnapshotContents::new(reader, self.identity().uuid)))
    }
}

/// The content of the newest whole snapshot in `data_dir`, whether a server runs beside or not;
/// `None` where there is none.
///
/// # Errors
/// [`OpenError`](crate::OpenError) where there is no log, or it can't be read.
pub fn snapshot_contents(data_dir: &Path) -> Result<Option<SnapshotContents>, crate::OpenError> {
    let device = wal::PosixDevice::new(data_dir);
    let inspecting = wal::Inspecting::begin(&device)?;
    let uuid = inspecting.uuid();
    Ok(inspecting.newest_snapshot().map(|reader| SnapshotContents::new(reader, uuid)))
}
