//! What a durable write costs by each way that Linux has, turn by turn in one run: the figures
//! behind the log's choice between them.
//!
//! Usage: `uring [--busy]`. With `--busy` a thread of no use keeps another core at work, as
//! clients on the same machine do. `BENCH_DIR` names the folder to write in.
//!
//! | way | one durable write |
//! |-----|-------------------|
//! | `buffered, fdatasync` | `pwrite` through the page cache, then `fdatasync` |
//! | `direct, RWF_DSYNC` | one `pwritev2` past it that syncs itself |
//! | `direct, O_DSYNC` | one `pwrite` past it to a file that syncs each write: the log's own |
//! | `ring: write -> fdatasync` | two linked operations in one `io_uring_enter` |
//! | `ring: direct -> fdatasync` | the same, past the page cache |
//! | `ring: direct, RWF_DSYNC` | one operation that syncs itself, handed to a kernel's worker |

mod ring;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ring::Ring;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use wal::PosixDevice;
use wal::device::{Blocks, Device};

/// As a segment: zeroed ahead, so that no write allocates.
const FILE_BYTES: u64 = 64 << 20;
const FILE: &str = "segment";

/// A lone commit to the largest frame.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Each way writes this often in a turn, and has so many turns.
const WRITES: usize = 200;
const TURNS: usize = 5;

/// The file, opened in every way, and a ring.
struct Disk {
    buffered: File,
    direct: File,
    direct_dsync: File,
    ring: Ring,
}

type Write = fn(&mut Disk, &Blocks, u64) -> io::Result<usize>;

const WAYS: [(&str, Write); 6] = [
    ("buffered, fdatasync", |disk, blocks, at| {
        let written = disk.buffered.write_at(blocks.bytes(), at)?;
        disk.buffered.sync_data().map(|()| written)
    }),
    ("direct, RWF_DSYNC", |disk, blocks, at| {
        let bytes = [IoSlice::new(blocks.bytes())];
        Ok(rustix::io::pwritev2(&disk.direct, &bytes, at, ReadWriteFlags::DSYNC)?)
    }),
    ("direct, O_DSYNC", |disk, blocks, at| disk.direct_dsync.write_at(blocks.bytes(), at)),
    ("ring: write -> fdatasync", |disk, blocks, at| {
        disk.ring.write_then_sync(&disk.buffered, blocks, at)
    }),
    ("ring: direct -> fdatasync", |disk, blocks, at| {
        disk.ring.write_then_sync(&disk.direct, blocks, at)
    }),
    ("ring: direct, RWF_DSYNC", |disk, blocks, at| {
        disk.ring.write_synced(&disk.direct, blocks, at)
    }),
];

impl Disk {
    fn open(dir: &Path) -> io::Result<Self> {
        PosixDevice::new(dir).create_zeroed(FILE, FILE_BYTES)?;
        let open = |flags: OFlags| {
            let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir.join(FILE))
        };
        Ok(Self {
            buffered: open(OFlags::empty())?,
            direct: open(OFlags::DIRECT)?,
            direct_dsync: open(OFlags::DIRECT | OFlags::DSYNC)?,
            ring: Ring::new()?,
        })
    }

    /// One turn of one way.
    fn turn(&mut self, write: Write, blocks: &Blocks, from: u64) -> io::Result<Vec<Duration>> {
        let step = blocks.bytes().len() as u64;
        let mut times = Vec::with_capacity(WRITES);
        for number in 0..WRITES as u64 {
            let at = (from + number * step) % FILE_BYTES;
            let began = Instant::now();
            let written = write(self, blocks, at)?;
            times.push(began.elapsed());
            if written != blocks.bytes().len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(times)
    }
}

fn measure(dir: &Path) -> io::Result<()> {
    let mut disk = Disk::open(dir)?;
    println!("{:>9}  {:28} {:>8} {:>8} {:>9}", "bytes", "way", "p50 us", "p99 us", "max us");
    for bytes in SIZES {
        let mut blocks = Blocks::for_bytes(bytes);
        blocks.bytes_mut().fill(0xA5);
        let mut times: [Vec<Duration>; WAYS.len()] = Default::default();
        for turn in 0..TURNS {
            let from = (turn * WRITES * bytes) as u64 % FILE_BYTES;
            for ((_, write), times) in WAYS.iter().zip(&mut times) {
                times.extend(disk.turn(*write, &blocks, from)?);
            }
        }
        for ((name, _), mut times) in WAYS.iter().zip(times) {
            times.sort_unstable();
            let micros = |index: usize| times[index.min(times.len() - 1)].as_secs_f64() * 1e6;
            let [p50, p99] = [times.len() / 2, times.len() * 99 / 100].map(micros);
            let max = micros(times.len());
            println!("{bytes:>9}  {name:28} {p50:>8.0} {p99:>8.0} {max:>9.0}");
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let busy = std::env::args().nth(1).as_deref() == Some("--busy");
    let target = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let root = std::env::var_os("BENCH_DIR").map_or_else(target, PathBuf::from);
    std::fs::create_dir_all(&root)?;
    let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(root)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if busy {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measured = measure(dir.path());
        ended.store(true, Ordering::Relaxed);
        measured
    })
}
