//! How fast a directory comes back: from its log, and from a snapshot, beside a plain reader of the
//! same bytes, turn by turn in one run.
//!
//! Usage: `replay [RESERVATIONS]`, four million by default. The reader does what recovery cannot do
//! without: it reads the files past the page cache in pieces of a megabyte and sums them up.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::path::Path;
use std::time::{Duration, Instant};

use benches::raw::{self, Source};
use benches::{Sale, data_dir};
use engine::{Engine, EngineOptions};

const ROUNDS: usize = 3;

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

fn tell(name: &str, reservations: u64, dir: &Path, source: Source) {
    let mut best: Option<(Duration, u64)> = None;
    let mut plain: Option<(Duration, u64)> = None;
    for _ in 0..ROUNDS {
        let (one, other) = (open(dir), raw::read(dir, source));
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
    tell("from the log", reservations, dir.path(), Source::Log);
    let (engine, _) = Engine::open(options(dir.path())).unwrap();
    engine.close().unwrap();
    drop(engine);
    tell("from a snapshot", reservations, dir.path(), Source::Snapshot);
}
