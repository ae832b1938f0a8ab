//! Emptied buffers, to be filled again: one that grew from nothing would be copied a dozen times on
//! the way.

use std::sync::{Mutex, PoisonError};

/// Buffers that nobody uses now. Its lock is a plain one, which no model checker needs to see: it
/// hands over nothing but room, and nobody waits for anything while it is held.
pub(crate) struct Pool {
    buffers: Mutex<Vec<Vec<u8>>>,
    count_max: usize,
}

impl Pool {
    /// An empty pool that keeps at most `count_max` buffers.
    pub(crate) fn new(count_max: usize) -> Self {
        Self { buffers: Mutex::new(Vec::with_capacity(count_max)), count_max }
    }

    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps the room of `buffer`, whose content is of no more use.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < self.count_max {
            buffers.push(buffer);
        }
    }
}
