//! A durable write, through the page cache and past it, turn by turn on one disk: what
//! `wal.device = "auto"` decides between.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use std::time::Instant;

use benches::data_dir;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wal::PosixDevice;
use wal::device::{Blocks, Device, File};

const FILE: &str = "segment";

/// As a segment: zeroed ahead, so that no write allocates.
const FILE_BYTES: usize = 64 << 20;

/// A lone commit, a busy one, the largest frame.
const BATCH_BYTES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

fn write(file: &dyn File, batch: &Blocks, offset: u64) {
    let written = file.write_at(batch.bytes(), offset).unwrap();
    assert_eq!(written, batch.bytes().len(), "a short write");
    file.sync_data().unwrap();
}

fn devices(criterion: &mut Criterion) {
    let dir = data_dir();
    let device = PosixDevice::new(dir.path());
    device.create_zeroed(FILE, FILE_BYTES as u64).unwrap();
    let through_cache = device.open(FILE).unwrap();
    let past_cache = device.open_direct(FILE).expect("a file system with direct writes");
    for batch_bytes in BATCH_BYTES {
        let mut batch = Blocks::for_bytes(batch_bytes);
        batch.bytes_mut().fill(0xA5);
        let mut group = criterion.benchmark_group(format!("durable {} KiB", batch_bytes >> 10));
        group.throughput(Throughput::Bytes(batch_bytes as u64));
        for (way, file) in [("through cache", &through_cache), ("past cache", &past_cache)] {
            group.bench_function(BenchmarkId::from_parameter(way), |bencher| {
                bencher.iter_custom(|count| {
                    let mut offsets = (0..FILE_BYTES as u64).step_by(batch_bytes).cycle();
                    let began = Instant::now();
                    for _ in 0..count {
                        write(&**file, &batch, offsets.next().unwrap());
                    }
                    began.elapsed()
                });
            });
        }
    }
}

criterion_group!(benches, devices);
criterion_main!(benches);
