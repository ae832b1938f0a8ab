//! Bodies: bounded in bytes and in time.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use crate::app::Shared;
use crate::http::problem::{Code, Problem};

/// The largest JSON body: a whole activity with its longest title, escaped, fits.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;

/// The largest CSV body: some 50,000 users.
pub(crate) const CSV_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of a body that is too large which are read away before it is refused.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;
/// And how long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(500);

/// The whole body, at most `bytes_max`, within the body time-out.
pub(crate) async fn read_body(
    request: Request<Body>,
    shared: &Shared,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let announced = body.size_hint().lower();
    if announced > (bytes_max + DISCARDED_BYTES_MAX) as u64 {
        return Err(Code::PayloadTooLarge.into());
    }
    let mut bytes = BytesMut::new();
    let within = collect(&mut body, &mut bytes, bytes_max);
    match tokio::time::timeout(shared.http().body_timeout, within).await {
        Err(_) => Err(Code::RequestTimeout.into()),
        Ok(Ok(true)) => Ok(bytes.freeze()),
        Ok(Ok(false)) => {
            // Closing the connection with unread bytes would reset it, and the answer might never
            // be seen; but nobody is read from for ever to be told that it was too much.
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard(&mut body)).await;
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

async fn discard(body: &mut Body) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > DISCARDED_BYTES_MAX {
            return;
        }
    }
}
