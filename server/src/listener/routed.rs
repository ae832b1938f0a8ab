//! A connection in the hands of hyper and the router, to its end.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service as _;

use super::guard::{Guard, Phase};
use super::{Peer, refused, streamed, turn};
use crate::app::Shared;

/// Headers of one request; browsers behind two proxies send some thirty.
const HEADERS_MAX: usize = 64;

/// Bytes of a request's head, and of what is read ahead of it.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

/// Serves `router` until the client or the house ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    (guard, phase): (Guard<S>, Phase),
    peer: Peer,
    (router, shared): (Router, &Arc<Shared>),
) {
    let socket = TokioIo::new(refused::Refused::new(guard));
    let service = service_fn(|mut request: Request<Incoming>| {
        phase.busy();
        turn::end_overdue(shared);
        request.extensions_mut().insert(peer.clone());
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let answer = router.clone().call(request.map(Body::new));
        let phase = phase.clone();
        async move {
            let answer = answer.await;
            let mut answer = answer.map(|answer| streamed::ended(answer, phase));
            if let (Ok(answer), true) = (&mut answer, is_chunked) {
                // hyper drops a Content-Length beside it: whoever stands before us may have
                // counted by that one. So nothing behind such a body is a request.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            answer.map_err(|never: Infallible| match never {})
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        // A client may say "this is all" and wait for its answer: a purchase that was decided must
        // be told.
        .half_close(true)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // With it an answer would wait for as long as the next request is incomplete, and the
        // answer to a broken one would never leave.
        .pipeline_flush(false)
        .serve_connection(socket, service);
    tokio::pin!(connection);
    // How a connection ends is its client's affair: whatever the error, nothing is logged that a
    // client could make us log.
    tokio::select! {
        // The connection first: what was read of a request before is in hyper's hands then, and is
        // answered at the end of the house, too.
        biased;
        _ = connection.as_mut() => {}
        () = shared.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
