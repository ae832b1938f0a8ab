//! The primitives of every hand-over in this crate, so that a model checker can see each of them:
//! built with `--cfg loom` or `--cfg shuttle` the very same code runs under it (`loom-tests`).
//!
//! A poisoned lock is entered all the same: a panic between decision and append aborts the process
//! (the caller's guard sees to it), and elsewhere the data behind these locks stays whole.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(any(loom, shuttle)))]
use std::sync as imp;

#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread;

pub(crate) use imp::MutexGuard;
pub(crate) use imp::atomic::{AtomicBool, AtomicU64, Ordering};

use std::sync::{PoisonError, TryLockError};

/// A mutual exclusion lock.
#[derive(Debug)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, where nobody has it now.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition to wait for under a [`Mutex`].
#[derive(Debug)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(imp::Condvar::new())
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits, at most `timeout_ms`. A model checker has no time: loom waits for a notice, and under
    /// shuttle some waits are over at once.
    pub(crate) fn wait_ms<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout_ms: u64,
    ) -> MutexGuard<'a, T> {
        #[cfg(loom)]
        {
            let _ = timeout_ms;
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }
        #[cfg(shuttle)]
        {
            use shuttle::rand::Rng;
            let _ = timeout_ms;
            if shuttle::rand::thread_rng().gen_ratio(1, 8) {
                return guard;
            }
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }
        #[cfg(not(any(loom, shuttle)))]
        {
            let timeout = std::time::Duration::from_millis(timeout_ms);
            self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// Runs `future` to its end on this thread.
#[cfg(loom)]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    loom::future::block_on(future)
}

/// Runs `future` to its end on this thread.
#[cfg(shuttle)]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(future)
}

/// Runs `future` to its end on this thread.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    park(future, None).unwrap_or_else(|| unreachable!("a wait without a deadline ends ready"))
}

/// Runs `future` to its end on this thread: a schedule has no time that could be over.
#[cfg(shuttle)]
pub(crate) fn block_on_for<F: Future>(
    future: F,
    _timeout: std::time::Duration,
) -> Option<F::Output> {
    Some(block_on(future))
}

/// Runs `future` on this thread, to its end or until `timeout` is over.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn block_on_for<F: Future>(
    future: F,
    timeout: std::time::Duration,
) -> Option<F::Output> {
    park(future, std::time::Instant::now().checked_add(timeout))
}

#[cfg(not(any(loom, shuttle)))]
fn park<F: Future>(future: F, deadline: Option<std::time::Instant>) -> Option<F::Output> {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::{self, Thread};

    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let make = || Waker::from(Arc::new(Unpark(thread::current())));
    thread_local! {
        /// This thread's waker, for all of its waits.
        static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
    }

    let kept = WAKER.try_with(|kept| kept.borrow_mut().get_or_insert_with(make).clone());
    // A thread that is ending keeps nothing any more.
    let waker = kept.unwrap_or_else(|_| make());
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match deadline.map(|at| at.saturating_duration_since(std::time::Instant::now())) {
            None => thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lock_that_a_panic_left_is_entered_all_the_same_and_one_that_is_held_is_not() {
        let lock = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut guard = lock.lock();
            *guard = 2;
            assert!(*guard == 1, "planted");
        }));
        assert!(panicked.is_err() && lock.0.is_poisoned());
        assert_eq!(*lock.lock(), 2);
        let held = lock.try_lock();
        assert_eq!(held.as_deref(), Some(&2));
        assert!(lock.try_lock().is_none());
    }

    #[test]
    fn a_condition_s_lock_is_entered_again_though_another_thread_has_panicked_with_it() {
        let (lock, changed) = (Arc::new(Mutex::new(false)), Condvar::new());
        let mut guard = lock.lock();
        let other = Arc::clone(&lock);
        let panics = thread::spawn(move || {
            let mut guard = other.lock();
            *guard = true;
            assert!(!*guard, "planted");
        });
        while !*guard {
            guard = changed.wait_ms(guard, 1);
        }
        drop(guard);
        assert!(panics.join().is_err());
        assert!(*changed.wait_ms(lock.lock(), 1));
    }

    #[test]
    fn a_wait_ends_with_its_future_or_with_its_time_and_a_deadline_that_no_clock_holds_is_none() {
        assert_eq!(block_on(ready(7)), 7);
        assert_eq!(block_on_for(ready(7), Duration::ZERO), Some(7));
        assert_eq!(block_on_for(pending::<u8>(), Duration::from_millis(1)), None);
        // Woken by another thread, after it said that it is not ready.
        let mut polls = 0;
        let woken = poll_fn(|context| {
            polls += 1;
            let waker = context.waker().clone();
            if polls > 1 {
                return Poll::Ready(polls);
            }
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert_eq!(block_on_for(woken, Duration::MAX), Some(2));
    }

    /// Waits when its thread ends.
    struct WaitsAtTheEnd(std::sync::mpsc::Sender<u8>);

    impl Drop for WaitsAtTheEnd {
        fn drop(&mut self) {
            self.0.send(block_on(ready(7))).unwrap();
        }
    }

    #[test]
    fn a_thread_that_is_ending_waits_like_any_other() {
        thread_local! {
            static LAST: std::cell::RefCell<Option<WaitsAtTheEnd>> =
                const { std::cell::RefCell::new(None) };
        }
        let (told, waited) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            // Kept before the thread has waited, so given up after what its waits keep.
            LAST.with(|last| *last.borrow_mut() = Some(WaitsAtTheEnd(told)));
            block_on(ready(()));
        });
        assert_eq!(waited.recv().unwrap(), 7);
        thread.join().unwrap();
    }
}
