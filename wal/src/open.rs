//! Opening a log: look, lock, read, judge, and only then begin to write.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::committer::{Parts, Tail};
use crate::control::{CONTROL_PATH, Control, ControlError, Format};
use crate::device::{Appends, Device, File, FileSystem, Lock};
use crate::error::OpenError;
use crate::failure::condemn;
use crate::fatal::OnFatal;
use crate::features;
use crate::ids::{Epoch, LogIdentity, LogUuid, Lsn, SegmentId};
use crate::intake::Intake;
use crate::limits::{LOCK_RETRY_MS, LOCK_TRIES};
use crate::listing;
use crate::log::Log;
use crate::metrics::Counters;
use crate::names;
use crate::planted::{self, Bug};
use crate::premises::{Found, check_format, look, refuse_foreign, suitable};
use crate::progress::Progress;
use crate::reader::Reader;
use crate::recover::{self, EachRecord, Extent, Reach, Recovered, Replay, Replaying, TornTail};
use crate::retention::Retention;
use crate::snapshot::{Candidates, SnapshotReader, tidy_up};
use crate::spares::Spares;
use crate::watermark::Watermark;

/// How to open a log.
pub struct OpenOptions {
    /// The constants for a directory that holds no log yet.
    pub format: Format,
    /// Opens on a file system whose syncs promise little, too.
    pub accept_file_system: bool,
    /// Names that a directory without a log may hold: the owner's other files.
    pub companions: Vec<String>,
    /// Called once when the log fails.
    pub on_fatal: OnFatal,
}

/// What opening found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenReport {
    /// The log, in the incarnation that was just begun.
    pub identity: LogIdentity,
    /// Whether the directory was formatted just now.
    pub formatted: bool,
    /// The last record.
    pub last_lsn: Lsn,
    /// Segments read.
    pub segments: u64,
    /// What was cut, if anything.
    pub torn_tail: Option<TornTail>,
    /// The kind of file system the log lies on.
    pub file_system: FileSystem,
    /// How segments are written there.
    pub appends: Appends,
    /// What the snapshot covers that the state was taken from; 0 for none.
    pub snapshot_lsn: Lsn,
    /// Snapshots that were passed over, each with what is wrong with it.
    pub damaged_snapshots: Vec<String>,
}

/// A log on its way to be opened, step by step, for an owner that must know the constants before
/// the first record and wants its say after the last. An existing log is changed on disk by
/// [`Judged::finish`] alone, but for a note in CONTROL of a segment that saw an I/O error.
pub struct Opening {
    device: Arc<dyn Device>,
    on_fatal: OnFatal,
    lock: Box<dyn Lock>,
    control: Control,
    control_file: Arc<dyn File>,
    formatted: bool,
    file_system: FileSystem,
    snapshots: Candidates,
    progress: Progress,
}

impl Opening {
    /// Takes the directory for this process and reads its constants; formats one that is empty.
    pub fn begin(device: Arc<dyn Device>, options: OpenOptions) -> Result<Self, OpenError> {
        let file_system = suitable(&*device, options.accept_file_system)?;
        let found = look(&*device)?;
        if matches!(found, Found::Nothing(_)) {
            check_format(&options.format)?;
            refuse_foreign(&*device, &found, &options.companions)?;
            device.create_dir("").map_err(io_error(&*device, "create", ""))?;
        }
        let lock = lock(&*device)?;
        // Another process may have formatted the directory while this one waited for the lock.
        let formatted = matches!(look(&*device)?, Found::Nothing(_));
        let (control, control_file) = match formatted {
            true => format(&*device, options.format)?,
            false => {
                if !planted::has(Bug::SkipControlSyncAtOpen) {
                    sync_control(&*device)?;
                }
                read_control(&*device)?
            }
        };
        let on_fatal = options.on_fatal;
        let snapshots = Candidates::list(&*device)?;
        Ok(Self {
            device,
            on_fatal,
            lock,
            control,
            control_file,
            formatted,
            file_system,
            snapshots,
            progress: Progress::default(),
        })
    }

    /// Tells `progress` from now on how far the reading has come.
    pub fn watch(&mut self, progress: &Progress) {
        self.progress = progress.clone();
    }

    /// The constants fixed when the directory was formatted.
    pub fn format(&self) -> &Format {
        &self.control.format
    }

    /// Begins from the newest snapshot that is whole and that `load` takes; `false` where there is
    /// none: then the log is replayed from its first record on, if that is still there. Each is
    /// read once: `load` reads it to its end, makes of it what it can, and throws that away where
    /// it returns an error, its own or that of a piece.
    ///
    /// # Errors
    /// [`OpenError`]: a snapshot can't be opened, or is of a newer version.
    ///
    /// # Panics
    /// Where `load` takes a snapshot that it has not read to its end.
    pub fn load_snapshot<E: fmt::Display>(
        &mut self,
        load: &mut dyn FnMut(&mut SnapshotReader) -> Result<(), E>,
    ) -> Result<bool, OpenError> {
        self.snapshots.load(&*self.device, &self.control, &self.progress, load)
    }

