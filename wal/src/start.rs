//! Where reading begins: after what a snapshot covers.

use crate::device::Device;
use crate::error::OpenError;
use crate::frame::FrameHeader;
use crate::ids::Lsn;
use crate::names;
use crate::record::Record;
use crate::recover::lane;
use crate::segment::SegmentHeader;
use crate::verdict::Case;

/// What a snapshot covers: records up to its LSN are read past, those after it are replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) lsn: Lsn,
    /// Chain of the frame that ends there.
    pub(crate) chain: u32,
    /// Last sequence of each lane, the control lane last.
    pub(crate) shard_seqs: Vec<u64>,
    pub(crate) path: String,
}

impl Start {
    /// The frame in which a snapshot's last record stands is the one that the snapshot names: else
    /// it is of another log, or of another past of this one.
    pub(crate) fn check_frame(&self, frame: &FrameHeader) -> Result<(), OpenError> {
        let holds = frame.first_lsn <= self.lsn && self.lsn <= frame.last_lsn();
        let named = frame.last_lsn() == self.lsn && frame.header_crc == self.chain;
        if holds && !named {
            let what = "is no snapshot of the log beside it";
            return Err(OpenError::NotOurs { path: self.path.clone(), what });
        }
        Ok(())
    }

    /// Checks a record that the snapshot covers.
    pub(crate) fn pass(&self, record: &Record<'_>, shard_count: u16) -> Result<(), OpenError> {
        let seq = lane(record.shard, shard_count).and_then(|lane| self.shard_seqs.get(lane));
        if seq.is_some_and(|seq| record.shard_seq <= *seq) {
            return Ok(());
        }
        let why = format!("the snapshot before it ends at shard sequence {seq:?}").into();
        Err(OpenError::Rejected { lsn: record.lsn, why })
    }
}

/// The segment that reading begins with: the one that holds the last record of the snapshot, whose
/// frame must be the one that the snapshot names; without a snapshot the log's first.
pub(crate) fn first_needed(
    device: &dyn Device,
    headers: &[SegmentHeader],
    start: Option<&Start>,
) -> Result<usize, OpenError> {
    let lsn = start.map_or(Lsn(1), |start| start.lsn);
    let Some(oldest) = headers.first() else { return Ok(0) };
    match headers.iter().rposition(|header| header.first_lsn <= lsn) {
        Some(index) if start.is_some() => Ok(index),
        Some(_) => Ok(0),
        None => Err(OpenError::Refused {
            path: device.display(names::SNAP_DIR),
            offset: 0,
            case: Case::NoSnapshot,
            first_lost_lsn: Lsn(start.map_or(1, |start| start.lsn.0 + 1)),
            until: format!(" to LSN {}", oldest.first_lsn.0.saturating_sub(1)),
        }),
    }
}
