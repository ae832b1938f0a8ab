//! The threads of a log that runs: one that commits, one that makes spares.

use std::io;
use std::sync::Arc;

use crate::abort::AbortOnPanic;
use crate::intake::Committed;
use crate::limits::IDLE_SEAL_MS;
use crate::log::Log;
use crate::spares::SpareMade;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicBool, Ordering};

/// How long those who were woken have to wake those who were left, before the committer does where
/// no frame has come to do it: time for a thread's turn, and no more than a shopper could notice.
const PASSED_ON_MS: u64 = 5;
/// With nothing left to seal the committer looks up this seldom.
const IDLE_MS: u64 = 1_000;
const _: () = assert!(PASSED_ON_MS < IDLE_SEAL_MS, "who was left behind is woken before all else");
const _: () = assert!(IDLE_SEAL_MS < IDLE_MS, "an idle log is sealed before it is left alone");
/// How long a full disk is left alone before a spare is tried again.
const DISK_FULL_RETRY_MS: u64 = 1_000;

/// The running threads; ended and joined by [`Threads::stop`] or when dropped.
pub struct Threads {
    log: Log,
    stopping: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Log {
    /// Makes spares until there are as many as a log has at least, as far as there is room; then
    /// starts the committer and the maker of spares.
    pub fn start(&self) -> io::Result<Threads> {
        while self.lacks_spares() && matches!(self.make_spare(), Ok(SpareMade::Made)) {}
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

/// Lets the calling thread yield to others from now on, by so many steps of niceness. Best effort:
/// where the system refuses, the thread works as it did.
pub fn lower_priority(steps: i32) {
    let _ = rustix::process::nice(steps);
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

fn commit(log: &Log, stopping: &AtomicBool) {
    // Callers would wait for a thread that is gone. A panic in a commit does not come so far.
    let _guard = AbortOnPanic;
    let mut timeout_ms = IDLE_SEAL_MS;
    while !stopping.load(Ordering::Acquire) {
        let passes_on = log.has_left();
        if log.wait_for_work(if passes_on { PASSED_ON_MS } else { timeout_ms }) {
            timeout_ms = IDLE_SEAL_MS;
            // Asked after every frame: callers that never pause must not keep a log from ending.
            while !stopping.load(Ordering::Acquire) {
                match log.commit_passing_on() {
                    Ok(Committed::Frame { .. }) => {}
                    Ok(Committed::Nothing) => break,
                    Err(_) => return,
                }
            }
        } else if passes_on {
            log.wake_left();
        } else if log.seal_idle().is_err() {
            return;
        } else {
            timeout_ms = IDLE_MS;
        }
    }
    log.wake_left();
}

fn spare(log: &Log, stopping: &AtomicBool) {
    let _guard = AbortOnPanic;
    while !stopping.load(Ordering::Acquire) {
        let Ok(made) = log.make_spare() else { return };
        // One at a time, where none is to be made: a segment is long to read, and while none is
        // made a sale that fills them is refused.
        if made != SpareMade::Made && log.check_spare() {
            continue;
        }
        let disk_full = made == SpareMade::NoRoom;
        let timeout_ms = if disk_full { DISK_FULL_RETRY_MS } else { IDLE_MS };
        if !log.wait_for_spare(disk_full, timeout_ms) {
            return;
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use super::*;
    use crate::device::sim::{Fault, FaultKind, Image, SimDevice};
    use crate::ids::Lsn;
    use crate::testing::{append, disk, open};
    use crate::{
        Busy, Class, Format, LogUnavailable, OWNER_BYTES, OpenOptions, Ticket, record_bytes,
    };

    type Wait = Pin<Box<dyn Future<Output = Result<(), LogUnavailable>> + Send>>;

    /// A caller that appends once more whenever its last record is durable, within the very commit
    /// that made it so, and asks the committer to stop at the third.
    struct Caller {
        log: Log,
        stopping: AtomicBool,
        durable: AtomicU64,
        wait: Mutex<Option<Wait>>,
    }

    impl Caller {
        const DURABLE_MAX: u64 = 20;

        fn put(self: &Arc<Self>) {
            let room = record_bytes(8);
            let mut batch = self.log.begin(0, room, Class::Reserved).unwrap();
            batch.command(room);
            let shard_seq = batch.append((1, 1), |out| out.extend_from_slice(&[7; 8]));
            drop(batch);
            let log = self.log.clone();
            let mut wait: Wait =
                Box::pin(async move { log.durable(Ticket { shard: 0, shard_seq }).await });
            let waker = Waker::from(Arc::clone(self));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            *self.wait.lock().unwrap() = Some(wait);
        }
    }

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            let durable = self.durable.fetch_add(1, Ordering::Relaxed) + 1;
            self.stopping.store(durable >= 3, Ordering::Release);
            if durable < Self::DURABLE_MAX {
                self.put();
            }
        }
    }

    /// Both threads end by themselves where the log has failed, and without room no spare is made.
    #[test]
    fn the_threads_of_a_log_that_failed_end_and_so_does_every_wait() {
        let device = disk();
        let (log, _) = open(&device);
        let threads = log.start().unwrap();
        append(&log, 1, 8);
        let ticket = Ticket { shard: 0, shard_seq: 1 };
        log.wait_for_commit(ticket).unwrap();
        assert!(log.wait_durable_beyond(Lsn(0), Duration::MAX));
        assert!(!log.wait_durable_beyond(Lsn(1), Duration::ZERO));
        let at = device.counts().0 + 1;
        let kind = FaultKind::ErrorOldContent;
        device.set_fault(Some(Fault { at, lasting: true, kind }));
        // Whichever of the threads meets the failure first.
        match log.begin(0, record_bytes(8), Class::Reserved) {
            Ok(mut batch) => {
                batch.command(record_bytes(8));
                let shard_seq = batch.append((1, 1), |out| out.extend_from_slice(&[7; 8]));
                drop(batch);
                assert!(log.wait_for_commit(Ticket { shard: 0, shard_seq }).is_err());
            }
            Err(busy) => assert_eq!(busy, Busy::LogUnavailable),
        }
        assert!(!log.wait_durable_beyond(Lsn(1), Duration::MAX), "nothing comes any more");
        threads.stop();
        assert!(log.is_poisoned());
        // None of them needs to be told.
        let stopping = AtomicBool::new(false);
        spare(&log, &stopping);
        commit(&log, &stopping);
    }

    #[test]
    fn on_a_full_disk_the_threads_run_without_spares_and_say_so() {
        let device = disk();
        let (log, _) = open(&device);
        device.set_free_bytes(Some(0));
        let threads = log.start().unwrap();
        assert!(log.is_out_of_room() && log.has_enough_spares(), "there is no room for more");
        append(&log, 1, 8);
        log.wait_durable(Ticket { shard: 0, shard_seq: 1 }).unwrap();
        threads.stop();
        device.set_free_bytes(None);
        assert_eq!(log.make_spare().unwrap(), SpareMade::Made);
        assert!(!log.is_out_of_room() && !log.has_enough_spares());
        while log.make_spare().unwrap() == SpareMade::Made {}
        assert!(log.has_enough_spares());
    }

    #[test]
    fn the_committer_ends_when_told_though_callers_never_pause() {
        let options = OpenOptions {
            format: Format {
                shard_count: 1,
                frame_bytes_max: 16 << 10,
                in_flight_bytes_max: 64 << 10,
                segment_bytes: 256 << 10,
                owner: [0; OWNER_BYTES],
            },
            accept_file_system: true,
            companions: Vec::new(),
            on_fatal: Box::new(|fatal| panic!("{fatal}")),
        };
        let device = Arc::new(SimDevice::new(Image::empty(1)));
        let (log, _) = Log::open(device, options, &mut |_| Ok(())).unwrap();
        let (stopping, durable) = (AtomicBool::new(false), AtomicU64::new(0));
        let caller = Arc::new(Caller { log, stopping, durable, wait: Mutex::new(None) });
        caller.put();
        commit(&caller.log, &caller.stopping);
        assert_eq!(caller.durable.load(Ordering::Relaxed), 3);
        assert_eq!((caller.log.durable_seq(0), caller.log.last_seq(0)), (3, 4));
        // What waits holds the caller that holds it.
        drop(caller.wait.lock().unwrap().take());
    }
}
