//! A socket that gives up on a client that doesn't move.
//!
//! hyper has one clock, from "waiting for a request" to "headers complete", which an idle
//! keep-alive connection and a header that is dribbled byte by byte would have to share, and none
//! at all for a client that doesn't read its answers. The guard knows the difference:
//!
//! ```text
//! phase    entered when                         ends the connection after
//! Idle     an answer was given (or at accept)   idle_timeout without a byte
//! Head     the first byte of a request          header_timeout, however many bytes trickle in
//! Busy     the headers are complete             never: the handler has its own clocks
//! (write)  the socket takes no more             write_timeout without progress
//! (drain)  what it took does not leave it       write_timeout; under TLS it takes some ahead
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const BUSY: u8 = 2;
/// No phase: the clock starts anew at the next read.
const NONE: u8 = 3;

/// Where the connection is; shared between its socket and its service, which run in one task.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A request's headers are complete.
    pub(super) fn busy(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// Its answer was given.
    pub(super) fn idle(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between requests.
    pub(super) idle: Duration,
    /// For a request's headers.
    pub(super) header: Duration,
    /// For the next byte of an answer to be taken.
    pub(super) write: Duration,
}

/// The socket `S` under these rules.
#[derive(Debug)]
pub(super) struct Guard<S> {
    socket: S,
    /// Read, and given back: what the next reads find first.
    ahead: Bytes,
    phase: Phase,
    patience: Patience,
    read_clock: Clock,
    write_clock: Clock,
    drain_clock: Clock,
}

impl<S> Guard<S> {
    pub(super) fn new(socket: S, phase: Phase, patience: Patience) -> Self {
        let mut read_clock = Clock::default();
        read_clock.start(patience.idle);
        let (write_clock, drain_clock) = (Clock::default(), Clock::default());
        let ahead = Bytes::new();
        Self { socket, ahead, phase, patience, read_clock, write_clock, drain_clock }
    }

    /// Lets somebody else read what was read already.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        self.ahead = bytes.into();
    }

    /// A request has begun, with bytes that came behind the one before: its time begins now.
    pub(super) fn begun(&mut self) {
        self.phase.0.store(HEAD, Ordering::Relaxed);
        self.read_clock.phase = NONE;
    }
}

impl<S> Guard<S> {
    /// Winds the read clock for the phase that is now.
    fn wind(&mut self) -> u8 {
        let phase = self.phase.get();
        if self.read_clock.phase != phase {
            self.read_clock.phase = phase;
            match phase {
                IDLE => self.read_clock.start(self.patience.idle),
                HEAD => self.read_clock.start(self.patience.header),
                _ => self.read_clock.stop(),
            }
        }
        phase
    }
}

/// A deadline that costs no timer until somebody has to wait for it.
#[derive(Debug, Default)]
struct Clock {
    /// For which phase the deadline stands.
    phase: u8,
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn start(&mut self, patience: Duration) {
        self.deadline = Some(Instant::now() + patience);
    }

    fn stop(&mut self) {
        self.deadline = None;
    }

    fn running(&self) -> bool {
        self.deadline.is_some()
    }

