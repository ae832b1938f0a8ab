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
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

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

/// Reservations that more memory was made for than is needed before some of it goes back.
const SPARE_RESERVATIONS: usize = 4_096;

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

    /// Has `activity` looked at, of which `units` may be for sale now.
    pub(crate) fn expect(&self, activity: ActivityId, units: u32) {
        if units as usize >= RESERVATIONS_MIN {
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
        let next = if books.stopping { None } else { books.due.pop_first() };
        books.busy = next.is_some();
        next
    }

    fn finish(&self) {
        self.books.lock().busy = false;
        self.changed.notify_all();
    }

    /// Waits until something is due or [`LOOK`] is over, when all that has memory is: what is no
    /// longer for sale leaves some to those that wait. Tells whether to go on.
    fn wait(&self) -> bool {
        let mut books = self.books.lock();
        if books.due.is_empty()
            && !books.stopping
            && self.changed.wait_for(&mut books, LOOK).timed_out()
        {
            books.look_again();
        }
        !books.stopping
    }
}

impl Books {
    fn is_done(&self) -> bool {
        self.due.is_empty() && !self.busy
    }

    fn look_again(&mut self) {
        let Self { due, made, waiting, .. } = self;
        due.extend(made.keys());
        // As many as could get some: a hundred thousand are not looked at again and again.
        due.extend(waiting.iter().take(WAITING_LOOKED_AT));
    }
}

/// Activities that wait for memory among which some is divided at once.
const WAITING_LOOKED_AT: usize = 16;

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
            while !(books.stopping || books.is_done() && self.inner.log.has_enough_spares()) {
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
                let units = shard.for_sale(id, now_ms);
                self.inner.provisions.expect(id, u32::try_from(units).unwrap_or(u32::MAX));
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
        let is_selling = provisions.is_selling(id, self.lock(index).reservations(id));
        while !provisions.is_stopping() {
            let mut shard = self.lock(index);
            let for_sale = shard.for_sale(id, self.inner.clock.now_ms());
            let is_surplus = for_sale == 0 || shard.ready(id) > for_sale + SPARE_RESERVATIONS;
            if is_surplus && let Some(piece) = shard.give_back(id) {
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
        provisions.books.lock().running = true;
        let builder = std::thread::Builder::new().name("engine-provide".to_owned());
        let handle = builder.spawn(body).map_err(OpenError::Thread)?;
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
