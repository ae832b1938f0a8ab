//! One connection: its socket, its conversation, and the bytes between them.
//!
//! An idle connection holds no buffers: what is read is read into the loop's own input, and only
//! the beginning of a request that is not whole yet is kept here; an output is lent while there is
//! something to send.

use std::io;
use std::time::Instant;

use super::asked::Asked;
use super::request::REQUEST_BYTES_MAX;
use super::session::Session;
use super::wire::Wire;

/// A buffer larger than this is let go of once less than half of it is used.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// A connection of a loop.
pub(super) struct Connection {
    /// Its socket.
    pub(super) wire: Wire,
    /// What it has said about itself.
    pub(super) session: Session,
    /// Read, and not yet a whole request.
    pub(super) rest: Vec<u8>,
    /// To be sent.
    pub(super) output: Vec<u8>,
    /// Answers that wait for SQL, from the first on; it is not read from meanwhile.
    pub(super) asked: Option<Asked>,
    sent: usize,
    /// It waits in the loop's queue to be read.
    pub(super) is_queued: bool,
    /// The peer says that no more will come: it is read to its end, for no event tells again.
    pub(super) is_closing: bool,
    /// Nothing more will come from it.
    pub(super) is_over: bool,
    /// Until then it may stand still: its peer does not read, or takes leave.
    pub(super) patience: Option<Instant>,
    /// [`Connection::rest`] is a part of a request, which may become whole until then.
    pub(super) request_due: Option<Instant>,
    /// It is among those that the loop tends.
    pub(super) is_tended: bool,
    /// All was said; what it still sends is read away.
    pub(super) is_lingering: bool,
}

/// What a look at the socket brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// Nothing ever again.
    End,
}

/// How far an output was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// To its end.
    All,
    /// The peer does not read as fast as we write.
    Part,
    /// The peer is gone.
    Broken,
}

impl Connection {
    /// A connection that begins.
    pub(super) const fn new(wire: Wire, session: Session) -> Self {
        Self {
            wire,
            session,
            rest: Vec::new(),
            output: Vec::new(),
            asked: None,
            sent: 0,
            is_queued: false,
            is_closing: false,
            is_over: false,
            patience: None,
            request_due: None,
            is_tended: false,
            is_lingering: false,
        }
    }

    /// Whether something is still to be sent.
    pub(super) fn is_behind(&self) -> bool {
        self.sent < self.output.len() || self.wire.is_behind()
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let asked = self.asked.as_ref().map_or(0, Asked::bytes);
        self.output.len() + self.rest.len() + asked + self.wire.bytes()
    }

    /// Reads into `into`, which has room.
    fn hear(&mut self, into: &mut [u8]) -> Heard {
        loop {
            return match self.wire.read(into) {
                Ok(0) => Heard::End,
                Ok(bytes) => Heard::Bytes(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A reset, a time-out of the network: whatever it is, nobody is there.
                Err(_) => Heard::End,
            };
        }
    }

    /// Reads into `input` behind the `kept` bytes that are there: how far it is filled, and whether
    /// there may be more that no event will tell of.
    pub(super) fn fill(&mut self, input: &mut [u8], kept: usize) -> (usize, bool) {
        if kept > REQUEST_BYTES_MAX {
            return (kept, true);
        }
        let room = input.len() - kept;
        match self.hear(&mut input[kept..]) {
            Heard::Bytes(bytes) => {
                let more = self.is_closing || self.wire.may_have_more(bytes, room);
                (kept + bytes, more)
            }
            // Under TLS the end may stand behind a part of a record.
            Heard::Nothing => (kept, self.is_closing || self.wire.may_have_more(0, room)),
            Heard::End => {
                self.is_over = true;
                (kept, false)
            }
        }
    }

    /// Keeps what was read behind the last whole request.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        self.rest.clear();
        if self.rest.capacity() > KEPT_BYTES_MAX.max(2 * rest.len()) {
            self.rest = Vec::new();
        }
        // No more than that: thousands of peers may each send a part and wait.
        self.rest.reserve_exact(rest.len());
        self.rest.extend_from_slice(rest);
    }

    /// Bytes of a request that is not whole yet.
    pub(super) const fn part_bytes(&self) -> usize {
        if self.request_due.is_some() { self.rest.len() } else { 0 }
    }

    /// When it is to be closed, if nothing happens before. A peer that does not read, or whose
    /// answer waits for SQL, is not read from either: its request can't become whole.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_read = !self.is_behind() && self.asked.is_none();
        if is_read { self.patience.or(self.request_due) } else { self.patience }
    }

    /// Sends what the socket takes. A peer that takes anything is given time anew.
    pub(super) fn send(&mut self) -> Sent {
        let sent = self.send_on();
        if self.wire.has_sent() && !self.is_lingering && !self.wire.is_shaking_hands() {
            self.patience = None;
        }
        sent
    }

    fn send_on(&mut self) -> Sent {
        while self.sent < self.output.len() {
            match self.wire.write(&self.output[self.sent..]) {
                Ok(0) => return Sent::Broken,
                Ok(bytes) => {
                    self.sent += bytes;
                    self.patience = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Sent::Broken,
            }
        }
        match self.wire.flush() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Part,
            Err(_) => return Sent::Broken,
        }
        self.sent = 0;
        self.output.clear();
        Sent::All
    }

    /// Says that nothing more will be sent. A peer that is gone already need not hear it.
    pub(super) fn take_leave(&mut self) {
        self.is_lingering = true;
        self.rest = Vec::new();
        self.request_due = None;
        self.wire.shut_down();
    }
}
