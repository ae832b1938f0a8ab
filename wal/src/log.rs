//! The open log: one handle for those who append, commit, wait and read.

use std::io;
use std::sync::Arc;

use crate::block::BLOCK;
use crate::committer::{self, Parts, Tail};
use crate::control::{CONTROL_DRAFT_PATH, CONTROL_PATH, Control, ControlError, Format};
use crate::device::{Device, Entry, File, FileSystem, Lock};
use crate::error::{Busy, LogUnavailable, OpenError};
use crate::fatal::OnFatal;
use crate::ids::{Epoch, LogIdentity, LogUuid, Lsn, SegmentId};
use crate::intake::{Batch, Class, Committed, Intake, Ticket};
use crate::limits::{
    BATCH_FRAME_DIVISOR, LOCK_RETRY_MS, LOCK_TRIES, NEVER_RECYCLE_MAX, SEGMENT_FRAMES_MIN,
    SHARDS_MAX,
};
use crate::metrics::{Counters, Metrics};
use crate::names;
use crate::planted::{self, Bug};
use crate::reader::Reader;
use crate::recover::{self, Reach, Recovered, Replay, TornTail};
use crate::spares::{SpareMade, Spares};
use crate::sync::{Mutex, block_on};
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
}

/// An open log; clones are the same log. Only one process at a time has it (W12).
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    tail: Mutex<Tail>,
    identity: LogIdentity,
    format: Format,
    /// Held for the life of the log.
    _lock: Box<dyn Lock>,
}

impl Log {
    /// Opens the log of a directory, formatting one that is empty, and hands every record to
    /// `replay`: the three steps of [`Opening`] in one.
    pub fn open(
        device: Arc<dyn Device>,
        options: OpenOptions,
        replay: &mut Replay<'_>,
    ) -> Result<(Self, OpenReport), OpenError> {
        Opening::begin(device, options)?.replay(replay)?.finish()
    }

