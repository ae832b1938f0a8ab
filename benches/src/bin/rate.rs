//! How many reservations a second are on disk when they are answered, and how long an answer
//! takes: one hot activity, distinct buyers, real syncs, beside a raw writer of the same bytes.
//!
//! Usage: `rate [COUNT]`, four million by default. Each way of buying runs three times, turn by
//! turn with the raw writer; the best of each is told, and their ratio.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use benches::{REQUEST_ID, Sale, raw};
use engine::core::event::Front;
use engine::core::ids::UserId;

const ROUNDS: usize = 3;

/// One run: how long it took in all, and each answer.
struct Run {
    reservations: u64,
    took: Duration,
    answers: Vec<Duration>,
}

impl Run {
    fn rate(&self) -> f64 {
        self.reservations as f64 / self.took.as_secs_f64()
    }

    fn percentile(&mut self, percent: usize) -> Duration {
        self.answers.sort_unstable();
        self.answers[(self.answers.len() * percent / 100).min(self.answers.len() - 1)]
    }
}

/// Batches of `size`, `in_flight` of them at a time.
fn batches(sale: &Sale, size: u64, in_flight: usize, count: u64) -> Run {
    let mut answers = Vec::new();
    let mut flying = VecDeque::new();
    let started = Instant::now();
    let mut land = |(sent, pending): (Instant, engine::Pending<_>)| {
        pending.wait().unwrap();
        answers.push(sent.elapsed());
    };
    for _ in 0..count / size {
        if flying.len() == in_flight {
            land(flying.pop_front().unwrap());
        }
        let sent = Instant::now();
        flying.push_back((sent, sale.batch(size)));
    }
    flying.into_iter().for_each(&mut land);
    Run { reservations: count / size * size, took: started.elapsed(), answers }
}

/// One caller, who asks again once answered.
fn lone(sale: &Sale, count: u64) -> Run {
    let mut answers = Vec::new();
    let started = Instant::now();
    for user in sale.users(count) {
        let sent = Instant::now();
        let user = UserId::new(user).unwrap();
        let pending = sale.engine.reserve(sale.activity, user, REQUEST_ID, 1, Front::Api);
        pending.unwrap().wait().unwrap().unwrap();
        answers.push(sent.elapsed());
    }
    Run { reservations: count, took: started.elapsed(), answers }
}

/// Awaited one by one from `tasks` tasks of one thread.
fn awaited(sale: &Sale, tasks: u64, count: u64) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let started = Instant::now();
    let answers = local.block_on(&runtime, async {
        let mut handles = Vec::new();
        for _ in 0..tasks {
            let users = sale.users(count / tasks);
            let (engine, activity) = (sale.engine.clone(), sale.activity);
            handles.push(tokio::task::spawn_local(async move {
                let mut answers = Vec::new();
                for user in users {
                    let sent = Instant::now();
                    let user = UserId::new(user).unwrap();
                    let pending = engine.reserve(activity, user, REQUEST_ID, 1, Front::Api);
                    pending.unwrap().durable().await.unwrap().unwrap();
                    answers.push(sent.elapsed());
                }
                answers
            }));
        }
        let mut answers = Vec::new();
        for handle in handles {
            answers.extend(handle.await.unwrap());
        }
        answers
    });
    Run { reservations: count / tasks * tasks, took: started.elapsed(), answers }
}

fn tell(name: &str, run: impl Fn(&Sale) -> Run, bytes: usize) {
    let mut best: Option<Run> = None;
    let mut raw_best: Option<Duration> = None;
    for _ in 0..ROUNDS {
        let sale = Sale::open();
        let one = run(&sale);
        sale.engine.close().unwrap();
        if best.as_ref().is_none_or(|best| one.rate() > best.rate()) {
            best = Some(one);
        }
        let median = raw::median_write(bytes);
        raw_best = Some(raw_best.map_or(median, |best| best.min(median)));
    }
    let (mut run, raw) = (best.unwrap(), raw_best.unwrap());
    let (p50, p99) = (run.percentile(50), run.percentile(99));
    println!(
        "{name:32} {:>9.0}/s  p50 {:>7.0} us  p99 {:>7.0} us  raw write of {bytes} B {:>5.0} us  \
         p50 / raw {:.2}",
        run.rate(),
        micros(p50),
        micros(p99),
        micros(raw),
        micros(p50) / micros(raw),
    );
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(4_000_000, |count| count.parse().unwrap());
    const RECORD_BYTES: usize = 112;
    for (size, in_flight) in [(1_024, 1), (1_024, 2), (1_024, 4), (4_096, 2), (8_192, 2)] {
        let name = format!("batches of {size}, {in_flight} in flight");
        let bytes = size * RECORD_BYTES;
        tell(&name, |sale| batches(sale, size as u64, in_flight, count), bytes);
    }
    let name = "awaited, 4,096 in flight";
    tell(name, |sale| awaited(sale, 4_096, count / 2), 4_096 * RECORD_BYTES);
    tell("one caller", |sale| lone(sale, 5_000), 4_096);
}
