//! One keep-alive connection: a request goes out, its answer comes back, then the next.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::wire::{self, ANSWER_BYTES_MAX, Malformed};

/// First size of a connection's input buffer: an answer of the purchase endpoint fits twice.
const INPUT_BYTES: usize = 2 * 1024;

/// Why an exchange brought no answer. After any of them the connection is useless, and whether
/// the server acted is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// No connection could be made. Nothing was sent.
    #[error("cannot connect ({0})")]
    Connect(io::ErrorKind),
    /// The server closed before the answer was complete.
    #[error("the connection was closed before the answer")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed ({0})")]
    Io(io::ErrorKind),
    /// The answer did not come in time.
    #[error("no answer in time")]
    TimedOut,
    /// The answer is not one that Sluice gives.
    #[error("the answer is not one that Sluice gives")]
    Malformed,
}

impl From<Malformed> for ExchangeError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// An answer, borrowed from the connection's buffer.
pub(super) struct Reply<'a> {
    /// The status code.
    pub(super) status: u16,
    /// `Idempotency-Replayed: true` was there.
    pub(super) is_replay: bool,
    /// The body.
    pub(super) body: &'a [u8],
}

/// A connection that is made when it is needed, and again when it broke.
pub(super) struct Client {
    address: SocketAddr,
    time_out: Duration,
    stream: Option<TcpStream>,
    input: Vec<u8>,
}

impl Client {
    /// A client of `address` that waits at most `time_out` for a connection and for an answer.
    pub(super) fn new(address: SocketAddr, time_out: Duration) -> Self {
        Self { address, time_out, stream: None, input: vec![0; INPUT_BYTES] }
    }

    /// Connects, where that is still to be done.
    ///
    /// # Errors
    /// [`ExchangeError::Connect`].
    pub(super) async fn connect(&mut self) -> Result<(), ExchangeError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let connecting = tokio::time::timeout(self.time_out, TcpStream::connect(self.address));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(ExchangeError::Connect(error.kind())),
            Err(_) => return Err(ExchangeError::Connect(io::ErrorKind::TimedOut)),
        };
        stream.set_nodelay(true).map_err(|error| ExchangeError::Connect(error.kind()))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Hangs up; the next exchange makes a new connection.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Sends `request` and reads its answer.
    ///
    /// # Errors
    /// Any [`ExchangeError`]; the next exchange makes a new connection.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> Result<Reply<'_>, ExchangeError> {
        self.connect().await?;
        // Taken out, so that an exchange that fails or is dropped half-way leaves no connection
        // behind whose next answer would belong to this request.
        let mut stream = self.stream.take().ok_or(ExchangeError::Closed)?;
        let exchange = exchange(&mut stream, &mut self.input, request);
        let head = match tokio::time::timeout(self.time_out, exchange).await {
            Ok(head) => head?,
            Err(_) => return Err(ExchangeError::TimedOut),
        };
        if !head.is_last {
            self.stream = Some(stream);
        }
        let body = &self.input[head.head_bytes..head.head_bytes + head.body_bytes];
        Ok(Reply { status: head.status, is_replay: head.is_replay, body })
    }
}

async fn exchange(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    request: &[u8],
) -> Result<wire::Head, ExchangeError> {
    let io_error = |error: io::Error| ExchangeError::Io(error.kind());
    stream.write_all(request).await.map_err(io_error)?;
    let mut filled = 0;
    loop {
        let read = stream.read(&mut input[filled..]).await.map_err(io_error)?;
        if read == 0 {
            return Err(ExchangeError::Closed);
        }
        filled += read;
        let Some(head) = wire::parse_head(&input[..filled])? else {
            make_room(input, filled, filled + 1)?;
            continue;
        };
        let whole = head.head_bytes.saturating_add(head.body_bytes);
        if filled > whole {
            return Err(ExchangeError::Malformed);
        }
        if filled == whole {
            return Ok(head);
        }
        make_room(input, filled, whole)?;
    }
}

/// Makes `input` hold at least `needed` bytes, of which `filled` are there.
fn make_room(input: &mut Vec<u8>, filled: usize, needed: usize) -> Result<(), ExchangeError> {
    if needed > ANSWER_BYTES_MAX {
        return Err(ExchangeError::Malformed);
    }
    if needed > input.len() {
        input.resize(needed.max(filled * 2), 0);
    }
    Ok(())
}
