//! Units available in Redis, as readers see them: looked at, never written.

use std::time::{SystemTime, UNIX_EPOCH};

use engine::core::activity::Activity;
use engine::core::ids::{ActivityId, OrderPrefix};
use redis::{Value, cmd};
use wal::Lsn;

use super::fault::MirrorError;
use super::layouts::{Keys, Known, Layout};
use super::library::{OwnKeys, text};
use super::mark::{Mark, Place};
use super::nodes::{Address, Nodes};
use super::present::Present;
use super::servers::{Sent as _, Servers as _};
use super::writes::{Write, Writes};

/// Reads the keys of a layout.
#[derive(Clone, Debug)]
pub struct Stocks {
    address: Address,
    keys: Keys,
}

/// An activity as its keys depend on it.
pub fn known(host: &impl Present, id: ActivityId) -> Option<Known> {
    host.look(id, |activity: &Activity| Known::of(id, activity))
}

impl Stocks {
    /// A reader of the Redis at `url`; it connects when it is asked.
    ///
    /// # Errors
    /// Where the URL names none.
    pub fn open(url: &str, layout: Layout, order_prefix: OrderPrefix) -> Result<Self, MirrorError> {
        Ok(Self { address: Address::at(url)?, keys: Keys { layout, order_prefix } })
    }

    /// The key that holds an activity's units.
    pub fn key(&self, it: &Known) -> Option<String> {
        self.write(it).map(|(key, _)| key)
    }

    /// What must stand there.
    pub fn expected(&self, it: &Known) -> Option<String> {
        self.write(it).and_then(|(_, value)| value)
    }

    /// Whether the key must be there: readers have no use for that of an activity that is over, or,
    /// where keys bear a SKU's name, is off sale.
    pub fn is_told(&self, it: &Known) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_open = u128::from(it.end_ms) > now.as_millis();
        is_open && (it.flags.on_sale || !self.keys.layout.is_keyed_by_sku())
    }

    /// The key that holds the units available comes first of those that hold units, in every
    /// layout.
    fn write(&self, it: &Known) -> Option<(String, Option<String>)> {
        let mut writes = Writes::default();
        self.keys.units(it, &mut writes);
        let (key, write) = writes.keys().find(|(key, _)| key.contains("stock"))?;
        let value = match write {
            Write::Text { value, .. } => Some(value.clone()),
            _ => None,
        };
        Some((key.to_owned(), value))
    }

    /// What stands there, in the order of `of`.
    ///
    /// # Errors
    /// Where Redis does not answer.
    pub async fn read(&self, of: &[Known]) -> Result<Vec<Option<String>>, MirrorError> {
        let nodes = self.nodes().await?;
        let calls = of.iter().filter_map(|it| {
            let mut get = cmd("GET");
            get.arg(self.key(it)?);
            Some((nodes.index(self.lane(it)), get))
        });
        let answers = nodes.send(calls.collect()).answers().await?;
        Ok(answers.iter().map(text).collect())
    }

    /// How far the mirror is, as its cursor in Redis says: the rearmost of those of `of`.
    ///
    /// # Errors
    /// Where Redis does not answer.
    pub async fn cursor(&self, of: &[Known]) -> Result<Option<Lsn>, MirrorError> {
        let nodes = self.nodes().await?;
        let lane = |it: &Known| {
            let is_cluster = self.keys.layout == Layout::Cluster;
            (self.lane(it), OwnKeys::of(is_cluster.then(|| it.id.get())).cursor)
        };
        let mut lanes: Vec<_> = of.iter().map(lane).collect();
        lanes.dedup_by(|one, other| one.1 == other.1);
        let calls = lanes.into_iter().map(|(lane, key)| {
            let mut get = cmd("GET");
            get.arg(key);
            (nodes.index(lane), get)
        });
        let answers: Vec<Value> = nodes.send(calls.collect()).answers().await?;
        let reached = |answer: &Value| {
            text(answer).and_then(|text| Mark::parse(&text)).and_then(|mark| mark.place)
        };
        Ok(answers.iter().filter_map(reached).map(Place::reached).min())
    }

    fn lane(&self, it: &Known) -> u64 {
        if self.keys.layout == Layout::Cluster { it.id.get() } else { super::sink::ONLY_LANE }
    }

    async fn nodes(&self) -> Result<Nodes, MirrorError> {
        match self.keys.layout {
            Layout::Cluster => Nodes::cluster(&self.address).await,
            _ => Nodes::one(&self.address).await,
        }
    }
}
