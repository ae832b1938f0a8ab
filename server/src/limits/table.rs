//! Counters by key in a fixed amount of memory, however many keys there are.
//!
//! A key belongs to one *set* of a few ways, each of which holds one key. A way whose state is
//! idle (see [`Meter`]) binds nobody and is given to the next key. Where all ways of a set bind
//! somebody, further keys share the set's *overflow*: one counter for all of them. So memory is
//! fixed, nothing is evicted that still binds, and under a flood of keys a caller is limited
//! sooner, never later, than it would be alone: a key that moves from the overflow into a way
//! takes the overflow's state along.

use std::hash::{BuildHasher as _, Hash};
use std::sync::{Mutex, PoisonError};

use siphasher::sip::SipHasher13;

use super::meter::{Meter, Wait};
use super::rate::{Rate, Speed};

/// Ways of a set: with lock and overflow, a set takes two cache lines.
const WAYS: usize = 7;

#[derive(Clone, Copy, Default)]
struct Way {
    /// The key's hash.
    tag: u64,
    state: u64,
}

#[derive(Default)]
struct Set {
    ways: [Way; WAYS],
    overflow: u64,
}

/// Where a key's state is.
enum Place {
    Own(usize),
    Overflow,
}

impl Set {
    /// The place of `tag`, which gets a way of its own where one is free.
    fn place(&mut self, tag: u64, meter: Meter, now_ns: u64) -> Place {
        if let Some(own) = self.find(tag) {
            return Place::Own(own);
        }
        let idle = |way: &Way| meter.is_idle(way.state, now_ns);
        match self.ways.iter().position(idle) {
            Some(free) => {
                self.ways[free] = Way { tag, state: self.overflow };
                Place::Own(free)
            }
            None => Place::Overflow,
        }
    }

    fn find(&self, tag: u64) -> Option<usize> {
        self.ways.iter().position(|way| way.tag == tag)
    }

    fn state(&mut self, place: &Place) -> &mut u64 {
        match place {
            Place::Own(index) => &mut self.ways[*index].state,
            Place::Overflow => &mut self.overflow,
        }
    }
}

/// Siphash under a random key: whoever chooses keys must not choose who shares a counter.
struct Keyed(u64, u64);

impl std::hash::BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Counters of one kind.
pub(crate) struct Table {
    meter: Meter,
    sets: Box<[Mutex<Set>]>,
    hasher: Keyed,
}

impl Table {
    /// `set_count` sets, a power of two: 128 bytes each.
    pub(super) fn new(meter: Meter, set_count: usize) -> Self {
        assert!(set_count.is_power_of_two(), "a set is found by a mask");
        // Without randomness the address of a fresh allocation has to do.
        let fallback = std::ptr::from_ref(&Box::new(0_u8)).addr() as u64;
        let random = || getrandom::u64().unwrap_or(fallback);
        let sets = (0..set_count).map(|_| Mutex::default()).collect();
        Self { meter, sets, hasher: Keyed(random(), random()) }
    }

