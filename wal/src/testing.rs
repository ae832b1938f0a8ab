//! A small log on a simulated disk, for tests of what stands in its files and of what is told where
//! its disk fails.

use std::io;
use std::sync::{Arc, Mutex};

use crate::checksum;
use crate::device::sim::{Fault, FaultKind, Image, Op, SimDevice};
use crate::device::{Appends, Device, Entry, File, FileSystem, Lock};
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

/// Has `act` meet every failure there is. On copies of a disk, each of which was prepared first,
/// its first operation fails, alone or with all after it, then its second, until it meets none any
/// more. What it made of each is handed to `judge` with the operation, and with the disk, which is
/// well again.
pub(crate) fn at_each_operation<P, T>(
    (image, kind, lasting): (&Image, FaultKind, bool),
    prepare: impl Fn(&SimDevice) -> P,
    act: impl Fn(&SimDevice, &P) -> T,
    mut judge: impl FnMut(Op, T, &SimDevice, P),
) {
    for after in 1.. {
        let device = SimDevice::new(image.clone());
        let prepared = prepare(&device);
        let failed = Arc::new(Mutex::new(None));
        let (seen, mut number) = (Arc::clone(&failed), 0);
        device.observe(Some(Box::new(move |op, _| {
            number += 1;
            if number == after {
                *seen.lock().unwrap() = Some(op);
            }
        })));
        let at = device.counts().0 + after;
        device.set_fault(Some(Fault { at, lasting, kind }));
        let made = act(&device, &prepared);
        device.observe(None);
        device.set_fault(None);
        let Some(op) = failed.lock().unwrap().take() else { return };
        judge(op, made, &device, prepared);
    }
}

/// Whether an error is the disk's own, told with the file that it was about.
pub(crate) fn names_the_file(told: &dyn std::error::Error) -> bool {
    let text = told.to_string();
    text.contains("sim:") && text.contains("os error 5")
}

/// Whether two disks hold the same files.
pub(crate) fn same(one: &Image, two: &Image) -> bool {
    one.paths() == two.paths() && one.paths().iter().all(|path| one.same_content(two, path))
}

/// A call that a simulated disk never fails at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    FileSystem,
    Lock,
    Note,
    Settle,
    Random,
    FreeBytes,
    Length,
}

/// A simulated disk of a system that refuses one call, and whose file system is of some kind.
#[derive(Clone)]
pub(crate) struct Refusing {
    pub(crate) disk: SimDevice,
    pub(crate) call: Option<Call>,
    pub(crate) kind: FileSystem,
}

impl Refusing {
    pub(crate) fn new(disk: &SimDevice, call: Call) -> Self {
        Self { disk: disk.clone(), call: Some(call), kind: FileSystem::Suitable }
    }

    fn ask(&self, call: Call) -> io::Result<()> {
        if self.call == Some(call) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn file(&self, file: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OfRefusing { file: file?, device: self.clone() }))
    }
}

struct OfRefusing {
    file: Arc<dyn File>,
    device: Refusing,
}

impl File for OfRefusing {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.device.ask(Call::Length)?;
        self.file.length()
    }
}

struct NotNoted {
    _held: Box<dyn Lock>,
}

impl Lock for NotNoted {
    fn note(&self, _text: &str) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
}

impl Device for Refusing {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        self.disk.create_zeroed(path, bytes)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.file(self.disk.open(path))
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.file(self.disk.open_uncached(path))
    }

    fn settle_appends(&self) -> io::Result<Appends> {
        self.ask(Call::Settle)?;
        self.disk.settle_appends()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.ask(Call::Lock)?;
        let lock = self.disk.lock()?;
        match self.ask(Call::Note) {
            Ok(()) => Ok(lock),
            Err(_) => Ok(Box::new(NotNoted { _held: lock })),
        }
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.ask(Call::FileSystem).map(|()| self.kind)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.ask(Call::FreeBytes)?;
        self.disk.free_bytes()
    }

    fn now_us(&self) -> u64 {
        self.disk.now_us()
    }

    fn random(&self) -> io::Result<u64> {
        self.ask(Call::Random)?;
        self.disk.random()
    }

    fn pause_ms(&self, ms: u64) {
        self.disk.pause_ms(ms);
    }

    fn display(&self, path: &str) -> String {
        self.disk.display(path)
    }
}
