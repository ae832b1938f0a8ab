//! The threads of a log that runs: one that commits, one that makes spares.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::intake::Committed;
use crate::limits::IDLE_SEAL_MS;
use crate::log::Log;
use crate::spares::SpareMade;

/// With nothing left to seal the committer looks up this seldom.
const IDLE_MS: u64 = 1_000;
/// How long a full disk is left alone before a spare is tried again.
const DISK_FULL_RETRY_MS: u64 = 1_000;

/// The running threads; ended and joined by [`Threads::stop`] or when dropped.
pub struct Threads {
    log: Log,
    stopping: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Log {
    /// Makes spares until there are enough, then starts the committer and the maker of spares.
    pub fn start(&self) -> io::Result<Threads> {
        while let Ok(SpareMade::Made) = self.make_spare() {}
        let stopping = Arc::new(AtomicBool::new(false));
        let mut threads =
            Threads { log: self.clone(), stopping: Arc::clone(&stopping), handles: Vec::new() };
        for (name, body) in [("wal-commit", commit as fn(&Log, &AtomicBool)), ("wal-spares", spare)]
        {
            let (log, stopping) = (self.clone(), Arc::clone(&stopping));
            let builder = thread::Builder::new().name(name.to_owned());
            threads.handles.push(builder.spawn(move || body(&log, &stopping))?);
        }
        Ok(threads)
    }
}

impl Threads {
    /// Ends the threads; what still waits stays for [`Log::close`] to commit.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.log.interrupt();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

/// A commit that panics must not leave callers waiting for ever, nor a half-written frame behind
/// a running server.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn commit(log: &Log, stopping: &AtomicBool) {
    let _guard = AbortOnPanic;
    let mut timeout_ms = IDLE_SEAL_MS;
    while !stopping.load(Ordering::Acquire) {
        if log.wait_for_work(timeout_ms) {
            timeout_ms = IDLE_SEAL_MS;
            loop {
                match log.commit() {
                    Ok(Committed::Frame { .. }) => {}
                    Ok(Committed::Nothing) => break,
                    Err(_) => return,
                }
            }
        } else if log.seal_idle().is_err() {
            return;
        } else {
            timeout_ms = IDLE_MS;
        }
    }
}

fn spare(log: &Log, stopping: &AtomicBool) {
    let _guard = AbortOnPanic;
    while !stopping.load(Ordering::Acquire) {
        let Ok(made) = log.make_spare() else { return };
        let disk_full = made == SpareMade::DiskFull;
        let timeout_ms = if disk_full { DISK_FULL_RETRY_MS } else { IDLE_MS };
        if !log.wait_for_spare(disk_full, timeout_ms) {
            return;
        }
    }
}
