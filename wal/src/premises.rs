//! Whether a directory is one to keep a log in: its file system, what else it holds, its constants.

use crate::block::BLOCK;
use crate::control::{CONTROL_DRAFT_PATH, CONTROL_PATH, Format};
use crate::device::{Device, Entry, FileSystem, if_found};
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
    let entries = if_found(device.list("")).map_err(io_error(device, "list", ""))?;
    let entries = entries.unwrap_or_default();
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
    let segments = if_found(device.list(names::WAL_DIR));
    let segments = segments.map_err(io_error(device, "list", names::WAL_DIR))?;
    if segments.unwrap_or_default().is_empty() {
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::sim::{Image, SimDevice};
    use crate::testing::{Call, FORMAT, Refusing, disk, names_the_file};

    #[test]
    fn a_file_system_is_taken_where_its_syncs_are_worth_something_or_that_is_accepted() {
        for (kind, taken) in [
            (FileSystem::Suitable, true),
            (FileSystem::Overlay, true),
            (FileSystem::Volatile, false),
            (FileSystem::Network, false),
        ] {
            let device = Refusing { disk: disk(), call: None, kind };
            assert_eq!(suitable(&device, true).unwrap(), kind);
            match suitable(&device, false) {
                Ok(found) => assert!(taken && found == kind),
                Err(error) => {
                    assert!(
                        !taken && error.to_string().contains("--accept-file-system"),
                        "{error}"
                    );
                }
            }
        }
        let error = suitable(&Refusing::new(&disk(), Call::FileSystem), true).unwrap_err();
        assert!(names_the_file(&error), "{error}");
    }

    #[test]
    fn a_log_is_made_among_nobody_s_files_and_not_where_one_has_lost_its_head() {
        let companions = ["orders.db".to_owned()];
        let refusal = |paths: &[&str]| {
            let mut image = Image::empty(1);
            for path in paths {
                image.set_content(path, b"x");
            }
            let device = SimDevice::new(image);
            if paths.iter().any(|path| path.starts_with("wal/")) {
                device.create_dir(names::WAL_DIR).unwrap();
            }
            let found = look(&device).unwrap();
            refuse_foreign(&device, &found, &companions).err()
        };
        for fine in [&[][..], &["LOCK"], &["orders.db"], &["lost+found"], &[CONTROL_PATH, "mine"]] {
            assert!(refusal(fine).is_none(), "{fine:?}");
        }
        let told = refusal(&["LOCK", "thesis.tex"]).unwrap();
        assert!(matches!(told, OpenError::Foreign { ref entry, .. } if entry == "thesis.tex"));
        let told = refusal(&["LOCK", "wal/seg-0000000000000001.log"]).unwrap();
        assert!(matches!(told, OpenError::NotOurs { .. }), "{told}");
        // Directories alone are what a crash leaves of a log that was being made.
        let device = disk();
        device.create_dir(names::WAL_DIR).unwrap();
        let found = look(&device).unwrap();
        assert!(refuse_foreign(&device, &found, &[]).is_ok());
    }

    #[test]
    fn constants_that_no_log_can_have_are_refused_by_name() {
        check_format(&FORMAT).unwrap();
        let of = |change: fn(&mut Format)| {
            let mut format = FORMAT;
            change(&mut format);
            check_format(&format)
        };
        for (change, what) in [
            ((|it| it.shard_count = 0) as fn(&mut Format), "number of shards"),
            (|it| it.shard_count = SHARDS_MAX + 1, "number of shards"),
            (|it| it.frame_bytes_max = 0, "whole number of blocks"),
            (|it| it.frame_bytes_max += 1, "whole number of blocks"),
            (|it| it.in_flight_bytes_max = 1, "in flight whole"),
            (|it| it.segment_bytes += 1, "whole number of blocks"),
            (|it| it.segment_bytes = BLOCK, "two of the largest frames"),
            (|it| it.segment_bytes = BLOCK << 32, "too large"),
        ] {
            let told = of(change).unwrap_err().to_string();
            assert!(told.contains(what), "{told}");
        }
    }
}
