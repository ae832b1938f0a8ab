//! Bodies that come by and by. One piece waits for the client at a time: who does not read holds
//! up nobody but the task that makes the pieces, which gives up after a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::listener::Streamed;

/// For a client to take a piece.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells proxies to pass pieces on as they come.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Where the pieces go.
pub(super) struct Pieces(mpsc::Sender<Result<Bytes, BrokenOff>>);

/// Ends a body in the middle.
#[derive(Debug, thiserror::Error)]
#[error("the answer was broken off")]
struct BrokenOff;

/// The client is gone, or does not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gone;

impl Pieces {
    /// Sends one more.
    ///
    /// # Errors
    /// [`Gone`]
    pub(super) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.send_timeout(Ok(piece.into()), TAKE_TIMEOUT).await.map_err(|_| Gone)
    }

    /// Ends the answer so that its client sees that it is not whole.
    pub(super) async fn break_off(&self) {
        let _ = self.0.send_timeout(Err(BrokenOff), TAKE_TIMEOUT).await;
    }

    /// Waits until the client is gone.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// An answer of `content_type`, and where its pieces go.
pub(super) fn answer(content_type: &'static str) -> (Pieces, Response) {
    let (sender, receiver) = mpsc::channel(1);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    let mut response = (headers, Body::new(Flow(receiver))).into_response();
    response.extensions_mut().insert(Streamed);
    (Pieces(sender), response)
}

struct Flow(mpsc::Receiver<Result<Bytes, BrokenOff>>);

impl hyper::body::Body for Flow {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn who_does_not_read_holds_one_piece_and_is_given_up() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
            let (pieces, response) = answer("text/event-stream");
            assert_eq!(pieces.send("one").await, Ok(()));
            let asked = Instant::now();
            assert_eq!(pieces.send("two").await, Err(Gone));
            assert_eq!(asked.elapsed(), TAKE_TIMEOUT);
            drop(response);
            pieces.gone().await;
            assert_eq!(pieces.send("three").await, Err(Gone));
            assert_eq!(asked.elapsed(), TAKE_TIMEOUT, "who is gone is not waited for");
        });
    }
}
