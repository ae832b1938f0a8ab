//! Ways to buy from an engine in this process, timed: each answer counts from when it was asked for
//! to when it is on disk. The sale is open by then, and the engine has had the time that lies
//! between a real sale's creation and its opening: its memory and the log's segments are made ahead
//! ([`engine::Engine::prepare_sales`]).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use engine::core::event::Front;
use engine::core::ids::UserId;

use crate::{REQUEST_ID, Sale};

/// One run: how long it took in all, and each answer.
pub struct Run {
    /// Units that were bought.
    pub reservations: u64,
    /// From the first request to the last answer.
    pub took: Duration,
    /// How long each answer took: a batch's is one.
    pub answers: Vec<Duration>,
}

impl Run {
    /// Reservations a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn rate(&self) -> f64 {
        self.reservations as f64 / self.took.as_secs_f64()
    }

    /// The latency that `percent` of the answers did not exceed.
    pub fn percentile(&mut self, percent: usize) -> Duration {
        self.answers.sort_unstable();
        self.answers[(self.answers.len() * percent / 100).min(self.answers.len() - 1)]
    }
}

/// Batches of `size`, `in_flight` of them at a time.
pub fn batches(sale: &Sale, size: u64, in_flight: usize, count: u64) -> Run {
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
pub fn lone(sale: &Sale, count: u64) -> Run {
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
pub fn awaited(sale: &Sale, tasks: u64, count: u64) -> Run {
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
