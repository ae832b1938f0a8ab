//! Which snapshot the next state begins from.

use std::fmt;
use std::io;

use super::{DRAFT_PATH, Lane, SnapshotError, SnapshotInfo, SnapshotReader, list};
use crate::control::Control;
use crate::device::Device;
use crate::error::OpenError;
use crate::failure::set_aside;
use crate::limits::SNAPSHOTS_KEPT;
use crate::names;
use crate::open::io_error;
use crate::progress::Progress;
use crate::start::Start;

/// The snapshots of a directory, tried from the newest on.
pub(crate) struct Candidates {
    /// Not tried yet, oldest first.
    left: Vec<SnapshotInfo>,
    /// Given last: where the log is read on from it, unless it turns out to be none.
    start: Option<(SnapshotInfo, Start)>,
    damaged: Vec<(SnapshotInfo, String)>,
}

impl Candidates {
    pub(crate) fn list(device: &dyn Device) -> Result<Self, OpenError> {
        let left = list(device).map_err(io_error(device, "list", names::SNAP_DIR))?;
        Ok(Self { left, start: None, damaged: Vec::new() })
    }

    /// Gives the newest ones not tried yet to `load`, which reads each to its end, until one is
    /// whole and is taken. Tells whether one was.
    pub(crate) fn load<E: fmt::Display>(
        &mut self,
        device: &dyn Device,
        control: &Control,
        progress: &Progress,
        load: &mut dyn FnMut(&mut SnapshotReader) -> Result<(), E>,
    ) -> Result<bool, OpenError> {
        loop {
            let opened = self.find(|info| {
                let mut reader = open_unread(device, control, info)?;
                progress.expect(info.bytes);
                reader.watch(progress);
                let start = start(&reader, &[]);
                Ok((reader, start))
            })?;
            let Some(mut reader) = opened else { return Ok(false) };
            match load(&mut reader) {
                Ok(()) => {
                    let lanes = reader.lanes().unwrap_or_else(|| {
                        panic!("{} was taken before it was read to its end", reader.path())
                    });
                    self.start = self.start.take().map(|(info, _)| (info, start(&reader, lanes)));
                    return Ok(true);
                }
                Err(why) => self.reject(&why),
            }
        }
    }

    fn find(
        &mut self,
        open: impl Fn(SnapshotInfo) -> Result<(SnapshotReader, Start), SnapshotError>,
    ) -> Result<Option<SnapshotReader>, OpenError> {
        self.start = None;
        while let Some(info) = self.left.pop() {
            match open(info) {
                Ok((reader, start)) => {
                    self.start = Some((info, start));
                    return Ok(Some(reader));
                }
                Err(SnapshotError::TooNew { path, format_version, feature_incompat }) => {
                    return Err(OpenError::TooNew { path, format_version, feature_incompat });
                }
                // What can't be opened is not damaged: descriptors may be short, or rights wrong.
                Err(SnapshotError::Io { op: op @ "open", path, source }) => {
                    return Err(OpenError::Io { op, path, source });
                }
                Err(error) => self.damaged.push((info, error.to_string())),
            }
        }
        Ok(None)
    }

    fn reject(&mut self, why: &dyn fmt::Display) {
        if let Some((info, start)) = self.start.take() {
            let why = why.to_string();
            let names_itself = why.starts_with(&start.path);
            let line = if names_itself { why } else { format!("{}: {why}", start.path) };
            self.damaged.push((info, line));
        }
    }

    /// Where the log is read on.
    pub(crate) fn start(&self) -> Option<&Start> {
        self.start.as_ref().map(|(_, start)| start)
    }

    /// Those that count from now on, oldest first: the one that was begun from and the one before
    /// it, whose turn to be read has not come.
    pub(crate) fn kept(&self) -> Vec<SnapshotInfo> {
        let all: Vec<_> = self.left.iter().chain(self.start.as_ref().map(|(it, _)| it)).collect();
        assert!(all.is_sorted_by(|one, next| one.lsn < next.lsn), "the newest ones are the last");
        let surplus = all.len().saturating_sub(SNAPSHOTS_KEPT);
        all.into_iter().skip(surplus).copied().collect()
    }

    /// What is wrong with those that were passed over.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.damaged.iter().map(|(_, why)| why.clone()).collect()
    }
}

/// A snapshot that is whole: it was read from its first byte to its last.
pub(crate) fn open(
    device: &dyn Device,
    control: &Control,
    info: SnapshotInfo,
    progress: &Progress,
) -> Result<(SnapshotReader, Start), SnapshotError> {
    let mut reader = open_unread(device, control, info)?;
    // Read twice: to be checked, and by its owner.
    progress.expect(2 * info.bytes);
    reader.watch(progress);
    let lanes = reader.check()?;
    let start = start(&reader, &lanes);
    Ok((reader, start))
}

fn open_unread(
    device: &dyn Device,
    control: &Control,
    info: SnapshotInfo,
) -> Result<SnapshotReader, SnapshotError> {
    SnapshotReader::open(device, info.lsn, control.log_uuid, control.format.shard_count)
}

fn start(reader: &SnapshotReader, lanes: &[Lane]) -> Start {
    Start {
        lsn: reader.lsn(),
        chain: reader.chain(),
        shard_seqs: lanes.iter().map(|lane| lane.seq).collect(),
        path: reader.path().to_owned(),
    }
}

/// Finishes what a crash interrupted and sets damaged snapshots aside: segments that were given
/// back and still have their names, a draft, snapshots beyond those kept.
pub(crate) fn tidy_up(
    device: &dyn Device,
    control: &Control,
    snapshots: &Candidates,
) -> io::Result<()> {
    for entry in device.list(names::WAL_DIR)? {
        let Some(id) = names::parse_segment(&entry.name) else { continue };
        let path = names::segment(id);
        match id < control.oldest_needed_segment {
            true if control.never_recycle.contains(&id) => set_aside(device, &path)?,
            true => device.remove(&path)?,
            false => {}
        }
    }
    for (info, _) in &snapshots.damaged {
        set_aside(device, &names::snapshot(info.lsn))?;
    }
    let kept = snapshots.kept();
    for entry in device.list(names::SNAP_DIR)? {
        let path = format!("{}/{}", names::SNAP_DIR, entry.name);
        match names::parse_snapshot(&entry.name) {
            Some(lsn) if kept.iter().any(|it| it.lsn == lsn) => {}
            None if path != DRAFT_PATH => {}
            _ => device.remove(&path)?,
        }
    }
    Ok(())
}
