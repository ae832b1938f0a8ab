//! What the models of `loom-tests` need to drive, and nobody else may: built under the model
//! checker alone.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::error::LogUnavailable;
use crate::ids::Lsn;
use crate::intake::Committed;
use crate::log::Log;
use crate::sync::block_on;
use crate::watermark::{PassOn, Watermark};

/// Waits, as the committing thread does, until something was appended.
pub fn wait_for_work(log: &Log) -> bool {
    log.wait_for_work(0)
}

/// Commits as that thread does: it waits for no long batch, and has wake-ups passed on.
pub fn commit_passing_on(log: &Log) -> Result<Committed, LogUnavailable> {
    log.commit_passing_on()
}

/// Waits, as the thread that makes spares does, until one is missing. Tells whether to go on.
pub fn wait_for_spare(log: &Log) -> bool {
    log.wait_for_spare(false, 0)
}

/// Ends every wait for work and for spares, as the end of the log's threads does.
pub fn stop_waiting(log: &Log) {
    log.interrupt();
}

/// The durable marks alone.
pub struct Marks(Watermark);

impl Marks {
    /// Marks of `lanes` lanes in which nothing is durable.
    pub fn new(lanes: usize) -> Self {
        Self(Watermark::new(&vec![0; lanes], Lsn(0)))
    }

    /// Publishes that `lane` is durable up to `seq`, and the log up to the same number.
    pub fn publish(&self, lane: usize, seq: u64) {
        self.0.publish(&[(lane, seq)], Lsn(seq), None, &mut Vec::new());
    }

    /// The same, but wakes `begin` who wait, and has it passed on.
    pub fn publish_to(&self, lane: usize, seq: u64, begin: usize) {
        let pass_on = PassOn { together_max: begin, begin };
        self.0.publish(&[(lane, seq)], Lsn(seq), Some(pass_on), &mut Vec::new());
    }

    /// Publishes a first record of a first lane, of which nobody is woken, then one of a second.
    pub fn publish_and_fall_idle(&self) {
        let publish = |lanes, lsn, begin| {
            let pass_on = PassOn { together_max: begin, begin };
            self.0.publish(lanes, Lsn(lsn), Some(pass_on), &mut Vec::new());
        };
        publish(&[(0, 1)], 1, 0);
        publish(&[(1, 1)], 2, 1);
    }

    /// Wakes all who are due and were left to others.
    pub fn wake_left(&self) {
        self.0.wake_left(&mut Vec::new());
    }

    /// Fails; tells whether it was the first to.
    pub fn poison(&self) -> bool {
        self.0.poison()
    }

    /// The durable sequence of `lane`.
    pub fn durable(&self, lane: usize) -> u64 {
        self.0.durable(lane)
    }

    /// Waits until `lane` is durable up to `seq`.
    pub fn wait(&self, lane: usize, seq: u64) -> Result<(), LogUnavailable> {
        block_on(self.0.wait(lane, seq))
    }

    /// Waits for `lane` to be durable up to `seq`, and gives up after one look.
    pub fn wait_and_give_up(&self, lane: usize, seq: u64) -> Poll<Result<(), LogUnavailable>> {
        struct Nobody;
        impl Wake for Nobody {
            fn wake(self: Arc<Self>) {}
        }
        let waker = Waker::from(Arc::new(Nobody));
        std::pin::pin!(self.0.wait(lane, seq)).poll(&mut Context::from_waker(&waker))
    }

    /// How many wait for `lane`.
    pub fn waiters(&self, lane: usize) -> usize {
        self.0.waiters(lane)
    }
}
