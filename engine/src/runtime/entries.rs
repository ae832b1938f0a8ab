//! A log's records one by one, without opening it: a server may run beside.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use wal::{Epoch, Lsn, PosixDevice, Reader};

use super::error::OpenError;

/// A record with the frame that holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place in the log.
    pub lsn: Lsn,
    /// The incarnation that wrote it.
    pub epoch: Epoch,
    /// First record of its frame.
    pub frame_first_lsn: Lsn,
    /// Last record of its frame.
    pub frame_last_lsn: Lsn,
    /// When its frame was committed, Unix microseconds.
    pub commit_us: u64,
    /// Its shard, or [`wal::CONTROL_SHARD`].
    pub shard: u16,
    /// Its place in the shard.
    pub shard_seq: u64,
    /// What it is: see [`crate::core::codec`].
    pub kind: u8,
    /// Version of that kind.
    pub kind_version: u8,
    /// The event's bytes.
    pub body: Vec<u8>,
}

/// The records of a log from an LSN on. After the last durable one it gives `None`, and goes on
/// later where a server beside it has made more.
pub struct Entries {
    reader: Reader,
    from: Lsn,
    frame: VecDeque<Result<Entry, OpenError>>,
}

/// The records of the log in `data_dir`, from `from` on, or from the first that is still there.
///
/// # Errors
/// [`OpenError`] where there is no log or it can't be read.
pub fn entries(data_dir: &Path, from: Lsn) -> Result<Entries, OpenError> {
    let mut reader = wal::follow(Arc::new(PosixDevice::new(data_dir)))?;
    // What was given back is gone: the first that is there comes first.
    reader.seek_oldest()?;
    Ok(Entries { reader, from, frame: VecDeque::new() })
}

impl Iterator for Entries {
    type Item = Result<Entry, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.frame.pop_front() {
                return Some(entry);
            }
            match self.reader.next_frame() {
                Ok(Some(frame)) => self.frame.extend(records(&frame, self.from)),
                Ok(None) => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

pub(super) fn records(frame: &wal::Frame<'_>, from: Lsn) -> Vec<Result<Entry, OpenError>> {
    let entry = |record: wal::Record<'_>| Entry {
        lsn: record.lsn,
        epoch: frame.epoch,
        frame_first_lsn: frame.first_lsn,
        frame_last_lsn: frame.last_lsn,
        commit_us: frame.commit_us,
        shard: record.shard,
        shard_seq: record.shard_seq,
        kind: record.kind,
        kind_version: record.kind_version,
        body: record.body.to_vec(),
    };
    let rejected = |error: wal::RecordError| {
        OpenError::Log(wal::OpenError::Rejected { lsn: error.0, why: error.into() })
    };
    let records = frame.records().filter(|it| !matches!(it, Ok(record) if record.lsn < from));
    records.map(|record| record.map(entry).map_err(rejected)).collect()
}
