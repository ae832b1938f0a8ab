//! Where a sink works: on the cores of the fronts' loops, in the pauses that they leave.
//!
//! A loop has pauses, above all while it waits for the disk, and a sink can be interrupted at any
//! time: on one core they hardly hinder each other. On the core that the fronts leave free a sink
//! would hinder those who need it at once, the kernel's network and whoever shares the machine: the
//! kernel takes a core with a sink for a busy one and puts who wakes up beside a loop.
//!
//! A sink that falls behind may work anywhere until it has caught up.

use std::cell::Cell;
use std::time::Duration;

use crate::lag::age;

/// A sink this far behind falls behind.
const LATE: Duration = Duration::from_millis(500);

/// One that is this close has caught up.
const CLOSE: Duration = Duration::from_millis(100);

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
        let steps = [(0, true), (499, true), (500, false), (101, false), (99, true)];
        let seen = std::thread::spawn(move || {
            let place = Place::default();
            steps.map(|(age_ms, is_aside)| {
                place.choose_for(Duration::from_millis(age_ms));
                (cores(), is_aside)
            })
        });
        for (cores, is_aside) in seen.join().unwrap() {
            assert_eq!(&cores, if is_aside { &beside } else { &everywhere });
        }
    }
}
