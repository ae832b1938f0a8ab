//! The users of one activity: what each holds, and the requests that each made.
//!
//! A user's reservations are chained, newest first, and a look-up walks the chain: nearly every
//! shopper has none or one. Who has more than [`CHAIN_LENGTH_MAX`] gets an index instead, so that
//! a back end that buys without limit for one user does not walk ever longer chains.

use super::ids::{Ordinal, Position, ReservationId, UserId};
use super::reservation::Slot;
use super::slots::Slots;
use super::table::{Table, Tables};
pub(super) use super::user_table::User;
use super::user_table::{Lines, Place, UserTable};

/// The longest chain that is walked.
pub(super) const CHAIN_LENGTH_MAX: usize = 16;

/// Reservations of one user, by the hash of their request ids.
type Index = Table<u128, ReservationId>;

/// What a look-up finds.
#[derive(Clone, Copy, Debug)]
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
    table: UserTable,
    /// Those with long chains or adopted reservations: all of their reservations.
    indexed: Table<UserId, Index>,
    tables: Tables,
}

impl Users {
    pub(super) fn new(tables: Tables) -> Self {
        Self { table: UserTable::new(tables.hasher()), indexed: tables.make(), tables }
    }

    /// Has the table's lines for these users fetched: see [`UserTable::fetch`].
    pub(super) fn fetch(&self, users: impl Iterator<Item = UserId>) {
        self.table.fetch(users);
    }

    /// Whether memory for more users is here already, who are `users` at most now.
    pub(super) const fn is_stocked(&self, users: usize) -> bool {
        self.table.is_stocked(users)
    }

    /// See [`UserTable::has_lines`].
    pub(super) const fn have_lines(&self) -> bool {
        self.table.has_lines()
    }

    /// See [`UserTable::lacks_parts`].
    pub(super) fn lack_parts(&self, users: usize, more: usize) -> bool {
        self.table.lacks_parts(users, more)
    }

    /// See [`UserTable::exceeds`].
    pub(super) fn exceed(&self, users: usize, more: usize) -> bool {
        self.table.exceeds(users, more)
    }

    /// See [`UserTable::enlarge`].
    pub(super) fn enlarge(&mut self, lines: Lines) {
        self.table.enlarge(lines);
    }

    /// See [`UserTable::reduce`].
    pub(super) fn reduce(&mut self) -> Option<Lines> {
        self.table.reduce()
    }

    /// Keeps memory for more users: see [`UserTable::stock`].
    pub(super) fn stock(&mut self, lines: Option<Lines>) {
        self.table.stock(lines);
    }

    /// Units that `user` holds.
    pub(super) fn held(&self, user: UserId) -> u32 {
        self.table.find(user).1.map_or(0, |user| user.held)
    }

    /// Every user, in the order of the table: that of a hash, so that nothing may rest on it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &User> {
        self.table.iter()
    }

    /// The reservations that `user` made, in no order that anything may rest on.
    pub(super) fn reservations(
        &self,
        user: UserId,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> Vec<ReservationId> {
        if let Some(index) = self.index(user) {
            return index.values().copied().collect();
        }
        let last = self.table.find(user).1.and_then(|user| user.last);
        chain(last, slots).map(|(at, _)| ReservationId::compose(ordinal, at)).collect()
    }

    /// Where `user` is, or would come, and what is known of him and of a request. To the place
    /// [`Users::accept`] goes back, so that a purchase looks its user up once; it is good until the
    /// users change. `slots` are the activity's, `ordinal` its own.
    #[inline(always)]
    pub(super) fn look_up(
        &self,
        user: UserId,
        request_hash: u128,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> (Place, Known) {
        let (place, known) = self.table.find(user);
        let known = match known {
            None => Known { held: 0, count: 0, found: None },
            Some(user) => self.look_up_known(*user, request_hash, slots, ordinal),
        };
        (place, known)
    }

    /// [`Users::look_up`] of a user that is there: apart, for in a rush nearly nobody is.
    #[inline(never)]
    fn look_up_known(
        &self,
        User { id: user, held, last }: User,
        request_hash: u128,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> Known {
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
    ///
    /// # Panics
    /// Where `user` never reserved anything here.
    pub(super) fn set_held(&mut self, user: UserId, held: u32) {
        let (place, known) = self.table.find(user);
        assert!(known.is_some(), "W17: user {user} holds {held} units of no reservation");
        self.table.entry(place, user).held = held;
    }

    /// Adds a reservation, with which its user at `place` holds `held` units, to the user's chain,
    /// and gives it back linked, to be put at `position` of `slots`.
    #[inline(always)]
    pub(super) fn accept(
        &mut self,
        place: Place,
        slot: Slot,
        held: u32,
        position: Position,
        slots: &Slots,
        ordinal: Ordinal,
    ) -> Slot {
        let user = self.table.entry(place, slot.user());
        user.held = held;
        let last = user.last.replace(position);
        if last.is_some() || !self.indexed.is_empty() {
            let id = ReservationId::compose(ordinal, position);
            self.add_to_index(slot.user(), slot.request_hash(), id, last, slots);
        }
        slot.after(last)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.table.count()
    }

    /// Makes room for `users`, of whom none is there yet: see [`UserTable::allot`].
    pub(super) fn allot(&mut self, users: usize) {
        self.table.allot(users);
    }

    /// Takes what a snapshot knows of a user.
    #[inline]
    pub(super) fn restore(&mut self, user: User) {
        let (place, _) = self.table.find(user.id);
        *self.table.entry(place, user.id) = user;
    }

    /// Takes the next reservation of a snapshot, `slot`, which comes to stand at `position` of
    /// `slots`, where it has one before it: a long chain is indexed.
    pub(super) fn restore_link(
        &mut self,
        slot: &Slot,
        position: Position,
        slots: &Slots,
        ordinal: Ordinal,
    ) {
        let id = ReservationId::compose(ordinal, position);
        self.add_to_index(slot.user(), slot.request_hash(), id, slot.previous(), slots);
    }

    /// Adds the reservation `id` to its user's index, where the chain before it, which ends at
    /// `last`, has one or is too long to do without.
    #[inline(never)]
    fn add_to_index(
        &mut self,
        user: UserId,
        request_hash: u128,
        id: ReservationId,
        last: Option<Position>,
        slots: &Slots,
    ) {
        // A chain that leads anywhere but back would be walked for ever, under the shard's lock.
        assert!(last < id.position(), "a user's chain leads to older ones");
        if let Some(index) = self.index_mut(user) {
            index.insert(request_hash, id);
        } else if chain(last, slots).nth(CHAIN_LENGTH_MAX - 1).is_some() {
            let index = self.make_index(user, last, slots, id.ordinal());
            index.insert(request_hash, id);
        }
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
        let (place, _) = self.table.find(slot.user());
        let user = self.table.entry(place, slot.user());
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

/// The reservations from `last` back to the user's first.
fn chain(last: Option<Position>, slots: &Slots) -> impl Iterator<Item = (Position, &Slot)> {
    let link = move |position: Position| slots.get(position.index()).map(|slot| (position, slot));
    std::iter::successors(last.and_then(link), move |(_, slot)| slot.previous().and_then(link))
}
