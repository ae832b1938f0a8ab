//! Wakes the committer.

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering};

/// Rung at every append, heard once.
pub(crate) struct Bell {
    rung: AtomicBool,
    asleep: Mutex<bool>,
    condvar: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: AtomicBool::new(false), asleep: Mutex::new(false), condvar: Condvar::new() }
    }

    /// Ends the wait that is on, else the next one.
    pub(crate) fn ring(&self) {
        // Only the first ring since the last hearing costs more than this swap.
        if !self.rung.swap(true, Ordering::AcqRel) {
            let asleep = self.asleep.lock();
            if *asleep {
                self.condvar.notify_all();
            }
        }
    }

    /// Waits until it is rung, or about `timeout_ms`. Tells whether it was.
    pub(crate) fn wait(&self, timeout_ms: u64) -> bool {
        if self.rung.swap(false, Ordering::AcqRel) {
            return true;
        }
        let mut asleep = self.asleep.lock();
        // A ring between the swap above and here saw nobody asleep: look again under the lock
        // that a ring takes before it decides whether to notify.
        if !self.rung.load(Ordering::Acquire) {
            *asleep = true;
            asleep = self.condvar.wait_ms(asleep, timeout_ms);
            *asleep = false;
        }
        drop(asleep);
        self.rung.swap(false, Ordering::AcqRel)
    }
}
