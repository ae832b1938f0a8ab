//! The durable marks, and who waits for them.
//!
//! This is the one place where "it is on disk" becomes visible (W2): the committer publishes after
//! a successful sync, everyone else reads. There is a mark for each lane and one for the whole log
//! (its LSN); each has its waiters. Once poisoned, no wait ends well any more (W16), not even
//! for what was durable before: an answer after the failure could rest on state that is not.
//!
//! **Waking is passed on.** To wake a task of another thread costs several times what it costs to
//! wake one of one's own, and a frame ends thousands of waits. So where many are due a publish
//! wakes two, and each wait that ends wakes the next few before it returns, on its own thread. A
//! publish that finds the one before still being passed on wakes nobody: a runtime takes what
//! other threads woke last, and those would wait for longest. The flag `left` says that somebody
//! is due and not woken. It is raised under the waiters' lock before the mark moves, so whoever
//! finds that it is due finds the flag as well.
//!
//! Nobody is forgotten. A wait that ends while others are left takes at least one of them out of
//! the queue, and the publish took some before it: more are taken out than waits have ended, so
//! there is always one that is woken, has not ended yet, and will pass it on, by ending or by being
//! given up. What that rests on is that who is woken looks again. A task that does not, since it
//! waits for something else by then, ends the chain, until the next publish begins another, of
//! whatever lanes it is: each publish finds who is left in every lane, and whether anybody has gone
//! since the one before. Where there is no other publish for a moment, the committer
//! [wakes all that are left](Watermark::wake_left). So a lane that falls idle while others keep the
//! log busy waits for the next frame, and not for a pause that may never come.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::error::LogUnavailable;
use crate::ids::Lsn;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::waiters::{Place, Waiters};

/// How a publish wakes few and has them wake the others.
#[derive(Clone, Copy)]
pub(crate) struct PassOn {
    /// As many who are due are all woken at once.
    pub(crate) together_max: usize,
    /// Of more than that, as many are woken.
    pub(crate) begin: usize,
}

impl PassOn {
    /// A runtime's threads all get something to do where there is little to do, and a chain begins
    /// with one to spare.
    pub(crate) const USUAL: Self = Self { together_max: 16, begin: 2 };

    /// How many to wake where nobody is at it.
    fn count(pass_on: Option<Self>, waiters: &Waiters, durable: u64) -> usize {
        match pass_on {
            None => usize::MAX,
            Some(it) if waiters.has_due_beyond(it.together_max, durable) => it.begin,
            Some(it) => it.together_max,
        }
    }
}

/// Waiters that a wait wakes when it ends: a thread that waited for itself alone is held up by few
/// wake-ups, and yet thousands are woken in a few steps.
const PASSED_ON: usize = 4;
const _: () = assert!(PASSED_ON > 1, "a chain of one wake-up after the other takes for ever");
const _: () = assert!(
    PassOn::USUAL.begin <= PassOn::USUAL.together_max,
    "more waiters are woken the fewer there are"
);

struct Mark {
    durable: AtomicU64,
    /// Somebody is due whom nobody has woken yet.
    left: AtomicBool,
    waiters: Mutex<Waiters>,
}

impl Mark {
    /// Takes the wakers of at most `count` who are due, and says whether others are left.
    fn take_due(&self, waiters: &mut Waiters, count: usize, woken: &mut Vec<Waker>) {
        let durable = self.durable.load(Ordering::Relaxed);
        woken.extend(std::iter::from_fn(|| waiters.take_due(durable)).take(count));
        self.left.store(waiters.has_due(durable), Ordering::Release);
    }
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
                left: AtomicBool::new(false),
                waiters: Mutex::new(Waiters::default()),
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

    /// Makes a frame visible: the last sequence of each lane in it, and its last LSN. Wakes all who
    /// wait for it, or, by `pass_on`, a few who wake the others; who publishes so looks after those
    /// that are [left](Self::wake_left).
    ///
    /// # Panics
    /// Where a mark would fall (W2), or the lanes' records are not those that the LSN counts (W4).
    pub(crate) fn publish(
        &self,
        lanes: &[(usize, u64)],
        last_lsn: Lsn,
        pass_on: Option<PassOn>,
        woken: &mut Vec<Waker>,
    ) {
        self.assert_grows(lanes, last_lsn);
        for (lane, seq) in lanes.iter().copied().chain([(self.lsn_lane(), last_lsn.0)]) {
            let mark = &self.marks[lane];
            let mut waiters = mark.waiters.lock();
            let goes_on = mark.left.swap(true, Ordering::Relaxed) && waiters.has_moved();
            let before = mark.durable.swap(seq, Ordering::AcqRel);
            assert!(before <= seq, "W2: a durable mark only grows");
            let leaves_it = pass_on.is_some() && goes_on;
            let count = if leaves_it { 0 } else { PassOn::count(pass_on, &waiters, seq) };
            mark.take_due(&mut waiters, count, woken);
            waiters.look();
        }
        self.begin_again(lanes, pass_on, woken);
        woken.drain(..).for_each(Waker::wake);
    }

