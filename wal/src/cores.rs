//! The cores that this process works on.

use std::thread::available_parallelism;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores for loops that commit: all that the process was started with but the first, which is
/// left to the kernel and to everybody else. None where there is nothing to choose: on a single
/// core, or where the process may use the time of fewer cores than it may be placed on.
pub fn loop_cores() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(Some(rustix::process::getpid())) else { return Vec::new() };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let is_whole = available_parallelism().is_ok_and(|cores| cores.get() == all.len());
    match all.as_slice() {
        [_, others @ ..] if is_whole => others.to_vec(),
        _ => Vec::new(),
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
