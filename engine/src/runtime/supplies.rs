//! Threads that make memory ahead, while a start fills it and for a sale that has grown large: see
//! [`crate::core::stock`].

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use crate::core::stock::{Chunk, Lines, Stock};

/// Pieces of memory that wait to be used: a megabyte of each sort.
const PIECES_AHEAD: usize = 16;

/// Memory made ahead. The threads that make it end when this is dropped.
#[derive(Default)]
pub(crate) struct Supplies {
    chunks: Supply<Chunk>,
    lines: Supply<Lines>,
}

impl Stock for Supplies {
    fn chunk(&mut self) -> Option<Chunk> {
        self.chunks.next(Chunk::touched)
    }

    fn lines(&mut self) -> Option<Lines> {
        self.lines.next(Lines::touched)
    }
}

/// One sort of pieces.
#[derive(Default)]
enum Supply<T> {
    /// Nobody has asked for one.
    #[default]
    Idle,
    /// Locked by nobody: a receiver alone would keep the state that holds it from being shared.
    Running(Mutex<Receiver<T>>),
}

impl<T: Send + 'static> Supply<T> {
    /// A piece, if one is ready; the first call starts the thread that makes them.
    fn next(&mut self, make: fn() -> T) -> Option<T> {
        if let Self::Idle = self {
            let (sender, pieces) = sync_channel(PIECES_AHEAD);
            let work = move || {
                // Whoever asks first may be a loop that stays on a core of its own: what is made
                // for it must not be made in its time.
                wal::stay_nowhere();
                while sender.send(make()).is_ok() {}
            };
            // Without a thread for it nothing is ever ready.
            let _ = Builder::new().name("engine-memory".to_owned()).spawn(work);
            *self = Self::Running(Mutex::new(pieces));
        }
        match self {
            Self::Running(pieces) => {
                pieces.get_mut().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
            }
            Self::Idle => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_from_a_thread_that_ends_with_who_takes_them() {
        let mut supply = Supply::<u32>::default();
        let first = std::iter::repeat_with(|| supply.next(|| 7)).flatten().next();
        assert_eq!(first, Some(7));
        let Supply::Running(pieces) = supply else { panic!("it was asked") };
        assert_eq!(pieces.into_inner().unwrap().recv(), Ok(7));
    }
}