    /// Runs from where the socket is not ready, and stops where it is.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
        patience: Duration,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stop();
            return poll;
        }
        if !self.running() {
            self.start(patience);
        }
        self.poll_expired(cx).map(Err)
    }

    /// Pending until the deadline, and then this error.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let phase = this.wind();
        let before = buffer.filled().len();
        match Pin::new(&mut this.socket).poll_read(cx, buffer) {
            Poll::Ready(outcome) => {
                if phase == IDLE && buffer.filled().len() > before {
                    this.phase.0.store(HEAD, Ordering::Relaxed);
                    // The answer may be given before the next read, which then finds the phase
                    // that it left: its clock has to start anew all the same.
                    this.read_clock.phase = NONE;
                }
                Poll::Ready(outcome)
            }
            Poll::Pending => this.read_clock.poll_expired(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.write_clock.watch(cx, poll, this.patience.write)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Having answered, hyper reads again only when the socket wakes it: a client that stays
        // silent would find no clock running. The flush of the answer starts it; when it rings,
        // hyper reads and meets the error there.
        if this.wind() == IDLE {
            let _ = this.read_clock.poll_expired(cx);
        }
        let poll = Pin::new(&mut this.socket).poll_flush(cx);
        this.drain_clock.watch(cx, poll, this.patience.write)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.socket).poll_shutdown(cx);
        this.drain_clock.watch(cx, poll, this.patience.write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.socket).poll_write_vectored(cx, buffers);
        this.write_clock.watch(cx, poll, this.patience.write)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Patience = Patience {
        idle: Duration::from_secs(60),
        header: Duration::from_secs(5),
        write: Duration::from_secs(10),
    };

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    /// Takes all at once, as TLS does, and gets rid of nothing.
    struct Sealed;

    impl AsyncWrite for Sealed {
        fn poll_write(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[test]
    fn what_was_taken_and_does_not_leave_ends_the_connection_too() {
        paused().block_on(async {
            for ends in [false, true] {
                let mut guard = Guard::new(Sealed, Phase::default(), PATIENCE);
                guard.phase.busy();
                guard.write_all(b"an answer").await.unwrap();
                let started = Instant::now();
                let outcome = if ends { guard.shutdown().await } else { guard.flush().await };
                assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
                assert_eq!(started.elapsed().as_secs(), PATIENCE.write.as_secs());
            }
        });
    }

    #[test]
    fn a_request_behind_another_has_its_own_time() {
        paused().block_on(async {
            let (mut client, server) = duplex(1024);
            let mut guard = Guard::new(server, Phase::default(), PATIENCE);
            let started = Instant::now();
            client.write_all(b"a").await.unwrap();
            let mut byte = [0; 1];
            guard.read_exact(&mut byte).await.unwrap();
            // The rest of it, and of those behind it, takes four seconds.
            tokio::time::timeout(Duration::from_secs(4), guard.read_exact(&mut byte))
                .await
                .unwrap_err();
            guard.begun();
            let late = guard.read_exact(&mut byte).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed().as_secs(), 9);
        });
    }

    #[test]
    fn a_header_that_trickles_is_cut_off_while_an_idle_connection_lives_on() {
        paused().block_on(async {
            let (mut client, server) = duplex(1024);
            let phase = Phase::default();
            let mut guard = Guard::new(server, phase.clone(), PATIENCE);
            let started = Instant::now();
            let trickle = async {
                tokio::time::sleep(Duration::from_secs(50)).await;
                while client.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            let read = async {
                let mut byte = [0; 1];
                loop {
                    if let Err(error) = guard.read_exact(&mut byte).await {
                        return error.kind();
                    }
                }
            };
            let kind = tokio::select! {
                kind = read => kind,
                () = trickle => unreachable!("the guard keeps the pipe open"),
            };
            assert_eq!(kind, io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed().as_secs(), 55);
        });
    }

    #[test]
    fn a_connection_that_says_nothing_ends_after_the_idle_time() {
        paused().block_on(async {
            let (_client, server) = duplex(1024);
            let mut guard = Guard::new(server, Phase::default(), PATIENCE);
            let started = Instant::now();
            let error = guard.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed(), PATIENCE.idle);
        });
    }

    #[test]
    fn the_idle_time_starts_anew_with_every_answer() {
        paused().block_on(async {
            let (mut client, server) = duplex(1024);
            let phase = Phase::default();
            let mut guard = Guard::new(server, phase.clone(), PATIENCE);
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                client.write_all(b"x").await.unwrap();
                assert_eq!(guard.read_u8().await.unwrap(), b'x');
                phase.busy();
                phase.idle();
            }
            let answered = Instant::now();
            assert!(guard.read_u8().await.is_err());
            assert_eq!(answered.elapsed(), PATIENCE.idle);
        });
    }

    #[test]
    fn a_request_in_progress_is_on_no_clock_of_the_socket() {
        paused().block_on(async {
            let (_client, server) = duplex(1024);
            let phase = Phase::default();
            let mut guard = Guard::new(server, phase.clone(), PATIENCE);
            phase.busy();
            let hour = Duration::from_secs(3600);
            assert!(tokio::time::timeout(hour, guard.read_u8()).await.is_err());
        });
    }

    #[test]
    fn a_client_that_takes_no_byte_is_cut_off() {
        paused().block_on(async {
            let (_client, server) = duplex(4);
            let mut guard = Guard::new(server, Phase::default(), PATIENCE);
            let started = Instant::now();
            let error = guard.write_all(b"more than four").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(started.elapsed(), PATIENCE.write);
        });
    }
}
