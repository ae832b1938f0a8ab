//! The connections of a session with the simulated Redis.

use std::io;

use bridge::redis::MirrorError;
use bridge::redis::servers::{Sent, Servers, Waits};
use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::{Answer, SimRedis};
use engine::TimeSource as _;

/// A session's connections: they hold while the server lives.
#[derive(Clone)]
pub(in crate::whole) struct SimServers {
    redis: SimRedis,
    life: u64,
}

fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

impl SimRedis {
    /// Connects.
    ///
    /// # Errors
    /// Where it is down.
    pub(in crate::whole) fn connect(&self) -> Result<SimServers, MirrorError> {
        let shared = self.lock();
        if shared.is_down {
            return Err(lost().into());
        }
        Ok(SimServers { redis: self.clone(), life: shared.life })
    }
}

impl SimServers {
    /// One command on its way: it arrives or it does not, and so does its answer. Once a
    /// connection is lost it stays so.
    fn say(&self, command: &Cmd) -> Answer {
        let now_ms = self.redis.time.wall_ms();
        let mut shared = self.redis.lock();
        if shared.is_down || shared.life != self.life {
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
}

impl Servers for SimServers {
    type Sent = SimSent;
    type Waits = Self;

    fn count(&self) -> usize {
        1
    }

    fn index(&self, _: u64) -> usize {
        0
    }

    async fn ask_value(&self, _: usize, command: &Cmd) -> Answer {
        self.say(command)
    }

    fn send(&self, calls: Vec<(usize, Cmd)>) -> SimSent {
        let calls = calls.into_iter().map(|(_, call)| call).collect();
        let mut sent = SimSent { servers: self.clone(), calls, answers: None };
        if self.redis.lock().random.below(2) == 0 {
            sent.arrive();
        }
        sent
    }

    fn waits(&self, _: usize) -> Self {
        self.clone()
    }
}

impl Waits for SimServers {
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        Ok(T::from_redis_value(self.say(command)?)?)
    }
}

/// Calls that arrive at once, when their answers are asked for, or when nobody waits any more.
pub(in crate::whole) struct SimSent {
    servers: SimServers,
    calls: Vec<Cmd>,
    answers: Option<Result<Vec<Value>, RedisError>>,
}

impl SimSent {
    fn arrive(&mut self) {
        if self.answers.is_some() {
            return;
        }
        let mut answers = Ok(Vec::new());
        for call in std::mem::take(&mut self.calls) {
            // A server goes on with what it has read after the connection is lost, or an error.
            let answer = self.servers.say(&call);
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
        let arrives = self.answers.is_none() && self.servers.redis.lock().random.below(2) == 0;
        if arrives && !std::thread::panicking() {
            self.arrive();
        }
    }
}