    fn with<T>(&self, key: impl Hash, work: impl FnOnce(&mut Set, u64) -> T) -> T {
        // No way is tagged 0 from the start.
        let tag = self.hasher.hash_one(key).max(1);
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
        let index = tag as usize & (self.sets.len() - 1);
        // A panic leaves numbers behind, no matter which: they are as good as any.
        let mut set = self.sets[index].lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut set, tag)
    }

    /// Whether one more call of `key` would pass.
    pub(super) fn check(&self, key: impl Hash, now_ns: u64, rate: Rate) -> Result<(), Wait> {
        self.with(key, |set, tag| {
            let place = set.place(tag, self.meter, now_ns);
            self.meter.check(*set.state(&place), now_ns, rate)
        })
    }

    /// Takes one call of `key`, if it passes.
    pub(super) fn take(
        &self,
        key: impl Hash,
        now_ns: u64,
        rate: Rate,
        speed: Speed,
    ) -> Result<(), Wait> {
        self.with(key, |set, tag| {
            let place = set.place(tag, self.meter, now_ns);
            let shared = matches!(place, Place::Overflow);
            let state = set.state(&place);
            self.meter.check(*state, now_ns, rate)?;
            *state = self.meter.take(*state, now_ns, rate, speed, shared);
            Ok(())
        })
    }

    /// Undoes a take of `key`. One that was taken from the overflow is not given back: it can't
    /// be told from the others there.
    pub(super) fn give_back(&self, key: impl Hash, rate: Rate, speed: Speed) {
        self.with(key, |set, tag| {
            if let Some(own) = set.find(tag) {
                let state = set.state(&Place::Own(own));
                *state = self.meter.give_back(*state, rate, speed);
            }
        });
    }

    /// Calls of `key` that would pass at once.
    #[cfg(test)]
    pub(super) fn remaining(&self, key: impl Hash, now_ns: u64, rate: Rate, speed: Speed) -> u32 {
        self.with(key, |set, tag| {
            let place = set.place(tag, self.meter, now_ns);
            self.meter.remaining(*set.state(&place), now_ns, rate, speed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const FULL: Speed = Speed::FULL;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_set_is_two_cache_lines() {
        assert!(size_of::<Mutex<Set>>() <= 128);
    }

    #[test]
    fn keys_are_counted_apart() {
        let table = Table::new(Meter::Bucket, 1024);
        for key in 0..1000_u64 {
            assert!(table.take(key, SECOND, rate("1/10s"), FULL).is_ok(), "{key}");
            assert!(table.take(key, SECOND, rate("1/10s"), FULL).is_err(), "{key}");
        }
    }

    #[test]
    fn under_a_flood_of_keys_nobody_is_let_through_sooner_than_alone() {
        // Eight keys' worth of room for a hundred keys that all call all the time.
        for meter in [Meter::Bucket, Meter::Window] {
            let (table, rate) = (Table::new(meter, 1), rate("3/10s"));
            let mut alone: Vec<u64> = vec![0; 100];
            for tick in 0..2000_u64 {
                let now_ns = SECOND + tick * SECOND / 20;
                for (key, state) in alone.iter_mut().enumerate() {
                    if (tick + key as u64).is_multiple_of(7) {
                        let alone_passes = meter.check(*state, now_ns, rate).is_ok();
                        if table.take(key, now_ns, rate, FULL).is_ok() {
                            assert!(alone_passes, "{meter:?}: key {key} at tick {tick}");
                            *state = meter.take(*state, now_ns, rate, FULL, false);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_way_is_free_again_once_it_binds_nobody() {
        let (table, rate) = (Table::new(Meter::Bucket, 1), rate("1/1s"));
        for key in 0..WAYS as u64 {
            assert!(table.take(key, SECOND, rate, FULL).is_ok());
        }
        assert!(table.take(100_u64, SECOND, rate, FULL).is_ok(), "the first of the overflow");
        assert!(table.take(101_u64, SECOND, rate, FULL).is_err(), "who shares it");
        let later = 4 * SECOND;
        for key in 200..200 + WAYS as u64 {
            assert!(table.take(key, later, rate, FULL).is_ok(), "{key}");
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (table, rate) = (Table::new(Meter::Window, 64), rate("1/10s"));
        assert!(table.take(7_u64, SECOND, rate, FULL).is_ok());
        assert_eq!(table.remaining(7_u64, SECOND, rate, FULL), 0);
        table.give_back(7_u64, rate, FULL);
        assert_eq!(table.remaining(7_u64, SECOND, rate, FULL), 1);
        assert!(table.take(7_u64, SECOND, rate, FULL).is_ok());
        assert!(table.take(7_u64, SECOND, rate, FULL).is_err());
    }

    #[test]
    fn parallel_bursts_of_one_key_pass_its_count_and_no_more() {
        let (table, rate) = (Table::new(Meter::Bucket, 64), rate("10/1d"));
        let passed: usize = std::thread::scope(|scope| {
            let take =
                || (0..100).filter(|_| table.take(7_u64, SECOND, rate, FULL).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 10);
    }
}
