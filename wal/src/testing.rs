//! A small log on a simulated disk, for tests of what stands in its files.

use std::sync::Arc;

use crate::device::sim::{Image, SimDevice};
use crate::{
    CONTROL_SHARD, Class, Format, Lane, Log, OWNER_BYTES, OnFatal, OpenOptions, OpenReport,
    Opening, RetentionLimits, record_bytes,
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

pub(crate) fn open(device: &SimDevice) -> (Log, OpenReport) {
    let mut opening = Opening::begin(Arc::new(device.clone()), options(Box::new(|_| ()))).unwrap();
    let _ = opening.next_snapshot().unwrap();
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
