//! Reading a log without opening it: nothing is written, not even a lock file, and a server may
//! run beside.
//!
//! Beside a running server the end of the log moves, and what lies there may be half written. Only
//! what a later frame or watermark promises as synced is read then.

use std::io;
use std::sync::Arc;

use crate::control::{Control, Format};
use crate::device::{Device, Lock, if_found};
use crate::error::{OpenError, ReadError};
use crate::ids::{Epoch, LogUuid, Lsn, SegmentId};
use crate::listing;
use crate::names;
use crate::open::{io_error, read_control};
use crate::progress::Progress;
use crate::reader::Reader;
use crate::record::Record;
use crate::recover::{self, EachRecord, Extent, FRAMES_AT, Reach, Replay, TornTail};
use crate::scan::{self, Scanner};
use crate::snapshot::{self, SnapshotError, SnapshotReader};
use crate::start::Start;
use crate::verdict::Case;

/// What reading the whole log found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// The log.
    pub uuid: LogUuid,
    /// The incarnation that last opened it to write.
    pub epoch: Epoch,
    /// Its constants.
    pub format: Format,
    /// The last record read.
    pub last_lsn: Lsn,
    /// Segments read.
    pub segments: u64,
    /// What the next start will cut.
    pub torn_tail: Option<TornTail>,
    /// Whether a server has the log open: then its unpromised end was left out.
    pub beside_running_server: bool,
}

/// A log under inspection.
pub struct Inspecting<'a> {
    device: &'a dyn Device,
    control: Control,
    /// The directory's lock, where no server has it.
    lock: Option<Box<dyn Lock>>,
    /// Those that are whole, oldest first.
    snapshots: Vec<(SnapshotReader, Start)>,
    damaged: Vec<String>,
    progress: Progress,
}

impl<'a> Inspecting<'a> {
    /// Looks at a directory and reads its snapshots whole.
    pub fn begin(device: &'a dyn Device) -> Result<Self, OpenError> {
        Self::begin_watched(device, &Progress::default())
    }

    /// The same; `progress` is told, then and later, how far the reading has come.
    pub fn begin_watched(device: &'a dyn Device, progress: &Progress) -> Result<Self, OpenError> {
        let lock = probe_lock(device)?;
        Self::under(device, lock, progress)
    }

    /// The same under a lock that is held already, or beside the process that has it.
    pub(crate) fn under(
        device: &'a dyn Device,
        lock: Option<Box<dyn Lock>>,
        progress: &Progress,
    ) -> Result<Self, OpenError> {
        let (control, _) = read_control(device)?;
        let (snapshots, damaged) = (Vec::new(), Vec::new());
        let progress = progress.clone();
        let mut it = Self { device, control, lock, snapshots, damaged, progress };
        let names = snapshot::list(device).map_err(io_error(device, "list", names::SNAP_DIR))?;
        for info in names {
            match snapshot::open(device, &it.control, info, &it.progress) {
                Ok(snapshot) => it.snapshots.push(snapshot),
                Err(SnapshotError::TooNew { path, format_version, feature_incompat }) => {
                    return Err(OpenError::TooNew { path, format_version, feature_incompat });
                }
                // A server beside made a newer one and removed this one since it was listed.
                Err(SnapshotError::Io { source, .. })
                    if it.lock.is_none() && source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => it.damaged.push(error.to_string()),
            }
        }
        let ascends = it.snapshots.is_sorted_by(|(_, one), (_, next)| one.lsn < next.lsn);
        assert!(ascends, "the newest snapshot is the last");
        Ok(it)
    }

    /// The log.
    pub fn uuid(&self) -> LogUuid {
        self.control.log_uuid
    }

    /// The newest snapshot that is whole.
    pub fn newest_snapshot(self) -> Option<SnapshotReader> {
        self.snapshots.into_iter().next_back().map(|(reader, _)| reader)
    }

    /// The constants of the log.
    pub fn format(&self) -> &Format {
        &self.control.format
    }

    /// The snapshots that are whole, oldest first.
    pub fn snapshots(&mut self) -> impl Iterator<Item = &mut SnapshotReader> {
        self.snapshots.iter_mut().map(|(reader, _)| reader)
    }

    /// What is wrong with the others.
    pub fn damaged_snapshots(&self) -> &[String] {
        &self.damaged
    }

    /// Whether every record of the log is still there.
    pub fn is_whole(&self) -> bool {
        self.control.oldest_needed_segment == SegmentId(1)
    }

    /// Whether a server has the log open.
    pub fn beside_running_server(&self) -> bool {
        self.lock.is_none()
    }

