//! From a directory to an engine, and back.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use wal::device::{AppendChoice, Appends, Device};
use wal::limits::{
    BATCH_FRAME_DIVISOR, FRAME_BYTES_MAX, IN_FLIGHT_BYTES_MAX, SEGMENT_BYTES_DEFAULT,
};
use wal::{
    CONTROL_SHARD, Format, Log, Lsn, OnFatal, Opening, PosixDevice, Progress, Rejection,
    RetentionLimits, SinkClass,
};

use super::ahead::has_cores;
use super::clock::{BEHIND_MS_MAX, Clock, Clocks, TimeSource};
use super::controls::Controls;
use super::engine::{COMMAND_ROOM, Engine, Inner};
use super::error::{CloseError, OpenError};
use super::owner::Owner;
use super::provisions::Provisions;
use super::recovered::Recovered;
use super::replay::{Replayed, replay};
use super::sinks::Ordered;
use super::snapshots::{House, OnSnapshot, SNAPSHOT_AFTER_BYTES, load};
use super::supplies::Supplies;
use crate::core::ids::OrderPrefix;
use crate::core::limits::{MEMORY_AHEAD_BYTES_MAX, SHARDS_DEFAULT, SHARDS_MAX};
use crate::core::request::RequestHasher;

const _: () = assert!(SHARDS_MAX <= wal::limits::SHARDS_MAX, "the log has a lane for each shard");

/// Exit code of a process whose log has failed.
const EXIT_LOG_FAILED: i32 = 4;

/// Between the log's failure and the process's end: waiting callers are told meanwhile.
const FATAL_GRACE: Duration = Duration::from_millis(500);

/// How to open an engine.
pub struct EngineOptions {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Names the directory may hold beside the log's.
    pub companions: Vec<String>,
    /// Shards, fixed when the directory is formatted.
    pub shard_count: u16,
    /// Bytes of a segment of the log, fixed when the directory is formatted.
    pub segment_bytes: u64,
    /// The largest frame, fixed when the directory is formatted.
    pub frame_bytes_max: u32,
    /// Bytes in flight at most, fixed when the directory is formatted.
    pub in_flight_bytes_max: u64,
    /// Prefix of order numbers, fixed when the directory is formatted.
    pub order_prefix: OrderPrefix,
    /// The key that hashes request ids, fixed when the directory is formatted; `None` draws one.
    /// After a restore it is the lost directory's, whose hashes stand in SQL.
    pub request_hash_key: Option<[u8; 16]>,
    /// How the log's segments are written.
    pub appends: AppendChoice,
    /// Starts although the wall clock lies far behind the log.
    pub accept_clock: bool,
    /// Starts although the file system promises little.
    pub accept_file_system: bool,
    /// Called when the log fails; by default prints one line and ends the process, code 4.
    pub on_fatal: OnFatal,
    /// Told how far the reading of snapshot and log has come.
    pub progress: Progress,
    /// Log beyond the newest snapshot after which the next is made, unless that one was larger.
    pub snapshot_after_bytes: u64,
    /// Memory made ahead for what is for sale at most, in bytes; a sixteenth of the machine's if
    /// that is less.
    pub memory_ahead_bytes_max: u64,
    /// How much undelivered log there may be.
    pub retention: RetentionLimits,
    /// Sinks that the log is kept for, registered before any of it can be given back.
    pub sinks: Vec<(String, SinkClass)>,
    /// Told of every snapshot that was made by itself, and of every one that could not be.
    pub on_snapshot: OnSnapshot,
    /// Starts the threads that commit, make spares, let time pass and make snapshots. Simulations
    /// do without and call [`Engine::commit`] and [`Engine::snapshot`] themselves.
    pub threads: bool,
    /// The clocks; the machine's where none is given.
    pub time: Option<Arc<dyn TimeSource>>,
}

impl EngineOptions {
    /// The defaults, for `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let companions = ["secret", "orders.db", "orders.db-wal", "orders.db-shm", "sluice.toml"];
        Self {
            data_dir: data_dir.into(),
            companions: companions.map(str::to_owned).to_vec(),
            shard_count: SHARDS_DEFAULT,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            frame_bytes_max: u32::try_from(FRAME_BYTES_MAX).unwrap_or(u32::MAX),
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            order_prefix: OrderPrefix::DEFAULT,
            request_hash_key: None,
            appends: AppendChoice::Auto,
            accept_clock: false,
            accept_file_system: false,
            on_fatal: Box::new(end_process),
            progress: Progress::default(),
            snapshot_after_bytes: SNAPSHOT_AFTER_BYTES,
            memory_ahead_bytes_max: MEMORY_AHEAD_BYTES_MAX,
            retention: RetentionLimits::default(),
            sinks: Vec::new(),
            on_snapshot: Box::new(|_| ()),
            threads: true,
            time: None,
        }
    }
}

