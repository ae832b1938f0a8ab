//! The process that has the log of a simulated disk open, takes steps, and keeps the truth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wal::device::sim::{Fault, Image, Op, SimDevice};
use wal::{
    Busy, CONTROL_SHARD, Class, Committed, Log, LogUnavailable, OpenError, OpenOptions, OpenReport,
    Opening, RetentionLimits, record_bytes,
};

use crate::truth::Truth;
use crate::workload::{FORMAT, Step};

/// With its headers a record of this length dirties all 8 sectors of one block.
const BLOCK_BODY_BYTES: usize = 3_800;
/// Three of these make a frame of four blocks.
const LARGE_BODY_BYTES: usize = 4_080;

/// Why a process stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The log failed while it was open.
    Failed,
    /// It let nothing in: the disk is full.
    Refused,
    /// It did not open.
    Open(OpenError),
    /// It broke a promise.
    Wrong(String),
}

impl From<LogUnavailable> for Stopped {
    fn from(_: LogUnavailable) -> Self {
        Self::Failed
    }
}

/// The disk right before an operation, or after the last.
#[derive(Clone)]
pub struct Point {
    /// What the process was about to do; `None` at the end of the step.
    pub op: Option<Op>,
    /// The disk.
    pub image: Image,
    /// The highest LSN that was acknowledged by then.
    pub acked: u64,
}

#[derive(Default)]
struct Watch {
    log: Option<Log>,
    floor: u64,
    points: Vec<Point>,
}

impl Watch {
    fn acked(&self) -> u64 {
        self.log.as_ref().map_or(self.floor, |log| log.durable_lsn().0).max(self.floor)
    }
}

/// A process that has, or had, the log of a disk open.
pub struct Process {
    device: SimDevice,
    log: Option<Log>,
    /// What it did.
    pub truth: Truth,
    watch: Arc<Mutex<Watch>>,
    observed: bool,
    fatal: Arc<AtomicU64>,
    next_body: u64,
    fault: Option<Fault>,
    /// Operations begun and made to fail on the device of a process that was killed.
    earlier: (u64, u64),
}

impl Process {
    /// A process on `image` that has opened nothing yet. Bodies it appends differ from those of
    /// any process with another `generation`.
    pub fn new(image: Image, truth: Truth, generation: u64) -> Self {
        let watch = Watch { floor: truth.acked, ..Watch::default() };
        Self {
            device: SimDevice::new(image),
            log: None,
            truth,
            watch: Arc::new(Mutex::new(watch)),
            observed: false,
            fatal: Arc::new(AtomicU64::new(0)),
            next_body: generation << 32,
            fault: None,
            earlier: (0, 0),
        }
    }

    /// Its disk.
    pub fn device(&self) -> &SimDevice {
        &self.device
    }

    /// The log, while it is open.
    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Makes operations fail, counted over kills and new starts.
    pub fn persist_fault(&mut self, fault: Option<Fault>) {
        self.fault = fault;
        let (ops, _) = self.earlier;
        self.device.set_fault(fault.and_then(|fault| match fault.at.checked_sub(ops) {
            None | Some(0) if fault.lasting => Some(Fault { at: 1, ..fault }),
            None | Some(0) => None,
            Some(at) => Some(Fault { at, ..fault }),
        }));
    }

    /// Operations begun.
    pub fn ops(&self) -> u64 {
        self.earlier.0 + self.device.counts().0
    }

    /// Operations that were made to fail.
    pub fn faults_hit(&self) -> u64 {
        self.earlier.1 + self.device.counts().1
    }

