//! Memory for what is for sale, made before anybody buys; and what the log wants for it, foreseen.
//!
//! - **Who gets some**: every activity with many units for sale, from its creation on, or from a
//!   start. One gets half of what may still be made at most, so that a huge one leaves some to the
//!   next, and the last of very many get none: their tables grow as they fill.
//! - **When it goes back**: once nothing is for sale there any more (over, sold out, drained), and
//!   as far as less is for sale than it was made for. Archived activities take theirs along.
//! - **Nobody waits for it.** The shard's lock is held for one piece at a time, and the memory of a
//!   piece is touched, or let go of, while it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wal::device::memory_bytes;
use wal::{AbortOnPanic, SpareMade};

use super::engine::Engine;
use super::error::OpenError;
use super::handle::Handle;
use crate::core::ids::ActivityId;
use crate::core::limits::MEMORY_AHEAD_DIVISOR;
use crate::core::stock::{Piece, RESERVATION_BYTES, RESERVATIONS_MIN};

/// How far the thread steps back behind everybody else: what it makes is wanted later.
const NICE_STEPS: i32 = 10;

/// Between two looks at what memory is still wanted.
const LOOK: Duration = Duration::from_secs(5);

/// Between two looks of who waits for spare segments.
const SPARES_LOOK: Duration = Duration::from_millis(5);

/// Pieces between two looks at whether a rush has begun. It has where more is bought meanwhile than
/// pieces are made.
const PIECES_BEFORE_LOOK: usize = 64;

/// What memory is wanted, and what was made.
pub(crate) struct Provisions {
    /// Reservations that memory is made for ahead at most.
    reservations_max: usize,
    books: Mutex<Books>,
    changed: Condvar,
}

#[derive(Default)]
struct Books {
    /// Activities to look at.
    due: BTreeSet<ActivityId>,
    /// One is being looked at.
    busy: bool,
    /// Those that have memory.
    made: BTreeMap<ActivityId, Made>,
    /// Those that there was too little for.
    waiting: BTreeSet<ActivityId>,
    /// Of those the last one that was looked at again.
    waiting_seen: Option<ActivityId>,
    /// When what was looked at is looked at again.
    next_look: Option<Instant>,
    /// A thread looks at what is due.
    running: bool,
    stopping: bool,
}

/// What was found of an activity when it was looked at last.
#[derive(Clone, Copy)]
struct Made {
    /// Reservations that it had memory for.
    ready: usize,
    /// Reservations that it had.
    sold: usize,
    /// Reservations that may come.
    for_sale: usize,
}

/// Bytes of the log that a reservation takes, with a request id of 36 bytes and its share of the
/// frame, rounded up.
const LOG_BYTES: u64 = 120;

impl Provisions {
    /// None made yet, and `bytes_max` at most, and the machine's share.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let share = memory_bytes().map_or(bytes_max, |it| it / MEMORY_AHEAD_DIVISOR);
        let bytes_max = share.min(bytes_max);
        let reservations_max = usize::try_from(bytes_max / RESERVATION_BYTES).unwrap_or(0);
        Self { reservations_max, books: Mutex::default(), changed: Condvar::new() }
    }

    /// Has `activity` looked at, of which so much is now
    /// [for sale](crate::core::shard::Shard::for_sale).
    pub(crate) fn expect(&self, activity: ActivityId, for_sale: usize) {
        if for_sale > 0 {
            self.books.lock().due.insert(activity);
            self.changed.notify_all();
        }
    }

    /// Bytes of memory made ahead, about and as last looked at, and whether no more is to be made.
    pub(crate) fn figures(&self) -> (u64, bool) {
        let books = self.books.lock();
        let reservations: usize = books.made.values().map(|it| it.ready).sum();
        (reservations as u64 * RESERVATION_BYTES, books.is_done())
    }

    /// Reservations that `activity` may have memory for: of too few none.
    fn allowed(&self, activity: ActivityId) -> usize {
        let books = self.books.lock();
        let others = books.made.iter().filter(|(id, _)| **id != activity);
        let left = self.reservations_max.saturating_sub(others.map(|(_, it)| it.ready).sum());
        if left / 2 < RESERVATIONS_MIN { 0 } else { left / 2 }
    }

    /// Bytes of the log that what is for sale will take.
    fn log_bytes(&self) -> u64 {
        let books = self.books.lock();
        let for_sale: usize = books.made.values().map(|it| it.for_sale).sum();
        // What none was made for is as much as any that some is made for, at least.
        let others = books.waiting.len().saturating_mul(RESERVATIONS_MIN);
        (for_sale.saturating_add(others) as u64).saturating_mul(LOG_BYTES)
    }

    /// Whether somebody bought of `activity` since it was last looked at.
    fn is_selling(&self, activity: ActivityId, sold: usize) -> bool {
        self.books.lock().made.get(&activity).is_some_and(|it| it.sold != sold)
    }

    /// Notes what `activity` has, and whether it gets more once there is more.
    fn note(&self, activity: ActivityId, made: Made, waits: bool) {
        let mut books = self.books.lock();
        let had = books.made.remove(&activity).is_some();
        // While something is for sale: its users' table goes back with what is left of the rest.
        if made.for_sale > 0 && (had || made.ready > 0) {
            books.made.insert(activity, made);
        }
        match waits {
            true => _ = books.waiting.insert(activity),
            false => _ = books.waiting.remove(&activity),
        }
    }

    fn is_stopping(&self) -> bool {
        self.books.lock().stopping
    }

    /// The next activity to look at. Who takes it says so once it is [done](Self::finish).
    fn next(&self) -> Option<ActivityId> {
        let mut books = self.books.lock();
        books.look_where_due();
        let next = if books.stopping { None } else { books.due.pop_first() };
        books.busy = next.is_some();
        next
    }

    fn finish(&self) {
        self.books.lock().busy = false;
        self.changed.notify_all();
    }

    /// Waits until something is due or it is time to look again. Tells whether to go on.
    fn wait(&self) -> bool {
        let mut books = self.books.lock();
        if let Some(next_look) = books.next_look
            && books.due.is_empty()
            && !books.stopping
        {
            self.changed.wait_until(&mut books, next_look);
        }
        !books.stopping
    }
}