fn end_process(fatal: &wal::Fatal) {
    eprintln!("sluice: {fatal}");
    let end = || {
        std::thread::sleep(FATAL_GRACE);
        std::process::exit(EXIT_LOG_FAILED);
    };
    // A machine that is out of threads as well must not turn the exit code into an abort's.
    if std::thread::Builder::new().spawn(end).is_err() {
        std::process::exit(EXIT_LOG_FAILED);
    }
}

/// The bounds that the engine adds to the log's own.
fn check_format(options: &EngineOptions) -> Result<(), OpenError> {
    let checks = [
        (options.shard_count <= SHARDS_MAX, "at most 512 shards: a sink's marks name them all"),
        (
            options.frame_bytes_max as usize / BATCH_FRAME_DIVISOR >= COMMAND_ROOM,
            "a frame is too small for the largest command",
        ),
    ];
    match checks.iter().find(|(ok, _)| !ok) {
        None => Ok(()),
        Some((_, what)) => Err(wal::OpenError::BadFormat(what).into()),
    }
}

/// What opening found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenReport {
    /// What the log says.
    pub log: wal::OpenReport,
    /// Records replayed.
    pub records: u64,
    /// Activities in memory.
    pub activities: u64,
}

impl fmt::Display for OpenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wal::OpenReport { identity, formatted, last_lsn, segments, .. } = &self.log;
        let verb = if *formatted { "formatted" } else { "opened" };
        write!(
            f,
            "{verb} log {}, run {}: {} records, {} activities, {segments} segments, last LSN \
             {last_lsn}",
            identity.uuid, identity.epoch, self.records, self.activities
        )?;
        if self.log.snapshot_lsn > Lsn(0) {
            write!(f, ", the snapshot of LSN {} before them", self.log.snapshot_lsn)?;
        }
        for what in &self.log.damaged_snapshots {
            write!(f, "; a snapshot was passed over and set aside: {what}")?;
        }
        if let Some(torn) = &self.log.torn_tail {
            write!(
                f,
                "; the last write was torn at {} of {}: {} bytes that nobody was told of are cut",
                torn.offset, torn.path, torn.bytes
            )?;
        }
        let Appends { direct, buffered_us, direct_us } = self.log.appends;
        let way = if direct { "past the page cache" } else { "through the page cache" };
        write!(f, "; it is written {way}")?;
        if let Some(buffered_us) = buffered_us {
            write!(f, " (a durable block takes {buffered_us} us through it, ")?;
            match direct_us {
                Some(direct_us) => write!(f, "{direct_us} us past it)")?,
                None => f.write_str("the file system has no way past it)")?,
            }
        }
        if self.log.file_system == wal::device::FileSystem::Overlay {
            f.write_str("; the directory lies in a container's own layer and goes with it")?;
        }
        Ok(())
    }
}

impl Engine {
    /// Opens the engine of a directory, formatting one that is empty.
    ///
    /// # Errors
    /// [`OpenError`]; nothing on disk has changed.
    pub fn open(options: EngineOptions) -> Result<(Self, OpenReport), OpenError> {
        Self::recover(options)?.finish()
    }

    /// Opens the engine of a device: what simulations do.
    ///
    /// # Errors
    /// [`OpenError`]; nothing on disk has changed.
    pub fn open_on(
        device: Arc<dyn Device>,
        options: EngineOptions,
    ) -> Result<(Self, OpenReport), OpenError> {
        Self::recover_on(device, options)?.finish()
    }

    /// Reads the log of a directory, formatting one that is empty, and writes nothing yet.
    ///
    /// # Errors
    /// [`OpenError`]; nothing on disk has changed.
    pub fn recover(options: EngineOptions) -> Result<Recovered, OpenError> {
        let device = PosixDevice::new(&options.data_dir).with_appends(options.appends);
        Self::recover_on(Arc::new(device), options)
    }

