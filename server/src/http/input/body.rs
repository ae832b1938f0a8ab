//! Bodies: bounded in bytes and in time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::app::Shared;
use crate::http::problem::{Code, Problem};

/// The largest JSON body: a whole activity with its longest title, escaped, fits.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// The largest CSV body: some 50,000 users.
pub(crate) const CSV_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a body that is too large is read away before it is refused.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(500);

/// The whole body, at most `bytes_max`, within the body time-out.
pub(crate) async fn read_body(
    request: Request<Body>,
    shared: &Shared,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let waits = request.headers().contains_key(header::EXPECT);
    let mut body = request.into_body();
    if body.size_hint().lower() > bytes_max as u64 {
        // Reading would tell who waits for a word (100 Continue) to send it all.
        if !waits {
            discard(&mut body).await;
        }
        return Err(Code::PayloadTooLarge.into());
    }
    let mut bytes = BytesMut::new();
    let within = collect(&mut body, &mut bytes, bytes_max);
    match tokio::time::timeout(shared.http().body_timeout, within).await {
        Err(_) => Err(Code::RequestTimeout.into()),
        Ok(Ok(true)) => Ok(bytes.freeze()),
        Ok(Ok(false)) => {
            discard(&mut body).await;
            Err(Code::PayloadTooLarge.into())
        }
        Ok(Err(_)) => Err(Problem::invalid("the body could not be read")),
    }
}

/// Reads `body` into `bytes`; whether it ends within `bytes_max`.
async fn collect(
    body: &mut Body,
    bytes: &mut BytesMut,
    bytes_max: usize,
) -> Result<bool, axum::Error> {
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > bytes_max {
            return Ok(false);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(true)
}

/// Closing the connection with unread bytes would reset it, and the answer might never be seen;
/// but nobody is read from for ever to be told that it was too much.
async fn discard(body: &mut Body) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, rest).await;
}
