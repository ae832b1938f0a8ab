//! Where a sink works until it is late: behind everybody who sells.
//!
//! | the way into the [background] | cores | in a loop's pause |
//! |---|---|---|
//! | open | those that the loops leave free | |
//! | closed, or no core is free | those of the loops | small pieces, with a rest behind each |
//! | either, where the kernel places the loops | all | small pieces, with a rest behind each |
//!
//! In the background a sink gives its core back at once, and is in nobody's way: on the core that
//! the fronts leave free it hinders neither the loops nor the kernel's network and whoever shares
//! the machine.
//!
//! Without that it would hinder the latter: the kernel takes a core with a sink for a busy one and
//! puts who wakes up beside a loop. A loop has pauses, above all while it waits for the disk, and a
//! sink can be interrupted at any time: on one core they hardly hinder each other. But a kernel
//! lets who runs finish a slice of milliseconds before it gives the core to whoever has slept, and
//! under a hypervisor the disk itself may need the core: it answers when the guest's core has
//! nothing to do. Hence the pieces.
//!
//! Who waits for a lock lends its holder no share of a core. So the orders' sink leaves the
//! background [wherever it takes one](with_locks) that those who sell need, and the mirror, which
//! takes them all the time, is never there. Beside a loop it hinders little: a loop that waits for
//! the lock gives its core to who has it. (It mostly waits for its Redis, and takes no rests.)
//!
//! A sink that falls behind may work anywhere, with its share of the cores and without rest, until
//! it has caught up; so may one whose batch takes long where others leave no pauses, for it holds
//! the database's lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::background;
use crate::lag::age;

/// How far a sink's thread steps back behind those who sell: an order can wait for a while, and one
/// that waits for longer is made elsewhere.
pub(crate) const NICE_STEPS: i32 = 19;

/// A sink this far behind falls behind.
const LATE: Duration = Duration::from_secs(2);

/// One that is this close has caught up.
const CLOSE: Duration = Duration::from_millis(100);

/// A batch that takes longer than this aside goes on elsewhere. Where a rush leaves pauses one
/// takes a few hundred milliseconds, which is what they are for.
const BATCH: Duration = LATE;

/// Work between two rests: as long as a durable write takes.
const WORK: Duration = Duration::from_micros(200);

/// A rest; the kernel makes some 0.1 ms of it.
const REST: Duration = Duration::from_micros(50);

/// Loops run on any core: none is left free by them.
static LOOPS_MOVE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How the thread of a sink works aside; `None` where it works anywhere.
    static ASIDE: Cell<Option<Aside>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Aside {
    /// When its batch began.
    begun: Instant,
    /// When its last rest ended.
    rested: Instant,
    /// It gives its core back by itself, and takes no rests.
    in_background: bool,
}

/// Says, before a sink starts, that the kernel places the loops. Sinks have no place then, either.
pub fn loops_move() {
    LOOPS_MOVE.store(true, Ordering::Relaxed);
}

/// Chooses the place of the calling thread, a sink's own, for a batch that was committed at
/// `commit_us`, Unix microseconds.
pub(crate) fn choose(commit_us: u64) {
    choose_for(age(commit_us), Aside::in_background);
}

/// The same for a sink that takes locks of those who sell all the time.
pub(crate) fn choose_beside_loops(commit_us: u64) {
    choose_for(age(commit_us), Aside::beside_loops);
}

/// Does what takes locks of those who sell.
pub(crate) fn with_locks<T>(act: impl FnOnce() -> T) -> T {
    let Some(before) = ASIDE.get().filter(|aside| aside.in_background) else { return act() };
    go_anywhere();
    let done = act();
    ASIDE.set(Some(Aside { begun: before.begun, ..Aside::in_background() }));
    done
}

fn choose_for(age: Duration, go_aside: fn() -> Aside) {
    let was_aside = ASIDE.get().is_some();
    let is_aside = if was_aside { age < LATE } else { age < CLOSE };
    match (was_aside, is_aside) {
        (false, true) => ASIDE.set(Some(go_aside())),
        (true, false) => go_anywhere(),
        _ => {}
    }
    let now = Instant::now();
    ASIDE.set(ASIDE.get().map(|aside| Aside { begun: now, rested: now, ..aside }));
}

