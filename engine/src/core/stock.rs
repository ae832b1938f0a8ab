//! Memory that is made ahead.
//!
//! Memory that is new to a process is cleared by the kernel page by page, as each is touched for
//! the first time: that takes as long as the rest of a purchase. So somebody else touches it first.
//!
//! - **For what is for sale** ([`Shard::wanted`]): a sale is made before it opens and its units are
//!   counted, so all that its purchases will fill can stand ready when they come, and no table
//!   grows while they do. What was not needed goes back ([`Shard::give_back`]).
//! - **For what grows on** ([`Stock`]): while a start fills memory as fast as it can, and in a rush
//!   that lasts longer than what was made for it, the next pieces are fetched from whoever makes
//!   them meanwhile.

use super::activity::Activity;
use super::ids::ActivityId;
use super::shard::Shard;
pub use super::slots::Chunk;
pub use super::user_table::Lines;

/// Reservations from which on memory is taken from a stock, and units from which on it is made for
/// a sale: what is left over is little beside what such an activity holds, and a hundred thousand
/// small ones cost nothing.
pub const RESERVATIONS_MIN: usize = 32_768;

/// Reservations that more memory was made for than is needed before some of it goes back.
const SPARE_RESERVATIONS: usize = 4_096;

/// What a reservation takes at most where memory was made for as many as come: its slot, and its
/// user's share of a table that is between a third and two thirds full.
pub const RESERVATION_BYTES: u64 = 104;

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

/// A sort of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// For reservations.
    Chunk,
    /// For their users.
    Lines,
}

/// A piece of memory.
#[derive(Debug)]
pub enum Piece {
    /// For reservations.
    Chunk(Chunk),
    /// For their users.
    Lines(Lines),
}

impl Piece {
    /// One whose memory was touched already.
    pub fn touched(sort: Sort) -> Self {
        match sort {
            Sort::Chunk => Self::Chunk(Chunk::touched()),
            Sort::Lines => Self::Lines(Lines::touched()),
        }
    }
}

impl Shard {
    /// Units of an activity that may still be bought after `at_ms`: that many reservations may
    /// come. 0 where it is over, is not here, or is too small for memory to be made for it.
    pub fn for_sale(&self, id: ActivityId, at_ms: u64) -> usize {
        let Some(activity) = self.activity(id) else { return 0 };
        let is_over = at_ms > activity.terms.end_ms || activity.flags.drained;
        let units = activity.figures.available as usize;
        let is_large = activity.slots.len() + units >= RESERVATIONS_MIN;
        if is_over || !is_large { 0 } else { units }
    }

    /// Reservations that an activity has memory for, beside its users'.
    pub fn ready(&self, id: ActivityId) -> usize {
        self.activity(id).map_or(0, |it| it.slots.stocked())
    }

    /// What an activity wants next for `count` more reservations to find all memory ready.
    pub fn wanted(&self, id: ActivityId, count: usize) -> Option<Sort> {
        let Activity { slots, users, adopted, .. } = self.activity(id)?;
        if slots.stocked() < count {
            return Some(Sort::Chunk);
        }
        users.lack_parts(slots.len() + adopted.len(), count).then_some(Sort::Lines)
    }

    /// Takes in what an activity wanted, unless it is gone meanwhile. A part of the users' table is
    /// split at most.
    pub fn provide(&mut self, id: ActivityId, piece: Piece) {
        match (self.activity_mut(id), piece) {
            (Some(activity), Piece::Chunk(chunk)) => activity.slots.stock(Some(chunk)),
            (Some(activity), Piece::Lines(lines)) => activity.users.enlarge(lines),
            (None, _) => {}
        }
    }

    /// A piece that an activity does not need where `count` reservations may come, if there is one:
    /// to be let go of once the shard's lock is. Where none may, all of it goes, piece by piece.
    pub fn give_back(&mut self, id: ActivityId, count: usize) -> Option<Piece> {
        let Activity { slots, users, adopted, .. } = self.activity_mut(id)?;
        if (count == 0 || slots.stocked() > count + SPARE_RESERVATIONS)
            && let Some(chunk) = slots.unstock()
        {
            return Some(Piece::Chunk(chunk));
        }
        let is_surplus = count == 0 || users.exceed(slots.len() + adopted.len(), count);
        if is_surplus { users.reduce().map(Piece::Lines) } else { None }
    }
}

impl Activity {
    /// Whether it would take something from a stock.
    pub(super) const fn is_short(&self) -> bool {
        self.slots.len() >= RESERVATIONS_MIN
            && !(self.slots.is_stocked() && self.users.is_stocked(self.slots.len()))
    }

    /// Takes what it will want next from `stock`.
    pub(super) fn stock_up(&mut self, stock: &mut dyn Stock) {
        self.stock_up_slots(stock);
        if self.slots.len() >= RESERVATIONS_MIN && !self.users.is_stocked(self.slots.len()) {
            self.users.stock(stock.lines());
        }
    }

    /// The same for reservations alone.
    pub(super) fn stock_up_slots(&mut self, stock: &mut dyn Stock) {
        if self.slots.len() >= RESERVATIONS_MIN && !self.slots.is_stocked() {
            self.slots.stock(stock.chunk());
        }
    }

