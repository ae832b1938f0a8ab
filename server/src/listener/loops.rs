//! How many event loops a front has, and where they run.

use std::slice;
use std::thread::available_parallelism;

/// As many as are `wanted`; where that is 0, one for each core but one, which is left to the kernel
/// and to everybody else. With loops on every core these would wait for each other, a time slice
/// of milliseconds at a time.
pub(crate) fn loop_count(wanted: usize) -> usize {
    let cores = available_parallelism().map_or(1, usize::from);
    if wanted > 0 { wanted } else { cores.saturating_sub(1).max(1) }
}

/// Keeps the calling thread, the loop of `number`, on a core of its own: what it knows stays in
/// that core's memory, and the kernel does not move it beside whoever just woke it. Where an
/// operator has `wanted` a number of loops, the kernel places them.
pub(crate) fn settle(wanted: usize, number: usize) {
    let cores = wal::loop_cores();
    if wanted == 0
        && let Some(core) = cores.get(number)
    {
        wal::stay_on(slice::from_ref(core));
    }
}
