//! The cores that this process works on.

use std::num::NonZero;
use std::thread::available_parallelism;

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores for loops that commit: all that the process was started with but the first, which is
/// left to the kernel and to everybody else. None where there is nothing to choose: on a single
/// core, or where the process may use the time of fewer cores than it may be placed on.
pub fn loop_cores() -> Vec<usize> {
    split(&allowed(), time_cores()).1.to_vec()
}

/// The cores that are left: none where there is nothing to choose.
pub fn free_cores() -> Vec<usize> {
    split(&allowed(), time_cores()).0.to_vec()
}

/// The cores that are left, and those for loops, of a process that may be placed on all of
/// `allowed` and may use the time of `time_cores`.
const fn split(allowed: &[usize], time_cores: usize) -> (&[usize], &[usize]) {
    if allowed.len() < 2 || allowed.len() != time_cores {
        return (&[], &[]);
    }
    allowed.split_at(1)
}

/// Those that the process may be placed on, whatever its threads have chosen since; none where the
/// system does not say.
fn allowed() -> Vec<usize> {
    sched_getaffinity(Some(getpid())).as_ref().map_or(Vec::new(), listed)
}

/// As many cores as the process may use the time of: a control group may bound it.
fn time_cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

fn listed(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Keeps the calling thread on these cores, where there are any. Best effort: where the system
/// refuses, the thread works where it is put.
pub fn stay_on(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    if !cores.is_empty() {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Lets the calling thread work wherever the process may.
pub fn stay_nowhere() {
    stay_on(&allowed());
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn loops_get_all_cores_but_the_first_where_there_is_something_to_choose() {
        type Cores<'a> = &'a [usize];
        let cases: [(Cores<'_>, usize, (Cores<'_>, Cores<'_>)); 6] = [
            (&[0, 1], 2, (&[0], &[1])),
            (&[3, 5, 8], 3, (&[3], &[5, 8])),
            (&[4], 1, (&[], &[])),
            // A quota: the loops would have the time of one core on two.
            (&[0, 1], 1, (&[], &[])),
            (&[0, 1, 2, 3], 3, (&[], &[])),
            (&[], 1, (&[], &[])),
        ];
        for (allowed, time_cores, expected) in cases {
            assert_eq!(split(allowed, time_cores), expected, "{allowed:?} {time_cores}");
        }
        let both = [free_cores(), loop_cores()].concat();
        assert!(both.is_empty() || both == allowed(), "{both:?}");
    }

    #[test]
    fn a_thread_stays_on_the_cores_it_was_told_until_it_may_go_anywhere() {
        let here = || listed(&sched_getaffinity(None).unwrap());
        let all = allowed();
        assert!(!all.is_empty(), "a process runs somewhere");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_on(&all[..1]);
                assert_eq!(here(), all[..1]);
                stay_on(&[]);
                assert_eq!(here(), all[..1], "no cores are no place");
                assert_eq!(allowed(), all, "the process may be placed as before");
                stay_nowhere();
                assert_eq!(here(), all);
            });
        });
    }
}