    /// The same for the users of one that is loaded, whose table was allotted.
    pub(super) fn stock_up_users(&mut self, stock: &mut dyn Stock) {
        if self.slots.len() >= RESERVATIONS_MIN && !self.users.have_lines() {
            self.users.stock(stock.lines());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::Flags;
    use super::super::event::{
        Body, DeadLetterPolicy, Definition, Event, Figures, Front, LatePayment,
    };
    use super::super::ids::{Ordinal, Position, ReservationId, SkuId, UserId};
    use super::super::request::RequestHasher;
    use super::super::shard::ShardSeed;
    use super::*;

    const END_MS: u64 = 9_000;

    fn shard(total: u32) -> (Shard, ActivityId) {
        let requests = RequestHasher::new(&[7; 16]);
        let mut shard = Shard::new(ShardSeed { table_seed: 7, requests });
        let definition = Definition {
            sku: SkuId::new(1).unwrap(),
            title: "phone",
            price: 100,
            per_user_limit: 2,
            start_ms: 1,
            end_ms: END_MS,
            payment_ttl_ms: 60_000,
            late_payment: LatePayment::ReinstateOrRefund,
            dead_letter: DeadLetterPolicy::Rollback,
            publish_at_ms: 0,
        };
        let id = ActivityId::new(5).unwrap();
        let ordinal = Ordinal::new(1).unwrap();
        let figures = Figures { available: total, ..Figures::default() };
        let tables = shard.seed.tables();
        let flags = Flags { on_sale: true, ..Flags::default() };
        let activity = Activity::new(ordinal, 1, figures, flags, &definition, 1, tables);
        shard.places.insert(id, super::super::shard::Place::Live(Box::new(activity)));
        shard.applied_seq = 1;
        (shard, id)
    }

    fn provide(shard: &mut Shard, id: ActivityId, count: usize) -> usize {
        let mut pieces = 0;
        while let Some(sort) = shard.wanted(id, count) {
            shard.provide(id, Piece::touched(sort));
            pieces += 1;
        }
        pieces
    }

    #[test]
    fn memory_is_made_for_large_sales_that_are_not_over() {
        let min = u32::try_from(RESERVATIONS_MIN).unwrap();
        for (total, at_ms, expected) in [
            (min, 5, RESERVATIONS_MIN),
            (min, END_MS, RESERVATIONS_MIN),
            (min, END_MS + 1, 0),
            (min - 1, 5, 0),
        ] {
            let (shard, id) = shard(total);
            assert_eq!(shard.for_sale(id, at_ms), expected, "{total} at {at_ms}");
        }
        let (shard, _) = shard(min);
        assert_eq!(shard.for_sale(ActivityId::new(6).unwrap(), 5), 0, "nobody's");
        let (mut drained, id) = self::shard(min);
        drained.activity_mut(id).unwrap().flags.drained = true;
        assert_eq!(drained.for_sale(id, 5), 0);
    }

    #[test]
    fn what_was_provided_is_enough_is_used_and_goes_back_where_it_was_not() {
        let count = 200_000;
        let (mut shard, id) = shard(u32::try_from(count).unwrap());
        assert_eq!(shard.ready(id), 0);
        assert!(provide(&mut shard, id, count) > 200);
        assert!(shard.ready(id) >= count);
        let sold = 50_000;
        for number in 1..=sold {
            let user = UserId::new(number).unwrap();
            let position = Position::new(u32::try_from(number).unwrap()).unwrap();
            let available = u32::try_from(count as u64 - number).unwrap();
            let body = Body::Reserved {
                activity: id,
                front: Front::Http,
                reservation: ReservationId::compose(Ordinal::new(1).unwrap(), position),
                user,
                quantity: 1,
                held: 1,
                version: 1,
                figures: Figures { available, locked: u32::try_from(number).unwrap(), sold: 0 },
                request_id: "r",
            };
            let event = Event { at_ms: 5, body };
            super::super::apply::apply(&mut shard, &event, number + 1).unwrap();
        }
        let left = count - usize::try_from(sold).unwrap();
        assert!(shard.ready(id) >= left - 2_048, "{} are ready", shard.ready(id));
        assert_eq!(provide(&mut shard, id, left - 2_048), 0, "nothing more is wanted");
        let digest = super::super::digest::digest(&shard);
        assert!(shard.give_back(id, left).is_none(), "it may all be needed");
        let mut freed = 0;
        while shard.give_back(id, 0).is_some() {
            freed += 1;
        }
        assert!(freed > 150, "{freed}");
        assert_eq!(shard.ready(id), 0);
        assert_eq!(super::super::digest::digest(&shard), digest, "memory is no state");
        assert_eq!(shard.activity(id).unwrap().holders().count() as u64, sold);
    }

    #[test]
    fn a_sale_that_becomes_small_gives_back_its_users_table_too() {
        let (mut shard, id) = shard(2_500_000);
        provide(&mut shard, id, 2_500_000);
        let mut lines = 0;
        while let Some(piece) = shard.give_back(id, RESERVATIONS_MIN) {
            lines += usize::from(matches!(piece, Piece::Lines(_)));
        }
        assert!(lines > 500, "{lines} parts");
        assert!(shard.ready(id) <= RESERVATIONS_MIN + SPARE_RESERVATIONS);
        assert_eq!(provide(&mut shard, id, RESERVATIONS_MIN), 0, "what is left is enough");
    }

    #[test]
    fn nobody_s_piece_is_let_go_of() {
        let (mut shard, _) = shard(1);
        let gone = ActivityId::new(6).unwrap();
        shard.provide(gone, Piece::touched(Sort::Lines));
        assert_eq!((shard.wanted(gone, 9), shard.ready(gone)), (None, 0));
        assert!(shard.give_back(gone, 0).is_none());
    }
}
