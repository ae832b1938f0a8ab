//! A loop of its own for each core but one: read all that has come, decide it, make it durable,
//! answer.
//!
//! ```text
//! wait        epoll, edges alone: a connection is told about once for all that has come
//! read        every connection that has something, each once a turn, into one buffer
//! decide      all whole requests, in order                               (commands, turn)
//! commit      on this thread, if an answer rests on what is not durable  (turn)
//! answer      one write a connection
//! ```
//!
//! Nothing is waited for but the commit; a lone request wakes no other thread. A connection whose
//! peer does not read its answers is not read from either, and is closed when its patience ends.
//! A connection that ends says so first and reads away what still comes: closed at once, the
//! kernel would reset it and take the last answer back.

mod asking;
#[cfg(test)]
mod handshake_tests;
mod tend;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::Engine;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{SockRef, TcpKeepalive};
use wal::AbortOnPanic;

use super::Port;
use super::asked::Inbox;
use super::connection::{Connection, Sent};
use super::connections::Connections;
use super::pipeline::decide;
use super::request::{Parser, REQUEST_BYTES_MAX};
use super::session::Session;
use super::turn::Turn;
use super::wire::Wire;

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Events taken from the kernel at once; more come with the next turn.
const EVENTS_MAX: usize = 1024;

/// What is read from a connection in a turn, beside what is left of it from before.
const INPUT_BYTES: usize = 2 * REQUEST_BYTES_MAX;

/// Connections taken in a turn: a rush of them must not keep the others waiting.
const ACCEPTED_MAX: usize = 128;

/// Connections that take a step of a handshake in a turn: a signature takes as long as hundreds of
/// purchases, and a rush of peers that begin TLS must not keep those who buy waiting. A handshake
/// takes two steps, a signature in one of them: about four peers a turn have begun.
const HANDSHAKES_MAX: usize = 8;

/// How long accepting rests after it failed (no descriptors, no memory): at once it would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Idle this long after a commit, a loop lets a later frame vouch for its last one, as the log's
/// own thread does.
const SEAL_AFTER: Duration = Duration::from_millis(wal::limits::IDLE_SEAL_MS);

/// For a peer to hear that we end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// For a peer to begin TLS, the turns in which it waits for its step included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two looks at connections that stand still.
const TEND_INTERVAL: Duration = Duration::from_millis(100);

/// A peer that vanished is found out after this, as Redis does.
const KEEPALIVE: Duration = Duration::from_secs(300);

const HOUSE_FULL: &[u8] = b"-ERR max number of clients reached\r\n";

/// One loop.
pub(super) struct EventLoop {
    port: Arc<Port>,
    poll: Poll,
    listener: Option<TcpListener>,
    accepts_from: Option<Instant>,
    connections: Connections,
    queue: VecDeque<usize>,
    /// Connections that stand still, have sent a part of a request, or have yet to begin TLS.
    tended: Vec<usize>,
    /// Bytes of requests that are not whole yet.
    part_bytes: usize,
    /// When those are looked at next.
    tends_from: Instant,
    engine: Option<Engine>,
    turn: Turn,
    parser: Parser,
    input: Box<[u8]>,
    seal_at: Option<Instant>,
    ends_at: Option<Instant>,
    /// Answers of SQL come back here.
    inbox: Inbox,
}

