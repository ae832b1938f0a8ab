//! How far long reading has come, for whoever shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read and bytes to be read; clones are the same count. Bytes to come are found out on the
/// way, so the total may grow, and what turns out to be shorter ends early.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

impl Progress {
    /// Bytes read.
    pub fn done_bytes(&self) -> u64 {
        self.0.done_bytes.load(Ordering::Relaxed)
    }

    /// Bytes to be read in all, as far as is known by now.
    pub fn total_bytes(&self) -> u64 {
        self.0.total_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.0.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.0.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