    /// How often the log said that it failed.
    pub fn failures(&self) -> u64 {
        self.fatal.load(Ordering::Relaxed)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the disk before every operation from now on.
    pub fn observe(&mut self) {
        self.observed = true;
        let watch = Arc::clone(&self.watch);
        self.device.observe(Some(Box::new(move |op, image| {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            let acked = watch.acked();
            watch.points.push(Point { op: Some(op), image: image.clone(), acked });
        })));
    }

    /// What was collected, and the disk as it is now.
    pub fn points(&mut self) -> Vec<Point> {
        self.device.observe(None);
        self.observed = false;
        let mut watch = self.watch();
        let mut points = std::mem::take(&mut watch.points);
        points.push(Point { op: None, image: self.device.image(), acked: watch.acked() });
        points
    }

    /// Opens the log and checks what it hands over.
    pub fn open(&mut self) -> Result<OpenReport, Stopped> {
        let fatal = Arc::clone(&self.fatal);
        let options = OpenOptions {
            format: FORMAT,
            accept_file_system: false,
            companions: Vec::new(),
            on_fatal: Box::new(move |why| {
                // Told on as a panic, which no fault of the disk may lead to.
                assert!(!why.is_panic(), "{why}");
                fatal.fetch_add(1, Ordering::Relaxed);
            }),
        };
        let mut opening =
            Opening::begin(Arc::new(self.device.clone()), options).map_err(Stopped::Open)?;
        let start = self.load_snapshot(&mut opening)?;
        let mut check = self.truth.check_after(start);
        let judged = opening
            .replay(&mut |record| {
                check.record(record);
                Ok(())
            })
            .map_err(Stopped::Open)?;
        let (log, report) = judged.finish().map_err(Stopped::Open)?;
        log.set_retention_limits(RetentionLimits { margin_segments: 0, ..Default::default() });
        let counts = check.finish(self.truth.acked).map_err(Stopped::Wrong)?;
        self.truth.recovered(counts);
        if log.durable_lsn().0 != self.truth.acked || report.last_lsn.0 != self.truth.acked {
            return Err(Stopped::Wrong("the durable mark is not the end that was read".into()));
        }
        let mut watch = self.watch();
        watch.floor = self.truth.acked;
        watch.log = Some(log.clone());
        drop(watch);
        self.log = Some(log);
        Ok(report)
    }

    /// Appends until the log begins a new segment.
    pub(crate) fn rotate(&mut self, log: &Log) -> Result<(), Stopped> {
        let before = log.metrics().rotations;
        while log.metrics().rotations == before {
            for shard in [1, 0, 1] {
                self.append(log, shard, LARGE_BODY_BYTES)?;
            }
            self.commit(log)?;
        }
        Ok(())
    }

    /// Lets go of the log as a process that ends does, without another word.
    pub fn drop_log(&mut self) {
        let mut watch = self.watch();
        watch.floor = watch.acked();
        watch.log = None;
        drop(watch);
        self.log = None;
    }

    fn opened(&mut self) -> Result<Log, Stopped> {
        match &self.log {
            Some(log) => Ok(log.clone()),
            None => {
                self.open()?;
                Ok(self.log.clone().expect("just opened"))
            }
        }
    }

    /// Appends one record.
    pub fn append(&mut self, log: &Log, shard: u16, bytes: usize) -> Result<(), Stopped> {
        let room = record_bytes(bytes);
        let mut batch = match log.begin(shard, room, Class::Reserved) {
            Ok(batch) => batch,
            Err(Busy::Overloaded) => return Err(Stopped::Refused),
            Err(Busy::LogUnavailable) => return Err(Stopped::Failed),
        };
        self.next_body += 1;
        let body = body(self.next_body, bytes);
        batch.command(room);
        let seq = batch.append((1, 1), |out| out.extend_from_slice(&body));
        drop(batch);
        match self.truth.append(shard, body) == seq {
            true => Ok(()),
            false => Err(Stopped::Wrong(format!("W4: sequence {seq} was given out"))),
        }
    }

    /// Commits all that was appended, in one frame.
    pub fn commit(&mut self, log: &Log) -> Result<(), Stopped> {
        let end = self.truth.frame();
        let committed = log.commit();
        self.truth.acked = self.truth.acked.max(log.durable_lsn().0);
        match committed? {
            Committed::Frame { last_lsn, .. } if last_lsn.0 == end && self.truth.acked == end => {
                Ok(())
            }
            other => Err(Stopped::Wrong(format!("W2: {other:?} for a frame that ends at {end}"))),
        }
    }

    /// Reads the open log as a sink does.
    ///
    /// # Errors
    /// What differs from what was appended.
    pub fn read_back(&self) -> Result<(), String> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut reader = log.reader();
        let before = reader.seek_oldest().map_err(|error| format!("a reader: {error}"))?;
        let counts = self.truth.counts_at(before.0);
        let counts = counts.ok_or("a reader: the kept log begins inside a frame")?;
        let mut check = self.truth.check_after(counts);
        while let Some(frame) = reader.next_frame().map_err(|error| format!("a reader: {error}"))? {
            for record in frame.records() {
                check.record(&record.map_err(|error| format!("a reader: {error}"))?);
            }
        }
        check.finish(self.truth.acked).map(drop).map_err(|what| format!("a reader: {what}"))
    }

