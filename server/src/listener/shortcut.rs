//! A connection that only buys: [plain purchases](plain) one behind the other, read where they lie.
//!
//! ```text
//! nothing, or a part of a head   wait for more
//! a head, a part of its body     wait for more, a moment
//! a plain purchase               buy, answer, look again
//! anything else                  hand the connection on, with what was read
//! ```
//!
//! It never comes back: whoever mixes purchases with other requests on one connection is served
//! by the router, at the router's speed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::guard::{Guard, Phase};
use super::{Peer, turn};
use crate::app::Shared;
use crate::http::plain::{self, Sent};

/// What a connection reads ahead at first: a purchase with its token.
const INPUT_BYTES: usize = 2 * 1024;

/// How long a body that did not come with its head is waited for here. The router, which has a
/// clock and an answer for bodies that don't come, begins anew then.
const BODY_WAIT: Duration = Duration::from_secs(1);

/// What is left of a connection.
pub(super) enum Rest {
    /// It has ended.
    Nothing,
    /// What was read of a request that is not plain.
    Other(Vec<u8>),
}

/// Serves plain purchases; what is left when there are no more.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    (socket, phase): (&mut Guard<S>, &Phase),
    peer: &Peer,
    shared: &Arc<Shared>,
) -> Rest {
    let (mut input, mut output) = (Vec::with_capacity(INPUT_BYTES), Vec::new());
    let mut stop = pin!(shared.stop.cancelled());
    let mut body_due = None;
    loop {
        let purchase = match plain::read(&input, shared, peer) {
            Sent::Purchase(purchase) => purchase,
            Sent::Elsewhere => return Rest::Other(input),
            Sent::Part { has_head: true } => {
                phase.busy();
                let due = *body_due.get_or_insert_with(|| Instant::now() + BODY_WAIT);
                match timeout_at(due, socket.read_buf(&mut input)).await {
                    Ok(Ok(1..)) => continue,
                    _ => return Rest::Other(input),
                }
            }
            Sent::Part { has_head: false } => {
                tokio::select! {
                    biased;
                    read = socket.read_buf(&mut input) => match read {
                        Ok(1..) => continue,
                        Ok(0) if !input.is_empty() => return Rest::Other(input),
                        _ => return Rest::Nothing,
                    },
                    // What has begun is the router's to end.
                    () = stop.as_mut() => return match input.is_empty() {
                        true => Rest::Nothing,
                        false => Rest::Other(input),
                    },
                }
            }
        };
        phase.busy();
        body_due = None;
        turn::end_overdue(shared);
        let bytes = purchase.bytes;
        let is_last = shared.is_draining();
        purchase.answer(shared, is_last, &mut output).await;
        phase.idle();
        if socket.write_all(&output).await.is_err() {
            return Rest::Nothing;
        }
        if is_last {
            return Rest::Nothing;
        }
        output.clear();
        input.drain(..bytes);
        if !input.is_empty() {
            socket.begun();
        }
    }
}
