//! Who waits for a mark, in the order of what they wait for: whoever is due stands in front.

use std::collections::VecDeque;
use std::task::Waker;

/// The waiters of one mark.
#[derive(Default)]
pub(crate) struct Waiters {
    queue: VecDeque<(Place, Waker)>,
    next_number: u64,
    /// Who stood in front when it was last asked whether waking goes on.
    seen: Option<Place>,
}

/// Where a waiter stands: behind those who wait for less, and those who came before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    wanted: u64,
    number: u64,
}

impl Waiters {
    /// Takes its place: who is to be woken once the mark is at `wanted`.
    pub(crate) fn join(&mut self, wanted: u64, waker: Waker) -> Place {
        let place = Place { wanted, number: self.next_number };
        self.next_number += 1;
        // Nearly everyone waits for as much as the one before, or for more.
        match self.queue.back() {
            Some((last, _)) if *last > place => {
                let at = self.queue.partition_point(|(other, _)| *other < place);
                self.queue.insert(at, (place, waker));
            }
            _ => self.queue.push_back((place, waker)),
        }
        place
    }

    /// The waker at `place`; `None` once it was taken.
    pub(crate) fn waker(&mut self, place: Place) -> Option<&mut Waker> {
        let at = self.find(place)?;
        self.queue.get_mut(at).map(|(_, waker)| waker)
    }

    /// Gives `place` up; `None` where its waker was taken before.
    pub(crate) fn leave(&mut self, place: Place) -> Option<Waker> {
        let at = self.find(place)?;
        self.queue.remove(at).map(|(_, waker)| waker)
    }

    /// The waker of the first who is due while the mark is at `durable`, if one is.
    pub(crate) fn take_due(&mut self, durable: u64) -> Option<Waker> {
        let is_due = self.has_due(durable);
        if is_due { self.queue.pop_front().map(|(_, waker)| waker) } else { None }
    }

    /// Whether anyone is due while the mark is at `durable`.
    pub(crate) fn has_due(&self, durable: u64) -> bool {
        self.queue.front().is_some_and(|(first, _)| first.wanted <= durable)
    }

    /// Whether more than `count` are due while the mark is at `durable`.
    pub(crate) fn has_due_beyond(&self, count: usize, durable: u64) -> bool {
        self.queue.get(count).is_some_and(|(place, _)| place.wanted <= durable)
    }

    /// Whether somebody left since [`Waiters::look`], of those who stood in front.
    pub(crate) fn has_moved(&self) -> bool {
        self.seen != self.queue.front().map(|(place, _)| *place)
    }

    /// Remembers who stands in front.
    pub(crate) fn look(&mut self) {
        self.seen = self.queue.front().map(|(place, _)| *place);
    }

    /// How many wait.
    #[cfg(any(test, loom))]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    fn find(&self, place: Place) -> Option<usize> {
        self.queue.binary_search_by_key(&place, |(other, _)| *other).ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_less_is_due_first_and_equals_in_the_order_they_came() {
        let mut waiters = Waiters::default();
        let places = [5, 9, 7, 5, 1, 9].map(|wanted| waiters.join(wanted, Waker::noop().clone()));
        let mut in_order = places;
        in_order.sort_unstable();
        assert!(waiters.queue.iter().map(|(place, _)| *place).eq(in_order));
        let wanted = in_order.map(|place| place.wanted);
        assert_eq!(wanted, [1, 5, 5, 7, 9, 9]);
        let due = |waiters: &mut Waiters, durable| {
            std::iter::from_fn(|| waiters.take_due(durable)).count()
        };
        assert_eq!([0, 6, 8].map(|durable| due(&mut waiters, durable)), [0, 3, 1]);
        assert_eq!((waiters.len(), waiters.has_due(8)), (2, false));
    }

    #[test]
    fn a_place_is_left_once_and_only_by_who_took_it() {
        let mut waiters = Waiters::default();
        let [first, second, third] =
            [5, 5, 5].map(|wanted| waiters.join(wanted, Waker::noop().clone()));
        assert!(waiters.leave(second).is_some());
        assert!(waiters.leave(second).is_none() && waiters.waker(second).is_none());
        assert!(waiters.take_due(5).is_some());
        assert!(waiters.leave(first).is_none(), "it was taken");
        assert!(waiters.waker(third).is_some() && waiters.leave(third).is_some());
        assert_eq!(waiters.len(), 0);
    }
}
