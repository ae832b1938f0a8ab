//! A thread that runs where nobody else wants the core.
//!
//! A kernel since 6.6 lets who runs finish a slice of milliseconds before it gives the core to
//! whoever wakes up, whatever the niceness of the two. From a thread under `SCHED_IDLE` it takes
//! the core at once, and a core where only such a thread runs counts as a free one.
//!
//! The way back from there is a privilege: `CAP_SYS_NICE`, or an `RLIMIT_NICE` of 1. A sink that is
//! late needs it, so the way in is taken only where both are open. A thread that is thrown away
//! tries them.

use std::sync::LazyLock;
use std::thread;

use thread_priority::NormalThreadSchedulePolicy::{Idle, Other};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

static IS_OPEN: LazyLock<bool> =
    LazyLock::new(|| thread::spawn(|| set(Idle) && set(Other)).join().unwrap_or(false));

/// The calling thread gives its core to whoever wants it from now on, where it may take that back.
/// Tells whether it does.
pub(crate) fn enter() -> bool {
    *IS_OPEN && set(Idle)
}

/// The calling thread has its share of the cores again.
pub(crate) fn leave() {
    if *IS_OPEN {
        set(Other);
    }
}

/// Whether the calling thread has this policy from now on.
fn set(policy: NormalThreadSchedulePolicy) -> bool {
    let policy = ThreadSchedulePolicy::Normal(policy);
    // The niceness is set second, and refused to whoever may not raise it: the policy stands.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
    thread_schedule_policy().is_ok_and(|present| present == policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_went_into_the_background_comes_back() {
        let policies = || {
            let mut policies = Vec::new();
            for goes_in in [true, false, true, false] {
                if goes_in {
                    assert_eq!(enter(), *IS_OPEN);
                } else {
                    leave();
                }
                policies.push(thread_schedule_policy().unwrap());
            }
            policies
        };
        let there = ThreadSchedulePolicy::Normal(if *IS_OPEN { Idle } else { Other });
        let back = ThreadSchedulePolicy::Normal(Other);
        assert_eq!(thread::spawn(policies).join().unwrap(), [there, back, there, back]);
    }
}
