//! Threads that make memory ahead, while a start fills it and for a sale that has grown large: see
//! [`crate::core::stock`].

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use crate::core::stock::{Chunk, Lines, Stock};

/// Pieces of memory that are handed over together: a megabyte. Who makes them sleeps meanwhile, and
/// to be woken for each would cost both sides more than a piece does.
const PIECES_TOGETHER: usize = 16;

/// Hand-overs that wait to be used; another is being made.
const LOTS_AHEAD: usize = 1;

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
    /// Pieces at hand, and where others come from. Locked by nobody: a receiver alone would keep
    /// the state that holds it from being shared.
    Running(Vec<T>, Mutex<Receiver<Vec<T>>>),
}

impl<T: Send + 'static> Supply<T> {
    /// A piece, if one is ready; the first call starts the thread that makes them.
    fn next(&mut self, make: fn() -> T) -> Option<T> {
        if let Self::Idle = self {
            let (sender, pieces) = sync_channel(LOTS_AHEAD);
            let work = move || {
                // Whoever asks first may be a loop that stays on a core of its own: what is made
                // for it must not be made in its time.
                wal::stay_nowhere();
                let lot = || (0..PIECES_TOGETHER).map(|_| make()).collect();
                while sender.send(lot()).is_ok() {}
            };
            // Without a thread for it nothing is ever ready.
            let _ = Builder::new().name("engine-memory".to_owned()).spawn(work);
            *self = Self::Running(Vec::new(), Mutex::new(pieces));
        }
        match self {
            Self::Running(at_hand, others) => {
                let others = others.get_mut().unwrap_or_else(PoisonError::into_inner);
                at_hand.pop().or_else(|| {
                    *at_hand = others.try_recv().ok()?;
                    at_hand.pop()
                })
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
        let rest = std::iter::repeat_with(|| supply.next(|| 7)).flatten().take(PIECES_TOGETHER);
        assert_eq!(rest.sum::<u32>(), 7 * u32::try_from(PIECES_TOGETHER).unwrap());
        let Supply::Running(_, others) = supply else { panic!("it was asked") };
        assert_eq!(others.into_inner().unwrap().recv(), Ok(vec![7; PIECES_TOGETHER]));
    }
}
