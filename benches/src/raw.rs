//! What the disk itself takes: durable writes of one size, one after another, into a file that was
//! zeroed ahead, as the log's segments are, past the page cache where the file system can; and what
//! it gives: files read from their first byte to their last.

use std::io::Read as _;
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

/// Reads every file of `dir` to its end, as a recovery must at least; how many bytes.
pub fn read_all(dir: &Path) -> u64 {
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let mut file = std::fs::File::open(entry.unwrap().path()).unwrap();
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break,
                read => bytes += read as u64,
            }
        }
    }
    bytes
}