    /// Reads the log after the snapshot that was loaded, handing every record to `replay`, and
    /// judges its end.
    pub fn replay(self, replay: &mut Replay<'_>) -> Result<Judged, OpenError> {
        self.replay_into(&mut EachRecord(replay))
    }

    /// The same, into an owner that takes many records at once.
    pub fn replay_into(mut self, replay: &mut dyn Replaying) -> Result<Judged, OpenError> {
        sync_tail(&*self.device, &mut self.control, &*self.control_file)?;
        let how = (Reach::Everything, Extent::Needed);
        let start = self.snapshots.start();
        let recovered =
            recover::recover(&*self.device, &self.control, how, start, &self.progress, replay)?;
        Ok(Judged { opening: self, recovered })
    }
}

/// A log that was read whole and may be served.
pub struct Judged {
    opening: Opening,
    recovered: Recovered,
}

impl Judged {
    /// The log, in the incarnation that [`Judged::finish`] begins.
    pub fn identity(&self) -> LogIdentity {
        let Control { log_uuid: uuid, epoch, .. } = self.opening.control;
        LogIdentity { uuid, epoch: epoch.plus(1) }
    }

    /// Reads what was recovered: for an owner that compares it with what stands elsewhere, and can
    /// still leave everything as it is.
    pub fn reader(&self) -> Reader {
        let Opening { device, control, .. } = &self.opening;
        let last_lsn = self.recovered.last_lsn;
        Reader::new(Arc::clone(device), control.format, Box::new(move || Ok(last_lsn)))
    }

    /// Begins a new incarnation: its epoch first (W11), then a segment that seals the log.
    pub fn finish(self) -> Result<(Log, OpenReport), OpenError> {
        let identity = self.identity();
        let Self { opening, recovered } = self;
        let Opening { device, on_fatal, lock, mut control, control_file, snapshots, .. } = opening;
        let appends = device.settle_appends().map_err(io_error(
            &*device,
            "probe writes in",
            names::WAL_DIR,
        ))?;
        control.epoch = control.epoch.plus(1);
        assert_begins(&control, &recovered);
        // Recovery held the end that was read against it.
        let closed = control.clean_end.take().is_some();
        let last_segment = recovered.end.map_or(SegmentId(0), |end| end.segment);
        if recovered.unreadable_tail {
            condemn(&mut control, last_segment);
        }
        if !planted::has(Bug::EpochNotDurable) {
            control.write(&*control_file).map_err(io_error(&*device, "write", CONTROL_PATH))?;
        }
        let format = control.format;
        lock.note(&format!("pid {} epoch {}\n", std::process::id(), identity.epoch))
            .map_err(io_error(&*device, "write", "LOCK"))?;

        tidy_up(&*device, &control, &snapshots).map_err(io_error(&*device, "tidy up", ""))?;
        let spares = Spares::adopt(&*device, &control, closed).map_err(io_error(
            &*device,
            "read",
            names::WAL_DIR,
        ))?;
        let (sinks, segment_bytes) = (control.sinks.clone(), format.segment_bytes);
        let kept = snapshots.kept();
        let retention = Retention::new(&recovered.headers, sinks, kept, segment_bytes, closed);
        let frame_bytes_max = format.frame_bytes_max as usize;
        let seqs = &recovered.shard_seqs;
        let parts = Parts {
            intake: Intake::new(seqs, frame_bytes_max, format.in_flight_bytes_max),
            watermark: Watermark::new(seqs, recovered.last_lsn),
            spares,
            retention,
            counters: Counters::default(),
            on_fatal,
            device: Arc::clone(&device),
        };
        let (end, last_lsn) = (recovered.end, recovered.last_lsn);
        let mut tail = Tail::new(control, control_file, end, last_lsn, recovered.data_chain);
        if tail.open_segment(&parts, last_segment).is_err() {
            return Err(OpenError::Io {
                op: "begin a segment in",
                path: device.display(names::WAL_DIR),
                source: io::Error::other("see the line before"),
            });
        }
        assert!(tail.segment_id() == last_segment.plus(1), "W9: a new segment seals the old end");
        let report = OpenReport {
            identity,
            formatted: opening.formatted,
            last_lsn: recovered.last_lsn,
            segments: recovered.segments,
            torn_tail: recovered.torn_tail,
            file_system: opening.file_system,
            appends,
            snapshot_lsn: snapshots.start().map_or(Lsn(0), |start| start.lsn),
            damaged_snapshots: snapshots.complaints(),
        };
        Ok((Log::new(parts, tail, identity, format, lock), report))
    }
}

/// What a new incarnation begins with: an epoch that no segment has, and the log from its oldest
/// segment on.
///
/// # Panics
/// Where it begins otherwise.
fn assert_begins(control: &Control, recovered: &Recovered) {
    let epochs = recovered.headers.iter().map(|header| header.epoch);
    assert!(epochs.max() < Some(control.epoch), "W11: an epoch is begun once");
    let oldest = recovered.headers.first().map(|header| header.segment_id);
    assert!(oldest.is_none_or(|id| id == control.oldest_needed_segment), "W7: none is missing");
}

