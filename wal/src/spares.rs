//! Spares: zero-filled segments made ahead, so that a rotation costs a header and a rename.
//!
//! Real zeros, not holes: the first write into a hole makes the file system journal the
//! allocation at every sync. When spares run low new work is refused, and let in again by
//! itself; the last one is kept for what must go on.

use std::collections::VecDeque;
use std::io;

use crate::block::{BLOCK, Blocks, is_zero};
use crate::device::{Device, read_full};
use crate::intake::{Admission, Intake};
use crate::limits::{SPARES, SPARES_RESERVED};
use crate::names;
use crate::sync::{Condvar, Mutex, MutexGuard};

struct Pool {
    paths: VecDeque<String>,
    next_number: u64,
    stopped: bool,
}

/// The spares of an open log.
pub(crate) struct Spares {
    pool: Mutex<Pool>,
    changed: Condvar,
    segment_bytes: u64,
}

/// What [`Spares::make`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpareMade {
    /// There are enough.
    Enough,
    /// One more is there.
    Made,
    /// There is no room for one, or no file descriptor: new work is refused while spares are low.
    /// Try again in a while.
    NoRoom,
}

impl Spares {
    /// Takes over the spares of an earlier run that really are zero and of the right size; removes
    /// the others.
    pub(crate) fn adopt(device: &dyn Device, segment_bytes: u64) -> io::Result<Self> {
        let mut pool = Pool { paths: VecDeque::new(), next_number: 1, stopped: false };
        for entry in device.list(names::WAL_DIR)? {
            let Some(number) = names::parse_spare(&entry.name) else { continue };
            pool.next_number = pool.next_number.max(number.saturating_add(1));
            let path = names::spare(number);
            let usable = pool.paths.len() < SPARES
                && entry.bytes == segment_bytes
                // A spare that can't be read holds nothing that anyone would miss.
                && is_all_zero(device, &path, entry.bytes).unwrap_or(false);
            if usable {
                pool.paths.push_back(path);
            } else {
                device.remove(&path)?;
            }
        }
        Ok(Self { pool: Mutex::new(pool), changed: Condvar::new(), segment_bytes })
    }

    /// Makes a spare where one is missing.
    pub(crate) fn make(&self, device: &dyn Device, intake: &Intake) -> Result<SpareMade, Failed> {
        let path = {
            let mut pool = self.pool.lock();
            if pool.paths.len() >= SPARES {
                return Ok(SpareMade::Enough);
            }
            pool.next_number += 1;
            names::spare(pool.next_number - 1)
        };
        match device.create_zeroed(&path, self.segment_bytes) {
            Ok(()) => {
                let mut pool = self.pool.lock();
                pool.paths.push_back(path);
                admit(&pool, intake);
                Ok(SpareMade::Made)
            }
            Err(error) if may_pass(&error) => {
                // What was written of it takes room that others need.
                let _ = device.remove(&path);
                Ok(SpareMade::NoRoom)
            }
            Err(source) => Err(Failed { path, source }),
        }
    }

    /// A spare for the next segment: one from the pool, or one made now.
    pub(crate) fn take(&self, device: &dyn Device, intake: &Intake) -> Result<String, Failed> {
        let mut pool = self.pool.lock();
        if let Some(path) = pool.paths.pop_front() {
            admit(&pool, intake);
            drop(pool);
            self.changed.notify_all();
            return Ok(path);
        }
        pool.next_number += 1;
        let path = names::spare(pool.next_number - 1);
        drop(pool);
        match device.create_zeroed(&path, self.segment_bytes) {
            Ok(()) => Ok(path),
            Err(source) => Err(Failed { path, source }),
        }
    }

    /// Number of spares.
    pub(crate) fn len(&self) -> usize {
        self.pool.lock().paths.len()
    }

    /// Waits until a spare is missing, or about `timeout_ms`. Tells whether to go on.
    pub(crate) fn wait(&self, timeout_ms: u64) -> bool {
        let mut pool = self.pool.lock();
        if !pool.stopped && pool.paths.len() >= SPARES {
            pool = self.changed.wait_ms(pool, timeout_ms);
        }
        !pool.stopped
    }

    /// Waits about `timeout_ms` whatever is missing, for a full disk to be emptied. Tells whether
    /// to go on.
    pub(crate) fn pause(&self, timeout_ms: u64) -> bool {
        let pool = self.pool.lock();
        if pool.stopped {
            return false;
        }
        !self.changed.wait_ms(pool, timeout_ms).stopped
    }

    /// Ends every wait.
    pub(crate) fn stop(&self) {
        self.pool.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// A spare could not be made, and not for lack of room.
pub(crate) struct Failed {
    pub(crate) path: String,
    pub(crate) source: io::Error,
}

fn admit(pool: &MutexGuard<'_, Pool>, intake: &Intake) {
    let short = pool.paths.len() <= SPARES_RESERVED;
    intake.admit(if short { Admission::Reserved } else { Admission::All });
}

/// Whether the machine may grant later what it refuses now: room, or a file descriptor.
fn may_pass(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    full || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

fn is_all_zero(device: &dyn Device, path: &str, bytes: u64) -> io::Result<bool> {
    const PIECE_BLOCKS: u64 = 256;
    let file = device.open_uncached(path)?;
    // One block more than the file has, so that its end is met.
    let blocks = (bytes / BLOCK + 1).min(PIECE_BLOCKS);
    let mut piece = Blocks::new(usize::try_from(blocks).unwrap_or(1));
    let mut at = 0;
    loop {
        let read = read_full(&*file, piece.bytes_mut(), at)?;
        if !is_zero(&piece.bytes()[..read]) {
            return Ok(false);
        }
        if read < piece.bytes().len() {
            return Ok(true);
        }
        at += read as u64;
    }
}