    /// Wakes a few of those who are left in lanes that have no records in this frame, where nobody
    /// has passed it on since the frame before.
    fn begin_again(&self, lanes: &[(usize, u64)], pass_on: Option<PassOn>, woken: &mut Vec<Waker>) {
        for (lane, mark) in self.marks.iter().enumerate() {
            let is_left = mark.left.load(Ordering::Acquire);
            if !is_left || lane == self.lsn_lane() || lanes.iter().any(|(busy, _)| *busy == lane) {
                continue;
            }
            let mut waiters = mark.waiters.lock();
            if !waiters.has_moved() {
                let count = PassOn::count(pass_on, &waiters, mark.durable.load(Ordering::Relaxed));
                mark.take_due(&mut waiters, count, woken);
            }
            waiters.look();
        }
    }

    /// Whether somebody is due whom nobody has woken yet.
    pub(crate) fn has_left(&self) -> bool {
        self.marks.iter().any(|mark| mark.left.load(Ordering::Relaxed))
    }

    /// Wakes all who are due and whom nobody has woken yet.
    pub(crate) fn wake_left(&self, woken: &mut Vec<Waker>) {
        for mark in self.marks.iter().filter(|mark| mark.left.load(Ordering::Acquire)) {
            mark.take_due(&mut mark.waiters.lock(), usize::MAX, woken);
        }
        woken.drain(..).for_each(Waker::wake);
    }

