//! The loop of one thread over its connections.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::super::tally::{Outcome, Tally};
use super::super::wire::Malformed;
use super::link::{Link, Owed, Sent, State};
use super::timer::Timer;
use super::{Counters, Expected, Load, PROGRESS_INTERVAL, Protocol};

/// Events taken at once.
const EVENTS_MAX: usize = 1024;

/// What is read of a connection at once.
const INPUT_BYTES: usize = 256 * 1024;

/// Wait after a connection was refused: a server that restarts is not helped by a busy loop.
const RECONNECT_WAIT: Duration = Duration::from_millis(20);

/// The timer's place among the connections.
const TIMER: Token = Token(usize::MAX);

/// One thread's share of the load.
pub(super) struct Worker<'a, P> {
    load: &'a Load<P>,
    counters: &'a Counters,
    poll: Poll,
    links: Vec<Link>,
    /// Links with room for a request, longest waiting first: those of an open loop.
    free: VecDeque<usize>,
    /// The next request of an open loop, until it is sent.
    due: Option<(u64, Instant)>,
    tally: Tally,
    in_flight: usize,
    /// Links that are not up.
    missing: usize,
    /// The plan has no more requests, or the time is up.
    is_over: bool,
    start: Instant,
    last_answer: Instant,
    last_look: Instant,
}

impl<'a, P: Protocol> Worker<'a, P> {
    /// Makes `share` connections.
    ///
    /// # Errors
    /// Descriptors are exhausted.
    pub(super) fn connect(
        load: &'a Load<P>,
        counters: &'a Counters,
        share: u32,
    ) -> io::Result<Self> {
        let (poll, now) = (Poll::new()?, Instant::now());
        let mut links = Vec::new();
        for index in 0..share as usize {
            // A server that did not listen to the first is not asked for each of thousands.
            let is_away = links.first().is_some_and(|link: &Link| !link.is_up());
            links.push(match is_away {
                true => Link::down(),
                false => Link::connect(load, poll.registry(), Token(index))?,
            });
        }
        let missing = links.iter().filter(|link| !link.is_up()).count();
        Ok(Self {
            load,
            counters,
            poll,
            links,
            free: VecDeque::new(),
            due: None,
            tally: Tally::new(),
            in_flight: 0,
            missing,
            is_over: false,
            start: now,
            last_answer: now,
            last_look: now,
        })
    }

