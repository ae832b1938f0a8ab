//! Memory that was made ahead, for an activity that grows by very much.
//!
//! Memory that is new to a process is cleared by the kernel page by page, as each is touched for
//! the first time. Where a start fills memory as fast as it can that takes as long as everything
//! else; so somebody else touches it first.

use super::activity::Activity;
pub use super::slots::Chunk;
pub use super::user_table::Lines;

/// Reservations from which on memory is taken from a stock: what is left over is little beside
/// what such an activity holds.
const RESERVATIONS_MIN: usize = 32_768;

/// Whoever has made memory ahead. `()` has none.
pub trait Stock {
    /// Room for the next reservations, if there is some.
    fn chunk(&mut self) -> Option<Chunk>;
    /// Room for users, if there is some.
    fn lines(&mut self) -> Option<Lines>;
}

impl Stock for () {
    fn chunk(&mut self) -> Option<Chunk> {
        None
    }

    fn lines(&mut self) -> Option<Lines> {
        None
    }
}

impl Activity {
    /// Whether it would take something from a stock.
    pub(super) const fn is_short(&self) -> bool {
        let is_stocked = self.slots.is_stocked() && self.users.is_stocked();
        self.slots.len() >= RESERVATIONS_MIN && !is_stocked
    }

    /// Takes what it will want next from `stock`.
    pub(super) fn stock_up(&mut self, stock: &mut dyn Stock) {
        self.stock_up_slots(stock);
        self.stock_up_users(stock);
    }

    /// The same for reservations alone.
    pub(super) fn stock_up_slots(&mut self, stock: &mut dyn Stock) {
        if self.slots.len() >= RESERVATIONS_MIN && !self.slots.is_stocked() {
            self.slots.stock(stock.chunk());
        }
    }

    /// The same for their users alone.
    pub(super) fn stock_up_users(&mut self, stock: &mut dyn Stock) {
        if self.slots.len() >= RESERVATIONS_MIN && !self.users.is_stocked() {
            self.users.stock(stock.lines());
        }
    }
}
