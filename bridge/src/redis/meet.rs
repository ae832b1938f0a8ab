//! Meeting Redis: its cursors are read, judged, and taken over.
//!
//! | what stands in Redis | what follows |
//! |---|---|
//! | a cursor of this log, which the log reaches | it is taken over, and the log is followed |
//! | none, no text of ours, `resync`, one older than the log | the keys are written anew |
//! | a cursor of another history, or of a later server | a fork: [`crate::cursor`] |

use std::collections::BTreeMap;

use engine::core::ids::ActivityId;
use redis::cmd;
use wal::{LogIdentity, Lsn};

use super::fault::MirrorError;
use super::layouts::{Known, Layout};
use super::library::{self, OwnKeys};
use super::mark::{Mark, Place};
use super::nodes::{Address, Nodes};
use super::present::Present;
use super::projection::Projection;
use super::servers::Servers;
use super::sink::{Bounds, Lane, Mirror, ONLY_LANE};
use super::writes::Writes;
use crate::cursor::{self, Standing, Verdict};
use crate::tail::{Batch, EventSource, SeekError};

impl<'h, H: Present> Mirror<'h, H> {
    /// Meets the Redis at `url`: [`Mirror::meet_on`].
    ///
    /// # Errors
    /// Where Redis and log don't belong together, or one of them does not answer.
    pub async fn meet(
        host: &'h H,
        url: &str,
        layout: Layout,
        bounds: Bounds,
    ) -> Result<Self, MirrorError> {
        Self::meet_at(host, &Address::at(url)?, layout, bounds).await
    }

    pub(super) async fn meet_at(
        host: &'h H,
        address: &Address,
        layout: Layout,
        bounds: Bounds,
    ) -> Result<Self, MirrorError> {
        Self::meet_on(host, connect(address, layout).await?, layout, bounds).await
    }
}

async fn connect(address: &Address, layout: Layout) -> Result<Nodes, MirrorError> {
    match layout {
        Layout::Cluster => Nodes::cluster(address).await,
        _ => Nodes::one(address).await,
    }
}

/// The lanes of a layout.
fn lanes(layout: Layout, activities: &[ActivityId]) -> Vec<u64> {
    match layout {
        Layout::Cluster => activities.iter().map(|id| id.get()).collect(),
        _ => vec![ONLY_LANE],
    }
}

/// Reads and judges the cursors in the Redis at `url`, and changes nothing there.
///
/// # Errors
/// Where Redis and the log `ours` don't belong together, or one of them does not answer.
pub(crate) async fn look(
    (url, layout): (&str, Layout),
    ours: LogIdentity,
    source: &mut impl EventSource,
    activities: &[ActivityId],
) -> Result<(), MirrorError> {
    let nodes = connect(&Address::at(url)?, layout).await?;
    for lane in lanes(layout, activities) {
        find(&nodes, (layout, lane), ours, source).await?;
    }
    Ok(())
}

/// The cursor of a lane, judged; `None` where there is none that the log can be followed from.
async fn find(
    nodes: &impl Servers,
    (layout, lane): (Layout, u64),
    ours: LogIdentity,
    source: &mut impl EventSource,
) -> Result<Option<(String, Mark)>, MirrorError> {
    let keys = OwnKeys::of_lane(layout, lane);
    let answer = nodes.ask(nodes.index(lane), cmd("GET").arg(&keys.cursor)).await;
    let text: Option<String> = match answer {
        Ok(text) => text,
        // A key of another type: somebody's tampering, and no cursor.
        Err(MirrorError::Redis(error)) if error.code() == Some("WRONGTYPE") => None,
        Err(error) => return Err(error),
    };
    let Some((text, mark)) = text.and_then(|text| Mark::parse(&text).map(|it| (text, it))) else {
        return Ok(None);
    };
    let judged = mark.cursor();
    let place = cursor::Place::of(source.seek(judged.lsn))?;
    let standing = Standing { cursor: Some(judged), filling: None };
    match cursor::judge(&standing, ours, place) {
        Verdict::Fork(fork) => Err(fork.into()),
        // Too old to be caught up.
        Verdict::Fill => Ok(None),
        Verdict::Resume { .. } if mark.place.is_none() => Ok(None),
        Verdict::Resume { .. } => Ok(Some((text, mark))),
    }
}

