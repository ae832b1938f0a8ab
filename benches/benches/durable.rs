//! Reservations that are on disk when they are answered: one hot activity, distinct buyers, a real
//! disk with real syncs.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use benches::{REQUEST_ID, Sale};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::core::event::Front;
use engine::core::ids::UserId;

/// Awaited one by one from `in_flight` tasks of one thread.
fn one_by_one(sale: &Sale, in_flight: u64, count: u64) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let started = Instant::now();
    local.block_on(&runtime, async {
        let mut tasks = Vec::new();
        for task in 0..in_flight {
            let share = count / in_flight + u64::from(task < count % in_flight);
            let users = sale.users(share);
            let (engine, activity) = (sale.engine.clone(), sale.activity);
            tasks.push(tokio::task::spawn_local(async move {
                for user in users {
                    let user = UserId::new(user).unwrap();
                    let pending = engine.reserve(activity, user, REQUEST_ID, 1, Front::Api);
                    pending.unwrap().durable().await.unwrap().unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    started.elapsed()
}

/// In batches of `size`, a few of them in flight.
fn batches(sale: &Sale, size: u64, count: u64) -> Duration {
    const BATCHES_IN_FLIGHT: usize = 8;
    let started = Instant::now();
    let mut pendings = VecDeque::new();
    for _ in 0..count.div_ceil(size) {
        if pendings.len() == BATCHES_IN_FLIGHT {
            let oldest: engine::Pending<_> = pendings.pop_front().unwrap();
            oldest.wait().unwrap();
        }
        pendings.push_back(sale.batch(size));
    }
    for pending in pendings {
        pending.wait().unwrap();
    }
    started.elapsed()
}

fn durable(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("durable reservations");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    for in_flight in [1u64, 16, 256, 4_096] {
        let sale = Sale::open();
        group.bench_function(BenchmarkId::new("in flight", in_flight), |bencher| {
            bencher.iter_custom(|count| one_by_one(&sale, in_flight, count));
        });
    }
    for size in [128u64, 1_024] {
        let sale = Sale::open();
        group.bench_function(BenchmarkId::new("batches of", size), |bencher| {
            bencher.iter_custom(|count| {
                let took = batches(&sale, size, count);
                // Whole batches were made: say what one reservation cost.
                took.mul_f64(count as f64 / (count.div_ceil(size) * size) as f64)
            });
        });
    }
}

criterion_group!(benches, durable);
criterion_main!(benches);
