//! Repair: gives up the damaged end of a log, on an operator's word, and nothing before it.
//!
//! A refused start names the first record that can't be read. Whoever accepts that this record and
//! all after it are lost says so with its LSN: no other one will do. Then the log is made to end
//! before it:
//!
//! | step | what is written | a crash right after it leaves |
//! |------|-----------------|-------------------------------|
//! | 1    | a copy of CONTROL in quarantine | the damaged log |
//! | 2    | a draft of the segment the log will end in: its frames, then zeros | the damaged log |
//! | 3    | the segments behind it go to quarantine, the last one first | a log refused as cut |
//! | 4    | the segment gets a name in quarantine, then the draft takes its own | the same |
//! | 5    | CONTROL names it as the last segment, without a clean end | the repaired log |
//!
//! Existing files are moved, never written to, and a repair that was cut short is done again from
//! the start. What the lost frames say, where they can still be read, is handed to the caller, who
//! says in words what is given up.

use std::sync::Arc;

use crate::block::{BLOCK, Blocks};
use crate::control::{CONTROL_PATH, Control, LogEnd};
use crate::device::{Device, File, read_full, write_full};
use crate::error::OpenError;
use crate::frame::FrameHeader;
use crate::ids::{Lsn, SegmentId};
use crate::inspect::Inspecting;
use crate::limits::BLOCK_BYTES;
use crate::listing::read_header;
use crate::names;
use crate::open::{io_error, lock, read_control};
use crate::premises::{Found, look};
use crate::progress::Progress;
use crate::reader::Frame;
use crate::recover::FRAMES_AT;
use crate::scan::Scanner;
use crate::segment::SegmentHeader;

const DRAFT_PATH: &str = "wal/repair.tmp";

/// Segments are copied in pieces of this many blocks.
const PIECE_BLOCKS: usize = 256;

/// Why a log was not repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// It can't be opened for another reason than damage at its end.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another record is the first that is lost.
    #[error(
        "the first record that can't be read is LSN {first_lost}, not {asked}: nothing was done"
    )]
    OtherLsn {
        /// What was accepted.
        asked: Lsn,
        /// What would be lost.
        first_lost: Lsn,
    },
    /// Nothing before that record can be read either.
    #[error(
        "no segment before LSN {asked} can be read: the directory can't be repaired, restore it \
         from a backup"
    )]
    NothingLeft {
        /// What was accepted.
        asked: Lsn,
    },
}

/// What a repair found and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repaired {
    /// The log needs none: it can be served up to this record.
    Whole(Lsn),
    /// The log ends before the record that was given up.
    Cut(Loss),
}

/// What was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The first record.
    pub first_lsn: Lsn,
    /// The last one that any remains name; `None` where none do.
    pub last_lsn: Option<Lsn>,
    /// The segment the log now ends in, and where.
    pub path: String,
    /// See [`Loss::path`].
    pub offset: u64,
    /// Where the originals are kept, each under its own name.
    pub quarantine: String,
    /// Their names.
    pub originals: Vec<String>,
}

