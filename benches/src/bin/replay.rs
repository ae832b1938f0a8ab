//! How fast a directory comes back: from its log, and from a snapshot, beside a plain reader of the
//! same bytes, turn by turn in one run.
//!
//! Usage: `replay [RESERVATIONS]`, four million by default. The reader does what recovery cannot do
//! without: it reads the files past the page cache in pieces of a megabyte and sums them up.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use benches::{Sale, data_dir};
use engine::{Engine, EngineOptions};
use wal::device::Blocks;

const ROUNDS: usize = 3;

/// `O_DIRECT` of Linux on x86-64; elsewhere the reader goes through the page cache.
const DIRECT: i32 = if cfg!(target_arch = "x86_64") { 0o40_000 } else { 0 };

fn options(dir: &Path) -> EngineOptions {
    let accept_file_system = std::env::var_os("BENCH_DIR").is_some();
    EngineOptions { accept_file_system, ..EngineOptions::new(dir) }
}

/// Opens the directory as a server does, to serving. Tells how many records were replayed.
fn open(dir: &Path) -> (Duration, u64) {
    let began = Instant::now();
    let (engine, report) = Engine::open(options(dir)).unwrap();
    let took = began.elapsed();
    drop(engine);
    (took, report.records)
}

/// Reads every file of `dirs` and sums its words.
fn read(dir: &Path, dirs: &[&str]) -> (Duration, u64) {
    let mut piece = Blocks::for_bytes(1 << 20);
    let (mut bytes, mut sum) = (0, 0u64);
    let began = Instant::now();
    for entry in dirs.iter().flat_map(|name| std::fs::read_dir(dir.join(name)).unwrap()) {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("spare") {
            continue;
        }
        let file = OpenOptions::new().read(true).custom_flags(DIRECT).open(entry.path()).unwrap();
        let mut at = 0;
        loop {
            let read = file.read_at(piece.bytes_mut(), at).unwrap();
            let words = piece.bytes()[..read].as_chunks::<8>().0;
            sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
            at += read as u64;
            if read < piece.bytes().len() {
                break;
            }
        }
        bytes += at;
    }
    std::hint::black_box(sum);
    (began.elapsed(), bytes)
}

fn tell(name: &str, reservations: u64, dir: &Path, dirs: &[&str]) {
    let mut best: Option<(Duration, u64)> = None;
    let mut plain: Option<(Duration, u64)> = None;
    for _ in 0..ROUNDS {
        let (one, other) = (open(dir), read(dir, dirs));
        best = Some(best.map_or(one, |best| best.min(one)));
        plain = Some(plain.map_or(other, |plain| plain.min(other)));
    }
    let ((took, records), (read, bytes)) = (best.unwrap(), plain.unwrap());
    let rate = reservations as f64 / took.as_secs_f64() / 1e6;
    println!(
        "{name:14} {reservations} reservations, {records} records replayed: {took:.2?}, {rate:.2} \
         M/s; a plain reader of {} MiB {read:.2?}; ratio {:.2}",
        bytes >> 20,
        read.as_secs_f64() / took.as_secs_f64()
    );
}

fn main() {
    let reservations: u64 =
        std::env::args().nth(1).map_or(4_000_000, |count| count.parse().unwrap());
    let dir = data_dir();
    let sale = Sale::at(dir.path(), false);
    sale.fill(reservations);
    // Let go without another word: the log alone holds what was sold.
    drop(sale);
    tell("from the log", reservations, dir.path(), &["wal"]);
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    engine.close().unwrap();
    drop(engine);
    tell("from a snapshot", reservations, dir.path(), &["snap"]);
}
