//! Opening a directory that holds a million reservations.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that can't run ends")]

use benches::Sale;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::{Engine, EngineOptions};

const RESERVATIONS: u64 = 1_000_000;

fn recovery(criterion: &mut Criterion) {
    let sale = Sale::open();
    for _ in 0..RESERVATIONS / 1_000 {
        sale.batch(1_000).wait().unwrap();
    }
    sale.engine.close().unwrap();
    let Sale { dir: Some(dir), engine, .. } = sale else { panic!("a sale in a directory") };
    drop(engine);

    let mut group = criterion.benchmark_group("recovery");
    group.throughput(Throughput::Elements(RESERVATIONS)).sample_size(10);
    group.bench_function("a million reservations, to serving", |bencher| {
        bencher.iter_with_large_drop(|| {
            let (engine, report) = Engine::open(EngineOptions::new(dir.path())).unwrap();
            assert!(report.records > RESERVATIONS);
            engine.close().unwrap();
        });
    });
}

criterion_group!(benches, recovery);
criterion_main!(benches);
