//! H15: whether a history of one activity is linearizable: whether its operations can be put into
//! one order in which each lies between its beginning and its end, and each was answered as one
//! shop, serving one customer at a time, would have answered it.
//!
//! The search is Wing and Gong's: take any operation that may come next, try its answer on the
//! model, go on; where nothing fits, take back the last one and try another. What has been tried is
//! remembered, so that no state is searched twice. Since a client does one thing at a time, how far
//! each client has come says which operations were taken, and with them the model's state: that
//! vector is all there is to remember.
#![allow(dead_code, reason = "each test binary uses its own part of the checker")]

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Instant;

/// What a client asked for, and what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Buys a unit; the answer is the reservation's position in the activity.
    Bought {
        user: u64,
        position: u32,
    },
    SoldOut {
        user: u64,
    },
    LimitReached {
        user: u64,
    },
    /// Gives a reservation back, now or again.
    Cancelled {
        position: u32,
    },
    /// Pays for one, now or again.
    Paid {
        position: u32,
    },
    /// Pays for one that was given back.
    PaidTooLate {
        position: u32,
    },
    /// Cancels one that is paid.
    AlreadyPaid {
        position: u32,
    },
    /// Asks for one that is neither given back nor unknown.
    SeenHeld {
        position: u32,
    },
    SeenGivenBack {
        position: u32,
    },
}

/// An operation with the time between which its effect happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) operation: Operation,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// Each client's operations, in order.
pub(crate) type History = Vec<Vec<Timed>>;

/// Reservations that a user may make beyond the limit, given back or not.
const BEYOND_LIMIT_MAX: u32 = 16;

/// Terms of the activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) units: u32,
    pub(crate) limit: u32,
}

/// Why a history is no sale: the furthest that any order leads, and what does not fit there.
#[derive(Debug)]
pub(crate) struct Impossible {
    taken: usize,
    of: usize,
    next: Vec<Operation>,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, of, next } = self;
        write!(f, "no order fits: after {taken} of {of} operations none of {next:?} can come next")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Paid,
    GivenBack,
}

/// The shop that serves one customer at a time.
struct Model {
    terms: Terms,
    available: u32,
    held: BTreeMap<u64, u32>,
    made: BTreeMap<u64, u32>,
    /// By position, from 1.
    reservations: Vec<(u64, State)>,
}

/// What taking an operation changed.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    Bought,
    State { position: u32, before: State },
}

impl Model {
    fn new(terms: Terms) -> Self {
        let (held, made) = (BTreeMap::new(), BTreeMap::new());
        Self { terms, available: terms.units, held, made, reservations: Vec::new() }
    }

    fn state(&self, position: u32) -> Option<State> {
        let index = usize::try_from(position).ok()?.checked_sub(1)?;
        self.reservations.get(index).map(|it| it.1)
    }

    fn is_limited(&self, user: u64) -> bool {
        let count = |of: &BTreeMap<u64, u32>| of.get(&user).copied().unwrap_or(0);
        let Terms { limit, .. } = self.terms;
        count(&self.held) >= limit || count(&self.made) >= limit + BEYOND_LIMIT_MAX
    }

    /// Takes an operation where its answer is the one that would be given now.
    fn take(&mut self, operation: Operation) -> Option<Change> {
        use Operation::*;
        let (change, fits) = match operation {
            Bought { user, position } => {
                let is_next = position as usize == self.reservations.len() + 1;
                (Change::Bought, is_next && self.available > 0 && !self.is_limited(user))
            }
            SoldOut { .. } => (Change::Nothing, self.available == 0),
            LimitReached { user } => (Change::Nothing, self.available > 0 && self.is_limited(user)),
            Cancelled { position } => {
                let before = self.state(position)?;
                (Change::State { position, before }, before != State::Paid)
            }
            Paid { position } => {
                let before = self.state(position)?;
                (Change::State { position, before }, before != State::GivenBack)
            }
            AlreadyPaid { position } => {
                (Change::Nothing, self.state(position) == Some(State::Paid))
            }
            PaidTooLate { position } | SeenGivenBack { position } => {
                (Change::Nothing, self.state(position) == Some(State::GivenBack))
            }
            SeenHeld { position } => {
                let state = self.state(position);
                (Change::Nothing, matches!(state, Some(State::Held | State::Paid)))
            }
        };
        if !fits {
            return None;
        }
        match operation {
            Bought { user, .. } => {
                self.available -= 1;
                *self.held.entry(user).or_default() += 1;
                *self.made.entry(user).or_default() += 1;
                self.reservations.push((user, State::Held));
            }
            Cancelled { position } => self.set(position, State::GivenBack),
            Paid { position } => self.set(position, State::Paid),
            _ => {}
        }
        Some(change)
    }

