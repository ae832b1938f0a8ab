//! Driving the load: worker threads, each with an event loop of its own over its share of the
//! connections, whatever they speak.
//!
//! Closed loop: each connection keeps `depth` requests in flight; what was answered is replaced in
//! one write. Open loop: request `i` is due when the [`pace`](super::pace) says, whoever sends it;
//! its latency counts from there, so that a server that stalls is charged for everyone who would
//! have come meanwhile.
//!
//! [`Protocol`] is what is spoken, [`link`] a connection, [`worker`] the loop over them.

mod link;
mod timer;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::lag::Samples;
use super::pace::Pace;
use super::plan::{Plan, Request};
use super::tally::{Outcome, Tally};
use super::wire::Malformed;
use worker::Worker;

/// How often the progress is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What a connection's next answer belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// What was said first.
    Greeting,
    /// A purchase.
    Purchase,
    /// What followed a burst of purchases: they count as answered from here.
    Seal,
}

/// An answer that was read.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Its bytes.
    pub(super) length: usize,
    /// What a purchase came to; `None` for the others.
    pub(super) outcome: Option<Outcome>,
    /// The other side hangs up after it.
    pub(super) is_last: bool,
}

/// What is spoken with the server.
pub(super) trait Protocol: Sync {
    /// Requests that may be in flight on one connection in an open loop.
    fn depth_open(&self) -> usize;

    /// Appends what a new connection says first; false where that is nothing.
    fn greet(&self, out: &mut Vec<u8>) -> bool;

    /// Appends a purchase.
    fn compose(&self, request: Request, out: &mut Vec<u8>);

    /// Whether a burst of purchases is followed by something that makes them count.
    fn seals(&self) -> bool;

    /// Appends it.
    fn seal(&self, out: &mut Vec<u8>);

    /// Reads the answer at the beginning of `bytes`; `None` while it is incomplete.
    ///
    /// # Errors
    /// It is no answer to what was asked.
    fn parse(&self, bytes: &[u8], expected: Expected) -> Result<Option<Parsed>, Malformed>;
}

/// One run.
pub(super) struct Load<P> {
    /// What is spoken.
    pub(super) protocol: P,
    /// What is sent.
    pub(super) plan: Plan,
    /// How many requests at most.
    pub(super) requests: u64,
    /// How long at most.
    pub(super) duration_max: Option<Duration>,
    /// When requests are due; `None` for a closed loop.
    pub(super) pace: Option<Pace>,
    /// Connections over all threads.
    pub(super) connections: u32,
    /// Requests that each keeps in flight in a closed loop.
    pub(super) depth: u32,
    /// Worker threads; not more than connections.
    pub(super) threads: u32,
    /// The server.
    pub(super) address: SocketAddr,
    /// The longest wait for a connection and for an answer.
    pub(super) time_out: Duration,
    /// Whoever follows purchases into the stores.
    pub(super) samples: Arc<Samples>,
}

/// The run's shared counters.
#[derive(Default)]
struct Counters {
    next: AtomicU64,
    answered: AtomicU64,
    accepted: AtomicU64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Requests that have an outcome.
    pub(super) answered: u64,
    /// New reservations among them.
    pub(super) accepted: u64,
}

/// Runs `load` to its end, telling `watch` now and then how far it is. Returns what came back and
/// the time from the first request to the last answer.
///
/// # Errors
/// Threads or descriptors are exhausted.
pub(super) fn run<P: Protocol>(
    load: &Load<P>,
    mut watch: impl FnMut(Progress),
) -> io::Result<(Tally, Duration)> {
    let counters = Counters::default();
    let ready = Barrier::new(load.threads as usize);
    let start = OnceLock::new();
    thread::scope(|scope| {
        let worker = |index| {
            let share = load.connections / load.threads
                + u32::from(index < load.connections % load.threads);
            let (counters, ready, start) = (&counters, &ready, &start);
            scope.spawn(move || {
                let worker = Worker::connect(load, counters, share);
                // Reached on failure too: the others would wait for ever.
                ready.wait();
                worker?.work(*start.get_or_init(Instant::now))
            })
        };
        let workers: Vec<_> = (0..load.threads).map(worker).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(PROGRESS_INTERVAL);
            watch(Progress {
                answered: counters.answered.load(Ordering::Relaxed),
                accepted: counters.accepted.load(Ordering::Relaxed),
            });
        }
        let (mut total, mut last_answer) = (Tally::new(), None);
        for worker in workers {
            let (tally, end) =
                worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
            total.merge(tally);
            last_answer = last_answer.max(Some(end));
        }
        let elapsed = match (start.get(), last_answer) {
            (Some(start), Some(end)) => end.saturating_duration_since(*start),
            _ => Duration::ZERO,
        };
        Ok((total, elapsed))
    })
}
