//! The shelf: large pieces of tables, made ahead by a thread of their own. See
//! [`room`](crate::core::room).
//!
//! Nothing is made before an activity has outgrown its first piece: the shelf of a shop of small
//! activities stays empty.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::error::OpenError;
use crate::core::room::{Chunk, Lines, Room};

/// Pieces of each sort on a full shelf: eight megabytes in all, and what the fastest sale takes in
/// some milliseconds, for which its maker may have to wait for a core.
const PIECES: usize = 64;

/// With fewer the maker is woken: not for every piece, since that costs as much as making a few.
const PIECES_LOW: usize = 48;

/// The shelf.
#[derive(Default, Debug)]
pub(crate) struct Shelf {
    stock: Mutex<Stock>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct Stock {
    chunks: Vec<Chunk>,
    lines: Vec<Lines>,
    is_wanted: bool,
    is_over: bool,
}

impl Stock {
    fn pieces_min(&self) -> usize {
        self.chunks.len().min(self.lines.len())
    }
}

impl Room for Shelf {
    fn chunk(&self) -> Chunk {
        self.take(|stock| stock.chunks.pop()).unwrap_or_default()
    }

    fn lines(&self) -> Lines {
        self.take(|stock| stock.lines.pop()).unwrap_or_default()
    }
}

impl Shelf {
    /// A piece, where one is there.
    fn take<T>(&self, piece: impl FnOnce(&mut Stock) -> Option<T>) -> Option<T> {
        let mut stock = self.stock.lock();
        let piece = piece(&mut stock);
        let is_low = stock.pieces_min() < PIECES_LOW;
        let wakes = is_low && !stock.is_wanted;
        stock.is_wanted |= is_low;
        drop(stock);
        if wakes {
            self.changed.notify_one();
        }
        piece
    }

    /// Makes pieces whenever the shelf is low, until it is over.
    fn fill(&self) {
        let mut stock = self.stock.lock();
        while !stock.is_over {
            if !stock.is_wanted {
                self.changed.wait(&mut stock);
                continue;
            }
            let chunks_next = stock.chunks.len() <= stock.lines.len();
            drop(stock);
            if chunks_next {
                let chunk = Chunk::written();
                stock = self.stock.lock();
                stock.chunks.push(chunk);
            } else {
                let lines = Lines::new();
                stock = self.stock.lock();
                stock.lines.push(lines);
            }
            stock.is_wanted = stock.pieces_min() < PIECES;
        }
    }
}

/// The running maker; ended when dropped.
pub(crate) struct Maker {
    shelf: Arc<Shelf>,
    handle: Option<JoinHandle<()>>,
}

impl Maker {
    /// Starts the maker of a shelf.
    pub(crate) fn start(shelf: &Arc<Shelf>) -> Result<Self, OpenError> {
        let shelf = Arc::clone(shelf);
        let filling = Arc::clone(&shelf);
        // Should it ever panic, pieces are made when they are needed, as without it.
        let builder = std::thread::Builder::new().name("engine-shelf".to_owned());
        let handle = builder.spawn(move || filling.fill()).map_err(OpenError::Thread)?;
        Ok(Self { shelf, handle: Some(handle) })
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.shelf.stock.lock().is_over = true;
        self.shelf.changed.notify_one();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_is_empty_until_something_is_taken_and_then_filled_to_its_bound() {
        let shelf = Arc::new(Shelf::default());
        let maker = Maker::start(&shelf).unwrap();
        assert_eq!(shelf.stock.lock().pieces_min(), 0);
        drop((shelf.chunk(), shelf.lines()));
        while shelf.stock.lock().is_wanted {
            std::thread::yield_now();
        }
        let count = |shelf: &Shelf| {
            let stock = shelf.stock.lock();
            (stock.chunks.len(), stock.lines.len())
        };
        assert_eq!(count(&shelf), (PIECES, PIECES));
        drop(maker);
        (0..2 * PIECES).for_each(|_| drop((shelf.chunk(), shelf.lines())));
        assert_eq!(count(&shelf), (0, 0), "a shelf without a maker still gives");
    }
}
