//! What a snapshot costs those who buy meanwhile: the same purchases with and without one being
//! made, turn by turn in one run.
//!
//! Usage: `pause [RESERVATIONS] [RATE]`: a million in memory before the first snapshot and 20,000
//! purchases a second by default. Purchases are sent on a schedule, and each is timed from the
//! moment it was due: a pause is seen by all that it holds up. The snapshot is made as a server
//! makes it, by a thread of low priority.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use benches::{REQUEST_ID, Sale, USERS_A_BATCH};
use engine::core::event::Front;
use engine::core::ids::UserId;

const ROUNDS: usize = 3;

/// A turn without a snapshot.
const QUIET: Duration = Duration::from_secs(3);

type Answer = engine::Pending<Result<engine::Purchase, engine::Refused>>;

/// What buyers had to wait.
#[derive(Default)]
struct Waits(Vec<Duration>);

impl Waits {
    fn percentile(&mut self, per_mille: usize) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * per_mille / 1_000).min(self.0.len() - 1);
        self.0[index].as_secs_f64() * 1e6
    }

    fn tell(&mut self, name: &str) {
        let count = self.0.len();
        let [p50, p99, p999, max] = [500, 990, 999, 1_000].map(|it| self.percentile(it));
        println!(
            "{name:20} {count:>9} purchases  p50 {p50:>7.0} us  p99 {p99:>7.0} us  p99.9 \
             {p999:>7.0} us  max {max:>7.0} us"
        );
    }
}

/// Buys `rate` times a second until `done` says so.
fn buy(sale: &Sale, rate: u32, done: impl Fn() -> bool) -> Vec<Duration> {
    let sent = Mutex::new(VecDeque::<(Instant, Answer)>::new());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut waits = Vec::new();
            loop {
                let next = sent.lock().unwrap().pop_front();
                match next {
                    Some((due, pending)) => {
                        pending.wait().unwrap().unwrap();
                        waits.push(due.elapsed());
                    }
                    None if ended.load(Ordering::Acquire) => return waits,
                    None => std::thread::yield_now(),
                }
            }
        });
        let (began, gap) = (Instant::now(), Duration::from_secs(1) / rate);
        for number in 0.. {
            let due = began + gap * number;
            while Instant::now() < due {
                std::thread::yield_now();
            }
            if done() {
                break;
            }
            let user = UserId::new(sale.users(1).start).unwrap();
            let pending = sale.engine.reserve(sale.activity, user, REQUEST_ID, 1, Front::Api);
            sent.lock().unwrap().push_back((due, pending.unwrap()));
        }
        ended.store(true, Ordering::Release);
        waits.join().unwrap()
    })
}

/// Fills the log until a segment more is sealed: what a snapshot is made of.
fn fill(sale: &Sale, count: u64) {
    let sealed = sale.engine.stats().log.rotations;
    let mut bought = 0;
    while bought < count || sale.engine.stats().log.rotations == sealed {
        sale.batch(USERS_A_BATCH).wait().unwrap();
        bought += USERS_A_BATCH;
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse::<u32>().unwrap());
    let reservations = arguments.next().unwrap_or(1_000_000);
    let rate = arguments.next().unwrap_or(20_000);
    let sale = Sale::open();
    fill(&sale, u64::from(reservations));
    sale.engine.snapshot().unwrap();
    let (mut without, mut with) = (Waits::default(), Waits::default());
    for _ in 0..ROUNDS {
        let until = Instant::now() + QUIET;
        without.0.extend(buy(&sale, rate, || Instant::now() >= until));
        fill(&sale, u64::from(reservations / 4));
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                wal::lower_priority(10);
                let began = Instant::now();
                let snapshot = sale.engine.snapshot().unwrap();
                made.store(true, Ordering::Release);
                (snapshot.unwrap(), began.elapsed())
            });
            with.0.extend(buy(&sale, rate, || made.load(Ordering::Acquire)));
            let (snapshot, took) = maker.join().unwrap();
            println!("a snapshot of {} bytes took {took:.1?}", snapshot.bytes);
        });
    }
    println!("\n{rate} purchases a second, each durable before it is answered:");
    without.tell("without a snapshot");
    with.tell("with one being made");
    println!("p99 with / without {:.2}", with.percentile(990) / without.percentile(990));
    sale.engine.close().unwrap();
}
