//! What the mirror asks of the servers behind it, and nothing more.
//!
//! [`Nodes`](super::Nodes) are the real ones. Whatever else answers the same few commands can stand
//! in their place: a simulation runs the mirror, as it is, against servers that fail as it likes.

use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::fault::MirrorError;

/// The servers of a session. After an error the session is over, and they are dropped with it.
pub trait Servers {
    /// Calls on their way.
    type Sent: Sent;
    /// A connection for waits.
    type Waits: Waits;

    /// How many they are.
    fn count(&self) -> usize;

    /// The server that has the keys of a lane.
    fn index(&self, lane: u64) -> usize;

    /// Sends one command to a server. An error that the server answers is an error.
    fn ask_value(
        &self,
        index: usize,
        command: &Cmd,
    ) -> impl Future<Output = Result<Value, RedisError>>;

    /// Sends `calls`, each to its server; all of a server's in one write, in their order.
    fn send(&self, calls: Vec<(usize, Cmd)>) -> Self::Sent;

    /// A server's connection for what may take long: one that waits answers nothing else.
    fn waits(&self, index: usize) -> Self::Waits;

    /// Sends one command to a server, and reads its answer.
    fn ask<T: FromRedisValue>(
        &self,
        index: usize,
        command: &Cmd,
    ) -> impl Future<Output = Result<T, MirrorError>> {
        async move {
            let answer = self.ask_value(index, command).await?;
            Ok(T::from_redis_value(answer).map_err(RedisError::from)?)
        }
    }
}

/// Calls on their way. Dropped, they are on their way all the same.
pub trait Sent {
    /// The answers, in the order of the calls.
    fn answers(self) -> impl Future<Output = Result<Vec<Value>, MirrorError>>;
}

/// A connection for waits.
pub trait Waits: Send + 'static {
    /// Sends one command.
    fn ask<T: FromRedisValue>(
        &mut self,
        command: &Cmd,
    ) -> impl Future<Output = Result<T, RedisError>> + Send;
}
