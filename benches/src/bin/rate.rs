//! How many reservations a second are on disk when they are answered, and how long an answer
//! takes: one hot activity that sells out, distinct buyers, real syncs, beside a raw writer of the
//! same bytes.
//!
//! Usage: `rate [COUNT] [WAY]`, four million in every way by default; `WAY` is a part of its name.
//! Each way of buying runs three times, turn by turn with the raw writer. The middle one of each is
//! told, as `cargo xtask bench peers` tells it, with the range of the rates, and how the rate
//! compares with the raw writer's.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::time::Duration;

use benches::in_process::{Run, awaited, batches, lone};
use benches::{Sale, raw};

const ROUNDS: usize = 3;

fn tell(name: &str, units: u64, run: impl Fn(&Sale) -> Run, (together, bytes): (u64, usize)) {
    if std::env::args().nth(2).is_some_and(|way| !name.contains(&way)) {
        return;
    }
    let (mut runs, mut raws) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let sale = Sale::open_with(u32::try_from(units).unwrap());
        runs.push(run(&sale));
        sale.engine.close().unwrap();
        raws.push(raw::median_write(bytes));
    }
    runs.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
    raws.sort_unstable();
    let (slowest, fastest) = (runs[0].rate(), runs[ROUNDS - 1].rate());
    let (mut run, raw) = (runs.swap_remove(ROUNDS / 2), raws[ROUNDS / 2]);
    let (p50, p99) = (run.percentile(50), run.percentile(99));
    println!(
        "{name:32} {:>9.0}/s ({slowest:.0} to {fastest:.0})  p50 {:>7.0} us  p99 {:>7.0} us  raw \
         write of {bytes} B {:>5.0} us  rate / raw {:.2}  p50 / raw {:.2}",
        run.rate(),
        micros(p50),
        micros(p99),
        micros(raw),
        run.rate() * raw.as_secs_f64() / together as f64,
        p50.as_secs_f64() / raw.as_secs_f64(),
    );
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(4_000_000, |count| count.parse().unwrap());
    const RECORD_BYTES: usize = 112;
    let of = |together: usize| (together as u64, together * RECORD_BYTES);
    for (size, in_flight) in [(1_024, 1), (1_024, 2), (1_024, 4), (4_096, 2), (8_192, 2)] {
        let name = format!("batches of {size}, {in_flight} in flight");
        tell(&name, count, |sale| batches(sale, size as u64, in_flight, count), of(size));
    }
    let name = "awaited, 4,096 in flight";
    tell(name, count / 2, |sale| awaited(sale, 4_096, count / 2), of(4_096));
    tell("one caller", 5_000, |sale| lone(sale, 5_000), (1, 4_096));
}
