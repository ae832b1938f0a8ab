//! What a second core brings: the same sale by one thread and by more, up to the machine's cores.
//!
//! Three ways, from what shares nothing to what shares all:
//! - the rules alone, each thread with a shard of its own: nothing but the memory is shared;
//! - durable, each thread with an activity of its own: one log is shared;
//! - durable, all threads in one activity: its shard's lock is shared as well.
//!
//! `cargo run --release -p benches --bin scaling`

#![allow(clippy::unwrap_used, reason = "a measurement that can't be made ends")]

use std::collections::VecDeque;
use std::thread;
use std::time::Instant;

use benches::rules::{buy, on_sale};
use benches::{REQUEST_ID, Sale, USERS_A_BATCH};
use engine::core::ids::ActivityId;

/// Turns of each way and number of threads; the median counts.
const ROUNDS: usize = 5;

/// Purchases of a turn, all threads together.
const COUNT: u64 = 2_000_000;

/// Batches of a thread on their way to the disk.
const IN_FLIGHT: usize = 2;

/// A name, and how many purchases a second that many threads make.
type Way = (&'static str, fn(u64) -> f64);

const WAYS: [Way; 3] = [
    ("the rules alone, a shard a thread", rules),
    ("durable, an activity a thread", |threads| durable(threads, true)),
    ("durable, one activity", |threads| durable(threads, false)),
];

fn main() {
    let cores = thread::available_parallelism().unwrap().get() as u64;
    println!("| | threads | purchases/s | x one thread |\n|---|---:|---:|---:|");
    for (name, turn) in WAYS {
        let mut one = None;
        for threads in 1..=cores {
            let mut rates: Vec<_> = (0..ROUNDS).map(|_| turn(threads)).collect();
            rates.sort_by(f64::total_cmp);
            let rate = rates[ROUNDS / 2];
            let one = *one.get_or_insert(rate);
            println!("| {name} | {threads} | {rate:.0} | {:.2} |", rate / one);
        }
    }
}

/// Runs `each` in so many threads, and says how many of [`COUNT`] were made in a second.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn timed(threads: u64, each: impl Fn(u64) + Sync) -> f64 {
    let started = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let each = &each;
            scope.spawn(move || each(thread));
        }
    });
    COUNT as f64 / started.elapsed().as_secs_f64()
}

fn rules(threads: u64) -> f64 {
    timed(threads, |thread| {
        let id = ActivityId::new(30_001 + thread).unwrap();
        let mut shard = on_sale(id);
        let hash = shard.requests().hash(REQUEST_ID);
        for user in 1..=COUNT / threads {
            buy(&mut shard, id, user, hash, user + 2);
        }
    })
}

fn durable(threads: u64, activities: bool) -> f64 {
    let sale = Sale::open();
    let ids = if activities {
        sale.more_activities(threads, u32::try_from(2 * COUNT).unwrap())
    } else {
        vec![sale.activity; usize::try_from(threads).unwrap()]
    };
    let rate = timed(threads, |thread| {
        let id = ids[usize::try_from(thread).unwrap()];
        let mut flying: VecDeque<engine::Pending<_>> = VecDeque::new();
        for _ in 0..COUNT / threads / USERS_A_BATCH {
            if flying.len() == IN_FLIGHT {
                flying.pop_front().unwrap().wait().unwrap();
            }
            let users = sale.users(USERS_A_BATCH);
            flying.push_back(sale.batch_in(id, users, REQUEST_ID, 1));
        }
        flying.into_iter().for_each(|pending| _ = pending.wait().unwrap());
    });
    sale.engine.close().unwrap();
    rate
}
