//! A disk that lies: it says that a sync is done, and drops what it was to keep.
//!
//! Until the power is cut nobody can tell: every reader sees what was written. At the power cut it
//! is gone, and what was synced before and after is there.

use super::SimDevice;

/// Which syncs, of a file or of a directory, are done in word alone; counted from the device's
/// first as 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lie {
    /// The sync's number.
    pub at: u64,
    /// Whether every later one is a lie as well.
    pub lasting: bool,
}

/// Counts the syncs, and knows which of them are lies.
#[derive(Default)]
pub(super) struct Syncs {
    lie: Option<Lie>,
    count: u64,
    told: u64,
}

impl Syncs {
    /// Counts a sync. Tells whether it is a lie.
    pub(super) fn lies(&mut self) -> bool {
        self.count += 1;
        let Some(Lie { at, lasting }) = self.lie else { return false };
        let lies = self.count == at || lasting && self.count > at;
        self.told += u64::from(lies);
        lies
    }
}

impl SimDevice {
    /// Makes syncs lie from now on, or no more.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.shared.state().syncs.lie = lie;
    }

    /// Number of syncs that succeeded, and of those that were lies.
    pub fn syncs(&self) -> (u64, u64) {
        let state = self.shared.state();
        (state.syncs.count, state.syncs.told)
    }
}
