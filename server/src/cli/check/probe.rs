//! `sluice check --probe`: what a durable write costs on this disk, and how batches pay.
//!
//! Writes the ways the log does, into a zeroed file beside it: one write and one sync at a time,
//! through the page cache and past it.
//! The table shows why the log needs no timer to gather batches: a sync carries a thousand
//! records for little more than the price of one.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wal::PosixDevice;
use wal::device::{Blocks, Device as _, File, FileSystem};

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

/// Ways to write a segment: `wal.device` chooses.
const THROUGH_CACHE: &str = "through cache";
/// See [`THROUGH_CACHE`].
const PAST_CACHE: &str = "past cache";

/// What was measured for one size of batch, one way.
struct Row {
    way: &'static str,
    batch_bytes: u64,
    sync_us: Histogram<u64>,
}

/// The table: a row for each way to write and size of batch.
pub(super) struct Probe {
    file_system: FileSystem,
    rows: Vec<Row>,
}

/// Measures the disk that `data_dir` lies on. `reached` is told how many of how many rows are done.
///
/// # Errors
/// The directory takes no file.
pub(super) fn run(data_dir: &Path, reached: &dyn Fn(u64, u64)) -> io::Result<Probe> {
    let device = PosixDevice::new(data_dir);
    let rows = device.create_zeroed(FILE, FILE_BYTES).and_then(|()| {
        let (through, past) = (device.open(FILE)?, device.open_direct(FILE));
        let files = match past {
            Ok(past) => vec![(THROUGH_CACHE, through), (PAST_CACHE, past)],
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                vec![(THROUGH_CACHE, through)]
            }
            Err(error) => return Err(error),
        };
        let total = (files.len() * BATCH_BYTES.len()) as u64;
        let mut rows = Vec::new();
        for (way, file) in files {
            for batch_bytes in BATCH_BYTES {
                reached(rows.len() as u64, total);
                rows.push(measure(way, &*file, batch_bytes)?);
            }
        }
        reached(total, total);
        Ok(rows)
    });
    let removed = device.remove(FILE);
    let probe = Probe { file_system: device.file_system()?, rows: rows? };
    removed.map(|()| probe)
}

fn measure(way: &'static str, file: &dyn File, batch_bytes: usize) -> io::Result<Row> {
    let mut batch = Blocks::for_bytes(batch_bytes);
    batch.bytes_mut().fill(0xA5);
    let batch_bytes = batch_bytes as u64;
    let mut sync_us = Histogram::new(3).map_err(io::Error::other)?;
    let began = Instant::now();
    for offset in (0..FILE_BYTES).step_by(batch.bytes().len()).cycle().take(WRITES) {
        let write_began = Instant::now();
        let mut written = 0;
        while written < batch.bytes().len() {
            written += file.write_at(&batch.bytes()[written..], offset + written as u64)?;
        }
        file.sync_data()?;
        let us = u64::try_from(write_began.elapsed().as_micros()).unwrap_or(u64::MAX);
        sync_us.record(us).map_err(io::Error::other)?;
        if began.elapsed() >= TIME_MAX {
            break;
        }
    }
    Ok(Row { way, batch_bytes, sync_us })
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file system: {}", kind(self.file_system))?;
        write!(f, "{:<14}", "segments")?;
        let titles = ["batch KiB", "records", "writes", "p50 us", "p99 us", "records/s at p50"];
        for title in titles {
            write!(f, "{title:>17}")?;
        }
        writeln!(f)?;
        for Row { way, batch_bytes, sync_us } in &self.rows {
            write!(f, "{way:<14}")?;
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
                write!(f, "{cell:>17}")?;
            }
            writeln!(f)?;
        }
        match self.rows.iter().any(|row| row.way == PAST_CACHE) {
            true => Ok(()),
            false => writeln!(f, "{PAST_CACHE}: the file system does not take it"),
        }
    }
}

fn kind(file_system: FileSystem) -> &'static str {
    match file_system {
        FileSystem::Suitable => "local",
        FileSystem::Volatile => "in memory: nothing survives a power cut",
        FileSystem::Network => "network: a sync depends on another machine",
        FileSystem::Overlay => "a container's own layer: goes with the container",
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_probe_measures_every_size_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let reached = RefCell::new(Vec::new());
        let probe = run(dir.path(), &|done, total| reached.borrow_mut().push((done, total)));
        let probe = probe.unwrap();
        let rows = probe.rows.len() as u64;
        let steps: Vec<_> = (0..=rows).map(|done| (done, rows)).collect();
        assert_eq!(reached.into_inner(), steps);
        assert!(probe.rows.len().is_multiple_of(BATCH_BYTES.len()));
        assert!(probe.rows.iter().all(|row| !row.sync_us.is_empty()));
        let text = probe.to_string();
        assert!(text.contains(THROUGH_CACHE) && text.contains(PAST_CACHE), "{text}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(&dir.path().join("none"), &|_, _| ()).is_err());
    }
}
