//! Giving segments back: CONTROL first says that they are not needed (W7), then their files become
//! spares, or go.
//!
//! | the segment                                     | becomes                                  |
//! |-------------------------------------------------|------------------------------------------|
//! | saw an I/O error, now or before                 | set aside in `quarantine/`, never used   |
//! | sealed by the run that filled it, or by this    | a spare, zero beyond its seal            |
//! | run after a clean end, and spares are wanted    |                                          |
//! | any other                                       | removed                                  |
//!
//! A file that becomes a spare holds frames of one life alone: whatever stood beyond its seal (a
//! torn write, a life before) is zeroed and synced before it gets the name of a spare. So the next
//! life knows one stamp by which to tell what is stale (W8). A segment whose run did not end
//! cleanly is not used again, nor is a spare that such a run left and that once was a segment: an
//! error may have ended it that nobody could note.

use std::io;
use std::sync::Arc;

use crate::block::Blocks;
use crate::committer::{Parts, Tail};
use crate::control::CONTROL_PATH;
use crate::device::{Device, read_full, write_full};
use crate::error::{LogUnavailable, OpenError};
use crate::failure::set_aside;
use crate::ids::{Lsn, SegmentId};
use crate::limits::BLOCK_BYTES;
use crate::log::Log;
use crate::names;
use crate::open::{io_error, lock, read_control, sync_control};
use crate::planted::{self, Bug};
use crate::premises::{Found, look};
use crate::retention::{Retirable, SinkClass, SinkError, SinkState, padded};
use crate::segment::SegmentHeader;
use crate::snapshot::{SnapshotInfo, SnapshotReader, SnapshotWriter};
use crate::spares::{Spare, may_pass};

/// What [`Log::retire`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retired {
    /// Segments given back.
    pub segments: u64,
    /// Those of them that became spares.
    pub recycled: u64,
    /// Those of them that saw an I/O error and are set aside.
    pub quarantined: u64,
    /// Those whose files the next start has to deal with: the disk refused.
    pub left: u64,
}

impl Log {
    /// Gives back the segments that nobody needs any more.
    ///
    /// # Errors
    /// [`LogUnavailable`] where CONTROL could not be written: the log has failed. What happens to
    /// the files of segments that are not needed fails nothing.
    pub fn retire(&self) -> Result<Retired, LogUnavailable> {
        let parts = self.parts();
        let _turn = parts.retention.turn.lock();
        let free = parts.retention.retirable();
        let Some(last) = free.last() else { return Ok(Retired::default()) };
        let is_dense = |one: &Retirable, next: &Retirable| one.id.plus(1) == next.id;
        assert!(free.is_sorted_by(is_dense), "W7: the log is given back from its beginning on");
        let oldest = last.id.plus(1);
        let never_recycle = self.with_tail(|tail, parts| tail.give_back(parts, oldest))?;
        parts.retention.forget_before(oldest);
        let mut retired = Retired { segments: free.len() as u64, ..Retired::default() };
        let mut spares = Vec::new();
        for segment in free {
            let condemned = never_recycle.contains(&segment.id);
            let parted = match condemned && !planted::has(Bug::FileReusedAfterError) {
                true => Err(io::ErrorKind::Other.into()),
                false => part_with(parts, segment, spares.len()),
            };
            match parted {
                Ok(spare) => spares.extend(spare),
                // The file is sound: there was no room, or no descriptor, to blank it.
                Err(error) if may_pass(&error) => {
                    let removed = parts.device.remove(&names::segment(segment.id));
                    retired.left += u64::from(removed.is_err());
                }
                Err(_) if set_aside(&*parts.device, &names::segment(segment.id)).is_ok() => {
                    retired.quarantined += 1;
                }
                Err(_) => retired.left += 1,
            }
        }
        // Spares are none before their names are durable.
        if parts.device.sync_dir(names::WAL_DIR).is_ok() {
            retired.recycled = spares.len() as u64;
            parts.spares.add(spares, &parts.intake);
        }
        Ok(retired)
    }

    /// Registers a sink, which holds the log from now on.
    ///
    /// # Errors
    /// [`SinkError`]: there is none of that name then.
    pub fn register_sink(&self, name: &str, class: SinkClass) -> Result<(), SinkError> {
        let parts = self.parts();
        parts.retention.register(name, class)?;
        Ok(self.with_tail(Tail::save)?)
    }

    /// Forgets a sink: it no longer holds the log.
    ///
    /// # Errors
    /// [`SinkError`].
    pub fn drop_sink(&self, name: &str) -> Result<(), SinkError> {
        let parts = self.parts();
        parts.retention.drop_sink(name)?;
        parts.intake.hold_new(parts.retention.is_overdue());
        Ok(self.with_tail(Tail::save)?)
    }

    /// Notes that `sink` holds everything up to `lsn` for good. CONTROL says so at its next write;
    /// until then the sink holds more of the log than it must.
    pub fn sink_confirmed(&self, sink: &str, lsn: Lsn) {
        let parts = self.parts();
        parts.retention.confirm(sink, lsn.min(self.durable_lsn()));
        parts.intake.hold_new(parts.retention.is_overdue());
    }

    /// The registered sinks.
    pub fn sinks(&self) -> Vec<SinkState> {
        self.parts().retention.sinks()
    }

    /// Bounds the undelivered log.
    pub fn set_retention_limits(&self, limits: crate::retention::RetentionLimits) {
        let parts = self.parts();
        parts.retention.set_limits(limits);
        parts.intake.hold_new(parts.retention.is_overdue());
    }

    /// The last record that a snapshot made of sealed segments alone can cover.
    pub fn sealed_lsn(&self) -> Lsn {
        self.parts().retention.sealed_lsn()
    }