    /// As if the operation behind `change` had not been taken; changes are undone backwards.
    fn undo(&mut self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Bought => {
                let (user, _) = self.reservations.pop().unwrap();
                self.available += 1;
                *self.held.get_mut(&user).unwrap() -= 1;
                *self.made.get_mut(&user).unwrap() -= 1;
            }
            Change::State { position, before } => self.set(position, before),
        }
    }

    fn set(&mut self, position: u32, state: State) {
        let reservation = &mut self.reservations[position as usize - 1];
        let (was, is) = (reservation.1 == State::GivenBack, state == State::GivenBack);
        reservation.1 = state;
        let held = self.held.get_mut(&reservation.0).unwrap();
        match (was, is) {
            (false, true) => {
                self.available += 1;
                *held -= 1;
            }
            (true, false) => {
                self.available -= 1;
                *held += 1;
            }
            _ => {}
        }
    }
}

/// Looks for an order.
///
/// # Errors
/// There is none.
pub(crate) fn check(history: &History, terms: Terms) -> Result<(), Impossible> {
    let of = history.iter().map(Vec::len).sum();
    let mut model = Model::new(terms);
    let mut places = vec![0_usize; history.len()];
    let mut tried = HashSet::new();
    // The client that was taken, and what it changed.
    let mut taken: Vec<(usize, Change)> = Vec::with_capacity(of);
    let mut candidate = 0;
    let mut furthest = Impossible { taken: 0, of, next: may_come(history, &places) };
    while taken.len() < of {
        let next = (candidate..history.len()).find_map(|client| {
            let change = try_next(history, &places, client, &mut model)?;
            places[client] += 1;
            if tried.insert(places.clone()) {
                return Some((client, change));
            }
            places[client] -= 1;
            model.undo(change);
            None
        });
        if let Some(step) = next {
            taken.push(step);
            candidate = 0;
            if taken.len() > furthest.taken {
                furthest = Impossible { taken: taken.len(), of, next: may_come(history, &places) };
            }
        } else {
            let Some((client, change)) = taken.pop() else { return Err(furthest) };
            places[client] -= 1;
            model.undo(change);
            candidate = client + 1;
        }
    }
    Ok(())
}

/// Takes the next operation of `client`, where nothing that is left ended before it began.
fn try_next(
    history: &History,
    places: &[usize],
    client: usize,
    model: &mut Model,
) -> Option<Change> {
    let next = history[client].get(places[client])?;
    let first_end = firsts(history, places).map(|it| it.ended).min()?;
    if next.began > first_end {
        return None;
    }
    model.take(next.operation)
}

fn firsts<'a>(history: &'a History, places: &'a [usize]) -> impl Iterator<Item = &'a Timed> {
    history.iter().zip(places).filter_map(|(client, place)| client.get(*place))
}

