//! Spares: segments made ahead, so that a rotation costs a header and a rename.
//!
//! A spare is zero-filled, or the file of a segment that was given back and holds frames of one
//! earlier life alone (see `retire`). A file gets the name of a spare once what it holds is synced,
//! so a start need not read it to know what it is; it is read all the same, beside the first
//! commits, for a disk may have changed it. After an end that was not clean only zero-filled ones
//! are taken over: an I/O error on one of the others may have ended that run, and nothing in the
//! file tells of it. Real zeros, not holes: the first write into a hole makes the
//! file system journal the allocation at every sync. When spares run low new work is refused, and
//! let in again by itself; the last one is kept for what must go on.

mod demand;

use std::collections::VecDeque;
use std::io;

use self::demand::Demand;
use crate::block::{BLOCK, Blocks, is_zero};
use crate::control::Control;
use crate::device::{Device, read_full};
use crate::intake::{Admission, Intake};
use crate::limits::{EXTRA_MARGIN_SEGMENTS, SPARES, SPARES_MAX, SPARES_RESERVED};
use crate::names;
use crate::planted::{self, Bug};
use crate::segment::SegmentHeader;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A file for a segment to come.
pub(crate) struct Spare {
    pub(crate) path: String,
    /// The stamp of its life before, 0 where it is zero-filled.
    pub(crate) stale_stamp: u64,
    /// Whether this process has made it, or read it.
    checked: bool,
}

impl Spare {
    /// One that this process made.
    pub(crate) fn made(path: String, stale_stamp: u64) -> Self {
        Self { path, stale_stamp, checked: true }
    }

    /// The number in its name; `None` where that is none of a spare.
    fn number(&self) -> Option<u64> {
        names::parse_spare(self.path.rsplit('/').next().unwrap_or_default())
    }

    /// What becomes a segment is a spare by its name, and holds nothing but zeros or one earlier
    /// life.
    ///
    /// # Panics
    /// Where it is not: a segment that is in use would be written over (W7).
    fn assert_unused(&self) {
        assert!(self.number().is_some(), "W7: {} is no spare", self.path);
        assert!(self.checked || self.stale_stamp == 0, "W8: {} may hold two lives", self.path);
    }
}

struct Pool {
    spares: VecDeque<Spare>,
    next_number: u64,
    demand: Demand,
    /// The last one that was tried found no room.
    out_of_room: bool,
    stopped: bool,
}

impl Pool {
    fn next_path(&mut self) -> String {
        self.next_number += 1;
        names::spare(self.next_number - 1)
    }

    /// # Panics
    /// Where it is no spare, or is there already: two segments would be one file (W7).
    fn add(&mut self, spare: Spare) {
        spare.assert_unused();
        let known = self.spares.iter().any(|other| other.path == spare.path);
        assert!(!known, "W7: {} is a spare twice", spare.path);
        let number = spare.number();
        assert!(number < Some(self.next_number), "W7: {} is given to another, too", spare.path);
        self.spares.push_back(spare);
    }
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
    /// Takes over the spares of an earlier run that are of the right size and begin as spares do;
    /// removes the others. `closed` tells whether that run ended cleanly.
    pub(crate) fn adopt(device: &dyn Device, control: &Control, closed: bool) -> io::Result<Self> {
        let trusted = closed || planted::has(Bug::FileReusedAfterError);
        let segment_bytes = control.format.segment_bytes;
        assert!(segment_bytes.is_multiple_of(BLOCK), "a spare is read by whole blocks");
        let mut pool = Pool {
            spares: VecDeque::new(),
            next_number: 1,
            demand: Demand::default(),
            out_of_room: false,
            stopped: false,
        };
        for entry in device.list(names::WAL_DIR)? {
            if names::is_draft_of_spare(&entry.name) {
                device.remove(&format!("{}/{}", names::WAL_DIR, entry.name))?;
            }
            let Some(number) = names::parse_spare(&entry.name) else { continue };
            pool.next_number = pool.next_number.max(number.saturating_add(1));
            let path = names::spare(number);
            let usable = pool.spares.len() < SPARES_MAX && entry.bytes == segment_bytes;
            // A spare that can't be read holds nothing that anyone would miss.
            let stale = usable.then(|| stale_stamp(device, &path, control).ok().flatten());
            match stale.flatten() {
                Some(0) => {
                    pool.spares.push_back(Spare { path, stale_stamp: 0, checked: false });
                }
                // Nothing about it is left to be read: it is the first to be used.
                Some(stale) if trusted => pool.spares.push_front(Spare::made(path, stale)),
                _ => device.remove(&path)?,
            }
        }
        assert!(pool.spares.len() <= SPARES_MAX, "no more is taken over than would be made");
        Ok(Self { pool: Mutex::new(pool), changed: Condvar::new(), segment_bytes })
    }

