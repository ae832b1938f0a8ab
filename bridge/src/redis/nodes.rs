//! The servers behind a URL: one, or the masters of a cluster.
//!
//! A session opens its connections when it begins and throws them away with the first error; the
//! next one looks at the topology anew. So there is no retry here, no redirect, and no connection
//! that outlives what was believed about it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo as _, Pipeline, RedisError, Value,
};
use tokio::task::JoinSet;

use super::fault::MirrorError;
use super::servers::{self, Servers};

/// For a connection, and for an answer: a call of the library takes a millisecond.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// A server, its connection, and a second one for waits: a connection that waits answers nothing
/// else.
struct Node {
    connection: MultiplexedConnection,
    waits: MultiplexedConnection,
}

/// The servers that a session talks to.
pub struct Nodes {
    nodes: Vec<Node>,
    /// By slot; empty where there is one server.
    slots: Vec<usize>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("count", &self.nodes.len()).finish_non_exhaustive()
    }
}

/// Where and how to connect, checked.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    info: ConnectionInfo,
}

impl Address {
    /// Reads a URL: `redis://<user>:<password>@<host>:<port>/<db>` or `redis+unix://<path>`.
    pub(crate) fn at(url: &str) -> Result<Self, RedisError> {
        let info = url.into_connection_info()?;
        // A batch is one write, its answer is waited for: a delayed segment is a delayed batch.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self { info })
    }

    fn elsewhere(&self, host: &str, port: u16) -> ConnectionInfo {
        self.info.clone().set_addr(ConnectionAddr::Tcp(host.to_owned(), port))
    }
}

async fn connect(info: ConnectionInfo) -> Result<MultiplexedConnection, MirrorError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    let client = Client::open(info)?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn node(info: ConnectionInfo) -> Result<Node, MirrorError> {
    Ok(Node { connection: connect(info.clone()).await?, waits: connect(info).await? })
}

impl Nodes {
    /// The one server at `address`.
    pub(crate) async fn one(address: &Address) -> Result<Self, MirrorError> {
        Ok(Self { nodes: vec![node(address.info.clone()).await?], slots: Vec::new() })
    }

    /// The masters of the cluster that `address` is a member of.
    pub(crate) async fn cluster(address: &Address) -> Result<Self, MirrorError> {
        let mut seed = connect(address.info.clone()).await?;
        let ranges: Vec<Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut seed).await?;
        let (mut nodes, mut known) = (Vec::new(), Vec::new());
        let mut slots = vec![usize::MAX; usize::from(SLOTS)];
        for range in ranges {
            let (first, last, host, port) = range_of(&range).ok_or_else(|| unexpected(&range))?;
            let index = match known.iter().position(|it| *it == (host.clone(), port)) {
                Some(index) => index,
                None => {
                    nodes.push(node(address.elsewhere(&host, port)).await?);
                    known.push((host, port));
                    nodes.len() - 1
                }
            };
            slots[usize::from(first)..=usize::from(last)].fill(index);
        }
        if slots.contains(&usize::MAX) {
            let answer = "slots that no server has".to_owned();
            return Err(MirrorError::Answer { command: "CLUSTER SLOTS", answer });
        }
        Ok(Self { nodes, slots })
    }
}

impl Servers for Nodes {
    type Sent = Sent;
    type Waits = MultiplexedConnection;

    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn index(&self, lane: u64) -> usize {
        let slot = slot(lane.to_string().as_bytes());
        self.slots.get(usize::from(slot)).copied().unwrap_or(0)
    }

    async fn ask_value(&self, index: usize, command: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.nodes[index].connection.clone();
        command.query_async(&mut connection).await
    }

    fn waits(&self, index: usize) -> MultiplexedConnection {
        self.nodes[index].waits.clone()
    }

    fn send(&self, calls: Vec<(usize, Cmd)>) -> Sent {
        let mut pipes: Vec<(Pipeline, Vec<usize>)> = Vec::new();
        pipes.resize_with(self.nodes.len(), || (Pipeline::new(), Vec::new()));
        let count = calls.len();
        for (at, (index, call)) in calls.into_iter().enumerate() {
            pipes[index].0.add_command(call);
            pipes[index].1.push(at);
        }
        let mut tasks = JoinSet::new();
        for (node, (pipe, places)) in self.nodes.iter().zip(pipes) {
            if places.is_empty() {
                continue;
            }
            let mut connection = node.connection.clone();
            tasks.spawn(async move {
                let answers: Vec<Value> = pipe.query_async(&mut connection).await?;
                Ok(places.into_iter().zip(answers).collect())
            });
        }
        Sent { tasks, count }
    }
}

impl servers::Waits for MultiplexedConnection {
    async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        command.query_async(self).await
    }
}

/// Calls on their way, a task for each server.
#[derive(Debug)]
pub struct Sent {
    tasks: JoinSet<Result<Vec<(usize, Value)>, RedisError>>,
    count: usize,
}

impl servers::Sent for Sent {
    async fn answers(mut self) -> Result<Vec<Value>, MirrorError> {
        let mut answers = vec![Value::Nil; self.count];
        while let Some(done) = self.tasks.join_next().await {
            let told = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            for (at, answer) in told? {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }
}

fn unexpected(answer: &Value) -> MirrorError {
    MirrorError::Answer { command: "CLUSTER SLOTS", answer: format!("{answer:?}") }
}

/// First and last slot of a range, and its master.
fn range_of(range: &Value) -> Option<(u16, u16, String, u16)> {
    let Value::Array(items) = range else { return None };
    let [first, last, Value::Array(master), ..] = items.as_slice() else { return None };
    let [host, port, ..] = master.as_slice() else { return None };
    let number = |value: &Value| u16::from_redis_value_ref(value).ok();
    let (first, last) = (number(first)?, number(last)?);
    let host = String::from_redis_value_ref(host).ok()?;
    (first <= last && last < SLOTS).then_some((first, last, host, number(port)?))
}

/// The slot of a hash tag: CRC-16 (XMODEM), as the cluster's specification has it.
fn slot(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_what_the_clusters_specification_says() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(slot(b"123456789"), 0x31C3 % SLOTS);
    }
}