impl Books {
    fn is_done(&self) -> bool {
        self.due.is_empty() && !self.busy
    }

    /// Has what has memory looked at each [`LOOK`], however much is due beside it: what is no
    /// longer for sale leaves some to those that wait.
    fn look_where_due(&mut self) {
        let now = Instant::now();
        if self.next_look.is_none_or(|at| at <= now) {
            self.next_look = Some(now + LOOK);
            self.look_again();
        }
    }

    /// Of those that wait a number, and the next ones the next time: each has its turn, and what is
    /// over is found out.
    fn look_again(&mut self) {
        let Self { due, made, waiting, waiting_seen, .. } = self;
        due.extend(made.keys());
        let after = waiting_seen.map_or(Bound::Unbounded, Bound::Excluded);
        let in_turn = waiting.range((after, Bound::Unbounded)).chain(waiting.iter());
        let next = in_turn.take(WAITING_LOOKED_AT.min(waiting.len()));
        due.extend(next.inspect(|id| *waiting_seen = Some(**id)));
    }
}

/// Activities that wait for memory which are looked at at once: a hundred thousand in a few
/// minutes, and a millisecond's work.
const WAITING_LOOKED_AT: usize = 1_024;

impl Engine {
    /// Returns once memory is made for all that is for sale, as far as any is made ahead, and
    /// segments of the log for what will be bought: see
    /// [`EngineOptions::memory_ahead_bytes_max`](crate::EngineOptions) and
    /// [`SPARES_MAX`](wal::limits::SPARES_MAX). Purchases need not wait for it; the first of them
    /// are slower without. An engine without threads makes both here.
    pub fn prepare_sales(&self) {
        let provisions = &self.inner.provisions;
        let mut books = provisions.books.lock();
        if books.running {
            let log = &self.inner.log;
            // A log that has failed makes none, and who stops the thread may be done before this
            // is told.
            let is_over = |it: &Books| !it.running || it.stopping || log.is_poisoned();
            while !(is_over(&books) || books.is_done() && log.has_enough_spares()) {
                // The log's own thread makes spares, and rings no bell here.
                provisions.changed.wait_for(&mut books, SPARES_LOOK);
            }
            return;
        }
        books.look_again();
        drop(books);
        self.provide_due();
        while self.inner.log.make_spare().is_ok_and(|made| made == SpareMade::Made) {}
    }

    /// Has all activities looked at.
    pub(crate) fn expect_sales(&self) {
        let now_ms = self.inner.clock.now_ms();
        for index in 0..self.inner.log.format().shard_count {
            let shard = self.lock(index);
            for (id, _) in shard.activities() {
                self.inner.provisions.expect(id, shard.for_sale(id, now_ms));
            }
        }
    }

    fn provide_due(&self) {
        let provisions = &self.inner.provisions;
        while let Some(id) = provisions.next() {
            self.provide(id);
            self.inner.log.foresee(provisions.log_bytes());
            provisions.finish();
        }
    }

