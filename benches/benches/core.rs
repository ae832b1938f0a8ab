//! The rules alone: decide and apply, without log, lock or clock.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use std::hint::black_box;

use benches::REQUEST_ID;
use benches::rules::{buy, command, on_sale};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::core::codec;
use engine::core::decide::{Purchase, reserve};
use engine::core::ids::ActivityId;

fn core(criterion: &mut Criterion) {
    let id = ActivityId::new(30_001).unwrap();
    let mut group = criterion.benchmark_group("core");
    group.throughput(Throughput::Elements(1));

    let mut shard = on_sale(id);
    let hash = shard.requests().hash(REQUEST_ID);
    let (mut user, mut seq) = (0, 2);
    group.bench_function("decide + apply, a purchase", |bencher| {
        bencher.iter(|| {
            user += 1;
            seq += 1;
            buy(&mut shard, id, user, hash, seq);
        });
    });
    group.bench_function("decide, a replay", |bencher| {
        bencher.iter(|| reserve(black_box(&shard), id, &command(1, hash), 1_000));
    });
    group.bench_function("decide, not in window", |bencher| {
        bencher.iter(|| reserve(black_box(&shard), id, &command(u64::from(u32::MAX), 1), 0));
    });
    group.bench_function("hash a request id", |bencher| {
        bencher.iter(|| shard.requests().hash(black_box(REQUEST_ID)));
    });
    let Purchase::Accepted(_, event) = reserve(&shard, id, &command(1 << 40, hash), 1_000) else {
        panic!()
    };
    let mut bytes = Vec::with_capacity(256);
    group.bench_function("encode a purchase", |bencher| {
        bencher.iter(|| {
            bytes.clear();
            codec::encode(black_box(&event), &mut bytes);
        });
    });
    let kind = codec::kind(&event.body);
    group.bench_function("decode a purchase", |bencher| {
        bencher.iter(|| codec::decode(kind, codec::FORMAT_VERSION, black_box(&bytes)).unwrap());
    });
}

criterion_group!(benches, core);
criterion_main!(benches);
