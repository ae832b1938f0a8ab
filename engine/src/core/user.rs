//! The users of one activity: what each holds, and the requests that each made.
//!
//! A user's reservations are chained, newest first, and a look-up walks the chain: nearly every
//! shopper has none or one. Who has more than [`CHAIN_LENGTH_MAX`] gets an index instead, so that
//! a back end that buys without limit for one user does not walk ever longer chains.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::ids::{Ordinal, Position, ReservationId, UserId};
use super::reservation::Slot;
use super::slots::Slots;
use super::table::{Table, Tables};

/// The longest chain that is walked.
pub(super) const CHAIN_LENGTH_MAX: usize = 16;

/// Parts of the user table. A table that grows moves all it holds, under the shard's lock: with a
/// million users, parts keep that pause below a millisecond.
const PARTS: usize = 64;

/// What is known of a user: 16 bytes with the id, see [`Slot`]'s budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct User {
    id: UserId,
    /// Units reserved or bought, but for refunds that freed the limit.
    held: u32,
    /// The newest reservation accepted here.
    last: Option<Position>,
}

const _: () = assert!(size_of::<User>() == 16);

/// Reservations of one user, by the hash of their request ids.
type Index = Table<u128, ReservationId>;

/// What a look-up finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// Units the user holds.
    pub(super) held: u32,
    /// Reservations the user ever made here; exact unless `found`.
    pub(super) count: usize,
    /// The reservation that this request made.
    pub(super) found: Option<ReservationId>,
}

/// An activity's users.
#[derive(Debug)]
pub(super) struct Users {
    parts: Box<[HashTable<User>; PARTS]>,
    hasher: FixedState,
    /// Those with long chains or adopted reservations: all of their reservations.
    indexed: Table<UserId, Index>,
    tables: Tables,
}

impl Users {
    pub(super) fn new(tables: Tables) -> Self {
        let parts = Box::new([const { HashTable::new() }; PARTS]);
        Self { parts, hasher: tables.hasher(), indexed: tables.make(), tables }
    }

    /// Units that `user` holds.
    pub(super) fn held(&self, user: UserId) -> u32 {
        self.find(user).map_or(0, |user| user.held)
    }

    /// Every user with the units that each holds, in no order that anything may rest on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (UserId, u32)> {
        self.parts.iter().flatten().map(|user| (user.id, user.held))
    }

    /// What is known of `user` and of a request. `slots` are the activity's, `ordinal` its own.
    pub(super) fn look_up(
        &self,
        user: UserId,
        request_hash: u128,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> Known {
        let Some(&User { held, last, .. }) = self.find(user) else {
            return Known { held: 0, count: 0, found: None };
        };
        if let Some(index) = self.index(user) {
            let found = index.get(&request_hash).copied();
            return Known { held, count: index.len(), found };
        }
        let mut count = 0;
        for (position, slot) in chain(last, slots) {
            count += 1;
            if slot.request_hash() == request_hash {
                let found = Some(ReservationId::compose(ordinal, position));
                return Known { held, count, found };
            }
        }
        assert!(count <= CHAIN_LENGTH_MAX, "a longer chain has an index");
        Known { held, count, found: None }
    }

    /// Notes that `user` holds `held` units now.
    pub(super) fn set_held(&mut self, user: UserId, held: u32) {
        self.entry(user).held = held;
    }

    /// Adds a reservation, with which its user holds `held` units, to the user's chain, and gives
    /// it back linked, to be put at `position` of `slots`.
    pub(super) fn accept(
        &mut self,
        slot: Slot,
        held: u32,
        position: Position,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> Slot {
        let user = self.entry(slot.user());
        user.held = held;
        let last = user.last.replace(position);
        let id = ReservationId::compose(ordinal, position);
        if let Some(index) = self.index_mut(slot.user()) {
            index.insert(slot.request_hash(), id);
        } else if chain(last, slots).nth(CHAIN_LENGTH_MAX - 1).is_some() {
            let index = self.make_index(slot.user(), last, slots, ordinal);
            index.insert(slot.request_hash(), id);
        }
        slot.after(last)
    }

    /// Adds a reservation with an id from elsewhere, with which its user holds `held` units.
    pub(super) fn adopt(
        &mut self,
        slot: &Slot,
        held: u32,
        id: ReservationId,
        slots: &Slots,
        ordinal: Ordinal,
    ) {
        let user = self.entry(slot.user());
        user.held = held;
        let last = user.last;
        let index = match self.indexed.contains_key(&slot.user()) {
            true => self.index_mut(slot.user()),
            false => Some(self.make_index(slot.user(), last, slots, ordinal)),
        };
        if let Some(index) = index {
            index.insert(slot.request_hash(), id);
        }
    }

    fn find(&self, user: UserId) -> Option<&User> {
        let hash = self.hasher.hash_one(user);
        self.parts.get(part(hash))?.find(hash, |it| it.id == user)
    }

    fn entry(&mut self, id: UserId) -> &mut User {
        let hash = self.hasher.hash_one(id);
        let hasher = &self.hasher;
        let rehash = |user: &User| hasher.hash_one(user.id);
        match self.parts[part(hash)].entry(hash, |it| it.id == id, rehash) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(User { id, held: 0, last: None }).into_mut(),
        }
    }

    fn index(&self, user: UserId) -> Option<&Index> {
        if self.indexed.is_empty() { None } else { self.indexed.get(&user) }
    }

    fn index_mut(&mut self, user: UserId) -> Option<&mut Index> {
        if self.indexed.is_empty() { None } else { self.indexed.get_mut(&user) }
    }

    /// Indexes the chain that ends at `last`.
    fn make_index(
        &mut self,
        user: UserId,
        last: Option<Position>,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> &mut Index {
        let tables = self.tables;
        let index = self.indexed.entry(user).or_insert_with(|| tables.make());
        for (position, slot) in chain(last, slots) {
            index.insert(slot.request_hash(), ReservationId::compose(ordinal, position));
        }
        index
    }
}

/// The part of the user table that a hash belongs to. Its bits are none of those by which a part
/// finds its bucket (the low ones) and its tag (the highest seven).
const fn part(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

/// The reservations from `last` back to the user's first.
fn chain(last: Option<Position>, slots: &Slots) -> impl Iterator<Item = (Position, &Slot)> {
    let link = move |position: Position| slots.get(position.index()).map(|slot| (position, slot));
    std::iter::successors(last.and_then(link), move |(_, slot)| slot.previous().and_then(link))
}
