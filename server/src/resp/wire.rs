//! The bytes of a connection on their way: as they are, or under TLS.
//!
//! TLS needs no task and no thread of its own: its records are made and opened where the loop reads
//! and writes. What it holds for a connection is bounded by one record read and
//! [`SEALED_BYTES_MAX`] written.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};

/// Sealed and not yet taken by the socket, at most.
const SEALED_BYTES_MAX: usize = 64 * 1024;

/// Records opened in one look at a connection: who sends empty ones keeps nobody else waiting.
const RECORDS_MAX: usize = 16;

/// A connection's socket, and what is between it and the conversation.
pub(super) struct Wire {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

struct Tls {
    session: ServerConnection,
    /// The socket had less than it was asked for: the next byte is an event.
    is_drained: bool,
    /// Bytes of records that were opened and are not read yet.
    opened: usize,
    /// The socket has taken something since it was asked last.
    has_sent: bool,
}

impl Wire {
    /// A connection under TLS where there is a `config` for it.
    ///
    /// # Errors
    /// TLS can't begin.
    pub(super) fn new(socket: TcpStream, config: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let tls = match config {
            None => None,
            Some(config) => {
                let session = ServerConnection::new(config);
                let mut session = session.map_err(io::Error::other)?;
                session.set_buffer_limit(Some(SEALED_BYTES_MAX));
                Some(Box::new(Tls { session, is_drained: false, opened: 0, has_sent: false }))
            }
        };
        Ok(Self { socket, tls })
    }

    /// Its socket.
    pub(super) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Whether the peer has still to say who it is talking to.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking())
    }

    /// Whether something may be there that no event will tell of, after `read` bytes came where
    /// there was room for `room`: a socket that gave less is empty.
    pub(super) fn may_have_more(&self, read: usize, room: usize) -> bool {
        match &self.tls {
            Some(tls) => !tls.is_drained || tls.opened > 0,
            None => read == room,
        }
    }

    /// Whether the socket has yet to take what was written.
    pub(super) fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.wants_write())
    }

    /// Bytes that it holds for the socket, at most.
    pub(super) fn bytes(&self) -> usize {
        if self.is_behind() { SEALED_BYTES_MAX } else { 0 }
    }

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` where there are none now; anything else is the connection's end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(into),
            Some(tls) => tls.read(&mut self.socket, into),
        }
    }

    /// Takes some of `bytes`.
    ///
    /// # Errors
    /// `WouldBlock` where none can be taken now; anything else is the connection's end.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        tls.flush(&mut self.socket)?;
        tls.session.writer().write(bytes)
    }

    /// Sends what was taken.
    ///
    /// # Errors
    /// `WouldBlock` where the socket does not take all of it now; anything else is the connection's
    /// end.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.socket))
    }

    /// Whether the socket has taken some of what was sealed since this was asked last.
    pub(super) fn has_sent(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| std::mem::take(&mut tls.has_sent))
    }

    /// Says that nothing more will be sent. A peer that is gone already need not hear it.
    pub(super) fn shut_down(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.session.send_close_notify();
            let _ = tls.flush(&mut self.socket);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// A socket that is looked at while TLS reads from it.
struct Watched<'a> {
    socket: &'a mut TcpStream,
    is_drained: bool,
}

impl io::Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let told = self.socket.read(into);
        self.is_drained = match &told {
            Ok(bytes) => *bytes < into.len(),
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        told
    }
}

impl Tls {
    fn read(&mut self, socket: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
        self.is_drained = false;
        for _ in 0..RECORDS_MAX {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                told => {
                    self.opened -= told.as_ref().map_or(0, |bytes| self.opened.min(*bytes));
                    return told;
                }
            }
            if self.is_drained {
                break;
            }
            let mut watched = Watched { socket, is_drained: false };
            let read = self.session.read_tls(&mut watched);
            self.is_drained = watched.is_drained;
            if read? == 0 {
                return Ok(0);
            }
            let state = self.session.process_new_packets();
            // Its part of a handshake, or what it thinks of the peer's.
            match self.flush(socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => self.opened = state.map_err(io::Error::other)?.plaintext_bytes_to_read(),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.has_sent = true;
        }
        Ok(())
    }
}
