//! The thread that makes snapshots and gives the log back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::engine::{Engine, Inner};
use super::super::error::OpenError;
use super::super::handle::Handle;
use super::{SnapshotMade, SnapshotMakeError};

/// Between two looks at how much log there is.
const TICK: Duration = Duration::from_millis(500);

/// How far the thread steps back behind the sale: a snapshot can wait, but the log grows until
/// there is one, so on a machine that is full for long it must not starve.
const NICE_STEPS: i32 = 10;

/// Looks that pass after a snapshot could not be made: a full disk is not written to again at once.
const TICKS_AFTER_FAILURE: u32 = 20;

/// Told of every snapshot that was made by itself, and of every one that could not be.
pub type OnSnapshot = Box<dyn Fn(&Result<SnapshotMade, SnapshotMakeError>) + Send + Sync>;

/// When snapshots are made, and what became of them since the start.
pub(crate) struct House {
    /// Log beyond the newest snapshot after which the next is made.
    pub(crate) snapshot_after_bytes: u64,
    on_snapshot: OnSnapshot,
    /// Held by whoever makes a snapshot.
    pub(crate) turn: Mutex<()>,
    /// Room for the next snapshot was set aside.
    reserved: AtomicBool,
    pub(crate) made: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) last_failure: Mutex<Option<String>>,
}

impl House {
    pub(crate) fn new(snapshot_after_bytes: u64, on_snapshot: OnSnapshot) -> Self {
        Self {
            snapshot_after_bytes,
            on_snapshot,
            turn: Mutex::new(()),
            reserved: AtomicBool::new(false),
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_failure: Mutex::new(None),
        }
    }
}

/// The running thread; ended when dropped.
pub(crate) struct Housekeeper {
    stopping: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    handle: Option<JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts the housekeeper of an engine. It ends by itself when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> Result<Self, OpenError> {
        let (stop, stopped) = mpsc::channel();
        let weak = Arc::downgrade(&engine.inner);
        let stopping = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopping);
        let body = move || {
            wal::lower_priority(NICE_STEPS);
            let mut pause = 0u32;
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let Some(inner) = weak.upgrade() else { return };
                if pause > 0 {
                    pause -= 1;
                } else if inner.keep_house(&|| flag.load(Ordering::Relaxed)).is_err() {
                    pause = TICKS_AFTER_FAILURE;
                }
            }
        };
        let builder = std::thread::Builder::new().name("engine-house".to_owned());
        let handle = builder.spawn(body).map_err(OpenError::Thread)?;
        Ok(Self { stopping, stop: Some(stop), handle: Some(handle) })
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        let Some(handle) = self.handle.take() else { return };
        // The thread itself may hold the engine's last handle, and then drops this.
        if handle.thread().id() != std::thread::current().id() {
            let _ = handle.join();
        }
    }
}

impl Inner {
    /// Makes a snapshot where one is due; else gives back what sinks have confirmed since. On a
    /// full disk one is due as soon as it is smaller than the log that it stands for: it is what
    /// lets the log live on its own segments.
    fn keep_house(
        self: &Arc<Self>,
        stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), SnapshotMakeError> {
        if self.log.is_poisoned() {
            return Ok(());
        }
        let house = &self.house;
        let last_bytes = self.log.snapshot().map_or(0, |it| it.bytes);
        let (behind, due) = (self.log.bytes_beyond_snapshot(), house.snapshot_after_bytes);
        let due = if self.log.is_out_of_room() { last_bytes } else { due.max(last_bytes) };
        let engine = Engine { inner: Arc::clone(self), handle: Handle::default() };
        // Not at the start: most starts end before there is anything to make room for.
        let is_begun = behind > self.log.format().segment_bytes.min(due / 2);
        if is_begun && !house.reserved.swap(true, Ordering::Relaxed) {
            engine.reserve_room();
        }
        if behind <= due {
            self.log.retire()?;
            return Ok(());
        }
        match engine.snapshot_unless(stopped) {
            Err(SnapshotMakeError::Stopped) => Ok(()),
            // No segment was sealed since the last one.
            Ok(None) => Ok(self.log.retire().map(drop)?),
            Ok(Some(made)) => {
                house.made.fetch_add(1, Ordering::Relaxed);
                *house.last_failure.lock() = None;
                engine.reserve_room();
                (house.on_snapshot)(&Ok(made));
                Ok(())
            }
            Err(error) => {
                house.failed.fetch_add(1, Ordering::Relaxed);
                *house.last_failure.lock() = Some(error.to_string());
                if let SnapshotMakeError::Load(_) = error {
                    // The log reaches back to the snapshot before: the next is made from there.
                    self.log.pass_over_snapshot();
                }
                if let SnapshotMakeError::Io(_) = error {
                    // What was set aside went into the attempt.
                    engine.reserve_room();
                }
                let failed = Err(error);
                (house.on_snapshot)(&failed);
                failed.map(drop)
            }
        }
    }
}