impl EventLoop {
    /// A loop over `listener`, and what wakes it when it is to end.
    ///
    /// # Errors
    /// The operating system has no epoll for us.
    pub(super) fn new(
        port: Arc<Port>,
        listener: std::net::TcpListener,
    ) -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let event_loop = Self {
            port,
            poll,
            listener: Some(listener),
            accepts_from: None,
            connections: Connections::default(),
            queue: VecDeque::new(),
            tended: Vec::new(),
            part_bytes: 0,
            tends_from: Instant::now(),
            engine: None,
            turn: Turn::default(),
            parser: Parser::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            seal_at: None,
            ends_at: None,
            inbox: Inbox::new(Arc::clone(&waker)),
        };
        Ok((event_loop, waker))
    }

    /// Serves until it is told to end.
    pub(super) fn run(mut self) {
        // A loop that is gone would leave its connections without an answer for ever.
        let _guard = AbortOnPanic;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_done() {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!("the Redis port waits for its sockets in vain: {error}");
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
            for event in &events {
                self.note(event);
            }
            self.hear_answers();
            self.accept();
            if self.ends_at.is_none() && self.port.is_stopping.load(Ordering::Acquire) {
                self.begin_end();
            }
            self.take_turn();
            self.tend();
        }
    }

    fn is_done(&self) -> bool {
        let Some(ends_at) = self.ends_at else { return false };
        self.connections.slab.is_empty() || Instant::now() >= ends_at
    }

    fn timeout(&self) -> Option<Duration> {
        let is_accepting = self.listener.is_some() && self.accepts_from.is_some();
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let tend = (!self.tended.is_empty() || self.ends_at.is_some()).then_some(TEND_INTERVAL);
        let until = |instant: Instant| instant.saturating_duration_since(Instant::now());
        let accept = self.accepts_from.filter(|_| is_accepting).map(until);
        [tend, accept, self.seal_at.map(until)].into_iter().flatten().min()
    }

    fn note(&mut self, event: &Event) {
        match event.token() {
            WAKER => {}
            LISTENER => self.accepts_from = Some(Instant::now()),
            Token(index) => {
                let Some(connection) = self.connections.slab.get_mut(index) else { return };
                connection.is_closing |= event.is_read_closed() || event.is_error();
                if event.is_writable() && connection.is_behind() {
                    self.send(index);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.enqueue(index);
                }
            }
        }
    }

    fn enqueue(&mut self, index: usize) {
        if let Some(connection) = self.connections.slab.get_mut(index)
            && !connection.is_queued
        {
            connection.is_queued = true;
            self.queue.push_back(index);
        }
    }

    fn accept(&mut self) {
        let Some(from) = self.accepts_from else { return };
        if self.listener.is_none() || from > Instant::now() {
            return;
        }
        for _ in 0..ACCEPTED_MAX {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer.ip()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accepts_from = None;
                    return;
                }
                // A peer that was gone before we came.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accepts_from = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, ip: IpAddr) {
        use std::io::Write as _;
        let counts = &self.port.counts;
        if counts.open.fetch_add(1, Ordering::Relaxed) >= self.port.connections_max as u64 {
            counts.open.fetch_sub(1, Ordering::Relaxed);
            counts.turned_away.fetch_add(1, Ordering::Relaxed);
            // An empty socket takes it; whether it is heard is the client's affair.
            let _ = stream.write(HOUSE_FULL);
            return;
        }
        // A socket that refuses its options is dead already, which the first read tells.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
        let entry = self.connections.slab.vacant_entry();
        let (index, interest) = (entry.key(), Interest::READABLE | Interest::WRITABLE);
        if self.poll.registry().register(&mut stream, Token(index), interest).is_err() {
            counts.open.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let id = counts.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(wire) = Wire::new(stream, self.port.tls()) else {
            counts.open.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let session = Session::new((index, id), ip, &self.port.users);
        let connection = entry.insert(Connection::new(wire, session));
        if connection.wire.is_shaking_hands() {
            connection.patience = Some(Instant::now() + HANDSHAKE_TIMEOUT);
            self.tend_to(index);
        }
    }

    /// Reads, decides, commits, answers.
    fn take_turn(&mut self) {
        if self.engine.is_none() {
            self.engine = self.port.engine();
        }
        let mut handshakes = 0;
        for _ in 0..self.queue.len() {
            if self.turn.is_full() {
                break;
            }
            let Some(index) = self.queue.pop_front() else { break };
            let connection = self.connections.slab.get(index);
            let shakes_hands = connection.is_some_and(|it| it.wire.is_shaking_hands());
            handshakes += usize::from(shakes_hands);
            if shakes_hands && handshakes > HANDSHAKES_MAX {
                // In the next turn, with those who begin then.
                self.queue.push_back(index);
                continue;
            }
            self.read(index);
        }
        if !self.turn.is_empty() {
            let port = &self.port;
            self.turn.finish(self.engine.as_ref(), &mut self.connections, |it| port.count(it));
            self.seal_at = self.engine.as_ref().map(|_| Instant::now() + SEAL_AFTER);
        }
        self.ask();
        let mut answered = std::mem::take(&mut self.connections.answered);
        for index in answered.drain(..) {
            self.send(index);
        }
        self.connections.answered = answered;
    }

    /// Takes what one connection has sent into the turn.
    fn read(&mut self, index: usize) {
        let Some(connection) = self.connections.slab.get_mut(index) else { return };
        connection.is_queued = false;
        // A peer that does not read is not read: when it does, it is queued again.
        if connection.is_behind() || connection.asked.is_some() {
            return;
        }
        let was_shaking_hands = connection.wire.is_shaking_hands();
        let kept = connection.rest.len();
        self.input[..kept].copy_from_slice(&connection.rest);
        let (filled, may_have_more) = connection.fill(&mut self.input, kept);
        // Looked at again in the next turn, for no event will tell of what is there already.
        let mut is_unfinished = may_have_more;
        if was_shaking_hands && !connection.wire.is_shaking_hands() {
            connection.patience = None;
        }
        if !connection.is_lingering {
            let used = decide(
                (&self.port, self.engine.as_ref()),
                (&mut self.parser, &mut self.turn),
                &mut connection.session,
                &self.input[..filled],
            );
            is_unfinished |= self.turn.is_full() && used < filled;
            self.keep(index, used..filled, is_unfinished);
        }
        let Some(connection) = self.connections.slab.get_mut(index) else { return };
        // One that ends does so when the answers of this turn are sent.
        let is_ending = connection.session.is_ending && !connection.is_lingering;
        if connection.is_over || is_ending || self.ends_at.is_some() {
            self.connections.answered.push(index);
        }
        if is_unfinished && !is_ending {
            self.enqueue(index);
        }
    }

    /// Sends what is to be sent, and ends the connection where all is said.
    fn send(&mut self, index: usize) {
        let Some(connection) = self.connections.slab.get_mut(index) else { return };
        let was_behind = connection.patience.is_some();
        match connection.send() {
            Sent::All => {}
            Sent::Broken => return self.remove(index),
            Sent::Part => return self.stand_still(index),
        }
        let output = std::mem::take(&mut connection.output);
        if connection.asked.is_some() {
            // More is to come, whatever else is said of it.
            return self.connections.give_back(output);
        }
        let is_over = connection.is_over;
        let takes_leave = connection.session.is_ending && !connection.is_lingering;
        let is_idle = self.ends_at.is_some() && !connection.is_queued;
        if is_over {
            self.remove(index);
        } else if takes_leave || is_idle && !connection.is_lingering {
            self.part_bytes -= connection.part_bytes();
            connection.take_leave();
            connection.patience = Some(Instant::now() + LEAVE_TIMEOUT);
            self.tend_to(index);
            self.enqueue(index);
        } else if was_behind && !connection.is_lingering {
            self.enqueue(index);
        }
        self.connections.give_back(output);
    }

    /// Accepts nobody any more, reads once more what has come, and takes leave.
    fn begin_end(&mut self) {
        self.ends_at = Some(Instant::now() + self.port.drain_timeout);
        self.listener = None;
        self.accepts_from = None;
        let indices: Vec<usize> = self.connections.slab.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.enqueue(index);
            self.connections.answered.push(index);
        }
    }
}