    /// Reserves room for `bytes` (the sum of the records' [`record_bytes`](crate::record_bytes))
    /// in `shard`'s lane and holds the lane.
    pub fn begin(&self, shard: u16, bytes: usize, class: Class) -> Result<Batch<'_>, Busy> {
        self.inner.parts.intake.begin(shard, bytes, class)
    }

    /// Makes what is waiting durable, as far as one frame holds it.
    pub fn commit(&self) -> Result<Committed, LogUnavailable> {
        self.inner.tail.lock().commit(&self.inner.parts)
    }

    /// Writes a watermark if the last frame has no later one that vouches for it.
    pub fn seal_idle(&self) -> Result<(), LogUnavailable> {
        self.inner.tail.lock().seal_idle(&self.inner.parts)
    }

    /// Makes a spare segment if one is missing.
    pub fn make_spare(&self) -> Result<SpareMade, LogUnavailable> {
        let parts = &self.inner.parts;
        parts
            .spares
            .make(&*parts.device, &parts.intake)
            .map_err(|failed| committer::fail_spare(parts, failed))
    }

    /// Ends the log cleanly: refuses new records, makes those that wait durable, and says so in
    /// CONTROL. The directory is given back when the last clone is dropped.
    pub fn close(&self) -> Result<(), LogUnavailable> {
        let parts = &self.inner.parts;
        parts.intake.close();
        parts.spares.stop();
        let mut tail = self.inner.tail.lock();
        while tail.commit(parts)? != Committed::Nothing {}
        tail.close(parts)
    }

    /// Waits until `ticket` is durable.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), LogUnavailable> {
        self.inner.parts.watermark.wait(self.lane(ticket.shard), ticket.shard_seq).await
    }

    /// Waits until `ticket` is durable, on this thread.
    pub fn wait_durable(&self, ticket: Ticket) -> Result<(), LogUnavailable> {
        block_on(self.durable(ticket))
    }

    /// Waits until the log is durable up to `lsn`.
    pub async fn durable_lsn_reached(&self, lsn: Lsn) -> Result<(), LogUnavailable> {
        self.inner.parts.watermark.wait_lsn(lsn).await
    }

    /// Waits until something beyond `lsn` is durable, on this thread, at most `timeout`; tells
    /// whether it is.
    #[cfg(not(loom))]
    pub fn wait_durable_beyond(&self, lsn: Lsn, timeout: std::time::Duration) -> bool {
        let wait = self.inner.parts.watermark.wait_lsn(lsn.plus(1));
        matches!(crate::sync::block_on_for(wait, timeout), Some(Ok(())))
    }

    /// The last durable sequence of `shard`.
    pub fn durable_seq(&self, shard: u16) -> u64 {
        self.inner.parts.watermark.durable(self.lane(shard))
    }

    /// The last sequence given out in `shard`.
    pub fn last_seq(&self, shard: u16) -> u64 {
        self.inner.parts.intake.last_seq(shard)
    }

    /// The last durable record.
    pub fn durable_lsn(&self) -> Lsn {
        self.inner.parts.watermark.durable_lsn()
    }

    /// Whether the log has failed: nothing may be answered any more (W16).
    pub fn is_poisoned(&self) -> bool {
        self.inner.parts.watermark.is_poisoned()
    }

    /// A reader of durable frames, before the first of them.
    pub fn reader(&self) -> Reader {
        let log = self.clone();
        Reader::new(
            Arc::clone(&self.inner.parts.device),
            self.inner.format,
            Box::new(move || log.durable_lsn()),
        )
    }

    /// Which log this is, in which incarnation.
    pub fn identity(&self) -> LogIdentity {
        self.inner.identity
    }

    /// The constants fixed when the directory was formatted.
    pub fn format(&self) -> &Format {
        &self.inner.format
    }

    /// The log's figures.
    pub fn metrics(&self) -> Metrics {
        let parts = &self.inner.parts;
        Metrics {
            in_flight_bytes: parts.intake.in_flight_bytes(),
            new_admitted: parts.intake.new_admitted(),
            spares: parts.spares.len() as u64,
            ..parts.counters.read()
        }
    }

    /// Waits until something was appended, or about `timeout_ms`. Tells whether something was.
    pub(crate) fn wait_for_work(&self, timeout_ms: u64) -> bool {
        self.inner.parts.intake.wait(timeout_ms)
    }

    /// Wakes what waits for work, to look whether it should end.
    pub(crate) fn interrupt(&self) {
        self.inner.parts.intake.interrupt();
        self.inner.parts.spares.stop();
    }

    /// See [`Spares::wait`] and [`Spares::pause`].
    pub(crate) fn wait_for_spare(&self, disk_full: bool, timeout_ms: u64) -> bool {
        let spares = &self.inner.parts.spares;
        if disk_full { spares.pause(timeout_ms) } else { spares.wait(timeout_ms) }
    }

    fn lane(&self, shard: u16) -> usize {
        recover::lane(shard, self.inner.format.shard_count).expect("callers name their own shards")
    }
}

/// A log on its way to be opened, step by step, for an owner that must know the constants before
/// the first record and wants its say after the last. An existing log is changed on disk by
/// [`Judged::finish`] alone.
pub struct Opening {
    device: Arc<dyn Device>,
    on_fatal: OnFatal,
    lock: Box<dyn Lock>,
    control: Control,
    control_file: Arc<dyn File>,
    formatted: bool,
    file_system: FileSystem,
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
                sync_control(&*device)?;
                read_control(&*device)?
            }
        };
        let on_fatal = options.on_fatal;
        Ok(Self { device, on_fatal, lock, control, control_file, formatted, file_system })
    }

    /// The constants fixed when the directory was formatted.
    pub fn format(&self) -> &Format {
        &self.control.format
    }

    /// Reads the log, handing every record to `replay`, and judges its end.
    pub fn replay(self, replay: &mut Replay<'_>) -> Result<Judged, OpenError> {
        sync_tail(&*self.device, &self.control)?;
        let recovered = recover::recover(&*self.device, &self.control, Reach::Everything, replay)?;
        Ok(Judged { opening: self, recovered })
    }
}

/// A log that was read whole and may be served.
pub struct Judged {
    opening: Opening,
    recovered: Recovered,
}

