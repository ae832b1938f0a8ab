//! What the disk itself takes: durable writes of one size, one after another, into a file that was
//! zeroed ahead, as the log's segments are, past the page cache where the file system can; and what
//! it gives: the files that a start reads, from their first byte to their last, past the page cache
//! as a start reads them.

use std::path::Path;
use std::time::{Duration, Instant};

use wal::PosixDevice;
use wal::device::{Blocks, Device as _, File};

use crate::data_dir;

/// Writes that are measured.
const WRITES: usize = 500;

/// The file that is written: a segment's size.
const FILE_BYTES: usize = 64 << 20;

/// What is read at once.
const READ_BYTES: usize = 1 << 20;

/// The median time of a write of `bytes` bytes, rounded up to blocks, with its sync.
pub fn median_write(bytes: usize) -> Duration {
    let mut times = writes(bytes, WRITES);
    times.sort_unstable();
    times[times.len() / 2]
}

/// The times of `count` writes of `bytes` bytes, rounded up to blocks, each with its sync.
pub fn writes(bytes: usize, count: usize) -> Vec<Duration> {
    const NAME: &str = "raw";
    let dir = data_dir();
    let device = PosixDevice::new(dir.path());
    device.create_zeroed(NAME, FILE_BYTES as u64).unwrap();
    let file = device.open_direct(NAME).or_else(|_| device.open(NAME)).unwrap();
    let mut block = Blocks::for_bytes(bytes);
    block.bytes_mut().fill(7);
    // Over and over, as segments are used again: no write makes the file longer.
    let places = FILE_BYTES / block.bytes().len();
    let place = |at: usize| (at % places * block.bytes().len()) as u64;
    (0..count).map(|at| write(&*file, &block, place(at))).collect()
}

fn write(file: &dyn File, block: &Blocks, at: u64) -> Duration {
    let started = Instant::now();
    let written = file.write_at(block.bytes(), at).unwrap();
    assert_eq!(written, block.bytes().len(), "a short write");
    file.sync_data().unwrap();
    started.elapsed()
}

/// What a start is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Every segment of the log.
    Log,
    /// The newest snapshot.
    Snapshot,
}

impl Source {
    /// Its files in `dir`, a data directory.
    fn files(self, dir: &Path) -> Vec<String> {
        let (folder, prefix) = match self {
            Self::Log => ("wal", "seg-"),
            Self::Snapshot => ("snap", "snap-"),
        };
        let entries = std::fs::read_dir(dir.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort_unstable();
        // Names are numbers of one width, so the newest is the last.
        let first = if self == Self::Snapshot { names.len() - 1 } else { 0 };
        names[first..].iter().map(|name| format!("{folder}/{name}")).collect()
    }
}

/// Does what a start from `source` in `dir` cannot do without: reads the files and sums their words
/// up. Tells how long it took, and how many bytes they were.
pub fn read(dir: &Path, source: Source) -> (Duration, u64) {
    let device = PosixDevice::new(dir);
    let files = source.files(dir);
    let mut piece = Blocks::for_bytes(READ_BYTES);
    let (mut bytes, mut sum) = (0, 0u64);
    let began = Instant::now();
    for name in files {
        let length = std::fs::metadata(dir.join(&name)).unwrap().len();
        let file = device.open_ahead(&name, 0, length).unwrap();
        let mut at = 0;
        loop {
            let read = file.read_at(piece.bytes_mut(), at).unwrap();
            let words = piece.bytes()[..read].as_chunks::<8>().0.iter();
            let of_piece = words.map(|word| u64::from_le_bytes(*word)).fold(0, u64::wrapping_add);
            sum = sum.wrapping_add(of_piece);
            at += read as u64;
            // The zeros behind the end of a segment are no log, and a start passes them by, too.
            if read < piece.bytes().len() || of_piece == 0 {
                break;
            }
        }
        bytes += at;
    }
    std::hint::black_box(sum);
    (began.elapsed(), bytes)
}