    /// Sends and reads until all is answered or lost. What came back, and when the last of it did.
    ///
    /// # Errors
    /// The poll or the timer fails.
    pub(super) fn work(mut self, start: Instant) -> io::Result<(Tally, Instant)> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut scratch = vec![0; INPUT_BYTES];
        let timer = Timer::new()?;
        timer.register(self.poll.registry(), TIMER)?;
        (self.start, self.last_answer, self.last_look) = (start, Instant::now(), Instant::now());
        for index in 0..self.links.len() {
            if self.links[index].is_up() {
                self.greet(index);
            }
        }
        loop {
            if let Some(due) = self.send_due() {
                timer.arm(due)?;
            }
            let is_lost =
                self.missing == self.links.len() && self.last_answer.elapsed() > self.load.time_out;
            if self.in_flight == 0 && (self.is_over || is_lost) {
                return Ok((self.tally, self.last_answer));
            }
            let wait = if self.missing > 0 { RECONNECT_WAIT } else { PROGRESS_INTERVAL };
            self.poll.poll(&mut events, Some(wait))?;
            for event in &events {
                if event.token() == TIMER {
                    timer.hush();
                    continue;
                }
                let Token(index) = event.token();
                if event.is_writable() {
                    self.write(index);
                }
                if event.is_readable() {
                    self.read(index, &mut scratch, event.is_read_closed());
                }
            }
            self.look_after(Instant::now());
        }
    }

    /// The next request of the plan and when it is due, which in a closed loop is `now`; `None`
    /// where the run is over.
    fn next(&mut self, now: Instant) -> Option<(u64, Instant)> {
        if self.is_over {
            return None;
        }
        let load = self.load;
        let index = self.counters.next.fetch_add(1, Ordering::Relaxed);
        let due = match &load.pace {
            None => Some(now),
            Some(pace) => pace.due(index).and_then(|offset| self.start.checked_add(offset)),
        };
        let is_in_time = |due: &Instant| {
            load.duration_max.is_none_or(|max| due.saturating_duration_since(self.start) < max)
        };
        let next = due.filter(is_in_time).filter(|_| index < load.requests);
        self.is_over = next.is_none();
        next.map(|due| (index, due))
    }

    fn depth(&self) -> usize {
        match self.load.pace {
            None => self.load.depth as usize,
            Some(_) => self.load.protocol.depth_open(),
        }
    }

    fn compose(&mut self, index: usize, number: u64, due: Instant) {
        let request = self.load.plan.request(number);
        let link = &mut self.links[index];
        if link.flight.is_empty() {
            link.quiet_since = Instant::now();
        }
        self.load.protocol.compose(request, &mut link.output);
        link.flight.push_back(Owed::Purchase(Sent { request, due }));
        self.in_flight += 1;
    }

    fn seal(&mut self, index: usize) {
        if self.load.protocol.seals() {
            let link = &mut self.links[index];
            self.load.protocol.seal(&mut link.output);
            link.flight.push_back(Owed::Seal);
        }
        self.write(index);
    }

    /// A connection is there: it says who it is, and is used.
    fn greet(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.quiet_since = Instant::now();
        if self.load.protocol.greet(&mut link.output) {
            link.flight.push_back(Owed::Greeting);
            self.write(index);
        } else {
            self.use_room(index);
        }
    }

    /// A connection has room: in a closed loop it is filled, in an open one it waits its turn.
    fn use_room(&mut self, index: usize) {
        if self.load.pace.is_none() {
            return self.refill(index);
        }
        let depth = self.depth();
        let link = &mut self.links[index];
        if !link.is_listed && link.is_up() && link.flight.len() < depth {
            link.is_listed = true;
            self.free.push_back(index);
        }
    }

    fn refill(&mut self, index: usize) {
        let link = &self.links[index];
        let room = self.depth().saturating_sub(link.flight.len());
        let waits = self.load.protocol.seals() && !link.flight.is_empty();
        if room == 0 || waits || !link.is_up() {
            return;
        }
        // They leave together.
        let (mut sent, now) = (0, Instant::now());
        while sent < room
            && let Some((number, due)) = self.next(now)
        {
            self.compose(index, number, due);
            sent += 1;
        }
        if sent > 0 {
            self.seal(index);
        }
    }

    /// Sends what is due in an open loop, as far as there is room; when the next is due.
    fn send_due(&mut self) -> Option<Instant> {
        self.load.pace.as_ref()?;
        loop {
            if self.due.is_none() {
                self.due = self.next(Instant::now());
            }
            let (number, instant) = self.due?;
            if instant > Instant::now() {
                return Some(instant);
            }
            let index = self.free.pop_front()?;
            self.links[index].is_listed = false;
            if !self.links[index].is_up() {
                continue;
            }
            self.due = None;
            self.compose(index, number, instant);
            self.seal(index);
            self.use_room(index);
        }
    }

    fn write(&mut self, index: usize) {
        let link = &mut self.links[index];
        if matches!(link.state, State::Connecting(_)) {
            return match link.established() {
                Ok(()) => {
                    self.missing -= 1;
                    self.greet(index);
                }
                Err(_) => self.refused(index),
            };
        }
        if let Err(broken) = link.write() {
            self.lose(index, broken.name());
        }
    }

    fn read(&mut self, index: usize, scratch: &mut [u8], is_closed: bool) {
        let broken = self.links[index].read(scratch, is_closed).err();
        match (self.take(index), broken) {
            (Err(Malformed), _) => self.lose(index, "malformed"),
            (Ok(_), Some(broken)) => self.lose(index, broken.name()),
            // Said by the server in its answer: no request was in flight after it.
            (Ok(true), None) => self.lose(index, "closed"),
            (Ok(false), None) => self.use_room(index),
        }
    }

    /// Takes all whole answers; true where the server hangs up after the last.
    fn take(&mut self, index: usize) -> Result<bool, Malformed> {
        let now = Instant::now();
        let (mut used, mut is_last) = (0, false);
        loop {
            let link = &mut self.links[index];
            let expected = match link.flight.front() {
                Some(Owed::Greeting) => Expected::Greeting,
                Some(Owed::Purchase(_)) => Expected::Purchase,
                Some(Owed::Seal) => Expected::Seal,
                None if used < link.input.len() => return Err(Malformed),
                None => break,
            };
            let Some(parsed) = self.load.protocol.parse(&link.input[used..], expected)? else {
                break;
            };
            used += parsed.length;
            is_last |= parsed.is_last;
            link.quiet_since = now;
            match (link.flight.pop_front(), parsed.outcome) {
                (Some(Owed::Purchase(sent)), Some(outcome)) if self.load.protocol.seals() => {
                    link.answered.push((sent, outcome));
                }
                (Some(Owed::Purchase(sent)), Some(outcome)) => self.record(&sent, &outcome, now),
                (Some(Owed::Seal), _) => {
                    for (sent, outcome) in std::mem::take(&mut link.answered) {
                        self.record(&sent, &outcome, now);
                    }
                }
                _ => {}
            }
        }
        self.links[index].input.drain(..used);
        Ok(is_last)
    }

    fn record(&mut self, sent: &Sent, outcome: &Outcome, now: Instant) {
        let latency = now.saturating_duration_since(sent.due);
        let at = now.saturating_duration_since(self.start);
        let is_new = self.tally.record(sent.request, at, latency, outcome);
        if is_new && let Some(made) = self.tally.acceptances.last() {
            self.load.samples.offer(made.reservation);
        }
        self.counters.answered.fetch_add(1, Ordering::Relaxed);
        self.counters.accepted.fetch_add(is_new.into(), Ordering::Relaxed);
        self.in_flight -= 1;
        self.last_answer = now;
    }

    /// A connection broke: what it had in flight has no answer.
    fn lose(&mut self, index: usize, error: &'static str) {
        let link = &mut self.links[index];
        if !link.is_up() {
            return;
        }
        let waiting = link.answered.drain(..).map(|(sent, _)| sent);
        let flying = link.flight.drain(..).filter_map(|owed| match owed {
            Owed::Purchase(sent) => Some(sent),
            Owed::Greeting | Owed::Seal => None,
        });
        for sent in waiting.chain(flying) {
            self.tally.record_lost(sent.request, error);
            self.counters.answered.fetch_add(1, Ordering::Relaxed);
            self.in_flight -= 1;
        }
        link.hang_up(Instant::now());
        self.missing += 1;
    }

    /// No connection is to be had: a request that would have gone over it has gone nowhere.
    fn refused(&mut self, index: usize) {
        self.links[index].hang_up(Instant::now() + RECONNECT_WAIT);
        if self.due.take().is_some() || self.next(Instant::now()).is_some() {
            self.tally.record_unsent();
            self.counters.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connects anew what is down, and gives up what has been quiet for too long.
    fn look_after(&mut self, now: Instant) {
        let is_time = now.saturating_duration_since(self.last_look) >= PROGRESS_INTERVAL;
        if self.missing == 0 && !is_time {
            return;
        }
        self.last_look = now;
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let is_quiet = now.saturating_duration_since(link.quiet_since) > self.load.time_out;
            match link.state {
                State::Down { retry_at } if retry_at <= now && !self.is_over => {
                    let registry = self.poll.registry();
                    if link.reconnect(self.load.address, registry, Token(index)).is_err() {
                        self.refused(index);
                    }
                }
                State::Connecting(_) if is_quiet => self.refused(index),
                State::Up(_) if is_quiet && !link.flight.is_empty() => {
                    self.lose(index, "timed_out");
                }
                State::Down { .. } | State::Connecting(_) | State::Up(_) => {}
            }
        }
    }
}