    /// Makes a spare where one is missing; beyond [`SPARES`] only where the disk has room for
    /// others too. To lack one of those is no lack of room: nothing depends on it.
    pub(crate) fn make(&self, device: &dyn Device, intake: &Intake) -> Result<SpareMade, Failed> {
        let (path, is_extra) = {
            let mut pool = self.pool.lock();
            if pool.spares.len() >= pool.demand.target() {
                pool.out_of_room = false;
                return Ok(SpareMade::Enough);
            }
            (pool.next_path(), pool.spares.len() >= SPARES)
        };
        if is_extra && !self.leaves_room(device) {
            return Ok(self.deny_extra());
        }
        match create(device, &path, self.segment_bytes) {
            Ok(()) => {
                let mut pool = self.pool.lock();
                pool.out_of_room = false;
                pool.add(Spare::made(path, 0));
                admit(&pool, intake);
                Ok(SpareMade::Made)
            }
            Err(failed) if may_pass(&failed.source) => {
                // What was written of it takes room that others need.
                let _ = device.remove(&failed.path);
                if is_extra {
                    return Ok(self.deny_extra());
                }
                self.pool.lock().out_of_room = true;
                Ok(SpareMade::NoRoom)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Whether one more would leave room for those that share the disk. A file system that does not
    /// say is not asked to be careful with.
    fn leaves_room(&self, device: &dyn Device) -> bool {
        let needed = self.segment_bytes.saturating_mul(1 + EXTRA_MARGIN_SEGMENTS);
        device.free_bytes().map_or(true, |free| free >= needed)
    }

    fn deny_extra(&self) -> SpareMade {
        let mut pool = self.pool.lock();
        pool.demand.deny_extra();
        pool.out_of_room = false;
        SpareMade::Enough
    }

    /// Reads one of the spares that an earlier run left; removes it where a disk has changed it
    /// since. Tells whether there was one.
    pub(crate) fn check_one(&self, device: &dyn Device) -> bool {
        let pool = self.pool.lock();
        let next = pool.spares.iter().find(|spare| !spare.checked && !pool.stopped);
        let Some(path) = next.map(|spare| spare.path.clone()) else { return false };
        drop(pool);
        let zero = is_all_zero(device, &path, self.segment_bytes);
        let mut pool = self.pool.lock();
        // A rotation may have taken it meanwhile.
        if let Some(at) = pool.spares.iter().position(|spare| spare.path == path) {
            if zero {
                pool.spares[at].checked = true;
            } else if pool.spares.remove(at).is_some() {
                let _ = device.remove(&path);
            }
        }
        true
    }

    /// A spare for the next segment: one from the pool, or one made now.
    pub(crate) fn take(&self, device: &dyn Device, intake: &Intake) -> Result<Spare, Failed> {
        let now_us = device.now_us();
        let mut pool = self.pool.lock();
        pool.demand.begin_segment(now_us);
        if let Some(spare) = pool.spares.pop_front() {
            admit(&pool, intake);
            drop(pool);
            self.changed.notify_all();
            spare.assert_unused();
            return Ok(spare);
        }
        let path = pool.next_path();
        drop(pool);
        match create(device, &path, self.segment_bytes) {
            Ok(()) => Ok(Spare::made(path, 0)),
            Err(failed) => {
                if may_pass(&failed.source) {
                    // No bad file, but one that takes room which the next try needs.
                    let _ = device.remove(&failed.path);
                }
                Err(failed)
            }
        }
    }

    /// Lets nothing in any more, for there is neither a spare nor room for one; unless somebody has
    /// found room meanwhile, whose word would else be the last: nothing is let in, so nothing
    /// rotates, so nobody would ever speak again.
    pub(crate) fn let_nothing_in(&self, intake: &Intake) {
        let pool = self.pool.lock();
        if pool.spares.is_empty() {
            intake.admit(Admission::Nothing);
        }
    }

    /// Whether a file that is given back is wanted beside `more` others.
    pub(crate) fn wants(&self, more: usize) -> bool {
        let pool = self.pool.lock();
        pool.spares.len() + more < pool.demand.target()
    }

    /// A name that no spare has.
    pub(crate) fn name(&self) -> String {
        self.pool.lock().next_path()
    }

    /// Adds files that were given back.
    pub(crate) fn add(&self, spares: Vec<Spare>, intake: &Intake) {
        let mut pool = self.pool.lock();
        spares.into_iter().for_each(|spare| pool.add(spare));
        admit(&pool, intake);
    }

    /// Whether the last one that was to be made found no room.
    pub(crate) fn is_out_of_room(&self) -> bool {
        self.pool.lock().out_of_room
    }

    /// Notes that so many bytes of log are foreseen from here on.
    pub(crate) fn foresee(&self, bytes: u64) {
        let segments = bytes.div_ceil(self.segment_bytes);
        let segments = usize::try_from(segments).unwrap_or(usize::MAX);
        let mut pool = self.pool.lock();
        if pool.demand.foresee(segments) {
            drop(pool);
            self.changed.notify_all();
        }
    }

    /// Whether there are as many as there should be.
    pub(crate) fn are_enough(&self) -> bool {
        let pool = self.pool.lock();
        pool.spares.len() >= pool.demand.target()
    }

    /// Number of spares.
    pub(crate) fn len(&self) -> usize {
        self.pool.lock().spares.len()
    }

    /// Waits until a spare is missing, or about `timeout_ms`. Tells whether to go on.
    pub(crate) fn wait(&self, timeout_ms: u64) -> bool {
        let mut pool = self.pool.lock();
        if !pool.stopped && pool.spares.len() >= pool.demand.target() {
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

/// Makes a zero-filled file, which gets its name, `path`, once it is whole and synced: whatever
/// bears it after a crash is what it says.
fn create(device: &dyn Device, path: &str, bytes: u64) -> Result<(), Failed> {
    let draft = names::draft_of_spare(path);
    let made = device.create_zeroed(&draft, bytes).and_then(|()| device.rename(&draft, path));
    made.map_err(|source| Failed { path: draft, source })
}

fn admit(pool: &MutexGuard<'_, Pool>, intake: &Intake) {
    let short = pool.spares.len() <= SPARES_RESERVED;
    intake.admit(if short { Admission::Reserved } else { Admission::All });
}

/// Whether the machine may grant later what it refuses now: room, or a file descriptor.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    full || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// The stamp of a spare's life before, 0 where it begins as a zero-filled one; `None` for one that
/// can't be told. A head that is not older than the log's oldest segment is that of a rotation that
/// a crash interrupted: what stands behind it has yet another stamp.
fn stale_stamp(device: &dyn Device, path: &str, control: &Control) -> io::Result<Option<u64>> {
    let file = device.open_uncached(path)?;
    let mut block = Blocks::new(1);
    let read = read_full(&*file, block.bytes_mut(), 0)?;
    if let Ok(header) = SegmentHeader::parse(&block.bytes()[..read]) {
        let given_back = header.log_uuid == control.log_uuid
            && header.segment_id < control.oldest_needed_segment;
        return Ok(given_back.then_some(header.stamp));
    }
    Ok(is_zero(&block.bytes()[..read]).then_some(0))
}

/// Whether the disk gives back a file as nothing but zeros.
fn is_all_zero(device: &dyn Device, path: &str, bytes: u64) -> bool {
    const PIECE_BLOCKS: u64 = 256;
    let Ok(file) = device.open_uncached(path) else { return false };
    // One block more than the file has, so that its end is met.
    let blocks = (bytes / BLOCK + 1).min(PIECE_BLOCKS);
    let mut piece = Blocks::new(usize::try_from(blocks).unwrap_or(1));
    let mut at = 0;
    loop {
        let Ok(read) = read_full(&*file, piece.bytes_mut(), at) else { return false };
        if !is_zero(&piece.bytes()[..read]) {
            return false;
        }
        if read < piece.bytes().len() {
            return true;
        }
        at += read as u64;
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::sim::{Image, SimDevice};
    use crate::testing;

    #[test]
    fn a_spare_beyond_the_usual_number_never_fills_the_disk_and_its_lack_is_no_lack_of_room() {
        let device = SimDevice::new(Image::default());
        device.create_dir(names::WAL_DIR).unwrap();
        let intake = Intake::new(&[0], 65_536, 1 << 20);
        let spares = empty();
        let make = || spares.make(&device, &intake).ok().unwrap();
        let margin = EXTRA_MARGIN_SEGMENTS * SEGMENT;
        device.set_free_bytes(Some(SPARES as u64 * SEGMENT + SEGMENT + margin));
        spares.foresee(u64::MAX);
        let mut made = 0;
        while make() == SpareMade::Made {
            made += 1;
        }
        assert_eq!(made, SPARES + 1, "one more leaves the margin, two would not");
        assert_eq!(device.free_bytes().unwrap(), margin);
        assert!(spares.are_enough() && !spares.is_out_of_room());
        // Room alone is not looked for again and again; what else is foreseen has it looked for.
        device.set_free_bytes(None);
        assert_eq!(make(), SpareMade::Enough);
        spares.foresee(u64::MAX);
        assert_eq!(make(), SpareMade::Enough);
        spares.foresee(9 * SEGMENT);
        assert_eq!(make(), SpareMade::Made);
        // One of the usual number takes what there is, and its lack is one.
        device.set_free_bytes(Some(SEGMENT));
        spares.pool.lock().spares.truncate(SPARES - 2);
        assert_eq!((make(), make()), (SpareMade::Made, SpareMade::NoRoom));
        assert!(spares.is_out_of_room());
    }

    /// A spare that an earlier run left and that can't be opened, or read, is none.
    #[test]
    fn a_spare_that_can_t_be_read_is_not_used() {
        let path = names::spare(1);
        let mut image = Image::default();
        image.set_content(&path, &[0; 8 * 4096]);
        assert!(is_all_zero(&SimDevice::new(image.clone()), &path, SEGMENT));
        assert!(!is_all_zero(&SimDevice::new(image.clone()), &names::spare(2), SEGMENT));
        image.make_unreadable(&path, 5);
        assert!(!is_all_zero(&SimDevice::new(image), &path, SEGMENT));
    }

    /// Nobody has made it: whoever numbers spares after it would soon run out of numbers.
    #[test]
    fn a_stray_file_with_the_last_number_of_all_is_no_spare() {
        let device = testing::disk();
        testing::open(&device).0.close().unwrap();
        for number in [u64::MAX - 1, u64::MAX] {
            device.create_zeroed(&names::spare(number), testing::FORMAT.segment_bytes).unwrap();
        }
        let (log, _) = testing::open(&device);
        while log.make_spare().unwrap() == SpareMade::Made {}
        assert!(log.has_enough_spares());
    }

    #[test]
    fn a_full_disk_is_left_alone_until_the_time_is_over_or_the_log_ends() {
        let spares = empty();
        assert!(spares.pause(1), "the time is over");
        assert!(spares.wait(u64::from(u32::MAX)), "one is missing: nothing to wait for");
        spares.stop();
        assert!(!spares.pause(u64::from(u32::MAX)) && !spares.wait(u64::from(u32::MAX)));
    }

    const SEGMENT: u64 = 8 * BLOCK;

    fn empty() -> Spares {
        let pool = Pool {
            spares: VecDeque::new(),
            next_number: 1,
            demand: Demand::default(),
            out_of_room: false,
            stopped: false,
        };
        Spares { pool: Mutex::new(pool), changed: Condvar::new(), segment_bytes: SEGMENT }
    }
}
