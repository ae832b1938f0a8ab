//! Making a snapshot: replayed from the last one and sealed segments, or at a clean end from live
//! state.

use std::io;
use std::ops::RangeInclusive;

use wal::{CONTROL_SHARD, Lane, Lsn, ReadError, SnapshotInfo, SnapshotReader, SnapshotWriter};

use super::super::ahead::Stage as _;
use super::super::engine::Engine;
use super::super::error::ReplayError;
use super::super::replay::{Batch, Replayed};
use super::apart::apart;
use super::{GROUP_BYTES_MAX, RESERVE_BYTES_MIN, RESERVE_BYTES_SCARCE, SnapshotLoadError, load};
use crate::core::control::Control;
use crate::core::digest::digest;
use crate::core::shard::Shard;
use crate::core::snapshot::{
    IMAGE_VERSION, Image, encode_image, image_kind, walk_control, walk_shard,
};

/// A snapshot that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotMade {
    /// The last record whose effect is in it.
    pub lsn: Lsn,
    /// Its length.
    pub bytes: u64,
    /// Records replayed for it.
    pub records: u64,
    /// Segments that the log gave back because of it.
    pub segments_retired: u64,
}

/// Why no snapshot was made. The log is whole, and kept from the snapshots before on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotMakeError {
    /// The disk refused; room may be short.
    #[error("writing a snapshot: {0}")]
    Io(#[from] io::Error),
    /// The log does not read back: a sealed segment is damaged. `sluice check` says which.
    #[error("reading the log for a snapshot: {0}")]
    Log(#[from] ReadError),
    /// A record does not fit the state before it.
    #[error("the record at LSN {lsn} does not fit the state before it: {why}")]
    Rejected {
        /// The record.
        lsn: Lsn,
        /// What is wrong.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The last snapshot does not load.
    #[error("loading the last snapshot: {0}")]
    Load(#[from] SnapshotLoadError),
    /// The engine ends.
    #[error("the engine ends")]
    Stopped,
    /// The log has failed.
    #[error(transparent)]
    LogUnavailable(#[from] wal::LogUnavailable),
}

impl Engine {
    /// Makes a snapshot of everything up to the last sealed segment, and gives back what of the log
    /// is no longer needed; `None` where no segment was sealed since the last one. The engine runs
    /// on meanwhile.
    ///
    /// # Errors
    /// [`SnapshotMakeError`]: there is no new snapshot.
    pub fn snapshot(&self) -> Result<Option<SnapshotMade>, SnapshotMakeError> {
        self.snapshot_unless(&|| false)
    }

    pub(crate) fn snapshot_unless(
        &self,
        stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<SnapshotMade>, SnapshotMakeError> {
        let _turn = self.inner.house.turn.lock();
        let log = &self.inner.log;
        let (from, to) = (log.snapshot().map_or(Lsn(0), |it| it.lsn), log.sealed_lsn());
        if to <= from {
            return Ok(None);
        }
        let (info, records) = match self.write_snapshot(from, to, stopped) {
            // The disk is full: there is room set aside for the one file that makes room.
            Err(SnapshotMakeError::Io(error))
                if error.kind() == io::ErrorKind::StorageFull && log.give_room() =>
            {
                self.write_snapshot(from, to, stopped)?
            }
            made => made?,
        };
        let SnapshotInfo { lsn, bytes } = info;
        assert!(lsn == to, "W14: a snapshot of {lsn} was to cover {to}");
        let segments_retired = log.retire()?.segments;
        Ok(Some(SnapshotMade { lsn, bytes, records, segments_retired }))
    }

    fn write_snapshot(
        &self,
        from: Lsn,
        to: Lsn,
        stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<(SnapshotInfo, u64), SnapshotMakeError> {
        apart(|| self.write_replayed(from, to, stopped))?
    }

    fn write_replayed(
        &self,
        from: Lsn,
        to: Lsn,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(SnapshotInfo, u64), SnapshotMakeError> {
        let log = &self.inner.log;
        let mut writer = log.begin_snapshot(to)?;
        match self.replay_into(&mut writer, from, to, stopped) {
            Ok((records, chain)) => Ok((log.finish_snapshot(writer, chain)?, records)),
            Err(error) => {
                writer.give_up();
                Err(error)
            }
        }
    }

    /// Sets room aside for the next snapshot, which a full disk must still take: it is what lets
    /// the log give room back. A disk that is full already has none to set aside. The engine's
    /// threads do it by themselves.
    pub fn reserve_room(&self) {
        let log = &self.inner.log;
        let last_bytes = log.snapshot().map_or(0, |it| it.bytes);
        let needed = (last_bytes + last_bytes / 2).max(RESERVE_BYTES_SCARCE);
        let _ = log.reserve_room(needed, needed.max(RESERVE_BYTES_MIN));
    }

    /// Replays `from..=to`, group by group of lanes, into `writer`. Returns the records replayed
    /// and the chain of the frame that ends at `to`.
    fn replay_into(
        &self,
        writer: &mut SnapshotWriter,
        from: Lsn,
        to: Lsn,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(u64, u32), SnapshotMakeError> {
        let shard_count = self.inner.log.format().shard_count;
        let mut base = self.inner.log.read_snapshot().map_err(SnapshotLoadError::from)?;
        let groups = groups(base.as_mut(), shard_count)?;
        let (mut records, mut chain) = (0, 0);
        for group in groups {
            let mut state = Replayed::new(shard_count, &self.inner.owner, ());
            let wanted = |shard: u16| group.contains(&shard);
            if let Some(base) = &mut base {
                base.rewind();
                load(base, &mut state, wanted)?;
            }
            chain = self.replay_group(&mut state, from, to, &wanted, stopped)?;
            records += state.records;
            for shard in group.clone().filter(|shard| *shard < shard_count) {
                write_shard(writer, shard, &state.shards[usize::from(shard)])?;
            }
            if wanted(CONTROL_SHARD) {
                write_control(writer, &state.control, state.last_ms)?;
            }
        }
        assert!(records == to.0 - from.0, "W14: {records} of {} records replayed", to.0 - from.0);
        Ok((records, chain))
    }

    fn replay_group(
        &self,
        state: &mut Replayed<()>,
        from: Lsn,
        to: Lsn,
        wanted: &dyn Fn(u16) -> bool,
        stopped: &dyn Fn() -> bool,
    ) -> Result<u32, SnapshotMakeError> {
        let mut reader = self.inner.log.reader();
        reader.seek(from)?;
        let rejected =
            |(lsn, why): (Lsn, ReplayError)| SnapshotMakeError::Rejected { lsn, why: why.into() };
        let (mut batch, requests) = (Batch::default(), state.requests());
        while let Some(frame) = reader.next_frame()? {
            if stopped() {
                return Err(SnapshotMakeError::Stopped);
            }
            for record in frame.records() {
                let record = record.map_err(|error| SnapshotMakeError::Rejected {
                    lsn: error.0,
                    why: error.into(),
                })?;
                if wanted(record.shard) {
                    batch.push(&record, &requests);
                } else if wanted(CONTROL_SHARD) {
                    state.pass(&record).map_err(|why| rejected((record.lsn, why)))?;
                }
                if batch.is_full() {
                    state.apply(&batch).map_err(rejected)?;
                    batch.clear();
                }
            }
            state.apply(&batch).map_err(rejected)?;
            batch.clear();
            assert!(frame.last_lsn <= to, "W14: the segment sealed at {to} ends inside a frame");
            if frame.last_lsn == to {
                return Ok(frame.chain);
            }
        }
        // A segment was sealed at `to`, so a frame ends there and is durable.
        Err(ReadError::NotAFrameEnd(to).into())
    }

    /// Writes a snapshot of live state and gives back what of the log is not needed any more: for a
    /// log that takes no records any more and whose last frame has `chain`.
    pub(crate) fn snapshot_at_end(&self, chain: u32) -> Result<(), SnapshotMakeError> {
        let _turn = self.inner.house.turn.lock();
        let log = &self.inner.log;
        let mut writer = log.begin_snapshot(log.durable_lsn())?;
        // Nothing changes any more: what the shards hold is what the log does.
        for (index, shard) in (0..).zip(&self.inner.shards) {
            let shard = shard.lock();
            let (held, durable) = (shard.applied_seq(), log.durable_seq(index));
            assert!(held == durable, "W14: shard {index} holds {held}, its log ends at {durable}");
            write_shard(&mut writer, index, &shard)?;
        }
        let control = self.inner.control.lock();
        let durable_seq = log.durable_seq(CONTROL_SHARD);
        assert!(control.applied_seq() == durable_seq, "W14: a control that the log does not have");
        write_control(&mut writer, &control, self.inner.clock.now_ms())?;
        drop(control);
        log.finish_snapshot(writer, chain)?;
        log.retire()?;
        Ok(())
    }

    /// Whether a snapshot at a clean end saves more than it costs.
    pub(crate) fn pays_at_end(&self) -> bool {
        let log = &self.inner.log;
        let (last, behind) = (log.snapshot(), log.bytes_beyond_snapshot());
        let last_bytes = last.map_or(0, |it| it.bytes);
        let news = log.durable_lsn() > last.map_or(Lsn(0), |it| it.lsn);
        news && behind > self.inner.house.snapshot_after_bytes / 4 && last_bytes <= behind * 4
    }
}

/// Lanes in groups whose state fits [`GROUP_BYTES_MAX`], by what the last snapshot holds of each;
/// the control lane is in the last.
fn groups(
    base: Option<&mut SnapshotReader>,
    shard_count: u16,
) -> Result<Vec<RangeInclusive<u16>>, SnapshotMakeError> {
    let Some(base) = base else { return Ok(vec![0..=CONTROL_SHARD]) };
    let (mut groups, mut first, mut bytes) = (Vec::new(), 0, 0);
    let mut lane_bytes = 0;
    while let Some(piece) = base.next_piece().map_err(SnapshotLoadError::from)? {
        let shard = piece.lane.shard;
        lane_bytes += piece.items().map(|item| item.body.len() as u64).sum::<u64>();
        if !piece.last || shard >= shard_count {
            continue;
        }
        if bytes + lane_bytes > GROUP_BYTES_MAX && shard > first {
            groups.push(first..=shard - 1);
            (first, bytes) = (shard, 0);
        }
        bytes += std::mem::take(&mut lane_bytes);
    }
    groups.push(first..=CONTROL_SHARD);
    let is_next = |one: &RangeInclusive<u16>, next: &RangeInclusive<u16>| {
        one.end().checked_add(1) == Some(*next.start())
    };
    assert!(groups.is_sorted_by(is_next), "W14: each shard is in one group: {groups:?}");
    let (begin, end) = (groups.first().map(|it| *it.start()), groups.last().map(|it| *it.end()));
    assert!((begin, end) == (Some(0), Some(CONTROL_SHARD)), "W14: a lane is in none: {groups:?}");
    Ok(groups)
}

fn write_shard(writer: &mut SnapshotWriter, index: u16, shard: &Shard) -> io::Result<()> {
    writer.lane(Lane { shard: index, seq: shard.applied_seq(), digest: digest(shard) })?;
    walk_shard(shard, &mut |image| write_image(writer, &image))
}

fn write_control(writer: &mut SnapshotWriter, control: &Control, last_ms: u64) -> io::Result<()> {
    let (seq, digest) = (control.applied_seq(), control.digest());
    writer.lane(Lane { shard: CONTROL_SHARD, seq, digest })?;
    walk_control(control, last_ms, &mut |image| write_image(writer, &image))
}

fn write_image(writer: &mut SnapshotWriter, image: &Image<'_>) -> io::Result<()> {
    writer.item((image_kind(image), IMAGE_VERSION), |out| encode_image(image, out))
}
