//! Where a sink works: on the cores of the fronts' loops, in the pauses that they leave.
//!
//! A loop has pauses, above all while it waits for the disk, and a sink can be interrupted at any
//! time: on one core they hardly hinder each other. On the core that the fronts leave free a sink
//! would hinder those who need it at once, the kernel's network and whoever shares the machine: the
//! kernel takes a core with a sink for a busy one and puts who wakes up beside a loop.
//!
//! In a loop's pause it works in small pieces, though, with a rest behind each. A kernel lets who
//! runs finish a slice of milliseconds before it gives the core to whoever has slept, whatever the
//! two's priorities; and under a hypervisor the disk itself may need the core: it answers when the
//! guest's core has nothing to do.
//!
//! A sink that falls behind may work anywhere, without rest, until it has caught up.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::lag::age;

/// A sink this far behind falls behind.
const LATE: Duration = Duration::from_secs(1);

/// One that is this close has caught up.
const CLOSE: Duration = Duration::from_millis(100);

/// Work between two rests: as long as a durable write takes.
const WORK: Duration = Duration::from_micros(200);

/// A rest; the kernel makes some 0.1 ms of it.
const REST: Duration = Duration::from_micros(50);

thread_local! {
    /// Since when the thread of a sink has worked beside a loop; `None` where it is on its own.
    static BUSY_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Rests, if the calling thread is a sink's that works beside a loop and has done so for a while.
/// To be called wherever a sink has done a part of what it does.
pub(crate) fn rest() {
    if BUSY_SINCE.get().is_some_and(|since| since.elapsed() >= WORK) {
        thread::sleep(REST);
        BUSY_SINCE.set(Some(Instant::now()));
    }
}

/// Where the thread of one sink may work: it keeps this, over all its sessions.
#[derive(Debug, Default)]
pub(crate) struct Place {
    is_aside: Cell<bool>,
}

impl Place {
    /// Chooses the place of the calling thread, the sink's own, for work that was committed at
    /// `commit_us`, Unix microseconds.
    pub(crate) fn choose(&self, commit_us: u64) {
        self.choose_for(age(commit_us));
    }

    fn choose_for(&self, age: Duration) {
        let is_aside = self.is_aside.get();
        let wanted = if is_aside { age < LATE } else { age < CLOSE };
        if wanted == is_aside {
            return;
        }
        match wanted {
            true => wal::stay_on(&wal::loop_cores()),
            false => wal::stay_nowhere(),
        }
        BUSY_SINCE.set(wanted.then(Instant::now));
        self.is_aside.set(wanted);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::*;

    fn cores() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    }

    #[test]
    fn a_sink_works_beside_the_loops_until_it_falls_behind() {
        let (everywhere, mut beside) = (cores(), wal::loop_cores());
        if beside.is_empty() {
            beside.clone_from(&everywhere);
        }
        let steps = [(0, true), (999, true), (1000, false), (101, false), (99, true)];
        let seen = thread::spawn(move || {
            let place = Place::default();
            steps.map(|(age_ms, is_aside)| {
                place.choose_for(Duration::from_millis(age_ms));
                rest();
                assert_eq!(BUSY_SINCE.get().is_some(), is_aside, "only there it rests");
                (cores(), is_aside)
            })
        });
        for (cores, is_aside) in seen.join().unwrap() {
            assert_eq!(&cores, if is_aside { &beside } else { &everywhere });
        }
    }
}
