//! The durable marks, and who waits for them.
//!
//! This is the one place where "it is on disk" becomes visible (W2): the committer publishes after
//! a successful sync, everyone else reads. There is a mark for each lane and one for the whole log
//! (its LSN); each has a list of waiters. Once poisoned, no wait ends well any more (W16), not even
//! for what was durable before: an answer after the failure could rest on state that is not.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::error::LogUnavailable;
use crate::ids::Lsn;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

struct Mark {
    durable: AtomicU64,
    waiters: Mutex<Vec<(u64, Waker)>>,
}

/// The durable marks.
pub(crate) struct Watermark {
    marks: Box<[CachePadded<Mark>]>,
    poisoned: AtomicBool,
}

impl Watermark {
    /// Marks at `last_seqs`, one a lane, and at `last_lsn`.
    pub(crate) fn new(last_seqs: &[u64], last_lsn: Lsn) -> Self {
        let mark = |durable: u64| {
            CachePadded::new(Mark {
                durable: AtomicU64::new(durable),
                waiters: Mutex::new(Vec::new()),
            })
        };
        Self {
            marks: last_seqs.iter().copied().chain([last_lsn.0]).map(mark).collect(),
            poisoned: AtomicBool::new(false),
        }
    }

    fn lsn_lane(&self) -> usize {
        self.marks.len() - 1
    }

    /// The durable sequence of `lane`.
    pub(crate) fn durable(&self, lane: usize) -> u64 {
        self.marks[lane].durable.load(Ordering::Acquire)
    }

    /// The durable LSN.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable(self.lsn_lane()))
    }

    /// Makes a frame visible: the last sequence of each lane in it, and its last LSN.
    ///
    /// # Panics
    /// Where a mark would fall (W2), or the lanes' records are not those that the LSN counts (W4).
    pub(crate) fn publish(&self, lanes: &[(usize, u64)], last_lsn: Lsn, woken: &mut Vec<Waker>) {
        self.assert_grows(lanes, last_lsn);
        for (lane, seq) in lanes.iter().copied().chain([(self.lsn_lane(), last_lsn.0)]) {
            let mark = &self.marks[lane];
            let before = mark.durable.swap(seq, Ordering::AcqRel);
            assert!(before <= seq, "W2: a durable mark only grows");
            let mut waiters = mark.waiters.lock();
            let mut index = 0;
            while let Some((wanted, _)) = waiters.get(index) {
                if *wanted <= seq {
                    woken.push(waiters.swap_remove(index).1);
                } else {
                    index += 1;
                }
            }
        }
        for waker in woken.drain(..) {
            waker.wake();
        }
    }

    /// Held before anybody is told: every mark grows, and by as many records over all lanes as the
    /// log does. One too many would acknowledge what is in no frame, one too few would leave its
    /// caller waiting for ever.
    fn assert_grows(&self, lanes: &[(usize, u64)], last_lsn: Lsn) {
        let grown = |lane: usize, seq: u64| {
            let before = self.durable(lane);
            assert!(before <= seq, "W2: a durable mark only grows, and this one is at {before}");
            seq - before
        };
        let records: u64 = lanes.iter().map(|(lane, seq)| grown(*lane, *seq)).sum();
        assert!(lanes.iter().all(|(lane, _)| *lane < self.lsn_lane()), "the LSN is no lane's");
        assert!(records == grown(self.lsn_lane(), last_lsn.0), "W4: an LSN for each record");
    }

    /// Ends every wait, present and to come, with [`LogUnavailable`]. Tells whether this was the
    /// first time.
    pub(crate) fn poison(&self) -> bool {
        let first = !self.poisoned.swap(true, Ordering::SeqCst);
        for mark in &self.marks {
            let waiters = std::mem::take(&mut *mark.waiters.lock());
            for (_, waker) in waiters {
                waker.wake();
            }
        }
        first
    }

    /// Whether the log has failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    /// Waits until `lane` is durable up to `seq`.
    pub(crate) fn wait(&self, lane: usize, seq: u64) -> Durable<'_> {
        Durable { watermark: self, lane, seq, registered: None }
    }

    /// Waits until the log is durable up to `lsn`.
    pub(crate) fn wait_lsn(&self, lsn: Lsn) -> Durable<'_> {
        self.wait(self.lsn_lane(), lsn.0)
    }

    /// How many wait for `lane`.
    #[cfg(any(test, loom))]
    pub(crate) fn waiters(&self, lane: usize) -> usize {
        self.marks[lane].waiters.lock().len()
    }

    fn state(&self, lane: usize, seq: u64) -> Poll<Result<(), LogUnavailable>> {
        if self.is_poisoned() {
            Poll::Ready(Err(LogUnavailable))
        } else if self.durable(lane) >= seq {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

/// A wait for durability.
pub(crate) struct Durable<'a> {
    watermark: &'a Watermark,
    lane: usize,
    seq: u64,
    registered: Option<Waker>,
}

impl Future for Durable<'_> {
    type Output = Result<(), LogUnavailable>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = self.watermark.state(self.lane, self.seq);
        let waker = context.waker();
        if state.is_ready() || self.registered.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return state;
        }
        let mut waiters = self.watermark.marks[self.lane].waiters.lock();
        // Looked at again under the lock that `publish` and `poison` take after they have stored:
        // either they see this waiter, or it sees what they stored.
        let state = self.watermark.state(self.lane, self.seq);
        if state.is_pending() {
            // A wait that moved to another task takes its old place along.
            let old = self.registered.as_ref();
            let place = old.and_then(|old| place(&waiters, self.seq, old));
            match place {
                Some(index) => waiters[index].1 = waker.clone(),
                None => waiters.push((self.seq, waker.clone())),
            }
            drop(waiters);
            self.registered = Some(waker.clone());
        }
        state
    }
}

