//! A connection under TLS, which ends here where the port has a certificate.
//!
//! Nothing else knows of it: it is a stream like a socket. What it holds for a connection is a
//! record read and some 64 KiB sealed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// For a peer to begin TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What connections that begin now are shown; those that are there keep theirs.
#[derive(Clone, Debug)]
pub(crate) struct Certificate(Arc<Mutex<Arc<ServerConfig>>>);

impl Certificate {
    /// The first one.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(Mutex::new(config)))
    }

    /// Shows another one from now on.
    pub(crate) fn renew(&self, config: Arc<ServerConfig>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Shakes hands on `socket`. `None` where the peer speaks something else or nothing, or the
    /// house ends first: there is nothing to be said to it then.
    pub(super) async fn begin(&self, socket: TcpStream, end: &CancellationToken) -> Option<Sealed> {
        let config = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let begun = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(socket));
        tokio::select! {
            begun = begun => Some(Sealed(begun.ok()?.ok()?)),
            () = end.cancelled() => None,
        }
    }
}

/// A socket under TLS.
pub(super) struct Sealed(TlsStream<TcpStream>);

impl AsyncRead for Sealed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        // A write is done once its bytes are sealed; those that the socket did not take at once
        // leave here, for who writes to a socket and reads on flushes nothing.
        if let Poll::Ready(Err(error)) = Pin::new(&mut *stream).poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
