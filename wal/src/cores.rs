//! The cores that this process works on.

use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores for loops that commit: all that the process was started with but the first, which is
/// left to the kernel and to everybody else. None where there is nothing to choose: on a single
/// core, or where the process may use the time of fewer cores than it may be placed on.
pub fn loop_cores() -> Vec<usize> {
    split().map_or(Vec::new(), |(_, others)| others)
}

/// The cores that are left: none where there is nothing to choose.
pub fn free_cores() -> Vec<usize> {
    split().map_or(Vec::new(), |(first, _)| vec![first])
}

/// The first core, and the others.
fn split() -> Option<(usize, Vec<usize>)> {
    let allowed = sched_getaffinity(Some(rustix::process::getpid())).ok()?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let is_whole = available_parallelism().is_ok_and(|cores| cores.get() == all.len());
    match all.as_slice() {
        [first, others @ ..] if is_whole && !others.is_empty() => Some((*first, others.to_vec())),
        _ => None,
    }
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
    if let Ok(allowed) = sched_getaffinity(Some(rustix::process::getpid())) {
        let _ = sched_setaffinity(None, &allowed);
    }
}