    fn recover_on(device: Arc<dyn Device>, options: EngineOptions) -> Result<Recovered, OpenError> {
        check_format(&options)?;
        let order_prefix = options.order_prefix;
        let request_hash_key = match options.request_hash_key {
            Some(key) => key,
            None => random_key(&*device)?,
        };
        let fresh = Owner { request_hash_key, order_prefix };
        let mut opening = Opening::begin(
            Arc::clone(&device),
            wal::OpenOptions {
                format: Format {
                    shard_count: options.shard_count,
                    frame_bytes_max: options.frame_bytes_max,
                    in_flight_bytes_max: options.in_flight_bytes_max,
                    segment_bytes: options.segment_bytes,
                    owner: fresh.encode(),
                },
                accept_file_system: options.accept_file_system,
                companions: options.companions,
                on_fatal: options.on_fatal,
            },
        )?;
        opening.watch(&options.progress);
        let format = *opening.format();
        let owner = Owner::decode(&format.owner)?;
        let fresh = || Replayed {
            supplies: has_cores().then(Supplies::default),
            ..Replayed::new(format.shard_count, &owner, ())
        };
        let mut replayed = begin(&mut opening, fresh)?;
        let (judged, applied) = replay(&mut replayed, |records| opening.replay_into(records));
        applied.map_err(|Rejection { lsn, why }| wal::OpenError::Rejected { lsn, why })?;
        let judged = judged?;
        replayed.supplies = None;
        let clocks = Clocks::of(options.time);
        let (opened_ms, last_ms) = (clocks.wall_ms(), replayed.last_ms);
        if opened_ms + BEHIND_MS_MAX < last_ms && !options.accept_clock {
            return Err(OpenError::Clock { wall_ms: opened_ms, last_ms });
        }
        Ok(Recovered {
            judged,
            replayed,
            owner,
            clocks,
            retention: options.retention,
            sinks: options.sinks,
            house: House::new(options.snapshot_after_bytes, options.on_snapshot),
            provisions: Provisions::new(options.memory_ahead_bytes_max),
            threads: options.threads,
        })
    }

    /// Ends the engine: what was decided is made durable, and the log says that it ended cleanly.
    /// The directory is free once the last clone is dropped.
    ///
    /// # Errors
    /// Where the log failed on the way: the next start recovers.
    pub fn close(&self) -> Result<(), CloseError> {
        self.inner.stop();
        if self.pays_at_end()
            && let Some(chain) = self.inner.log.quiesce().map_err(|_| CloseError)?
        {
            // The next start replays instead.
            let _ = self.snapshot_at_end(chain);
        }
        self.inner.log.close().map_err(|_| CloseError)
    }
}

impl Inner {
    pub(super) fn new(
        log: Log,
        replayed: Replayed<()>,
        owner: Owner,
        clock: Clock,
        house: House,
        provisions: Provisions,
    ) -> Self {
        assert_held(&log, &replayed);
        let ordered = Ordered::new(log.format().shard_count, &replayed.control);
        let controls = Controls::new(&replayed.control, clock.now_ms());
        let shard = |shard| CachePadded::new(Mutex::new(shard));
        Self {
            log,
            threads: Mutex::new(None),
            timer: Mutex::new(None),
            housekeeper: Mutex::new(None),
            supplies: Mutex::new(None),
            provisions: Arc::new(provisions),
            provider: Mutex::new(None),
            house,
            shards: replayed.shards.into_iter().map(shard).collect(),
            control: Mutex::new(replayed.control),
            controls,
            directory: RwLock::new(replayed.directory),
            clock,
            requests: RequestHasher::new(&owner.request_hash_key),
            owner,
            ordered,
            one_live_per_sku: AtomicBool::new(false),
            serving_since_ms: AtomicU64::new(u64::MAX),
            archives: AtomicBool::new(false),
        }
    }
}

/// What was replayed is what the log holds, shard by shard: a decision on any other state would be
/// appended behind records that it knows nothing of.
///
/// # Panics
/// Where it is not.
fn assert_held(log: &Log, replayed: &Replayed<()>) {
    let shards = usize::from(log.format().shard_count);
    assert!(replayed.shards.len() == shards, "W14: state of {} shards", replayed.shards.len());
    for (index, shard) in (0..).zip(&replayed.shards) {
        let (applied, last) = (shard.applied_seq(), log.last_seq(index));
        assert!(applied == last, "W14: shard {index} holds {applied} records of {last}");
    }
    let (applied, last) = (replayed.control.applied_seq(), log.last_seq(CONTROL_SHARD));
    assert!(applied == last, "W14: the controls hold {applied} records of {last}");
}

/// The state in the newest snapshot that loads, or the one before the first record.
fn begin(
    opening: &mut Opening,
    fresh: impl Fn() -> Replayed<()>,
) -> Result<Replayed<()>, OpenError> {
    let mut replayed = fresh();
    let is_loaded = opening.load_snapshot(&mut |snapshot| {
        // What of a damaged one was loaded is let go first.
        replayed = fresh();
        load(snapshot, &mut replayed, |_| true)
    })?;
    Ok(if is_loaded { replayed } else { fresh() })
}

fn random(device: &dyn Device) -> Result<u64, OpenError> {
    device.random().map_err(|source| {
        let path = device.display("");
        OpenError::Log(wal::OpenError::Io { op: "draw a random number for", path, source })
    })
}

fn random_key(device: &dyn Device) -> Result<[u8; 16], OpenError> {
    let mut key = [0; 16];
    for half in key.chunks_exact_mut(8) {
        half.copy_from_slice(&random(device)?.to_le_bytes());
    }
    Ok(key)
}