    /// Reads and judges what a start would: from the newest snapshot on. Returns the last record.
    pub(crate) fn read_needed(&self) -> Result<Lsn, OpenError> {
        let start = self.snapshots.last().map(|(_, start)| start);
        let how = (Reach::Everything, Extent::Needed);
        let (device, control, progress) = (self.device, &self.control, &self.progress);
        let mut ignore = |_: &Record<'_>| Ok(());
        let replay = &mut EachRecord(&mut ignore);
        let recovered = recover::recover(device, control, how, start, progress, replay)?;
        Ok(recovered.last_lsn)
    }

    /// Reads and judges all of the log that is there, handing every record after `from`, a
    /// snapshot's LSN, to `replay`; without one every record from the first on.
    pub fn read(
        &self,
        from: Option<Lsn>,
        replay: &mut Replay<'_>,
    ) -> Result<Inspection, OpenError> {
        let reach = if self.lock.is_some() { Reach::Everything } else { Reach::Promised };
        let start = self.snapshots.iter().find(|(_, start)| Some(start.lsn) == from);
        let (device, control) = (self.device, &self.control);
        let (start, how) = (start.map(|(_, start)| start), (reach, Extent::All));
        let recovered =
            recover::recover(device, control, how, start, &self.progress, &mut EachRecord(replay))?;
        Ok(Inspection {
            uuid: control.log_uuid,
            epoch: control.epoch,
            format: control.format,
            last_lsn: recovered.last_lsn,
            segments: recovered.segments,
            torn_tail: recovered.torn_tail,
            beside_running_server: self.lock.is_none(),
        })
    }
}

/// Reads and judges a log that is kept whole, handing every record to `replay`.
pub fn inspect(device: &dyn Device, replay: &mut Replay<'_>) -> Result<Inspection, OpenError> {
    Inspecting::begin(device)?.read(None, replay)
}

/// The constants of a log, without reading it.
pub fn read_format(device: &dyn Device) -> Result<Format, OpenError> {
    Ok(read_control_of_log(device)?.0.format)
}

/// A reader of a log that this process has not opened, which goes on as a server beside it
/// promises more.
pub fn follow(device: Arc<dyn Device>) -> Result<Reader, OpenError> {
    let (control, _) = read_control_of_log(&*device)?;
    let format = control.format;
    let source = Arc::clone(&device);
    let end = move || match promised_lsn(&*source) {
        // Given back while it was looked at: the next look sees the log as it is then.
        Err(error) if has_moved(&error) => Ok(Lsn(0)),
        promised => promised.map_err(|error| ReadError::NoEnd(Box::new(error))),
    };
    Ok(Reader::new(device, format, Box::new(end)))
}

/// Whether a server beside may have given back a segment while it was looked at.
fn has_moved(error: &OpenError) -> bool {
    match error {
        OpenError::Refused { case, .. } => *case == Case::SegmentMissing,
        OpenError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

fn read_control_of_log(device: &dyn Device) -> Result<(Control, Option<Box<dyn Lock>>), OpenError> {
    let lock = probe_lock(device)?;
    Ok((read_control(device)?.0, lock))
}

/// The last record that is known to be durable, as far as a bystander can tell.
fn promised_lsn(device: &dyn Device) -> Result<Lsn, OpenError> {
    let (control, lock) = read_control_of_log(device)?;
    let ids = listing::list_segments(device, &control)?;
    let Some(last) = ids.last() else { return Ok(Lsn(0)) };
    let header = listing::read_header(device, &control, *last)?;
    let path = names::segment(*last);
    let file = device.open_uncached(&path).map_err(io_error(device, "open", &path))?;
    let limit = match lock {
        Some(_) => header.segment_bytes,
        None => scan::survey(&*file, &header, FRAMES_AT).promised_through.max(FRAMES_AT),
    };
    let mut scanner = Scanner::new(file, header, control.format.frame_bytes_max as usize);
    while scanner.next(limit).is_ok() {}
    Ok(Lsn(scanner.position.next_lsn.0 - 1))
}

/// The directory's lock, or `None` where a server has it. A directory without a lock file never
/// had a server, and is left without one.
fn probe_lock(device: &dyn Device) -> Result<Option<Box<dyn Lock>>, OpenError> {
    let entries = if_found(device.list("")).map_err(io_error(device, "list", ""))?;
    let entries = entries.unwrap_or_default();
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    if !has("LOCK") || !has(crate::control::CONTROL_PATH) {
        return Err(OpenError::NoLog { dir: device.display("") });
    }
    match device.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(io_error(device, "lock", "LOCK")(error)),
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "inspect_tests.rs"]
mod tests;