pub(crate) fn io_error<'a>(
    device: &'a dyn Device,
    op: &'static str,
    path: &'a str,
) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { op, path: device.display(path), source }
}

pub(crate) fn lock(device: &dyn Device) -> Result<Box<dyn Lock>, OpenError> {
    for attempt in 1.. {
        match device.lock() {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(io_error(device, "lock", "LOCK")(error));
            }
            Err(_) if attempt >= LOCK_TRIES => break,
            Err(_) => device.pause_ms(LOCK_RETRY_MS),
        }
    }
    Err(OpenError::Locked { dir: device.display("") })
}

/// Makes an empty log. A crash in between leaves a directory that can be formatted again: CONTROL
/// comes last, and whole.
fn format(device: &dyn Device, format: Format) -> Result<(Control, Arc<dyn File>), OpenError> {
    for dir in names::DIRS {
        device.create_dir(dir).map_err(io_error(device, "create", dir))?;
    }
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        let random = device.random().map_err(io_error(device, "draw an identity for", ""))?;
        half.copy_from_slice(&random.to_le_bytes());
    }
    let mut control = Control {
        slot_seq: 0,
        log_uuid: LogUuid(uuid),
        epoch: Epoch(0),
        features: features::FRESH,
        format,
        active_segment: SegmentId(0),
        active_stamp: 0,
        snapshot_lsn: Lsn(0),
        oldest_needed_segment: SegmentId(1),
        clean_end: None,
        sinks: Vec::new(),
        never_recycle: Vec::new(),
    };
    let file = control.create(device).map_err(io_error(device, "create", CONTROL_PATH))?;
    Ok((control, file))
}

pub(crate) fn read_control(device: &dyn Device) -> Result<(Control, Arc<dyn File>), OpenError> {
    let file = device.open(CONTROL_PATH).map_err(io_error(device, "open", CONTROL_PATH))?;
    // From the disk: after a failed sync the cache may hold a slot that the disk never got, and
    // the slot beside it, the only one that is really there, would be the next to be overwritten.
    let disk = match planted::has(Bug::ControlReadThroughCache) {
        true => device.open(CONTROL_PATH),
        false => device.open_uncached(CONTROL_PATH),
    };
    let control = disk.and_then(|disk| Control::read(&*disk)).map_err(io_error(
        device,
        "read",
        CONTROL_PATH,
    ))?;
    let path = device.display(CONTROL_PATH);
    match control {
        // Memory is asked for by these constants: a slot that checks may still be none of ours.
        Ok(control) if check_format(&control.format).is_err() => {
            Err(OpenError::NotOurs { path, what: "holds constants that no log has" })
        }
        Ok(control) => Ok((control, file)),
        Err(ControlError::Damaged) => {
            Err(OpenError::NotOurs { path, what: "is damaged, or no CONTROL of a log" })
        }
        Err(ControlError::TooNew { format_version, feature_incompat }) => {
            Err(OpenError::TooNew { path, format_version, feature_incompat })
        }
    }
}

/// Makes the slot durable that a killed process may have left in the page cache, before the other
/// one is written: a power cut could tear both otherwise.
pub(crate) fn sync_control(device: &dyn Device) -> Result<(), OpenError> {
    device.open(CONTROL_PATH).and_then(|file| file.sync_data()).map_err(io_error(
        device,
        "sync",
        CONTROL_PATH,
    ))
}

/// Makes durable what a killed process left in the page cache, before it is read and believed: a
/// power cut after this start could take it back otherwise. That can lie in the last segment alone:
/// a segment is begun once all of the one before it is synced, by the process that filled it or by
/// the start that read it. A clean end says that nothing is left to be synced at all.
///
/// A segment that can't be synced is noted in CONTROL (W7). A disk may refuse the note, too; then
/// it stays suspect as the last one of a run that did not end cleanly. Any other, asked though
/// nothing of it was left to be synced, would have seen an error that nobody knows of.
fn sync_tail(
    device: &dyn Device,
    control: &mut Control,
    control_file: &dyn File,
) -> Result<(), OpenError> {
    if planted::has(Bug::SkipSyncAtOpen) {
        return Ok(());
    }
    let ids = listing::list_segments(device, control)?;
    let unsynced = ids.last().filter(|_| control.clean_end.is_none());
    if let Some(id) = unsynced {
        let path = names::segment(*id);
        let file = device.open(&path).map_err(io_error(device, "open", &path))?;
        if let Err(source) = file.sync_data() {
            condemn(control, *id);
            let _ = control.write(control_file);
            return Err(io_error(device, "sync", &path)(source));
        }
    }
    device.sync_dir(names::WAL_DIR).map_err(io_error(device, "sync", names::WAL_DIR))?;
    device.sync_dir("").map_err(io_error(device, "sync", ""))
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "open_tests.rs"]
mod tests;
