//! Whether a directory is one to keep a log in: its file system, what else it holds, its constants.

use std::io;

use crate::block::BLOCK;
use crate::control::{CONTROL_DRAFT_PATH, CONTROL_PATH, Format};
use crate::device::{Device, Entry, FileSystem};
use crate::error::OpenError;
use crate::limits::{BATCH_FRAME_DIVISOR, SEGMENT_FRAMES_MIN, SHARDS_MAX};
use crate::names;
use crate::open::io_error;

pub(crate) fn suitable(device: &dyn Device, accepted: bool) -> Result<FileSystem, OpenError> {
    let kind = device.file_system().map_err(io_error(device, "look at", ""))?;
    let what = match kind {
        FileSystem::Suitable | FileSystem::Overlay => return Ok(kind),
        _ if accepted => return Ok(kind),
        FileSystem::Volatile => "a file system in memory, where nothing survives a power cut",
        FileSystem::Network => "a network file system, whose syncs depend on another machine",
    };
    Err(OpenError::Unsuitable { dir: device.display(""), what })
}

/// What stands at the directory's path.
pub(crate) enum Found {
    /// A log.
    Log,
    /// No log; these entries, none where the directory does not exist.
    Nothing(Vec<Entry>),
}

pub(crate) fn look(device: &dyn Device) -> Result<Found, OpenError> {
    let entries = match device.list("") {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error(device, "list", "")(error)),
    };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    Ok(if has(CONTROL_PATH) { Found::Log } else { Found::Nothing(entries) })
}

/// Refuses to make a log among other people's files, or where a log lost its CONTROL.
pub(crate) fn refuse_foreign(
    device: &dyn Device,
    found: &Found,
    companions: &[String],
) -> Result<(), OpenError> {
    let Found::Nothing(entries) = found else { return Ok(()) };
    let ours = |name: &str| {
        ["LOCK", CONTROL_DRAFT_PATH, "lost+found"].contains(&name)
            || names::DIRS.contains(&name)
            || companions.iter().any(|companion| companion == name)
    };
    if let Some(entry) = entries.iter().find(|entry| !ours(&entry.name)) {
        return Err(OpenError::Foreign { dir: device.display(""), entry: entry.name.clone() });
    }
    let segments = match device.list(names::WAL_DIR) {
        Ok(segments) => segments,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error(device, "list", names::WAL_DIR)(error)),
    };
    if segments.is_empty() {
        return Ok(());
    }
    Err(OpenError::NotOurs {
        path: device.display(CONTROL_PATH),
        what: "is missing, though there are segments",
    })
}

pub(crate) fn check_format(format: &Format) -> Result<(), OpenError> {
    let frame = u64::from(format.frame_bytes_max);
    let checks = [
        ((1..=SHARDS_MAX).contains(&format.shard_count), "the number of shards"),
        (frame >= BLOCK && frame.is_multiple_of(BLOCK), "a frame is a whole number of blocks"),
        (frame <= format.in_flight_bytes_max, "a frame must be allowed in flight whole"),
        (format.segment_bytes.is_multiple_of(BLOCK), "a segment is a whole number of blocks"),
        (
            format.segment_bytes >= BLOCK + frame * SEGMENT_FRAMES_MIN,
            "a segment holds at least a header and two of the largest frames",
        ),
        (format.segment_bytes / BLOCK <= u64::from(u32::MAX), "a segment is too large"),
        (frame / BATCH_FRAME_DIVISOR as u64 >= 512, "a frame is too small"),
    ];
    match checks.iter().find(|(ok, _)| !ok) {
        None => Ok(()),
        Some((_, what)) => Err(OpenError::BadFormat(what)),
    }
}
