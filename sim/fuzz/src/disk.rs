//! Directories on a simulated disk, and edits of them that an input spells.

use std::sync::{Arc, LazyLock};

use wal::device::Device;
use wal::device::sim::{Image, SimDevice};
use wal::{Class, Format, Log, OWNER_BYTES, OpenOptions, record_bytes};

use crate::checksums::make_right;

const BLOCK: usize = 4096;

/// The format of the golden files, and of the log that the edits damage.
pub(crate) const FORMAT: Format = Format {
    shard_count: 1,
    frame_bytes_max: 8192,
    in_flight_bytes_max: 16_384,
    segment_bytes: 5 * 4096,
    owner: [0; OWNER_BYTES],
};

pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|_| {}),
    }
}

/// Bodies of the records of [`written`], in order.
pub(crate) type Bodies = Vec<Vec<u8>>;

/// A log of several segments, not closed, and what it holds.
pub(crate) static WRITTEN: LazyLock<(Image, Bodies)> = LazyLock::new(written);

/// Records of [`written`]: at two or three blocks a frame four segments are begun.
const RECORDS: u8 = 14;

fn written() -> (Image, Bodies) {
    let device = SimDevice::new(Image::empty(7));
    let opened = Log::open(Arc::new(device.clone()), options(), &mut |_| Ok(()));
    let (log, _) = opened.expect("an empty disk takes a log");
    let mut bodies = Bodies::new();
    for number in 0..RECORDS {
        let body = vec![number ^ 0x5A; 40 + 97 * usize::from(number)];
        let room = record_bytes(body.len());
        let mut batch = log.begin(0, room, Class::Reserved).expect("there is room");
        batch.command(room);
        batch.append((1, 1), |out| out.extend_from_slice(&body));
        drop(batch);
        bodies.push(body);
        // Some frames hold several records, some are followed by a watermark.
        if number % 3 > 0 {
            log.commit().expect("the disk is well");
        }
        if number % 5 == 4 {
            log.seal_idle().expect("the disk is well");
        }
    }
    log.commit().expect("the disk is well");
    drop(log);
    (device.image(), bodies)
}

/// A directory that a build of format version 1 wrote: CONTROL, segments, two snapshots.
pub(crate) static GOLDEN: LazyLock<Image> = LazyLock::new(golden);

macro_rules! golden_files {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_bytes!(concat!("../../../wal/tests/golden/v1/", $path)).as_slice())),*]
    };
}

fn golden() -> Image {
    let files = golden_files![
        "CONTROL",
        "snap/snap-000000000000003f.snap",
        "snap/snap-0000000000000048.snap",
        "wal/seg-0000000000000005.log",
        "wal/seg-0000000000000006.log",
        "wal/seg-0000000000000007.log",
        "wal/seg-0000000000000008.log",
        "wal/seg-0000000000000009.log",
        "wal/spare-000000000000000b.log",
    ];
    let mut image = Image::empty(1);
    image.set_content("LOCK", b"");
    for (path, bytes) in files {
        image.set_content(path, bytes);
    }
    let device = SimDevice::new(image);
    for dir in ["wal", "snap", "quarantine"] {
        device.create_dir(dir).expect("the disk is well");
    }
    device.image()
}

/// What an input spells, from its first byte on; zeros where it has ended.
pub(crate) struct Spelled<'a>(pub(crate) &'a [u8]);

impl Spelled<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn number(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }
}

/// Applies the edits that `spelled` holds to the files of `image`. Tells whether checksums were
/// made right again: then what is served need not be what was appended.
pub(crate) fn edit(image: &mut Image, paths: &[String], spelled: &mut Spelled<'_>) -> bool {
    let mut forged = false;
    while !spelled.is_over() {
        let op = spelled.byte();
        let path = &paths[usize::from(spelled.byte()) % paths.len()];
        let Some(mut bytes) = image.content(path) else { continue };
        if op % 8 == 7 {
            image.remove(path);
            continue;
        }
        change(op, &mut bytes, image, paths, spelled);
        if op & 0x80 != 0 {
            make_right(path, &mut bytes);
            forged = true;
        }
        image.set_content(path, &bytes);
    }
    forged
}

fn change(op: u8, bytes: &mut Vec<u8>, image: &Image, paths: &[String], spelled: &mut Spelled<'_>) {
    let blocks = bytes.len() / BLOCK;
    match op % 8 {
        0..=2 => {
            // A byte near the head of a block, where headers are, or anywhere.
            let block = usize::from(spelled.byte()) % blocks.max(1);
            let offset = if op % 8 == 2 { spelled.number() % BLOCK } else { spelled.byte().into() };
            let value = spelled.byte();
            if let Some(byte) = bytes.get_mut(block * BLOCK + offset) {
                *byte = if op.is_multiple_of(8) { *byte ^ value } else { value };
            }
        }
        3 => bytes.truncate(spelled.number()),
        4 => {
            let (from, to) = (spelled.byte(), spelled.byte());
            let donor = &paths[usize::from(spelled.byte()) % paths.len()];
            let donor = image.content(donor).unwrap_or_default();
            if blocks > 0 && donor.len() >= BLOCK {
                let from = usize::from(from) % (donor.len() / BLOCK) * BLOCK;
                let to = usize::from(to) % blocks * BLOCK;
                bytes[to..to + BLOCK].copy_from_slice(&donor[from..from + BLOCK]);
            }
        }
        5 => {
            if blocks > 0 {
                let at = usize::from(spelled.byte()) % blocks * BLOCK;
                bytes[at..at + BLOCK].fill(0);
            }
        }
        _ => bytes.resize(bytes.len() + spelled.number() % (2 * BLOCK), spelled.byte()),
    }
}
