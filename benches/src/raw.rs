//! What the disk itself takes: durable writes of one size, one after another, into a file that was
//! zeroed ahead, as the log's segments are.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

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
    let dir = data_dir();
    let file = File::create(dir.path().join("raw")).unwrap();
    let block = vec![7; bytes.next_multiple_of(4_096)];
    let zeros = vec![0; block.len()];
    // A file of some size is written over and over, as segments are: no write makes it longer.
    let places = FILE_BYTES / block.len();
    let place = |at: usize| (at % places * block.len()) as u64;
    (0..places).for_each(|at| file.write_all_at(&zeros, place(at)).unwrap());
    file.sync_all().unwrap();
    (0..count).map(|at| write(&file, &block, place(at))).collect()
}

fn write(file: &File, block: &[u8], at: u64) -> Duration {
    let started = Instant::now();
    file.write_all_at(block, at).unwrap();
    file.sync_data().unwrap();
    started.elapsed()
}

/// Reads every file of `dir` to its end, as a recovery must at least; how many bytes.
pub fn read_all(dir: &Path) -> u64 {
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let mut file = File::open(path).unwrap();
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break,
                read => bytes += read as u64,
            }
        }
    }
    bytes
}