    /// Takes one step.
    pub fn step(&mut self, step: Step) -> Result<(), Stopped> {
        let log = match step {
            Step::Reopen => {
                self.drop_log();
                return self.open().map(drop);
            }
            _ => self.opened()?,
        };
        match step {
            Step::Block => self.block(&log)?,
            Step::Span => {
                for (shard, bytes) in [(0, 2_500), (1, 3_000), (0, 2_400), (CONTROL_SHARD, 90)] {
                    self.append(&log, shard, bytes)?;
                }
                self.commit(&log)?;
            }
            Step::Rotate => self.rotate(&log)?,
            Step::Idle => log.seal_idle()?,
            Step::Spare => log.make_spare().map(drop)?,
            Step::Close => {
                log.close()?;
                self.drop_log();
            }
            Step::Snapshot => self.snapshot(&log)?,
            Step::Reopen => unreachable!("taken above"),
            Step::Kill => {
                drop(log);
                self.kill()?;
            }
        }
        Ok(())
    }

    fn block(&mut self, log: &Log) -> Result<(), Stopped> {
        self.append(log, 0, BLOCK_BODY_BYTES)?;
        self.commit(log)
    }

    /// Is killed between the write and the sync of a commit, and starts again with the cache as it
    /// was.
    fn kill(&mut self) -> Result<(), Stopped> {
        let log = self.opened()?;
        let before = self.truth.acked;
        self.append(&log, 1, BLOCK_BODY_BYTES)?;
        let was_observed = self.observed;
        self.observe();
        let committed = self.commit(&log);
        drop(log);
        if matches!(committed, Err(Stopped::Failed)) {
            return committed;
        }
        let mut watch = self.watch();
        let at = watch.points.iter().rposition(|point| point.op == Some(Op::Sync));
        let Some(at) = at else { return Err(Stopped::Wrong("a commit without a sync".into())) };
        let killed = watch.points[at].image.killed();
        // What came after never happened.
        let undone = (watch.points.len() - at) as u64;
        watch.points.truncate(if was_observed { at } else { 0 });
        drop(watch);
        self.drop_log();
        self.device.observe(None);
        self.observed = false;
        let (ops, hit) = self.device.counts();
        self.earlier = (self.earlier.0 + ops - undone, self.earlier.1 + hit);
        self.device = SimDevice::new(killed);
        self.persist_fault(self.fault);
        self.truth.acked = before;
        self.watch().floor = before;
        if was_observed {
            self.observe();
        }
        self.open().map(drop)
    }
}

/// The body with this number: no two share one.
fn body(number: u64, bytes: usize) -> Arc<[u8]> {
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut body = Vec::with_capacity(bytes + 8);
    body.extend_from_slice(&number.to_le_bytes());
    while body.len() < bytes {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.truncate(bytes);
    body.into()
}