/// Makes the log of `device` end before `first_lost`, the first record that can't be read, or with
/// `dry_run` only tells what that would give up. Frames beyond it that are still whole are shown
/// to `salvage`.
///
/// # Errors
/// [`RepairError`]; the log is as it was, or as an interrupted repair left it, which can be run
/// again.
pub fn repair(
    device: &dyn Device,
    first_lost: Lsn,
    dry_run: bool,
    progress: &Progress,
    salvage: &mut dyn FnMut(&Frame<'_>),
) -> Result<Repaired, RepairError> {
    if matches!(look(device)?, Found::Nothing(_)) {
        return Err(OpenError::NoLog { dir: device.display("") }.into());
    }
    // Holds the directory's lock to the end.
    let inspecting = Inspecting::under(device, Some(lock(device)?), progress)?;
    if let Some(last_lsn) = judge(&inspecting, first_lost)? {
        return Ok(Repaired::Whole(last_lsn));
    }
    let (mut control, control_file) = read_control(device)?;
    let ids = segment_ids(device, &control)?;
    let end = find_end(device, &control, &ids, first_lost)?;
    let behind: Vec<SegmentId> =
        ids.iter().copied().filter(|id| *id >= end.header.segment_id).collect();
    assert!(end.at.last_lsn.plus(1) == first_lost, "what is given up begins where it was asked");
    assert!(behind.first() == Some(&end.header.segment_id), "the end lies in the first of them");
    let mut last_lsn = None;
    for id in &behind {
        let from = if *id == end.header.segment_id { end.at.offset } else { FRAMES_AT };
        last_lsn = last_lsn.max(remains(device, &control, *id, (from, first_lost), salvage));
    }
    assert!(last_lsn.is_none_or(|last| last >= first_lost), "what is lost ends before it begins");
    let quarantine = names::quarantined(&format!("repair-{:016x}", first_lost.0));
    let mut loss = Loss {
        first_lsn: first_lost,
        last_lsn,
        path: device.display(&names::segment(end.header.segment_id)),
        offset: end.at.offset,
        quarantine: device.display(&quarantine),
        originals: behind.iter().map(|id| file_name(&names::segment(*id)).to_owned()).collect(),
    };
    if dry_run {
        return Ok(Repaired::Cut(loss));
    }
    let mut originals = Originals::begin(device, quarantine)?;
    originals.copy_control()?;
    draft(device, &end)?;
    for id in behind.iter().rev().filter(|id| **id > end.header.segment_id) {
        originals.take(&names::segment(*id))?;
    }
    let path = names::segment(end.header.segment_id);
    originals.keep(&path)?;
    device.rename(DRAFT_PATH, &path).map_err(io_error(device, "rename", DRAFT_PATH))?;
    device.sync_dir(names::WAL_DIR).map_err(io_error(device, "sync", names::WAL_DIR))?;
    control.active_segment = end.header.segment_id;
    control.active_stamp = end.header.stamp;
    control.clean_end = None;
    assert!(control.oldest_needed_segment <= control.active_segment, "W7: what is needed stays");
    control.write(&*control_file).map_err(io_error(device, "write", CONTROL_PATH))?;
    loss.originals = originals.names;
    Ok(Repaired::Cut(loss))
}

/// The last record of a log that can be served; `None` for one that is refused from `first_lost`
/// on, or for damage that names no record.
fn judge(inspecting: &Inspecting<'_>, first_lost: Lsn) -> Result<Option<Lsn>, RepairError> {
    match inspecting.read_needed() {
        Ok(last_lsn) => Ok(Some(last_lsn)),
        Err(OpenError::Refused { first_lost_lsn, .. })
            if first_lost_lsn != Lsn(0) && first_lost_lsn != first_lost =>
        {
            Err(RepairError::OtherLsn { asked: first_lost, first_lost: first_lost_lsn })
        }
        Err(OpenError::Refused { .. } | OpenError::NotOurs { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn segment_ids(device: &dyn Device, control: &Control) -> Result<Vec<SegmentId>, OpenError> {
    let entries = device.list(names::WAL_DIR).map_err(io_error(device, "list", names::WAL_DIR))?;
    let ids = entries.iter().filter_map(|entry| names::parse_segment(&entry.name));
    let mut ids: Vec<_> = ids.filter(|id| *id >= control.oldest_needed_segment).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The segment that the log will end in, and where.
struct End {
    header: SegmentHeader,
    at: LogEnd,
    file: Arc<dyn File>,
}

/// The last place before which everything reads, which must be where `first_lost` would stand.
fn find_end(
    device: &dyn Device,
    control: &Control,
    ids: &[SegmentId],
    first_lost: Lsn,
) -> Result<End, RepairError> {
    let first = control.oldest_needed_segment;
    let dense = ids.iter().zip(0..).take_while(|(id, index)| **id == first.plus(*index));
    let headers: Vec<SegmentHeader> = dense
        .map_while(|(id, _)| read_header(device, control, *id).ok())
        .take_while(|header| header.first_lsn <= first_lost)
        .collect();
    let header = *headers.last().ok_or(RepairError::NothingLeft { asked: first_lost })?;
    let path = names::segment(header.segment_id);
    let file = device.open_uncached(&path).map_err(io_error(device, "open", &path))?;
    let successor = read_header(device, control, header.segment_id.plus(1)).ok();
    let limit = header.limit(successor.as_ref());
    let frame_bytes_max = control.format.frame_bytes_max as usize;
    let mut scanner = Scanner::new(Arc::clone(&file), header, frame_bytes_max);
    while scanner.position.next_lsn <= first_lost && scanner.next(limit).is_ok() {}
    let first_unread = scanner.position.next_lsn;
    if first_unread != first_lost {
        return Err(RepairError::OtherLsn { asked: first_lost, first_lost: first_unread });
    }
    Ok(End { header, at: scanner.end(), file })
}

/// Shows the whole frames of a segment from an offset on to `salvage`, those from an LSN on; tells
/// the last LSN that any header there names.
fn remains(
    device: &dyn Device,
    control: &Control,
    id: SegmentId,
    (from, first_lost): (u64, Lsn),
    salvage: &mut dyn FnMut(&Frame<'_>),
) -> Option<Lsn> {
    let file = device.open_uncached(&names::segment(id)).ok()?;
    let frame_bytes_max = control.format.frame_bytes_max as usize;
    let mut frame = Blocks::for_bytes(frame_bytes_max);
    read_full(&*file, &mut frame.bytes_mut()[..BLOCK_BYTES], 0).ok()?;
    let header = SegmentHeader::parse(frame.bytes()).ok()?;
    if header.log_uuid != control.log_uuid {
        return None;
    }
    // Behind a seal lies what the log does not know.
    let successor = read_header(device, control, id.plus(1)).ok();
    let limit = header.limit(successor.as_ref());
    let mut last_lsn = None;
    let mut at = from;
    while at < limit {
        // What can't be read is passed over.
        let read = read_full(&*file, frame.bytes_mut(), at).unwrap_or(0);
        let found = FrameHeader::probe(&frame.bytes()[..read], header.stamp)
            .filter(|found| found.fields_ok(at, frame_bytes_max) && found.first_lsn >= first_lost);
        let Some(found) = found else {
            at += BLOCK;
            continue;
        };
        last_lsn = last_lsn.max((found.record_count > 0).then(|| found.last_lsn()));
        if found.record_count > 0 && found.body_ok(&frame.bytes()[..read], header.stamp) {
            salvage(&Frame::new(&found, frame.bytes()));
            at += found.frame_bytes() as u64;
        } else {
            at += BLOCK;
        }
    }
    last_lsn
}

/// Writes the segment as it will be, durably, under a draft's name.
fn draft(device: &dyn Device, end: &End) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { op: "write", path: device.display(DRAFT_PATH), source };
    device.create_zeroed(DRAFT_PATH, end.header.segment_bytes).map_err(io)?;
    let draft = device.open(DRAFT_PATH).map_err(io)?;
    let mut piece = Blocks::new(PIECE_BLOCKS);
    let cut = end.at.offset;
    assert!(cut.is_multiple_of(BLOCK) && cut >= FRAMES_AT, "W9: a log is cut where a frame ends");
    assert!(cut <= end.header.segment_bytes, "W9: a log is cut within its segment");
    let mut at = 0;
    while at < cut {
        let left = usize::try_from(cut - at).unwrap_or(usize::MAX);
        let bytes = left.min(piece.bytes().len());
        let read = read_full(&*end.file, &mut piece.bytes_mut()[..bytes], at).map_err(io)?;
        if read < bytes {
            return Err(io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        write_full(&*draft, &piece.bytes()[..bytes], at).map_err(io)?;
        at += bytes as u64;
    }
    draft.sync_data().map_err(io)
}

/// The originals, on their way into a directory of their own.
struct Originals<'a> {
    device: &'a dyn Device,
    dir: String,
    names: Vec<String>,
}

impl<'a> Originals<'a> {
    fn begin(device: &'a dyn Device, dir: String) -> Result<Self, OpenError> {
        device.create_dir(&dir).map_err(io_error(device, "create", &dir))?;
        Ok(Self { device, dir, names: Vec::new() })
    }

    /// A name in the directory that no file has: an interrupted repair may have begun to fill it.
    fn free_path(&mut self, path: &str) -> Result<String, OpenError> {
        let device = self.device;
        let taken = device.list(&self.dir).map_err(io_error(device, "list", &self.dir))?;
        let name = file_name(path);
        let names = std::iter::once(name.to_owned())
            .chain((2..).map(|number: u32| format!("{name}.{number}")));
        let mut free = names.filter(|name| taken.iter().all(|entry| entry.name != *name));
        let name = free.next().unwrap_or_default();
        self.names.push(name.clone());
        Ok(format!("{}/{name}", self.dir))
    }

    /// Moves a file in, durably.
    fn take(&mut self, path: &str) -> Result<(), OpenError> {
        let device = self.device;
        let kept = self.free_path(path)?;
        device.rename(path, &kept).map_err(io_error(device, "move to quarantine", path))?;
        for dir in [self.dir.as_str(), names::WAL_DIR] {
            device.sync_dir(dir).map_err(io_error(device, "sync", dir))?;
        }
        Ok(())
    }

    /// Gives a file a second name here, durably.
    fn keep(&mut self, path: &str) -> Result<(), OpenError> {
        let device = self.device;
        let kept = self.free_path(path)?;
        device.link(path, &kept).map_err(io_error(device, "keep in quarantine", path))?;
        device.sync_dir(&self.dir).map_err(io_error(device, "sync", &self.dir))
    }

    fn copy_control(&mut self) -> Result<(), OpenError> {
        let device = self.device;
        let kept = self.free_path(CONTROL_PATH)?;
        let io = |source| OpenError::Io { op: "copy", path: device.display(CONTROL_PATH), source };
        let mut slots = Blocks::new(2);
        let control = device.open_uncached(CONTROL_PATH).map_err(io)?;
        let read = read_full(&*control, slots.bytes_mut(), 0).map_err(io)?;
        device.create_zeroed(&kept, read as u64).map_err(io)?;
        let copy = device.open(&kept).map_err(io)?;
        write_full(&*copy, &slots.bytes()[..read], 0).map_err(io)?;
        copy.sync_data().map_err(io)?;
        device.sync_dir(&self.dir).map_err(io)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
