//! The servers behind a URL: one, or the masters of a cluster, which fail one by one.

use std::sync::Arc;

use bridge::redis::MirrorError;
use bridge::redis::layouts::Layout;

use super::servers::SimServers;
use super::{Rates, SimRedis};
use crate::fates::Random;
use crate::whole::host::SimTime;

/// Masters of a cluster: enough that keys of two activities lie apart.
const MASTERS: u64 = 2;

/// All servers of a layout.
pub(in crate::whole) struct Masters {
    nodes: Vec<SimRedis>,
}

impl Masters {
    /// Those of a layout, empty.
    pub(in crate::whole) fn of(layout: Layout, seed: u64, time: &Arc<SimTime>) -> Self {
        let count = if layout == Layout::Cluster { MASTERS } else { 1 };
        let node = |number| SimRedis::new(seed.wrapping_add(number), Arc::clone(time));
        Self { nodes: (0..count).map(node).collect() }
    }

    /// Each server, with its number.
    pub(in crate::whole) fn each(&self) -> impl Iterator<Item = (usize, &SimRedis)> {
        self.nodes.iter().enumerate()
    }

    /// One of them.
    pub(in crate::whole) fn any(&self, random: &mut Random) -> SimRedis {
        // Where there is no choice nothing is drawn: seeds stay what they were.
        let at = if self.nodes.len() > 1 { random.index(self.nodes.len()) } else { 0 };
        self.nodes[at].clone()
    }

    /// Whether the server of this number has the keys of a lane.
    pub(in crate::whole) fn holds(&self, number: usize, lane: u64) -> bool {
        index(self.nodes.len(), lane) == number
    }

    /// Connects to all of them.
    ///
    /// # Errors
    /// Where one is down.
    pub(in crate::whole) fn connect(&self) -> Result<SimServers, MirrorError> {
        SimServers::to(&self.nodes)
    }

    /// They fail this often from now on.
    pub(in crate::whole) fn set_rates(&self, rates: Rates) {
        self.nodes.iter().for_each(|node| node.set_rates(rates));
    }

    /// All come back with what they have.
    pub(in crate::whole) fn bring_up(&self) {
        self.nodes.iter().for_each(|node| node.set_down(false));
    }

    /// Keep what they hold now, to come back as.
    pub(in crate::whole) fn remember(&self) {
        self.nodes.iter().for_each(SimRedis::remember);
    }

    /// Their lives and their connections', counted: as long as it stands, a session can go on.
    pub(in crate::whole) fn life(&self) -> u64 {
        self.nodes.iter().map(SimRedis::life).sum()
    }

    /// Calls that were done, and faults that befell them.
    pub(in crate::whole) fn counts(&self) -> (u64, u64) {
        let counts = self.nodes.iter().map(SimRedis::counts);
        counts.fold((0, 0), |(calls, faults), (more, others)| (calls + more, faults + others))
    }
}

/// Which of so many servers has the keys of a lane.
pub(super) fn index(count: usize, lane: u64) -> usize {
    usize::try_from(lane).unwrap_or(0) % count
}
