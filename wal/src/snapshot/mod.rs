//! Snapshots: an owner's state after one record, so that the log before it can be given back.
//!
//! The log knows bytes: lanes, in each of them items of the owner. Two snapshots are kept; one
//! that is half written or damaged is passed over for the one before, and the log is kept from the
//! older of the two on.

mod candidates;
mod format;
mod reader;
mod reserve;
mod writer;

use std::io;

pub(crate) use candidates::{Candidates, open, tidy_up};
pub use reader::{Item, Items, Piece, SnapshotError, SnapshotReader};
pub use writer::{Lane, SnapshotWriter};

use crate::device::Device;
use crate::ids::Lsn;
use crate::names;

/// The name of a snapshot that is not whole yet.
pub(crate) const DRAFT_PATH: &str = "snap/draft.tmp";

/// A snapshot that is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// The last record whose effect is in it.
    pub lsn: Lsn,
    /// Its length.
    pub bytes: u64,
}

/// The snapshots that are there, whole or not, oldest first.
pub(crate) fn list(device: &dyn Device) -> io::Result<Vec<SnapshotInfo>> {
    let mut found: Vec<_> = device
        .list(names::SNAP_DIR)?
        .iter()
        .filter_map(|entry| {
            let lsn = names::parse_snapshot(&entry.name)?;
            Some(SnapshotInfo { lsn, bytes: entry.bytes })
        })
        .collect();
    found.sort_unstable_by_key(|it| it.lsn);
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::checksum;
    use crate::device::sim::{Image, SimDevice};
    use crate::device::{read_full, write_full};
    use crate::ids::{Epoch, LogIdentity, LogUuid};
    use crate::limits::{BLOCK_BYTES, CONTROL_SHARD};

    const UUID: LogUuid = LogUuid([7; 16]);
    const LSN: Lsn = Lsn(77);

    fn lane(shard: u16) -> Lane {
        let seq = match shard {
            0 => 30,
            1 => 40,
            _ => LSN.0 - 70,
        };
        Lane { shard, seq, digest: u128::from(shard) << 99 | 5 }
    }

    fn write(device: &Arc<SimDevice>, items: usize) -> SnapshotInfo {
        for dir in names::DIRS {
            device.create_dir(dir).unwrap();
        }
        let identity = LogIdentity { uuid: UUID, epoch: Epoch(3) };
        let device = Arc::clone(device) as Arc<dyn Device>;
        let mut writer = SnapshotWriter::create(device, identity, 2, LSN).unwrap();
        for shard in [0, 1, CONTROL_SHARD] {
            writer.lane(lane(shard)).unwrap();
            for number in 0..items {
                let byte = u8::try_from(number % 251).unwrap();
                writer.item((byte, 1), |out| out.resize(out.len() + 1 + number % 9, byte)).unwrap();
            }
        }
        writer.finish(9).unwrap()
    }

    fn read(device: &SimDevice) -> Result<Vec<(Lane, usize)>, SnapshotError> {
        let mut reader = SnapshotReader::open(device, LSN, UUID, 2)?;
        reader.check()?;
        assert_eq!((reader.lsn(), reader.epoch(), reader.chain()), (LSN, Epoch(3), 9));
        let mut lanes = Vec::new();
        let mut count = 0;
        while let Some(piece) = reader.next_piece()? {
            for item in piece.items() {
                assert!(item.body.iter().all(|byte| *byte == item.kind));
                count += 1;
            }
            if piece.last {
                lanes.push((piece.lane, std::mem::take(&mut count)));
            }
        }
        Ok(lanes)
    }

    #[test]
    fn lanes_read_back_item_by_item_over_several_pieces() {
        for items in [0, 3, 400_000] {
            let device = Arc::new(SimDevice::new(Image::empty(1)));
            let info = write(&device, items);
            assert_eq!(list(&*device).unwrap(), [info]);
            let lanes = [0, 1, CONTROL_SHARD].map(|shard| (lane(shard), items));
            assert_eq!(read(&device).unwrap(), lanes);
        }
    }

    /// A snapshot of one small piece a lane, whose parts are said otherwise and then summed up
    /// rightly: what a sum alone would not find.
    fn forged(edit: impl FnOnce(&mut Vec<u8>, u64)) -> SnapshotError {
        let device = Arc::new(SimDevice::new(Image::empty(1)));
        write(&device, 3);
        let mut image = device.image();
        let mut bytes = image.content(&names::snapshot(LSN)).unwrap();
        let stamp = format::Header::parse(&bytes).unwrap().stamp;
        edit(&mut bytes, stamp);
        let foot = bytes.len() - BLOCK_BYTES;
        let footer = format::Footer::parse(&bytes[foot..]).unwrap();
        let footer = format::Footer { total_crc: checksum::plain(&bytes[..foot]), ..footer };
        bytes[foot..][..format::FOOTER_BYTES].copy_from_slice(&footer.encode());
        image.set_content(&names::snapshot(LSN), &bytes);
        read(&SimDevice::new(image)).unwrap_err()
    }

    /// The second piece with another header.
    fn with_piece(bytes: &mut [u8], stamp: u64, edit: impl FnOnce(&mut format::PieceHeader)) {
        let at = 2 * BLOCK_BYTES;
        let mut piece = format::PieceHeader::parse(&bytes[at..], stamp).unwrap();
        edit(&mut piece);
        let from = at + format::PIECE_HEADER_BYTES;
        let body = &bytes[from..][..piece.payload_bytes as usize % BLOCK_BYTES];
        piece.payload_crc = checksum::seeded(stamp, &[body]);
        bytes[at..][..format::PIECE_HEADER_BYTES].copy_from_slice(&piece.encode(stamp));
    }

    #[test]
    fn parts_that_check_by_themselves_and_make_no_whole_are_named() {
        type Edit = fn(&mut Vec<u8>, u64);
        let cases: [(&str, Edit); 6] = [
            ("a piece is out of place", |bytes, stamp| {
                with_piece(bytes, stamp, |piece| piece.shard = 0);
            }),
            ("a piece is out of place", |bytes, stamp| {
                with_piece(bytes, stamp, |piece| piece.index = 7);
            }),
            ("a piece's items do not fit it", |bytes, stamp| {
                with_piece(bytes, stamp, |piece| piece.items = 2);
            }),
            ("a piece does not fit the file", |bytes, stamp| {
                with_piece(bytes, stamp, |piece| piece.payload_bytes = 3 << 12);
            }),
            ("a piece is out of place", |bytes, stamp| {
                with_piece(bytes, stamp, |piece| piece.last = false);
            }),
            ("a piece is missing", |bytes, _| {
                bytes.drain(3 * BLOCK_BYTES..4 * BLOCK_BYTES);
                let foot = bytes.len() - BLOCK_BYTES;
                let footer = format::Footer::parse(&bytes[foot..]).unwrap();
                let footer = format::Footer { file_bytes: bytes.len() as u64, ..footer };
                bytes[foot..][..format::FOOTER_BYTES].copy_from_slice(&footer.encode());
            }),
        ];
        for (what, edit) in cases {
            let told = forged(edit).to_string();
            assert!(told.starts_with("sim:snap/") && told.ends_with(what), "{what}: {told}");
        }
    }

    #[test]
    fn a_sum_that_is_another_file_s_is_found_after_the_last_piece() {
        let device = Arc::new(SimDevice::new(Image::empty(1)));
        write(&device, 3);
        let mut image = device.image();
        let mut bytes = image.content(&names::snapshot(LSN)).unwrap();
        let foot = bytes.len() - BLOCK_BYTES;
        let footer = format::Footer::parse(&bytes[foot..]).unwrap();
        let footer = format::Footer { total_crc: !footer.total_crc, ..footer };
        bytes[foot..][..format::FOOTER_BYTES].copy_from_slice(&footer.encode());
        image.set_content(&names::snapshot(LSN), &bytes);
        let told = read(&SimDevice::new(image)).unwrap_err().to_string();
        assert!(told.ends_with("the sum over the file"), "{told}");
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_found() {
        let device = Arc::new(SimDevice::new(Image::empty(1)));
        let info = write(&device, 3);
        let path = names::snapshot(LSN);
        let file = device.open(&path).unwrap();
        let mut whole = vec![0; usize::try_from(info.bytes).unwrap()];
        read_full(&*file, &mut whole, 0).unwrap();
        // All of the first sector of each block, where the headers are, and some of the rest.
        for at in (0..whole.len()).filter(|at| at % 4096 < 512 || at % 61 == 0) {
            let byte = [whole[at] ^ 0x10];
            write_full(&*file, &byte, at as u64).unwrap();
            assert!(read(&device).is_err(), "byte {at}");
            write_full(&*file, &whole[at..=at], at as u64).unwrap();
        }
        assert!(read(&device).is_ok());
        for blocks in 0..whole.len() / 4096 {
            device.create_zeroed(&path, 0).unwrap();
            let file = device.open(&path).unwrap();
            write_full(&*file, &whole[..blocks * 4096], 0).unwrap();
            assert!(read(&device).is_err(), "{blocks} blocks");
        }
    }
}
