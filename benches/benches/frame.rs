//! Frames: checksums and padding, to write and to read back.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wal::internals::{FRAME_HEADER_BYTES, parse_frame, seal_frame};

/// A purchase's record with a 36-byte request id.
const RECORD_BYTES: usize = 112;

fn frame(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame");
    for records in [1u32, 16, 256, 4_096] {
        let payload = records as usize * RECORD_BYTES;
        let mut bytes = vec![7; (FRAME_HEADER_BYTES + payload).next_multiple_of(4096)];
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(BenchmarkId::new("encode", records), |bencher| {
            bencher.iter(|| seal_frame(black_box(&mut bytes), payload, records, 9));
        });
        assert_eq!(parse_frame(&bytes, 9), Some(records));
        group.bench_function(BenchmarkId::new("parse", records), |bencher| {
            bencher.iter(|| parse_frame(black_box(&bytes), 9).unwrap());
        });
    }
}

criterion_group!(benches, frame);
criterion_main!(benches);
