//! The connections of a session with the simulated servers.

use std::io;

use bridge::redis::MirrorError;
use bridge::redis::servers::{Sent, Servers, Waits};
use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::{Answer, SimRedis, masters};
use engine::TimeSource as _;

/// A session's connections: each holds while its server lives.
#[derive(Clone)]
pub(in crate::whole) struct SimServers {
    nodes: Vec<(SimRedis, u64)>,
}

fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

impl SimServers {
    /// Connects.
    ///
    /// # Errors
    /// Where one is down.
    pub(super) fn to(servers: &[SimRedis]) -> Result<Self, MirrorError> {
        let mut nodes = Vec::new();
        for redis in servers {
            let shared = redis.lock();
            if shared.is_down {
                return Err(lost().into());
            }
            nodes.push((redis.clone(), shared.life));
        }
        Ok(Self { nodes })
    }

    /// One command on its way: it arrives or it does not, and so does its answer. Once a
    /// connection is lost it stays so.
    fn say(&self, index: usize, command: &Cmd) -> Answer {
        let (redis, life) = &self.nodes[index];
        let now_ms = redis.time.wall_ms();
        let mut shared = redis.lock();
        if shared.is_down || shared.life != *life {
            return Err(lost());
        }
        let rates = shared.rates;
        if shared.random.below(1_000) < rates.lost_before {
            shared.life += 1;
            return Err(lost());
        }
        let answer = shared.command(command, now_ms);
        if shared.random.below(1_000) < rates.lost_behind {
            shared.life += 1;
            return Err(lost());
        }
        answer
    }

    fn is_tails(&self) -> bool {
        self.nodes[0].0.lock().random.below(2) == 0
    }
}

impl Servers for SimServers {
    type Sent = SimSent;
    type Waits = SimWaits;

    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn index(&self, lane: u64) -> usize {
        masters::index(self.nodes.len(), lane)
    }

    async fn ask_value(&self, index: usize, command: &Cmd) -> Answer {
        self.say(index, command)
    }

    fn send(&self, calls: Vec<(usize, Cmd)>) -> SimSent {
        let mut sent = SimSent { servers: self.clone(), calls, answers: None };
        if self.is_tails() {
            sent.arrive();
        }
        sent
    }

    fn waits(&self, index: usize) -> SimWaits {
        SimWaits { servers: self.clone(), index }
    }
}

/// A connection for waits.
pub(in crate::whole) struct SimWaits {
    servers: SimServers,
    index: usize,
}

impl Waits for SimWaits {
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        Ok(T::from_redis_value(self.servers.say(self.index, command)?)?)
    }
}

/// Calls that arrive at once, when their answers are asked for, or when nobody waits any more.
pub(in crate::whole) struct SimSent {
    servers: SimServers,
    calls: Vec<(usize, Cmd)>,
    answers: Option<Result<Vec<Value>, RedisError>>,
}

impl SimSent {
    fn arrive(&mut self) {
        if self.answers.is_some() {
            return;
        }
        let mut answers = Ok(Vec::new());
        for (index, call) in std::mem::take(&mut self.calls) {
            // A server goes on with what it has read after the connection is lost, or an error.
            let answer = self.servers.say(index, &call);
            answers = match (answers, answer) {
                (Ok(mut answers), Ok(answer)) => {
                    answers.push(answer);
                    Ok(answers)
                }
                (Ok(_), Err(error)) => Err(error),
                (failed, _) => failed,
            };
        }
        self.answers = Some(answers);
    }
}

impl Sent for SimSent {
    async fn answers(mut self) -> Result<Vec<Value>, MirrorError> {
        self.arrive();
        match self.answers.take() {
            Some(answers) => Ok(answers?),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for SimSent {
    fn drop(&mut self) {
        let arrives = self.answers.is_none() && self.servers.is_tails();
        if arrives && !std::thread::panicking() {
            self.arrive();
        }
    }
}