    /// Gives an activity the memory that its sale will want, and takes what it will not.
    fn provide(&self, id: ActivityId) {
        let provisions = &self.inner.provisions;
        let (index, allowed) = (self.shard_index(id), provisions.allowed(id));
        // A table that is half moved must not be sold from.
        let _guard = AbortOnPanic;
        // A rush has the `supplies`: what is made in its time takes a core from it.
        let mut sold = self.lock(index).reservations(id);
        let mut is_selling = provisions.is_selling(id, sold);
        let mut pieces = 0;
        while !provisions.is_stopping() {
            let mut shard = self.lock(index);
            let for_sale = shard.for_sale(id, self.inner.clock.now_ms());
            if let Some(piece) = shard.give_back(id, for_sale) {
                drop(shard);
                drop(piece);
                continue;
            }
            let count = if is_selling { 0 } else { for_sale.min(allowed) };
            let Some(sort) = shard.wanted(id, count) else {
                let ready = shard.ready(id);
                let made = Made { ready, sold: shard.reservations(id), for_sale };
                drop(shard);
                provisions.note(id, made, ready < for_sale);
                return;
            };
            pieces += 1;
            if pieces % PIECES_BEFORE_LOOK == 0 {
                let before = std::mem::replace(&mut sold, shard.reservations(id));
                is_selling |= sold.saturating_sub(before) > PIECES_BEFORE_LOOK;
            }
            drop(shard);
            let piece = Piece::touched(sort);
            self.lock(index).provide(id, piece);
        }
    }
}

/// The thread that makes it; ended when dropped.
pub(crate) struct Provider {
    provisions: Arc<Provisions>,
    handle: Option<JoinHandle<()>>,
}

impl Provider {
    /// Starts the thread of an engine. It ends by itself when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> Result<Self, OpenError> {
        let provisions = Arc::clone(&engine.inner.provisions);
        let weak = Arc::downgrade(&engine.inner);
        let body = {
            let provisions = Arc::clone(&provisions);
            move || {
                wal::lower_priority(NICE_STEPS);
                while provisions.wait() {
                    let Some(inner) = weak.upgrade() else { return };
                    Engine { inner, handle: Handle::default() }.provide_due();
                }
            }
        };
        let handle = {
            let mut books = provisions.books.lock();
            assert!(!books.running, "one thread at a time is busy with what is due");
            let builder = std::thread::Builder::new().name("engine-provide".to_owned());
            let handle = builder.spawn(body).map_err(OpenError::Thread)?;
            books.running = true;
            handle
        };
        Ok(Self { provisions, handle: Some(handle) })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.provisions.books.lock().stopping = true;
        self.provisions.changed.notify_all();
        let Some(handle) = self.handle.take() else { return };
        // The thread itself may hold the engine's last handle, and then drops this.
        if handle.thread().id() != std::thread::current().id() {
            let _ = handle.join();
            let mut books = self.provisions.books.lock();
            (books.running, books.stopping) = (false, false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::EngineOptions;

    fn id(number: u64) -> ActivityId {
        ActivityId::new(number).unwrap()
    }

    #[test]
    fn each_of_those_that_wait_is_looked_at_in_turn_and_what_is_over_counts_no_more() {
        let provisions = Provisions::new(0);
        let count = 2 * WAITING_LOOKED_AT as u64 + 5;
        let made = Made { ready: 0, sold: 0, for_sale: RESERVATIONS_MIN };
        (1..=count).for_each(|number| provisions.note(id(number), made, true));
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let mut books = provisions.books.lock();
            books.look_again();
            let due = std::mem::take(&mut books.due);
            assert_eq!(due.len(), WAITING_LOOKED_AT);
            seen.extend(due);
        }
        assert_eq!(seen.len() as u64, count);
        seen.iter().for_each(|id| provisions.note(*id, Made { for_sale: 0, ..made }, false));
        assert_eq!(provisions.log_bytes(), 0);
    }

    #[test]
    fn it_is_looked_again_in_time_whatever_is_due_beside_it() {
        let provisions = Provisions::new(0);
        provisions.note(id(1), Made { ready: 1, sold: 0, for_sale: 1 }, false);
        provisions.books.lock().next_look = Some(Instant::now());
        provisions.expect(id(2), 1);
        assert_eq!([provisions.next(), provisions.next()], [Some(id(1)), Some(id(2))]);
        assert_eq!(provisions.next(), None, "not before the next time");
    }

    #[test]
    fn nobody_waits_for_a_thread_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let options = EngineOptions { threads: false, ..EngineOptions::new(dir.path()) };
        let options = EngineOptions { accept_file_system: true, ..options };
        let (engine, _) = Engine::open(options).unwrap();
        let books = &engine.inner.provisions.books;
        {
            let mut books = books.lock();
            (books.running, books.busy) = (true, true);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| engine.prepare_sales());
            // As the thread's end leaves them: it may be over before the waiter looks.
            books.lock().running = false;
            waiter.join().unwrap();
        });
    }
}