    /// Wakes a few of those who are due in `lane` and whom nobody has woken yet.
    #[cold]
    fn pass_on(&self, lane: usize) {
        let mark = &self.marks[lane];
        let mut woken = [const { None }; PASSED_ON];
        let mut waiters = mark.waiters.lock();
        let durable = mark.durable.load(Ordering::Relaxed);
        woken.fill_with(|| waiters.take_due(durable));
        mark.left.store(waiters.has_due(durable), Ordering::Release);
        drop(waiters);
        woken.into_iter().flatten().for_each(Waker::wake);
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
            let mut waiters = std::mem::take(&mut *mark.waiters.lock());
            while let Some(waker) = waiters.take_due(u64::MAX) {
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
        Durable { watermark: self, lane, seq, place: None }
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

    /// What a wait would end with that need not wait.
    pub(crate) fn told(&self, lane: usize, seq: u64) -> Option<Result<(), LogUnavailable>> {
        match self.state(lane, seq) {
            Poll::Ready(told) => Some(told),
            Poll::Pending => None,
        }
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
    /// Where it waits; `None` before the first look and after the end.
    place: Option<Place>,
}

impl Future for Durable<'_> {
    type Output = Result<(), LogUnavailable>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { watermark, lane, seq, .. } = *self;
        let mark = &watermark.marks[lane];
        let mut state = watermark.state(lane, seq);
        if state.is_pending() {
            let mut waiters = mark.waiters.lock();
            // Looked at again under the lock that `publish` moves the mark under, and that `poison`
            // takes after it has said so: either they see this waiter, or it sees what they say.
            state = watermark.state(lane, seq);
            if state.is_pending() {
                let waker = context.waker();
                // A wait that moved to another task takes its old place along.
                match self.place.and_then(|place| waiters.waker(place)) {
                    Some(old) => old.clone_from(waker),
                    None => self.place = Some(waiters.join(seq, waker.clone())),
                }
                return state;
            }
        }
        self.place = None;
        if mark.left.load(Ordering::Acquire) {
            watermark.pass_on(lane);
        }
        state
    }
}

impl Drop for Durable<'_> {
    /// A wait given up (a time-out, a caller gone) must not leave its waker behind: an idle log
    /// publishes nothing that would sweep it out. One that was woken before wakes the next.
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = self.watermark.marks[self.lane].waiters.lock().leave(place);
        if waker.is_none() {
            self.watermark.pass_on(self.lane);
        }
    }
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
            watermark.publish(&[(1, 4)], Lsn(4), None, &mut Vec::new());
            assert_eq!(watermark.state(1, 5), Poll::Pending);
            watermark.publish(&[(1, 5)], Lsn(5), None, &mut Vec::new());
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

    /// Looks again when it is woken, as a task does, at the wait of the same number.
    struct Task {
        number: usize,
        woken: std::sync::mpsc::Sender<usize>,
    }

    impl std::task::Wake for Task {
        fn wake(self: std::sync::Arc<Self>) {
            let _ = self.woken.send(self.number);
        }
    }

    #[test]
    fn a_publish_wakes_a_few_and_they_wake_the_thousands_that_are_left() {
        const WAITS: usize = 5_000;
        let watermark = Watermark::new(&[0], Lsn(0));
        let (woken, wake_ups) = std::sync::mpsc::channel();
        let task = |number| {
            let task = Task { number, woken: woken.clone() };
            (watermark.wait(0, 1), Waker::from(std::sync::Arc::new(task)))
        };
        let mut tasks: Vec<_> = (0..WAITS).map(task).collect();
        let look = |(wait, waker): &mut (Durable<'_>, Waker)| {
            Pin::new(wait).poll(&mut Context::from_waker(waker))
        };
        assert!(tasks.iter_mut().all(|task| look(task).is_pending()));
        watermark.publish(&[(0, 1)], Lsn(1), Some(PassOn::USUAL), &mut Vec::new());
        assert_eq!(watermark.waiters(0), WAITS - PassOn::USUAL.begin);
        assert!(watermark.has_left());
        let mut ended = vec![false; WAITS];
        let mut taken_max = 0;
        while let Ok(number) = wake_ups.try_recv() {
            let before = watermark.waiters(0);
            // A third is given up instead: that passes it on as well.
            match number % 3 {
                0 => tasks[number].0 = watermark.wait(0, 1),
                _ => assert!(look(&mut tasks[number]).is_ready()),
            }
            taken_max = taken_max.max(before - watermark.waiters(0));
            assert!(!std::mem::replace(&mut ended[number], true), "woken once");
        }
        assert!(ended.iter().all(|ended| *ended));
        assert_eq!((taken_max, watermark.waiters(0)), (PASSED_ON, 0));
        assert!(!watermark.has_left());
    }

    #[test]
    fn a_chain_that_breaks_is_begun_again_by_the_next_publish_or_ended_by_the_committer() {
        let watermark = Watermark::new(&[0], Lsn(0));
        let mut waits: Vec<_> = (0..20).map(|_| watermark.wait(0, 1)).collect();
        for wait in &mut waits {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(wait).poll(&mut context).is_pending());
        }
        let publish = |seq| {
            watermark.publish(&[(0, seq)], Lsn(seq), Some(PassOn::USUAL), &mut Vec::new());
            (watermark.waiters(0), watermark.has_left())
        };
        assert_eq!([1, 2].map(publish), [(18, true), (16, true)]);
        // One passes it on before the next publish, which leaves it to the others.
        assert!(Pin::new(&mut waits[0]).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!([3, 4].map(publish), [(12, true), (0, false)]);
        let mut waits: Vec<_> = (0..20).map(|_| watermark.wait(0, 5)).collect();
        for wait in &mut waits {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(wait).poll(&mut context).is_pending());
        }
        assert_eq!(publish(5), (18, true));
        watermark.wake_left(&mut Vec::new());
        assert_eq!((watermark.waiters(0), watermark.has_left()), (0, false));
    }

    #[test]
    fn a_chain_that_breaks_in_a_lane_that_falls_idle_is_begun_again_by_frames_of_others() {
        let watermark = Watermark::new(&[0, 0], Lsn(0));
        let mut waits: Vec<_> = (0..40).map(|_| watermark.wait(0, 1)).collect();
        for wait in &mut waits {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(wait).poll(&mut context).is_pending());
        }
        let publish = |lane, seq, lsn| {
            watermark.publish(&[(lane, seq)], Lsn(lsn), Some(PassOn::USUAL), &mut Vec::new());
            watermark.waiters(0)
        };
        assert_eq!(publish(0, 1, 1), 38);
        // Nobody who was woken looks again, and the log has no pause.
        assert_eq!([2, 3, 4].map(|lsn| publish(1, lsn - 1, lsn)), [36, 34, 32]);
        // One passes it on before the next frame, which leaves it to the others.
        assert!(Pin::new(&mut waits[0]).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!([5, 6].map(|lsn| publish(1, lsn - 1, lsn)), [28, 26]);
        // Who commits for itself passes nothing on, and leaves nobody.
        watermark.publish(&[(1, 6)], Lsn(7), None, &mut Vec::new());
        assert_eq!((watermark.waiters(0), watermark.has_left()), (0, false));
    }

    #[test]
    #[should_panic(expected = "W2")]
    fn a_mark_that_would_fall_is_a_bug() {
        let watermark = Watermark::new(&[7], Lsn(7));
        watermark.publish(&[(0, 6)], Lsn(8), None, &mut Vec::new());
    }

    #[test]
    fn lanes_and_lsn_that_count_different_records_are_a_bug_and_nobody_is_told() {
        for (lane, seq, lsn) in [(0, 9, 8), (0, 8, 9), (1, 1, 7)] {
            let watermark = Watermark::new(&[7, 0], Lsn(7));
            let publish = || watermark.publish(&[(lane, seq)], Lsn(lsn), None, &mut Vec::new());
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(publish)).is_err();
            assert!(panicked, "lane {lane} at {seq}, LSN {lsn}");
            assert_eq!((watermark.durable(0), watermark.durable(1)), (7, 0));
        }
    }
}
