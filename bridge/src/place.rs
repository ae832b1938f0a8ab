//! Where a sink works until it is late: behind everybody who sells.
//!
//! | the way into the [background] | cores | in a loop's pause |
//! |---|---|---|
//! | open | those that the loops leave free | |
//! | closed | those of the loops | small pieces, with a rest behind each |
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
//! nothing to do. Hence the pieces. (The mirror mostly waits for its Redis, and takes no rests.)
//!
//! A sink that falls behind may work anywhere, with its share of the cores and without rest, until
//! it has caught up; so may one whose batch takes long where others leave no pauses, for it holds
//! the database's lock.

use std::cell::Cell;
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

/// Chooses the place of the calling thread, a sink's own, for a batch that was committed at
/// `commit_us`, Unix microseconds.
pub(crate) fn choose(commit_us: u64) {
    choose_for(age(commit_us));
}

fn choose_for(age: Duration) {
    let was_aside = ASIDE.get().is_some();
    let is_aside = if was_aside { age < LATE } else { age < CLOSE };
    match (was_aside, is_aside) {
        (false, true) => go_aside(),
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

fn go_aside() {
    let in_background = background::enter();
    wal::stay_on(&if in_background { wal::free_cores() } else { wal::loop_cores() });
    let now = Instant::now();
    ASIDE.set(Some(Aside { begun: now, rested: now, in_background }));
}

fn go_anywhere() {
    background::leave();
    wal::stay_nowhere();
    ASIDE.set(None);
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
        let mut aside = if is_open { wal::free_cores() } else { wal::loop_cores() };
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
                choose_for(Duration::from_millis(age_ms));
                rest();
                assert_eq!(ASIDE.get().is_some(), is_aside, "only there it rests");
                assert_eq!(cores(), if is_aside { aside } else { everywhere });
            }
        });
    }

    #[test]
    fn a_batch_that_takes_long_aside_goes_on_elsewhere() {
        placed(|everywhere, aside| {
            choose_for(Duration::ZERO);
            let Some(begun) = Instant::now().checked_sub(BATCH) else { panic!("a young clock") };
            ASIDE.set(ASIDE.get().map(|aside| Aside { begun, rested: begun, ..aside }));
            assert_eq!(cores(), aside);
            rest();
            assert_eq!((cores().as_slice(), ASIDE.get().is_none()), (everywhere, true));
        });
    }
}
