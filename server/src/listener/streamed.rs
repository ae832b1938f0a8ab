//! Answers whose bodies take their time: events as they happen, long exports. Until such a body
//! has ended its connection is busy, not idle.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::guard::Phase;

/// Marks an answer whose body comes by and by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streamed;

/// Ends the request of `answer`: now, or with its body where that comes by and by.
pub(super) fn ended(answer: Response, phase: Phase) -> Response {
    if answer.extensions().get::<Streamed>().is_none() {
        phase.idle();
        return answer;
    }
    answer.map(|body| Body::new(Flowing { body, phase }))
}

/// A body that says when it is over.
struct Flowing {
    body: Body,
    phase: Phase,
}

impl hyper::body::Body for Flowing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        self.phase.idle();
    }
}
