//! Connections that stand still: their peers don't read, have sent a part of a request, or take
//! leave. Each has a while, and all of them together a part of our memory.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engine::Engine;

use super::{EventLoop, TEND_INTERVAL};
use crate::resp::connection::Connection;

/// Bytes that connections which do not read may hold, together, before the next that stands still
/// is closed.
const STALLED_BYTES_MAX: usize = 64 << 20;

/// Bytes of requests that are not whole yet, of all connections together, before the next one that
/// would hold more is closed.
const PART_BYTES_MAX: usize = 64 << 20;

const PARTS_FULL: &str = "ERR too much memory is held by requests that are not whole: send again";

impl EventLoop {
    /// Keeps what was read behind the last whole request. The rest of it has a while to come,
    /// unless the look at it `is_unfinished`: then it may be there already.
    pub(super) fn keep(&mut self, index: usize, rest: Range<usize>, is_unfinished: bool) {
        let Some(connection) = self.connections.slab.get_mut(index) else { return };
        let is_something = !rest.is_empty() && !connection.session.is_ending;
        let is_part = is_something && !is_unfinished;
        self.part_bytes -= connection.part_bytes();
        if is_part && self.part_bytes + rest.len() > PART_BYTES_MAX {
            connection.session.is_ending = true;
            connection.request_due = None;
            let to = connection.session.address();
            return self.turn.write(to, |reply| reply.error(PARTS_FULL));
        }
        let is_another = rest.start > 0;
        connection.keep(&self.input[rest]);
        let due = connection.request_due.filter(|_| !is_another);
        connection.request_due = match is_part {
            true => Some(due.unwrap_or_else(|| Instant::now() + self.port.request_timeout)),
            // Where more may be there already, as after each record of TLS, no time is given anew.
            false => due.filter(|_| is_something),
        };
        self.part_bytes += connection.part_bytes();
        if is_part {
            self.tend_to(index);
        }
    }

    /// Looks from now on whether it is late.
    pub(super) fn tend_to(&mut self, index: usize) {
        if let Some(connection) = self.connections.slab.get_mut(index)
            && !connection.is_tended
        {
            connection.is_tended = true;
            self.tended.push(index);
        }
    }

    /// The peer does not read: it has a while, and a part of our memory.
    pub(super) fn stand_still(&mut self, index: usize) {
        let behind = |index: &usize| {
            self.connections.slab.get(*index).filter(|connection| connection.is_behind())
        };
        let stalled: usize = self.tended.iter().filter_map(behind).map(Connection::bytes).sum();
        let write_timeout = self.port.write_timeout;
        let Some(connection) = self.connections.slab.get_mut(index) else { return };
        if stalled + connection.bytes() > STALLED_BYTES_MAX {
            return self.remove(index);
        }
        if connection.patience.is_none() {
            connection.patience = Some(Instant::now() + write_timeout);
            self.tend_to(index);
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Some(mut connection) = self.connections.slab.try_remove(index) {
            // Closing the socket does the same.
            let _ = self.poll.registry().deregister(connection.wire.socket());
            self.port.counts.open.fetch_sub(1, Ordering::Relaxed);
            self.part_bytes -= connection.part_bytes();
            if connection.is_tended {
                self.tended.retain(|tended| *tended != index);
            }
        }
    }

    /// Closes connections whose patience has ended, and seals an idle log.
    pub(super) fn tend(&mut self) {
        if self.tended.is_empty() && self.seal_at.is_none() {
            return;
        }
        let now = Instant::now();
        // They may be thousands: not each turn.
        if !self.tended.is_empty() && self.tends_from <= now {
            self.tends_from = now + TEND_INTERVAL;
            self.close_late(now);
        }
        if self.seal_at.is_some_and(|seal_at| seal_at <= now) {
            self.seal_at = None;
            // A log that has failed ends the process by itself.
            let _ = self.engine.as_ref().map(Engine::seal_idle);
        }
    }

    fn close_late(&mut self, now: Instant) {
        let mut tended = std::mem::take(&mut self.tended);
        tended.retain(|index| {
            let Some(connection) = self.connections.slab.get_mut(*index) else { return false };
            let due = connection.due();
            connection.is_tended = due.is_some_and(|due| due >= now);
            if due.is_some() && !connection.is_tended {
                self.remove(*index);
                return false;
            }
            connection.is_tended
        });
        self.tended = tended;
    }
}
