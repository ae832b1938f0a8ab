//! What a live reservation costs: memory, and bytes of the log under load.
//!
//! Usage: `footprint [RESERVATIONS]`, a million by default.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::collections::VecDeque;

use benches::Sale;

/// Resident memory of this process, bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

fn main() {
    const BATCH: u64 = 1_000;
    let reservations: u64 =
        std::env::args().nth(1).map_or(1_000_000, |count| count.parse().unwrap());
    let sale = Sale::open();
    // The log's buffers reach their size first.
    let mut pendings: VecDeque<_> = (0..16).map(|_| sale.batch(BATCH)).collect();
    while let Some(pending) = pendings.pop_front() {
        pending.wait().unwrap();
    }
    let (before_bytes, before) = (resident_bytes(), sale.engine.stats().log);
    for _ in 0..reservations / BATCH {
        pendings.push_back(sale.batch(BATCH));
        if pendings.len() > 8 {
            pendings.pop_front().unwrap().wait().unwrap();
        }
    }
    while let Some(pending) = pendings.pop_front() {
        pending.wait().unwrap();
    }
    let (after_bytes, after) = (resident_bytes(), sale.engine.stats().log);
    let memory = (after_bytes - before_bytes) / reservations;
    let log = (after.frame_bytes - before.frame_bytes) / (after.records - before.records);
    println!("live reservations          {reservations}");
    println!("memory a reservation       {memory} bytes");
    println!("log a reservation          {log} bytes, framing and padding included");
    println!(
        "records a frame            {}",
        (after.records - before.records) / (after.frames - before.frames)
    );
}
