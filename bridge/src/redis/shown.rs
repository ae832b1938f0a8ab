//! Whether a reservation is in Redis yet: for whoever measures how far behind a mirror is.

use engine::core::ids::{ActivityId, ReservationId};
use redis::cmd;

use super::fault::MirrorError;
use super::layouts::flashsale;
use super::nodes::{Address, Nodes};
use super::servers::Servers as _;

/// A connection to the Redis of a mirror with layout `flashsale`.
#[derive(Debug)]
pub struct Shown {
    nodes: Nodes,
}

impl Shown {
    /// Connects to the Redis at `url`.
    ///
    /// # Errors
    /// Where the URL names none, or it does not answer.
    pub async fn connect(url: &str) -> Result<Self, MirrorError> {
        Ok(Self { nodes: Nodes::one(&Address::at(url)?).await? })
    }

    /// Whether the key of an unpaid reservation, or of one that was given back, is there.
    ///
    /// # Errors
    /// Where Redis does not answer.
    pub async fn shows(&self, of: ActivityId, id: ReservationId) -> Result<bool, MirrorError> {
        let mut exists = cmd("EXISTS");
        exists.arg(flashsale::reservation_key(of, id, false));
        self.nodes.ask(0, &exists).await
    }
}