/// Rests, if the calling thread is a sink's that works beside a loop and has done so for a while.
/// To be called wherever a sink has done a part of what it does.
pub(crate) fn rest() {
    let Some(aside @ Aside { begun, rested, in_background }) = ASIDE.get() else { return };
    if rested.elapsed() < WORK {
        return;
    }
    if begun.elapsed() >= BATCH {
        return go_anywhere();
    }
    if !in_background {
        thread::sleep(REST);
    }
    ASIDE.set(Some(Aside { rested: Instant::now(), ..aside }));
}

/// Pauses for so long, if the calling thread is a sink's that works aside.
pub(crate) fn pause(length: Duration) {
    if let Some(aside) = ASIDE.get() {
        thread::sleep(length);
        ASIDE.set(Some(Aside { rested: Instant::now(), ..aside }));
    }
}

impl Aside {
    /// The calling thread goes into the background where it may and a core is free, else beside the
    /// loops.
    fn in_background() -> Self {
        let free = free_cores();
        if free.is_empty() || !background::enter() {
            return Self::beside_loops();
        }
        wal::stay_on(&free);
        Self { in_background: true, ..Self::begins() }
    }

    /// The calling thread goes beside the loops.
    fn beside_loops() -> Self {
        wal::stay_on(&loop_cores());
        Self::begins()
    }

    fn begins() -> Self {
        let now = Instant::now();
        Self { begun: now, rested: now, in_background: false }
    }
}

/// The calling thread works anywhere, with its share of the cores: to be called before what can't
/// be left halfway and takes long.
pub(crate) fn go_anywhere() {
    background::leave();
    wal::stay_nowhere();
    ASIDE.set(None);
}

fn free_cores() -> Vec<usize> {
    if LOOPS_MOVE.load(Ordering::Relaxed) { Vec::new() } else { wal::free_cores() }
}

fn loop_cores() -> Vec<usize> {
    if LOOPS_MOVE.load(Ordering::Relaxed) { Vec::new() } else { wal::loop_cores() }
}

/// Whether the calling thread works aside.
#[cfg(test)]
pub(crate) fn is_aside() -> bool {
    ASIDE.get().is_some()
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::*;

    fn cores() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    }

    /// In a thread of its own, which begins anywhere: everywhere, and the cores aside.
    fn placed(body: impl FnOnce(&[usize], &[usize]) + Send + 'static) {
        let is_open = thread::spawn(background::enter).join().unwrap();
        let everywhere = cores();
        let free = wal::free_cores();
        let mut aside = if is_open && !free.is_empty() { free } else { wal::loop_cores() };
        if aside.is_empty() {
            aside.clone_from(&everywhere);
        }
        thread::spawn(move || body(&everywhere, &aside)).join().unwrap();
    }

    #[test]
    fn a_sink_works_aside_until_it_falls_behind() {
        placed(|everywhere, aside| {
            for (age_ms, is_aside) in
                [(0, true), (1_999, true), (2_000, false), (101, false), (99, true)]
            {
                choose_for(Duration::from_millis(age_ms), Aside::in_background);
                rest();
                assert_eq!(ASIDE.get().is_some(), is_aside, "only there it rests");
                assert_eq!(cores(), if is_aside { aside } else { everywhere });
            }
        });
    }

    #[test]
    fn a_sink_takes_no_lock_of_those_who_sell_in_the_background() {
        placed(|everywhere, aside| {
            choose_for(Duration::ZERO, Aside::in_background);
            let is_in_background = || ASIDE.get().is_some_and(|aside| aside.in_background);
            let (before, begun) = (is_in_background(), ASIDE.get().map(|aside| aside.begun));
            let (there, cores_there) = with_locks(|| (is_in_background(), cores()));
            assert!(!there && cores_there == if before { everywhere } else { aside });
            assert_eq!((is_in_background(), cores().as_slice()), (before, aside));
            assert_eq!(ASIDE.get().map(|aside| aside.begun), begun, "the batch began before");
        });
        placed(|_, _| {
            choose_for(Duration::ZERO, Aside::beside_loops);
            assert!(ASIDE.get().is_some_and(|aside| !aside.in_background));
        });
    }

    #[test]
    fn a_batch_that_takes_long_aside_goes_on_elsewhere() {
        placed(|everywhere, aside| {
            choose_for(Duration::ZERO, Aside::in_background);
            let Some(begun) = Instant::now().checked_sub(BATCH) else { panic!("a young clock") };
            ASIDE.set(ASIDE.get().map(|aside| Aside { begun, rested: begun, ..aside }));
            assert_eq!(cores(), aside);
            rest();
            assert_eq!((cores().as_slice(), ASIDE.get().is_none()), (everywhere, true));
        });
    }
}
