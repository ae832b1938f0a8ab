//! Driving the load: worker threads, each with a loop of its own over its share of the
//! connections.
//!
//! Closed loop: each connection keeps `depth` calls in flight; what was answered is replaced in one
//! write. Open loop: call `i` is due at `start + i / rate`, on the worker's next connection; its
//! latency counts from there. With `WAITAOF` every write ends with one, and the calls before it
//! count as answered when it is.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::super::lag::Samples;
use super::super::load::Progress;
use super::super::plan::Plan;
use super::super::tally::Tally;
use super::super::wire::Malformed;
use super::link::{Link, Sent, outcome, synced};
use super::timer::Timer;
use super::wire::{self, Calls};

/// How often the progress is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Events taken at once.
const EVENTS_MAX: usize = 1024;

/// What is read of a connection at once.
const INPUT_BYTES: usize = 256 * 1024;

/// The timer's place among the connections.
const TIMER: Token = Token(usize::MAX);

/// One run.
pub(super) struct Load {
    pub(super) plan: Plan,
    pub(super) requests: u64,
    pub(super) duration_max: Option<Duration>,
    pub(super) rate: Option<f64>,
    pub(super) connections: u32,
    pub(super) depth: u32,
    pub(super) threads: u32,
    pub(super) address: SocketAddr,
    pub(super) time_out: Duration,
    pub(super) credentials: Option<(String, String)>,
    pub(super) wait_aof: bool,
    pub(super) first_user: u64,
    pub(super) samples: Arc<Samples>,
    pub(super) calls: Calls,
}

#[derive(Default)]
struct Counters {
    next: AtomicU64,
    answered: AtomicU64,
    accepted: AtomicU64,
}

/// Runs `load` to its end, telling `watch` now and then how far it is. Returns what came back and
/// the time from the first call to the last answer.
///
/// # Errors
/// No connection, thread or descriptor is to be had.
pub(super) fn run(load: &Load, mut watch: impl FnMut(Progress)) -> io::Result<(Tally, Duration)> {
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

struct Worker<'a> {
    load: &'a Load,
    counters: &'a Counters,
    poll: Poll,
    links: Vec<Link>,
    tally: Tally,
    in_flight: usize,
    last_answer: Instant,
}

