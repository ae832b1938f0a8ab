//! Work on a thread of its own, so that the memory it took goes back to the system.
//!
//! A snapshot replays the sale a second time, and that copy is as large as the sale. glibc takes a
//! thread's memory from an arena of the thread's own, as far as there are arenas left, and gives an
//! arena back from its end only, as far as nothing is in use there: one small piece that lives on
//! behind a copy keeps all of it. So the copy is made where nothing else is, and all that was made
//! beside it ends with it.

use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use crate::planted;

/// From 64 KiB on, what is given back makes glibc join an arena's free pieces and look at its end;
/// from 128 KiB on (its threshold for `mmap`) a piece is of no arena.
const BALLAST_BYTES: usize = 96 << 10;

/// Runs `work` on a thread of its own and waits for it.
///
/// # Errors
/// Where there is no thread to be had.
pub(super) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let works = planted::handed_on(move || {
        // The first of its arena, so it keeps nothing from being given back.
        let ballast = Vec::<u8>::with_capacity(BALLAST_BYTES);
        (work(), ballast)
    });
    scope(|scope| {
        let thread =
            Builder::new().name("engine-snapshot".to_owned()).spawn_scoped(scope, works)?;
        let (made, ballast) = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // Small pieces that the thread gave back last wait in a list of their own, and lie in the
        // way until somebody gives back a large one.
        drop(ballast);
        Ok(made)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_apart_is_done_on_another_thread_and_its_panic_is_the_callers() {
        let here = std::thread::current().id();
        assert_ne!(apart(|| std::thread::current().id()).unwrap(), here);
        let fails = || apart(|| panic!("a claim that does not hold"));
        let panic = std::panic::catch_unwind(fails).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"a claim that does not hold"));
    }
}