impl Judged {
    /// Begins a new incarnation: its epoch first (W11), then a segment that seals the log.
    pub fn finish(self) -> Result<(Log, OpenReport), OpenError> {
        let Self { opening, recovered } = self;
        let Opening { device, on_fatal, lock, mut control, control_file, .. } = opening;
        control.epoch = control.epoch.plus(1);
        control.clean_end = None;
        let last_segment = recovered.end.map_or(SegmentId(0), |end| end.segment);
        if recovered.unreadable_tail && control.never_recycle.len() < NEVER_RECYCLE_MAX {
            control.never_recycle.push(last_segment);
        }
        if !planted::has(Bug::EpochNotDurable) {
            control.write(&*control_file).map_err(io_error(&*device, "write", CONTROL_PATH))?;
        }
        let identity = LogIdentity { uuid: control.log_uuid, epoch: control.epoch };
        let format = control.format;
        lock.note(&format!("pid {} epoch {}\n", std::process::id(), identity.epoch))
            .map_err(io_error(&*device, "write", "LOCK"))?;

        let spares = Spares::adopt(&*device, format.segment_bytes).map_err(io_error(
            &*device,
            "read",
            names::WAL_DIR,
        ))?;
        let frame_bytes_max = format.frame_bytes_max as usize;
        let seqs = &recovered.shard_seqs;
        let parts = Parts {
            intake: Intake::new(seqs, frame_bytes_max, format.in_flight_bytes_max),
            watermark: Watermark::new(seqs, recovered.last_lsn),
            spares,
            counters: Counters::default(),
            on_fatal,
            device: Arc::clone(&device),
        };
        let mut tail = Tail::new(control, control_file, recovered.end, recovered.last_lsn);
        if tail.open_segment(&parts, last_segment).is_err() {
            return Err(OpenError::Io {
                op: "begin a segment in",
                path: device.display(names::WAL_DIR),
                source: io::Error::other("see the line before"),
            });
        }
        let report = OpenReport {
            identity,
            formatted: opening.formatted,
            last_lsn: recovered.last_lsn,
            segments: recovered.segments,
            torn_tail: recovered.torn_tail,
            file_system: opening.file_system,
        };
        let inner = Inner { parts, tail: Mutex::new(tail), identity, format, _lock: lock };
        Ok((Log { inner: Arc::new(inner) }, report))
    }
}

pub(crate) fn io_error<'a>(
    device: &'a dyn Device,
    op: &'static str,
    path: &'a str,
) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { op, path: device.display(path), source }
}

fn suitable(device: &dyn Device, accepted: bool) -> Result<FileSystem, OpenError> {
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
enum Found {
    /// A log.
    Log,
    /// No log; these entries, none where the directory does not exist.
    Nothing(Vec<Entry>),
}

fn look(device: &dyn Device) -> Result<Found, OpenError> {
    let entries = match device.list("") {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error(device, "list", "")(error)),
    };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    Ok(if has(CONTROL_PATH) { Found::Log } else { Found::Nothing(entries) })
}

/// Refuses to make a log among other people's files, or where a log lost its CONTROL.
fn refuse_foreign(
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

fn check_format(format: &Format) -> Result<(), OpenError> {
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

fn lock(device: &dyn Device) -> Result<Box<dyn Lock>, OpenError> {
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
    let control = device
        .open_uncached(CONTROL_PATH)
        .and_then(|disk| Control::read(&*disk))
        .map_err(io_error(device, "read", CONTROL_PATH))?;
    let path = device.display(CONTROL_PATH);
    match control {
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
fn sync_control(device: &dyn Device) -> Result<(), OpenError> {
    device
        .open(CONTROL_PATH)
        .and_then(|file| file.sync_data())
        .map_err(io_error(device, "sync", CONTROL_PATH))
}

/// Makes durable what a killed process left in the page cache, before it is read and believed: a
/// power cut after this start could take it back otherwise.
fn sync_tail(device: &dyn Device, control: &Control) -> Result<(), OpenError> {
    if planted::has(Bug::SkipSyncAtOpen) {
        return Ok(());
    }
    let ids = recover::list_segments(device, control)?;
    for id in ids.iter().rev().take(2) {
        let path = names::segment(*id);
        device
            .open(&path)
            .and_then(|file| file.sync_data())
            .map_err(io_error(device, "sync", &path))?;
    }
    device.sync_dir(names::WAL_DIR).map_err(io_error(device, "sync", names::WAL_DIR))?;
    device.sync_dir("").map_err(io_error(device, "sync", ""))
}
