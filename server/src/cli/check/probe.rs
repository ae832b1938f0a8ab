//! `sluice check --probe`: what a durable write costs on this disk, and how batches pay.
//!
//! Writes the way the log does, into a zeroed file beside it: one write and one sync at a time.
//! The table shows why the log needs no timer to gather batches: a sync carries a thousand
//! records for little more than the price of one.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wal::PosixDevice;
use wal::device::Device as _;

/// Removed afterwards; a name that the log does not use.
const FILE: &str = "probe.tmp";

/// Size of the file: every write of the largest batch finds zeroed room a few times over.
const FILE_BYTES: u64 = 16 << 20;

/// Sizes of a batch: a lone request pays for a block, the largest is the largest frame.
const BATCH_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Writes of each size, and the longest time for them: a slow disk gives fewer.
const WRITES: usize = 500;
/// See [`WRITES`].
const TIME_MAX: Duration = Duration::from_secs(3);

/// Bytes of a reservation's record with a usual request id.
const RECORD_BYTES: u64 = 112;

/// What was measured for one size of batch.
struct Row {
    batch_bytes: u64,
    sync_us: Histogram<u64>,
}

/// The table, a row for each size of batch.
pub(super) struct Probe(Vec<Row>);

/// Measures the disk that `data_dir` lies on.
///
/// # Errors
/// The directory takes no file.
pub(super) fn run(data_dir: &Path) -> io::Result<Probe> {
    let device = PosixDevice::new(data_dir);
    let rows = device.create_zeroed(FILE, FILE_BYTES).and_then(|()| measure(&device));
    let removed = device.remove(FILE);
    let probe = Probe(rows?);
    removed.map(|()| probe)
}

fn measure(device: &PosixDevice) -> io::Result<Vec<Row>> {
    let file = device.open(FILE)?;
    let mut rows = Vec::new();
    for batch_bytes in BATCH_BYTES {
        let batch = vec![0xA5; batch_bytes];
        let batch_bytes = batch_bytes as u64;
        let mut sync_us = Histogram::new(3).map_err(io::Error::other)?;
        let began = Instant::now();
        for offset in (0..FILE_BYTES).step_by(batch.len()).cycle().take(WRITES) {
            let write_began = Instant::now();
            let mut written = 0;
            while written < batch.len() {
                written += file.write_at(&batch[written..], offset + written as u64)?;
            }
            file.sync_data()?;
            let us = u64::try_from(write_began.elapsed().as_micros()).unwrap_or(u64::MAX);
            sync_us.record(us).map_err(io::Error::other)?;
            if began.elapsed() >= TIME_MAX {
                break;
            }
        }
        rows.push(Row { batch_bytes, sync_us });
    }
    Ok(rows)
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = ["batch KiB", "records", "writes", "p50 us", "p99 us", "records/s at p50"];
        for title in titles {
            write!(f, "{title:>18}")?;
        }
        writeln!(f)?;
        for Row { batch_bytes, sync_us } in &self.0 {
            let records = batch_bytes / RECORD_BYTES;
            let p50_us = sync_us.value_at_quantile(0.5);
            let cells = [
                batch_bytes >> 10,
                records,
                sync_us.len(),
                p50_us,
                sync_us.value_at_quantile(0.99),
                records * 1_000_000 / p50_us.max(1),
            ];
            for cell in cells {
                write!(f, "{cell:>18}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_measures_every_size_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let probe = run(dir.path()).unwrap();
        assert_eq!(probe.0.len(), BATCH_BYTES.len());
        assert!(probe.0.iter().all(|row| !row.sync_us.is_empty()));
        assert_eq!(probe.to_string().lines().count(), BATCH_BYTES.len() + 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(&dir.path().join("none")).is_err());
    }
}