impl Drop for Durable<'_> {
    /// A wait given up (a time-out, a caller gone) must not leave its waker behind: an idle log
    /// publishes nothing that would sweep it out.
    fn drop(&mut self) {
        let Some(registered) = &self.registered else { return };
        if self.watermark.durable(self.lane) >= self.seq {
            return;
        }
        let mut waiters = self.watermark.marks[self.lane].waiters.lock();
        if let Some(index) = place(&waiters, self.seq, registered) {
            waiters.swap_remove(index);
        }
    }
}

/// Where a waiter stands in its list.
fn place(waiters: &[(u64, Waker)], seq: u64, waker: &Waker) -> Option<usize> {
    waiters.iter().position(|(wanted, other)| *wanted == seq && other.will_wake(waker))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::block_on;

    #[test]
    fn a_wait_ends_when_its_mark_is_published_and_not_before() {
        let watermark = Watermark::new(&[0, 0], Lsn(0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(watermark.wait(1, 5)));
            watermark.publish(&[(1, 4)], Lsn(4), &mut Vec::new());
            assert_eq!(watermark.state(1, 5), Poll::Pending);
            watermark.publish(&[(1, 5)], Lsn(5), &mut Vec::new());
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn poison_ends_every_wait_even_for_what_was_durable() {
        let watermark = Watermark::new(&[7], Lsn(7));
        assert_eq!(block_on(watermark.wait(0, 7)), Ok(()));
        watermark.poison();
        assert_eq!(block_on(watermark.wait(0, 7)), Err(LogUnavailable), "W16");
        assert_eq!(block_on(watermark.wait_lsn(Lsn(9))), Err(LogUnavailable));
    }

    #[test]
    fn a_wait_given_up_leaves_nothing_behind() {
        let watermark = Watermark::new(&[0], Lsn(0));
        struct Nobody;
        impl std::task::Wake for Nobody {
            fn wake(self: std::sync::Arc<Self>) {}
        }
        let wakers = [(); 2].map(|()| Waker::from(std::sync::Arc::new(Nobody)));
        for _ in 0..3 {
            let mut wait = std::pin::pin!(watermark.wait(0, 5));
            for waker in [&wakers[0], &wakers[0], &wakers[1]] {
                let mut context = Context::from_waker(waker);
                assert!(wait.as_mut().poll(&mut context).is_pending());
                assert_eq!(watermark.waiters(0), 1);
            }
        }
        assert_eq!(watermark.waiters(0), 0);
    }

    #[test]
    #[should_panic(expected = "W2")]
    fn a_mark_that_would_fall_is_a_bug() {
        let watermark = Watermark::new(&[7], Lsn(7));
        watermark.publish(&[(0, 6)], Lsn(8), &mut Vec::new());
    }

    #[test]
    fn lanes_and_lsn_that_count_different_records_are_a_bug_and_nobody_is_told() {
        for (lane, seq, lsn) in [(0, 9, 8), (0, 8, 9), (1, 1, 7)] {
            let watermark = Watermark::new(&[7, 0], Lsn(7));
            let publish = || watermark.publish(&[(lane, seq)], Lsn(lsn), &mut Vec::new());
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(publish)).is_err();
            assert!(panicked, "lane {lane} at {seq}, LSN {lsn}");
            assert_eq!((watermark.durable(0), watermark.durable(1)), (7, 0));
        }
    }
}
