//! One connection of the load: its bytes on their way, and which answers it owes.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::super::plan::Request;
use super::super::tally::Outcome;
use super::Load;

/// A purchase in flight.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) request: Request,
    /// When it was to be sent.
    pub(super) due: Instant,
}

/// What an answer is owed to.
#[derive(Debug)]
pub(super) enum Owed {
    Greeting,
    Purchase(Sent),
    Seal,
}

/// Where a connection is in its life.
#[derive(Debug)]
pub(super) enum State {
    /// There is none; it is tried again then.
    Down { retry_at: Instant },
    /// It is being made.
    Connecting(TcpStream),
    /// It works.
    Up(TcpStream),
}

/// Why a connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    Closed,
    Io,
}

impl Broken {
    /// The name it is counted under.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Io => "io",
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: State,
    pub(super) output: Vec<u8>,
    written: usize,
    pub(super) input: Vec<u8>,
    /// What has no answer yet, oldest first.
    pub(super) flight: VecDeque<Owed>,
    /// Outcomes that wait for their seal.
    pub(super) answered: Vec<(Sent, Outcome)>,
    /// It stands in the line of those with room for a request.
    pub(super) is_listed: bool,
    /// Since when nothing came.
    pub(super) quiet_since: Instant,
}

impl Link {
    /// A connection that is made before the run begins.
    ///
    /// # Errors
    /// This process has no descriptor left. A server that does not answer is no error yet: the
    /// link is down.
    pub(super) fn connect<P>(
        load: &Load<P>,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let state = match std::net::TcpStream::connect_timeout(&load.address, load.time_out) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut stream = TcpStream::from_std(stream);
                registry.register(&mut stream, token, interest())?;
                State::Up(stream)
            }
            Err(error) if is_the_servers(&error) => return Ok(Self::down()),
            Err(error) => return Err(error),
        };
        Ok(Self { state, ..Self::down() })
    }

    /// A connection that is still to be made.
    pub(super) fn down() -> Self {
        let now = Instant::now();
        Self {
            state: State::Down { retry_at: now },
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
            flight: VecDeque::new(),
            answered: Vec::new(),
            is_listed: false,
            quiet_since: now,
        }
    }

    /// Begins to connect anew.
    ///
    /// # Errors
    /// There is no way to the server.
    pub(super) fn reconnect(
        &mut self,
        address: SocketAddr,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        registry.register(&mut stream, token, interest())?;
        self.quiet_since = Instant::now();
        self.state = State::Connecting(stream);
        Ok(())
    }

    /// Whether what was being made is there now.
    ///
    /// # Errors
    /// The server refused.
    pub(super) fn established(&mut self) -> io::Result<()> {
        let nobody = || State::Down { retry_at: Instant::now() };
        let State::Connecting(stream) = std::mem::replace(&mut self.state, nobody()) else {
            return Ok(());
        };
        match stream.take_error()? {
            Some(error) => return Err(error),
            None => stream.set_nodelay(true)?,
        }
        self.state = State::Up(stream);
        Ok(())
    }

    /// Hangs up, and forgets what was on its way; the caller has counted it.
    pub(super) fn hang_up(&mut self, retry_at: Instant) {
        // Closing the descriptor takes it out of the poll.
        self.state = State::Down { retry_at };
        self.output.clear();
        self.input.clear();
        self.flight.clear();
        self.answered.clear();
        self.written = 0;
    }

    /// Whether requests can be sent.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Writes what there is, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn write(&mut self) -> Result<(), Broken> {
        let State::Up(stream) = &mut self.state else { return Ok(()) };
        while self.written < self.output.len() {
            match stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Broken::Io),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads what has come; `is_closed` where the other side is known to have hung up.
    ///
    /// # Errors
    /// The connection broke; what came before it did is in the input.
    pub(super) fn read(&mut self, scratch: &mut [u8], is_closed: bool) -> Result<(), Broken> {
        let State::Up(stream) = &mut self.state else { return Ok(()) };
        loop {
            match stream.read(scratch) {
                Ok(0) => return Err(Broken::Closed),
                Ok(bytes) => {
                    self.input.extend_from_slice(&scratch[..bytes]);
                    // A short read has taken all there was: another would only be told so.
                    if bytes < scratch.len() && !is_closed {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Broken::Io),
            }
        }
    }
}

fn interest() -> Interest {
    Interest::READABLE | Interest::WRITABLE
}

/// The server is away or does not listen; anything else is for whoever runs the generator.
fn is_the_servers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | TimedOut)
}
