//! What live reservations and activities cost: memory, bytes of the log, and the time to serve them
//! again.
//!
//! Usage: `footprint [RESERVATIONS] [ACTIVITIES]`, a million in one by default. All memory of the
//! process counts, from before the engine was opened on: what it made ahead for the sale as well,
//! whether the sale came to need it or not. It is told twice: as it is behind the last purchase,
//! and later, with what snapshots take and what the allocator keeps of that.
//!
//! | command | shows | needs |
//! |---|---|---|
//! | `footprint 10000000` | bytes a reservation at ten million | 1.5 GiB of memory, 2 GiB of disk |
//! | `footprint 100000000` | the same at a hundred million | 10 GiB of memory, 12 GiB of disk |
//! | `footprint 10000000 100000` | a hundred thousand activities of a hundred | 3 GiB, 2 GiB |

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use benches::{REQUEST_ID, Sale, options};
use engine::core::ids::ActivityId;
use engine::{BatchAnswer, Engine, Pending};

/// Purchases in a batch, at most.
const BATCH: u64 = 1_000;

/// Batches that nothing is measured of.
const WARM_UP: u64 = 16;

/// Batches in flight.
const IN_FLIGHT: usize = 8;

/// Resident memory of this process, bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

/// The same, once it has kept for twenty seconds; a minute is waited for that at most.
fn resident_later_bytes() -> u64 {
    const LOOKS: u32 = 100;
    let (mut seen, mut unchanged) = (resident_bytes(), 0);
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(200));
        let now = resident_bytes();
        unchanged = if now.abs_diff(seen) < 1 << 20 { unchanged + 1 } else { 0 };
        seen = now;
        if unchanged == LOOKS {
            break;
        }
    }
    seen
}

/// Batches on their way, and how long the answered ones took.
#[derive(Default)]
struct Flight {
    flying: VecDeque<(Instant, Pending<Vec<BatchAnswer>>)>,
    took: Vec<Duration>,
}

impl Flight {
    fn launch(&mut self, pending: Pending<Vec<BatchAnswer>>) {
        self.flying.push_back((Instant::now(), pending));
        if self.flying.len() > IN_FLIGHT {
            self.land();
        }
    }

    fn land(&mut self) {
        if let Some((sent, pending)) = self.flying.pop_front() {
            let answers = pending.wait().unwrap();
            assert!(answers.iter().all(|answer| matches!(answer, BatchAnswer::Reserved(_))));
            self.took.push(sent.elapsed());
        }
    }

    fn land_all(&mut self) {
        while !self.flying.is_empty() {
            self.land();
        }
    }
}

/// Buys `reservations` units, as many in each of `activities`, a batch in each at a time.
fn fill(sale: &Sale, activities: &[ActivityId], reservations: u64, flight: &mut Flight) {
    let each = reservations / activities.len() as u64;
    for first in (0..each).step_by(usize::try_from(BATCH).unwrap()) {
        let count = BATCH.min(each - first);
        for activity in activities {
            let users = sale.users(count);
            flight.launch(sale.batch_in(*activity, users, REQUEST_ID, 1));
        }
    }
    flight.land_all();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse::<u64>().unwrap());
    let (reservations, activities) = (number(1_000_000), number(1));
    let before_bytes = resident_bytes();
    // As many units as will be sold, and those of the first batches.
    let units = u32::try_from(reservations / activities + WARM_UP * BATCH).unwrap();
    let sale = Sale::open_with(units);
    let empty_bytes = resident_bytes();
    let started = Instant::now();
    let more = sale.more_activities(activities - 1, units);
    let made = started.elapsed();
    let activities: Vec<_> = std::iter::once(sale.activity).chain(more).collect();
    let activities_bytes = resident_bytes() - empty_bytes;
    // The log's buffers reach their size first.
    let mut flight = Flight::default();
    (0..WARM_UP).for_each(|_| flight.launch(sale.batch(BATCH)));
    flight.land_all();
    flight.took.clear();

    let before = sale.engine.stats().log;
    let started = Instant::now();
    fill(&sale, &activities, reservations, &mut flight);
    let took = started.elapsed();
    let (after_bytes, after) = (resident_bytes(), sale.engine.stats().log);
    let records = after.records - before.records;
    flight.took.sort_unstable();
    let p99 = flight.took[flight.took.len() * 99 / 100];
    println!("live reservations          {records}");
    let each = |bytes: u64| (bytes - before_bytes) / (records + WARM_UP * BATCH);
    println!("memory a reservation       {} bytes behind the last purchase", each(after_bytes));
    println!("                           {} bytes later", each(resident_later_bytes()));
    println!(
        "log a reservation          {} bytes, framing and padding included",
        (after.frame_bytes - before.frame_bytes) / records
    );
    println!("records a frame            {}", records / (after.frames - before.frames));
    println!("bought, a second           {:.0}", records as f64 / took.as_secs_f64());
    println!("a batch, p99               {:.1} ms", p99.as_secs_f64() * 1e3);
    if activities.len() > 1 {
        let count = activities.len() as u64;
        println!("activities                 {count}");
        println!(
            "memory an activity         {} bytes, before its first sale",
            activities_bytes / count
        );
        println!("made and published, a second  {:.0}", count as f64 / made.as_secs_f64());
    }
    let started = Instant::now();
    sale.engine.close().unwrap();
    println!("closed after               {:.2} s", started.elapsed().as_secs_f64());
    let Sale { engine, dir: Some(dir), .. } = sale else { panic!("a sale in a directory") };
    drop(engine);
    let started = Instant::now();
    let (engine, _) = Engine::open(options(dir.path(), true, true)).unwrap();
    println!("serving again after        {:.2} s", started.elapsed().as_secs_f64());
    engine.close().unwrap();
}
