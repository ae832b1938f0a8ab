//! A small log on a simulated disk, for tests of what stands in its files.

use std::sync::Arc;

use crate::checksum;
use crate::device::sim::{Image, SimDevice};
use crate::ids::SegmentId;
use crate::limits::BLOCK_BYTES;
use crate::names;
use crate::segment::SegmentHeader;
use crate::{
    CONTROL_SHARD, Class, Format, Lane, Log, OWNER_BYTES, OnFatal, OpenError, OpenOptions,
    OpenReport, Opening, Replay, RetentionLimits, SnapshotError, record_bytes,
};

/// An empty disk.
pub(crate) fn disk() -> SimDevice {
    SimDevice::new(Image::empty(5))
}

pub(crate) const FORMAT: Format = Format {
    shard_count: 2,
    frame_bytes_max: 16 << 10,
    in_flight_bytes_max: 16 << 10,
    segment_bytes: 64 << 10,
    owner: [0; OWNER_BYTES],
};

pub(crate) fn options(on_fatal: OnFatal) -> OpenOptions {
    OpenOptions { format: FORMAT, accept_file_system: true, companions: Vec::new(), on_fatal }
}

/// Begins from the newest snapshot that is whole, whatever it holds. Tells whether there is one.
pub(crate) fn skim_snapshots(opening: &mut Opening) -> Result<bool, OpenError> {
    opening.load_snapshot(&mut |snapshot| {
        while snapshot.next_piece()?.is_some() {}
        Ok::<_, SnapshotError>(())
    })
}

pub(crate) fn open(device: &SimDevice) -> (Log, OpenReport) {
    let mut opening = Opening::begin(Arc::new(device.clone()), options(Box::new(|_| ()))).unwrap();
    let _ = skim_snapshots(&mut opening).unwrap();
    let (log, report) = opening.replay(&mut |_| Ok(())).unwrap().finish().unwrap();
    log.set_retention_limits(RetentionLimits { margin_segments: 0, ..Default::default() });
    (log, report)
}

/// Appends `count` records of some length around `bytes`, in one frame.
pub(crate) fn frame(log: &Log, count: usize, bytes: usize) {
    append(log, count, bytes);
    log.commit().unwrap();
}

pub(crate) fn append(log: &Log, count: usize, bytes: usize) {
    for number in 0..count {
        let shard = u16::from(number % 2 == 1);
        let body = vec![0xC3; bytes + number % 24];
        let room = record_bytes(body.len());
        let mut batch = log.begin(shard, room, Class::Reserved).unwrap();
        batch.command(room);
        batch.append((1, 1), |out| out.extend_from_slice(&body));
    }
}

pub(crate) fn snapshot(log: &Log) {
    let lsn = log.durable_lsn();
    let chain = log.reader().seek(lsn).unwrap();
    let mut writer = log.begin_snapshot(lsn).unwrap();
    for shard in [0, 1, CONTROL_SHARD] {
        writer.lane(Lane { shard, seq: log.last_seq(shard), digest: 7 }).unwrap();
    }
    log.finish_snapshot(writer, chain).unwrap();
}

/// Appends frames of `count` records until the log begins a new segment.
pub(crate) fn rotate(log: &Log, count: usize) {
    let before = log.metrics().rotations;
    while log.metrics().rotations == before {
        frame(log, count, 100);
    }
}

/// The disk with a segment's bytes edited; `edit` is told the segment's stamp.
pub(crate) fn edited(
    device: &SimDevice,
    id: SegmentId,
    edit: impl FnOnce(&mut Vec<u8>, u64),
) -> SimDevice {
    let mut image = device.image();
    let path = names::segment(id);
    let mut bytes = image.content(&path).unwrap();
    let stamp = SegmentHeader::parse(&bytes[..BLOCK_BYTES]).unwrap().stamp;
    edit(&mut bytes, stamp);
    image.set_content(&path, &bytes);
    SimDevice::new(image)
}

/// Makes the checksums of the frame at `at` right again.
pub(crate) fn reseal(bytes: &mut [u8], at: usize, stamp: u64) {
    let payload = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let crc = checksum::seeded(stamp, &[&bytes[at + 64..at + 64 + payload]]);
    bytes[at + 52..at + 56].copy_from_slice(&crc.to_le_bytes());
    let crc = checksum::seeded(stamp, &[&bytes[at..at + 60]]);
    bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
}

/// Opens a log and hands its records to `replay`.
pub(crate) fn open_into(device: &SimDevice, replay: &mut Replay<'_>) -> Result<Log, OpenError> {
    let mut opening = Opening::begin(Arc::new(device.clone()), options(Box::new(|_| ())))?;
    let _ = skim_snapshots(&mut opening)?;
    Ok(opening.replay(replay)?.finish()?.0)
}

/// Why a log does not open.
pub(crate) fn refusal(device: &SimDevice) -> OpenError {
    open_into(device, &mut |_| Ok(())).map(drop).unwrap_err()
}
