//! The engine alone, beside a writer and a reader of the same bytes that knows nothing of shops.

use std::time::{Duration, Instant};

use benches::in_process::{Run, awaited, batches, lone};
use benches::raw::{self, Source};
use benches::{Sale, options};
use engine::Engine;

use crate::figures::Series;
use crate::report::Row;

/// Bytes of a record with a 36-byte request id, its share of the frame included.
const RECORD_BYTES: usize = 112;

/// Writes of a raw turn.
const WRITES: usize = 400;

/// Units for sale, and reservations of a turn: in batches and one by one.
const UNITS: u32 = 2_000_000;
const COUNT: u64 = UNITS as u64;
const COUNT_LONE: u64 = 5_000;

/// One way to buy.
struct Way {
    name: &'static str,
    /// Reservations that the raw writer's write holds.
    together: usize,
    buy: fn(&Sale) -> Run,
}

const WAYS: [Way; 5] = [
    Way {
        name: "in process, batches of 1,024, two in flight",
        together: 1_024,
        buy: |sale| batches(sale, 1_024, 2, COUNT),
    },
    Way {
        name: "in process, batches of 4,096, two in flight",
        together: 4_096,
        buy: |sale| batches(sale, 4_096, 2, COUNT),
    },
    Way {
        name: "in process, batches of 8,192, two in flight",
        together: 8_192,
        buy: |sale| batches(sale, 8_192, 2, COUNT),
    },
    Way {
        name: "in process, awaited one by one, 4,096 in flight",
        together: 4_096,
        buy: |sale| awaited(sale, 4_096, COUNT / 2),
    },
    Way { name: "in process, one caller", together: 1, buy: |sale| lone(sale, COUNT_LONE) },
];

/// Ways to serve four million reservations again.
const RECOVERIES: [(&str, Source); 2] = [
    ("recovery of 4,000,000 reservations, replayed", Source::Log),
    ("recovery of 4,000,000 reservations, from a snapshot", Source::Snapshot),
];

/// Their names in the table.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    WAYS.iter().map(|way| way.name).chain(RECOVERIES.iter().map(|it| it.0))
}

/// All rounds of what is wanted.
pub(crate) fn measure(rounds: u32, is_wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for way in WAYS.iter().filter(|way| is_wanted(way.name)) {
        let (mut ours, mut raws) = (Series::default(), Series::default());
        for round in 0..rounds {
            let (turn, write) = (|| engine_turn(way), || raw_turn(way));
            let (run, raw) = match round % 2 {
                0 => (turn(), write()),
                _ => swap(write(), turn()),
            };
            push(&mut ours, run);
            push(&mut raws, raw);
        }
        rows.push(Row::new(way.name, "Sluice's engine", ours));
        rows.push(Row::new(way.name, "a raw writer of the same bytes", raws));
    }
    for (name, source) in RECOVERIES.into_iter().filter(|it| is_wanted(it.0)) {
        rows.extend(recovery(rounds, name, source));
    }
    rows
}

fn swap<A, B>(first: A, second: B) -> (B, A) {
    (second, first)
}

fn engine_turn(way: &Way) -> Run {
    // Sold out in the end, or nearly so.
    let sale = Sale::open_with(UNITS);
    let run = (way.buy)(&sale);
    #[expect(clippy::unwrap_used, reason = "a bench that can't run ends")]
    sale.engine.close().unwrap();
    run
}

fn raw_turn(way: &Way) -> Run {
    let answers = raw::writes(way.together * RECORD_BYTES, WRITES);
    let reservations = (way.together * answers.len()) as u64;
    Run { reservations, took: answers.iter().sum(), answers }
}

fn push(series: &mut Series, mut run: Run) {
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    series.per_second.push(run.rate());
    series.p50_us.push(micros(run.percentile(50)));
    series.p99_us.push(micros(run.percentile(99)));
}

/// Opening a directory by its log or by a snapshot, and reading those files: both past the page
/// cache, turn by turn.
#[expect(clippy::unwrap_used, reason = "a bench that can't run ends")]
fn recovery(rounds: u32, name: &'static str, source: Source) -> [Row; 2] {
    const COUNT: u64 = 4_000_000;
    let dir = benches::data_dir();
    let sale = Sale::at(dir.path(), false);
    sale.fill(COUNT);
    sale.engine.close().unwrap();
    drop(sale);
    let snapshots = source == Source::Snapshot;
    // A clean end makes the snapshot, where one is allowed.
    Engine::open(options(dir.path(), true, snapshots)).unwrap().0.close().unwrap();
    let (mut ours, mut raws) = (Series::default(), Series::default());
    for _ in 0..rounds {
        let (took, bytes) = raw::read(dir.path(), source);
        assert!(bytes > COUNT, "a reservation is more than a byte");
        raws.per_second.push(COUNT as f64 / took.as_secs_f64());
        let started = Instant::now();
        let (engine, report) = Engine::open(options(dir.path(), true, snapshots)).unwrap();
        ours.per_second.push(COUNT as f64 / started.elapsed().as_secs_f64());
        assert_eq!(report.records < COUNT / 2, snapshots, "what was read again");
        engine.close().unwrap();
    }
    [Row::new(name, "Sluice's engine", ours), Row::new(name, "a raw reader", raws)]
}