impl<'h, H: Present, S: Servers> Mirror<'h, H, S> {
    /// Meets the servers: reads their cursors, judges them, takes them over, and writes anew what
    /// can't be caught up from the log.
    ///
    /// # Errors
    /// Where Redis and log don't belong together, or one of them does not answer.
    pub async fn meet_on(
        host: &'h H,
        nodes: S,
        layout: Layout,
        bounds: Bounds,
    ) -> Result<Self, MirrorError> {
        let mut mirror = Self {
            host,
            identity: host.identity(),
            nodes,
            layout,
            projection: Projection::new(layout, host.order_prefix()),
            lanes: BTreeMap::new(),
            source: host.source(),
            batch: Batch::default(),
            bounds,
            read: Place::frame_end(Lsn(0), 0),
            on_the_way: None,
            applied: Lsn(0),
            scrub: super::scrub::Scrub::default(),
            resyncs: 0,
        };
        let activities = match layout {
            Layout::Cluster => host.activities(),
            _ => Vec::new(),
        };
        let mut astray = Vec::new();
        let mut found = Vec::new();
        for lane in lanes(layout, &activities) {
            let Self { nodes, identity, source, .. } = &mut mirror;
            match find(nodes, (layout, lane), *identity, source).await? {
                Some((text, mark)) => found.push((lane, text, mark)),
                None => astray.push(lane),
            }
        }
        library::load(&mirror.nodes).await?;
        for (lane, text, mark) in found {
            if !mirror.take_over(lane, text, mark).await? {
                astray.push(lane);
            }
        }
        mirror.stand().await?;
        if !astray.is_empty() {
            mirror.resync(&astray).await?;
            mirror.resyncs += 1;
        }
        Ok(mirror)
    }

    /// Writes this server's epoch into a cursor, and reads what is known at it; whether that can be
    /// trusted.
    async fn take_over(
        &mut self,
        lane: u64,
        text: String,
        found: Mark,
    ) -> Result<bool, MirrorError> {
        let keys = self.own_keys(lane);
        let index = self.nodes.index(lane);
        let answer = self.nodes.ask(index, cmd("HGETALL").arg(&keys.known)).await;
        let known: Vec<(u64, String)> = match answer {
            Ok(known) => known,
            Err(MirrorError::Redis(error)) if !error.is_io_error() => return Ok(false),
            Err(error) => return Err(error),
        };
        let known: Option<Vec<Known>> =
            known.iter().map(|(id, text)| Known::decode(*id, text)).collect();
        let Some(known) = known else { return Ok(false) };
        let mark = Mark::new(self.identity, found.place);
        let claimed = mark.to_string();
        let is_stale = true;
        let call = library::apply(&keys, &text, &claimed, is_stale, &Writes::default());
        library::done(self.nodes.ask(index, &call).await?)?;
        known.into_iter().for_each(|it| self.projection.know(it));
        self.lanes.insert(lane, Lane { keys, mark, text: claimed, is_stale });
        Ok(true)
    }

    /// Stands where the rearmost lane stands; with no lane at all, at the durable end.
    async fn stand(&mut self) -> Result<(), MirrorError> {
        let rearmost = self.lanes.values().map(Lane::place).min_by_key(|place| place.reached());
        let place = match rearmost {
            Some(place) => place,
            None => self.durable_place()?,
        };
        self.source.seek(place.lsn).map_err(MirrorError::Lost)?;
        self.read = Place::frame_end(place.lsn, place.chain);
        self.applied = place.reached();
        Ok(())
    }

    /// The durable end of the log, where a reader then stands.
    pub(super) fn durable_place(&mut self) -> Result<Place, MirrorError> {
        let lsn = self.host.durable_lsn();
        match self.source.seek(lsn) {
            Ok(chain) => Ok(Place::frame_end(lsn, chain)),
            Err(SeekError::Unreadable(error)) => Err(error.into()),
            Err(error) => Err(MirrorError::Lost(error)),
        }
    }
}
