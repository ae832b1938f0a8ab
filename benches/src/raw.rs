//! What the disk itself takes: durable writes of one size, one after another, into a file that was
//! zeroed ahead, as the log's segments are.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::data_dir;

/// Writes that are measured.
const WRITES: usize = 500;

/// The median time of a write of `bytes` bytes, rounded up to blocks, with its sync.
pub fn median_write(bytes: usize) -> Duration {
    let dir = data_dir();
    let file = File::create(dir.path().join("raw")).unwrap();
    let block = vec![7; bytes.next_multiple_of(4_096)];
    let zeros = vec![0; block.len()];
    let places = || (0..WRITES).map(|at| (at * block.len()) as u64);
    places().for_each(|at| file.write_all_at(&zeros, at).unwrap());
    file.sync_all().unwrap();
    let mut times: Vec<_> = places().map(|at| write(&file, &block, at)).collect();
    times.sort_unstable();
    times[WRITES / 2]
}

fn write(file: &File, block: &[u8], at: u64) -> Duration {
    let started = Instant::now();
    file.write_all_at(block, at).unwrap();
    file.sync_data().unwrap();
    started.elapsed()
}