impl<'a> Worker<'a> {
    fn connect(load: &'a Load, counters: &'a Counters, share: u32) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut links = Vec::new();
        for index in 0..share as usize {
            let mut link = Link::connect(load)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut link.stream, Token(index), interest)?;
            links.push(link);
        }
        let (tally, last_answer) = (Tally::new(), Instant::now());
        Ok(Self { load, counters, poll, links, tally, in_flight: 0, last_answer })
    }

    fn work(mut self, start: Instant) -> io::Result<(Tally, Instant)> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut scratch = vec![0; INPUT_BYTES];
        let timer = Timer::new()?;
        timer.register(self.poll.registry(), TIMER)?;
        let mut due = None;
        let mut is_over = false;
        let mut turn = 0;
        if self.load.rate.is_none() {
            for index in 0..self.links.len() {
                is_over |= !self.refill(index, start);
            }
        }
        self.last_answer = Instant::now();
        loop {
            if self.load.rate.is_some() && !is_over {
                is_over = !self.send_due(start, &mut due, &mut turn);
                if let Some((_, instant)) = due {
                    timer.arm(instant)?;
                }
            }
            let is_alone = self.links.iter().all(|link| link.is_lost);
            if (is_over || is_alone) && self.in_flight == 0 {
                break;
            }
            if self.last_answer.elapsed() > self.load.time_out && self.in_flight > 0 {
                self.give_up();
                break;
            }
            self.poll.poll(&mut events, Some(PROGRESS_INTERVAL))?;
            for event in &events {
                let Token(index) = event.token();
                if event.token() == TIMER {
                    timer.hush();
                    continue;
                }
                if event.is_writable() {
                    self.write(index);
                }
                if event.is_readable() {
                    self.read(index, &mut scratch);
                    if self.load.rate.is_none() && !is_over {
                        is_over = !self.refill(index, start);
                    }
                }
            }
        }
        Ok((self.tally, self.last_answer))
    }

    /// The next request of the plan and when it is due; `None` where the run is over.
    fn next(&self, start: Instant) -> Option<(u64, Instant)> {
        let index = self.counters.next.fetch_add(1, Ordering::Relaxed);
        let due = match self.load.rate {
            None => Instant::now(),
            Some(rate) => {
                #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
                let offset = Duration::try_from_secs_f64(index as f64 / rate).ok()?;
                start.checked_add(offset)?
            }
        };
        let is_late = self.load.duration_max.is_some_and(|max| due - start >= max);
        (index < self.load.requests && !is_late).then_some((index, due))
    }

    fn compose(&mut self, index: usize, number: u64, due: Instant) {
        let request = self.load.plan.request(number);
        let link = &mut self.links[index];
        self.load.calls.reserve(self.load.first_user, request, &mut link.output);
        link.flight.push_back(Some(Sent { request, due }));
        self.in_flight += 1;
    }

    fn seal(&mut self, index: usize) {
        if self.load.wait_aof {
            let timeout = self.load.time_out.as_millis().to_string();
            let words = [&b"WAITAOF"[..], b"1", b"0", timeout.as_bytes()];
            wire::command(&words, &mut self.links[index].output);
            self.links[index].flight.push_back(None);
        }
        self.write(index);
    }

    /// Fills a connection up to its depth; false where the run is over.
    fn refill(&mut self, index: usize, start: Instant) -> bool {
        let link = &self.links[index];
        if link.is_lost {
            return true;
        }
        let missing = (self.load.depth as usize).saturating_sub(link.flight.len());
        let waits = self.load.wait_aof && !link.flight.is_empty();
        if missing == 0 || waits {
            return true;
        }
        let mut sent = 0;
        for _ in 0..missing {
            let Some((number, due)) = self.next(start) else { break };
            self.compose(index, number, due);
            sent += 1;
        }
        if sent > 0 {
            self.seal(index);
        }
        sent == missing
    }

    /// Sends what is due, in an open loop; false where the run is over.
    fn send_due(
        &mut self,
        start: Instant,
        due: &mut Option<(u64, Instant)>,
        turn: &mut usize,
    ) -> bool {
        loop {
            if due.is_none() {
                *due = self.next(start);
            }
            let Some((number, instant)) = *due else { return false };
            if instant > Instant::now() {
                return true;
            }
            *turn = (*turn + 1) % self.links.len();
            if self.links[*turn].is_lost && self.links.iter().any(|link| !link.is_lost) {
                continue;
            }
            self.compose(*turn, number, instant);
            self.seal(*turn);
            *due = None;
        }
    }

    fn write(&mut self, index: usize) {
        let link = &mut self.links[index];
        while link.written < link.output.len() {
            match link.stream.write(&link.output[link.written..]) {
                Ok(0) => return self.lose(index, "closed"),
                Ok(bytes) => link.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(index, "io"),
            }
        }
        link.output.clear();
        link.written = 0;
    }

    fn read(&mut self, index: usize, scratch: &mut [u8]) {
        loop {
            let link = &mut self.links[index];
            match link.stream.read(scratch) {
                Ok(0) => return self.lose(index, "closed"),
                Ok(bytes) => {
                    link.input.extend_from_slice(&scratch[..bytes]);
                    if let Err(Malformed) = self.take(index) {
                        return self.lose(index, "malformed");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(index, "io"),
            }
        }
    }

    /// Takes all whole answers.
    fn take(&mut self, index: usize) -> Result<(), Malformed> {
        let now = Instant::now();
        let link = &mut self.links[index];
        let mut used = 0;
        while let Some((answer, length)) = wire::parse(&link.input[used..])? {
            used += length;
            let sent = link.flight.pop_front().ok_or(Malformed)?;
            let is_synced = sent.is_none();
            match sent {
                Some(sent) => link.answered.push((sent, outcome(&answer)?)),
                None => synced(&answer)?,
            }
            if self.load.wait_aof && !is_synced {
                continue;
            }
            for (Sent { request, due }, outcome) in link.answered.drain(..) {
                let told = match &outcome {
                    Ok(made) => Ok(*made),
                    Err((code, unknown)) => Err((code.as_ref(), *unknown)),
                };
                let latency = now.saturating_duration_since(due);
                let is_new = self.tally.record_call(request, latency, told);
                if is_new && let Some(made) = self.tally.acceptances.last() {
                    self.load.samples.offer(made.reservation);
                }
                self.counters.answered.fetch_add(1, Ordering::Relaxed);
                self.counters.accepted.fetch_add(is_new.into(), Ordering::Relaxed);
                self.in_flight -= 1;
                self.last_answer = now;
            }
        }
        link.input.drain(..used);
        Ok(())
    }

    /// A connection broke: what it had in flight has no answer.
    fn lose(&mut self, index: usize, error: &'static str) {
        let link = &mut self.links[index];
        link.is_lost = true;
        let waiting = link.answered.drain(..).map(|(sent, _)| sent);
        for sent in waiting.chain(link.flight.drain(..).flatten()) {
            self.tally.record_lost(sent.request, error);
            self.in_flight -= 1;
        }
    }

    fn give_up(&mut self) {
        for index in 0..self.links.len() {
            self.lose(index, "timed_out");
        }
    }
}