    /// The newest snapshot that is whole.
    pub fn snapshot(&self) -> Option<SnapshotInfo> {
        self.parts().retention.snapshot()
    }

    /// Bytes of segments that hold anything the newest snapshot does not.
    pub fn bytes_beyond_snapshot(&self) -> u64 {
        self.parts().retention.bytes_beyond_snapshot()
    }

    /// A reader of the newest snapshot, `None` where there is none. It reads on though later
    /// snapshots take its place.
    ///
    /// # Errors
    /// [`SnapshotError`](crate::SnapshotError) where it can't be opened.
    pub fn read_snapshot(&self) -> Result<Option<SnapshotReader>, crate::SnapshotError> {
        let Some(info) = self.snapshot() else { return Ok(None) };
        let (device, shards) = (&*self.parts().device, self.format().shard_count);
        SnapshotReader::open(device, info.lsn, self.identity().uuid, shards).map(Some)
    }

    /// Sets the newest snapshot aside, which its owner can't load: the log reaches back to the one
    /// before.
    pub fn pass_over_snapshot(&self) {
        let parts = self.parts();
        if let Some(info) = parts.retention.pass_over_snapshot() {
            // Where it stays, the next start finds it damaged by itself.
            let _ = set_aside(&*parts.device, &names::snapshot(info.lsn));
        }
    }

    /// Begins a snapshot of the state after record `lsn`, at which a frame ends.
    ///
    /// # Errors
    /// The disk's. Nothing has happened.
    ///
    /// # Panics
    /// Where `lsn` is not durable yet: a crash could take back what the snapshot holds.
    pub fn begin_snapshot(&self, lsn: Lsn) -> io::Result<SnapshotWriter> {
        assert!(lsn <= self.durable_lsn(), "a snapshot holds what is durable");
        let device = Arc::clone(&self.parts().device);
        SnapshotWriter::create(device, self.identity(), self.format().shard_count, lsn)
    }

    /// Completes a snapshot; `chain` is that of the frame that ends at its LSN. The oldest beyond
    /// two goes.
    ///
    /// # Errors
    /// The disk's: there is no such snapshot, and the draft is removed. Where CONTROL could not be
    /// written the log has failed as well.
    pub fn finish_snapshot(&self, writer: SnapshotWriter, chain: u32) -> io::Result<SnapshotInfo> {
        let parts = self.parts();
        let made = writer.finish(chain)?;
        assert!(made.lsn <= self.durable_lsn(), "W14: a snapshot holds what is durable");
        let gone = parts.retention.snapshot_made(made);
        self.with_tail(Tail::save).map_err(|_| io::Error::other("the log has failed"))?;
        for old in gone {
            // One that stays is one that the next start removes.
            let _ = parts.device.remove(&names::snapshot(old.lsn));
        }
        let _ = parts.device.sync_dir(names::SNAP_DIR);
        Ok(made)
    }
}

/// What becomes of the file of a segment that is not needed: a spare, or nothing.
fn part_with(parts: &Parts, segment: Retirable, more_spares: usize) -> io::Result<Option<Spare>> {
    let device = &*parts.device;
    let path = names::segment(segment.id);
    if segment.reusable && parts.spares.wants(more_spares) {
        let stale_stamp = blank(device, segment.id)?;
        let spare = parts.spares.name();
        device.rename(&path, &spare)?;
        return Ok(Some(Spare::made(spare, stale_stamp)));
    }
    device.remove(&path)?;
    Ok(None)
}

/// Zeroes what stands beyond the seal of a segment, durably; returns the segment's stamp.
fn blank(device: &dyn Device, id: SegmentId) -> io::Result<u64> {
    const PIECE_BLOCKS: usize = 256;
    let header = header(device, id)?;
    let seal = header.limit(Some(&self::header(device, id.plus(1))?));
    let file = device.open(&names::segment(id))?;
    let zeros = Blocks::new(PIECE_BLOCKS);
    let mut at = seal;
    while at < header.segment_bytes {
        let bytes = (header.segment_bytes - at).min(zeros.bytes().len() as u64);
        let piece = usize::try_from(bytes).unwrap_or(BLOCK_BYTES);
        write_full(&*file, &zeros.bytes()[..piece], at)?;
        at += piece as u64;
    }
    if seal < header.segment_bytes {
        file.sync_data()?;
    }
    Ok(header.stamp)
}

fn header(device: &dyn Device, id: SegmentId) -> io::Result<SegmentHeader> {
    let file = device.open(&names::segment(id))?;
    let mut block = Blocks::new(1);
    let read = read_full(&*file, block.bytes_mut(), 0)?;
    SegmentHeader::parse(&block.bytes()[..read])
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a segment without a header"))
}

/// Forgets a sink of a log that no process has open: it no longer holds the log back.
///
/// # Errors
/// [`OpenError`]: [`Locked`](OpenError::Locked) where a server runs, `Ok(false)` where no sink has
/// that name.
pub fn drop_sink(device: &dyn Device, name: &str) -> Result<bool, OpenError> {
    if matches!(look(device)?, Found::Nothing(_)) {
        return Err(OpenError::NoLog { dir: device.display("") });
    }
    let _lock = lock(device)?;
    sync_control(device)?;
    let (mut control, file) = read_control(device)?;
    let before = control.sinks.len();
    control.sinks.retain(|sink| padded(name) != Some(sink.name));
    if control.sinks.len() == before {
        return Ok(false);
    }
    control.write(&*file).map_err(io_error(device, "write", CONTROL_PATH))?;
    Ok(true)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "retire_tests.rs"]
mod tests;
