//! Opening a directory that holds a million reservations: by its log, and by a snapshot.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use benches::{Sale, data_dir, options};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::Engine;

const RESERVATIONS: u64 = 1_000_000;

fn recovery(criterion: &mut Criterion) {
    let dir = data_dir();
    let sale = Sale::at(dir.path(), false);
    sale.fill(RESERVATIONS);
    sale.engine.close().unwrap();
    drop(sale);

    let mut group = criterion.benchmark_group("recovery");
    group.throughput(Throughput::Elements(RESERVATIONS)).sample_size(10);
    for (name, snapshots) in
        [("a million reservations, replayed", false), ("the same, from a snapshot", true)]
    {
        // A clean end makes the snapshot, where one is allowed.
        Engine::open(options(dir.path(), true, snapshots)).unwrap().0.close().unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter_with_large_drop(|| {
                let (engine, report) = Engine::open(options(dir.path(), true, snapshots)).unwrap();
                assert_eq!(report.records < RESERVATIONS / 2, snapshots, "what was read again");
                engine.close().unwrap();
            });
        });
    }
}

criterion_group!(benches, recovery);
criterion_main!(benches);
