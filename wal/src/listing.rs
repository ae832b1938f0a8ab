//! Which segments a directory holds, and whether they are this log's.

use crate::block::Blocks;
use crate::control::Control;
use crate::device::{Device, read_full};
use crate::error::OpenError;
use crate::ids::{Lsn, SegmentId};
use crate::names;
use crate::scan::Scanner;
use crate::segment::{SegmentHeader, SegmentHeaderError};
use crate::verdict::Case;

/// The segments that are there, ascending, checked to be without gap or repeat (case I).
pub(crate) fn list_segments(
    device: &dyn Device,
    control: &Control,
) -> Result<Vec<SegmentId>, OpenError> {
    let entries = device.list(names::WAL_DIR).map_err(|source| OpenError::Io {
        op: "list",
        path: device.display(names::WAL_DIR),
        source,
    })?;
    let mut ids: Vec<_> =
        entries.iter().filter_map(|entry| names::parse_segment(&entry.name)).collect();
    ids.sort_unstable();
    ids.retain(|id| *id >= control.oldest_needed_segment);
    let first = control.oldest_needed_segment;
    let dense = ids.iter().zip(0..).position(|(id, index)| *id != first.plus(index));
    let missing = match dense {
        Some(index) => Some(first.plus(index as u64)),
        None if control.active_segment >= first.plus(ids.len() as u64) => {
            Some(first.plus(ids.len() as u64))
        }
        // What was given back was followed by what is needed.
        None if ids.is_empty() && first > SegmentId(1) => Some(first),
        None => None,
    };
    match missing {
        None => Ok(ids),
        Some(id) => Err(OpenError::Refused {
            path: device.display(&names::segment(id)),
            offset: 0,
            case: Case::SegmentMissing,
            first_lost_lsn: lsn_after(device, control, SegmentId(id.0.saturating_sub(1))),
            until: String::new(),
        }),
    }
}

/// The record that comes after all that a segment holds, as far as that can be told: for the
/// message about the segment that should have followed.
fn lsn_after(device: &dyn Device, control: &Control, id: SegmentId) -> Lsn {
    let Ok(header) = read_header(device, control, id) else { return Lsn(0) };
    let Ok(file) = device.open_uncached(&names::segment(id)) else { return Lsn(0) };
    let frame_bytes_max = control.format.frame_bytes_max as usize;
    let mut scanner = Scanner::new(file, header, frame_bytes_max);
    while scanner.next(header.segment_bytes).is_ok() {}
    scanner.position.next_lsn
}

/// Reads and checks the header of a segment (cases I and J).
pub(crate) fn read_header(
    device: &dyn Device,
    control: &Control,
    id: SegmentId,
) -> Result<SegmentHeader, OpenError> {
    let path = names::segment(id);
    let io = |source| OpenError::Io { op: "read", path: device.display(&path), source };
    let file = device.open_uncached(&path).map_err(io)?;
    let mut block = Blocks::new(1);
    let read = read_full(&*file, block.bytes_mut(), 0).map_err(io)?;
    let bytes = file.length().map_err(io)?;
    let not_ours = |what| OpenError::NotOurs { path: device.display(&path), what };
    let header = SegmentHeader::parse(&block.bytes()[..read]).map_err(|error| match error {
        SegmentHeaderError::Damaged(what) => not_ours(what),
        SegmentHeaderError::TooNew { format_version, feature_incompat } => OpenError::TooNew {
            path: device.display(&path),
            format_version: u32::from(format_version),
            feature_incompat,
        },
    })?;
    let active = id == control.active_segment;
    let checks = [
        (header.log_uuid == control.log_uuid, "belongs to another log"),
        (header.segment_id == id, "is another segment under a wrong name"),
        (header.epoch <= control.epoch, "is from a later run than CONTROL knows"),
        (!active || header.stamp == control.active_stamp, "is not the segment CONTROL knows"),
        (header.segment_bytes == control.format.segment_bytes, "has another segment size"),
        (bytes == header.segment_bytes, "has another length than its header says"),
    ];
    match checks.iter().find(|(ok, _)| !ok) {
        None => Ok(header),
        Some((_, what)) => Err(not_ours(what)),
    }
}