fn may_come(history: &History, places: &[usize]) -> Vec<Operation> {
    let first_end = firsts(history, places).map(|it| it.ended).min();
    let may = firsts(history, places).filter(|it| Some(it.began) <= first_end);
    may.map(|it| it.operation).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Operation::*;
    use super::*;

    const ONE: Terms = Terms { units: 1, limit: 1 };

    /// Operations with their milliseconds, client by client.
    fn verdict(terms: Terms, clients: &[&[(Operation, u64, u64)]]) -> bool {
        let start = Instant::now();
        let at = |ms: &u64| start + Duration::from_millis(*ms);
        let client = |operations: &&[(Operation, u64, u64)]| {
            let timed = operations.iter().map(|(operation, began, ended)| Timed {
                operation: *operation,
                began: at(began),
                ended: at(ended),
            });
            timed.collect()
        };
        check(&clients.iter().map(client).collect(), terms).is_ok()
    }

    #[test]
    fn what_overlaps_may_come_in_any_order() {
        // The refusal began first, but can come second; the cancel frees a unit for the other.
        let sold_out: &[_] = &[(SoldOut { user: 2 }, 0, 10)];
        let bought: &[_] = &[(Bought { user: 1, position: 1 }, 5, 9)];
        assert!(verdict(ONE, &[sold_out, bought]));
        let in_turn: &[_] =
            &[(Bought { user: 1, position: 1 }, 0, 1), (Cancelled { position: 1 }, 2, 9)];
        assert!(verdict(ONE, &[in_turn, &[(Bought { user: 2, position: 2 }, 3, 8)]]));
        let paid: &[_] = &[(Bought { user: 1, position: 1 }, 0, 1), (Paid { position: 1 }, 2, 3)];
        let other: &[_] = &[(AlreadyPaid { position: 1 }, 2, 5), (SeenHeld { position: 1 }, 6, 7)];
        assert!(verdict(ONE, &[paid, other]));
    }

    /// Each of these is a bug that a flash sale has had somewhere.
    #[test]
    fn each_planted_violation_is_found() {
        let buy = |user, position, began, ended| (Bought { user, position }, began, ended);
        let two = Terms { units: 2, limit: 1 };
        type Client<'a> = &'a [(Operation, u64, u64)];
        let table: [(&str, Terms, &[Client<'_>]); 10] = [
            ("oversold", ONE, &[&[buy(1, 1, 0, 9)], &[buy(2, 2, 0, 9)]]),
            ("over the limit", two, &[&[buy(1, 1, 0, 9)], &[buy(1, 2, 0, 9)]]),
            (
                "sold out before the last unit went",
                ONE,
                &[&[(SoldOut { user: 2 }, 0, 1)], &[buy(1, 1, 2, 3)]],
            ),
            (
                "a unit that nobody got back",
                ONE,
                &[&[
                    buy(1, 1, 0, 1),
                    (Cancelled { position: 1 }, 2, 3),
                    (SoldOut { user: 1 }, 4, 5),
                ]],
            ),
            (
                "a unit given back twice",
                ONE,
                &[&[
                    buy(1, 1, 0, 1),
                    (Cancelled { position: 1 }, 2, 3),
                    (Cancelled { position: 1 }, 4, 5),
                    buy(2, 2, 6, 7),
                    buy(3, 3, 8, 9),
                ]],
            ),
            ("an acknowledged purchase that is lost", two, &[&[buy(1, 1, 0, 1), buy(2, 1, 2, 3)]]),
            ("a ghost", two, &[&[buy(1, 2, 0, 1)]]),
            (
                "paid and cancelled",
                ONE,
                &[&[
                    buy(1, 1, 0, 1),
                    (Paid { position: 1 }, 2, 3),
                    (Cancelled { position: 1 }, 4, 5),
                ]],
            ),
            (
                "back from the dead",
                ONE,
                &[&[
                    buy(1, 1, 0, 1),
                    (Cancelled { position: 1 }, 2, 3),
                    (SeenHeld { position: 1 }, 4, 5),
                ]],
            ),
            (
                "seen before it was so",
                ONE,
                &[
                    &[buy(1, 1, 0, 1), (Cancelled { position: 1 }, 6, 7)],
                    &[(SeenGivenBack { position: 1 }, 2, 3)],
                ],
            ),
        ];
        for (what, terms, clients) in table {
            assert!(!verdict(terms, clients), "{what}");
        }
    }

    #[test]
    fn a_history_whose_every_greedy_start_fails_is_still_searched_to_its_order() {
        // All overlap; positions allow one order alone.
        let clients: Vec<Vec<_>> = (1..=7_u32)
            .map(|position| vec![(Bought { user: u64::from(position), position }, 0, 100)])
            .rev()
            .collect();
        let clients: Vec<_> = clients.iter().map(Vec::as_slice).collect();
        assert!(verdict(Terms { units: 7, limit: 1 }, &clients));
        assert!(!verdict(Terms { units: 6, limit: 1 }, &clients));
    }
}
