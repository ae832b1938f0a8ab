//! The short way of a plain purchase.
//!
//! In a rush nearly every request is the same one: a purchase with a token and a small JSON body.
//! Such a request is read where it lies and answered without what a general server does for
//! requests that it can't foresee; whatever is not plain is left, byte for byte, to the router,
//! which refuses what is wrong. So this way decides nothing that the router would refuse, and has
//! no errors of its own: what is asked before a sale, the decision and the documents of refusals
//! are [`purchase`]'s and the gate's.
//!
//! | file | idea |
//! |---|---|
//! | [`head`] | which requests are plain, in one table |
//! | [`answer`] | the bytes of an answer |

mod answer;
mod head;

use std::sync::Arc;

use super::input::{Client, IdempotencyKey, Said, activity_named, came_over_tls, is_json};
use super::purchase::{self, ROUTE, Wanted};
use super::request_id::continuing;
use crate::app::Shared;
use crate::identity::{Caller, bearer};
use crate::listener::{Peer, turn};
use answer::Envelope;
use head::{Field, Head, Verdict};

/// What a connection has sent.
#[expect(clippy::large_enum_variant, reason = "moved once; a box would be an allocation each")]
pub(crate) enum Sent<'a> {
    /// The beginning of a request that may become a plain one; whether its head is whole.
    Part { has_head: bool },
    /// A plain purchase.
    Purchase(Plain<'a>),
    /// Something for the router.
    Elsewhere,
}

/// A plain purchase, of somebody whose token is good.
pub(crate) struct Plain<'a> {
    /// Bytes of the whole request.
    pub(crate) bytes: usize,
    head: Head<'a>,
    caller: Caller,
    client: Client,
    wanted: Wanted,
}

/// Looks at the beginning of `input`.
pub(crate) fn read<'a>(input: &'a [u8], shared: &Arc<Shared>, peer: &Peer) -> Sent<'a> {
    let head = match head::read(input) {
        Verdict::Incomplete => return Sent::Part { has_head: false },
        Verdict::Elsewhere => return Sent::Elsewhere,
        Verdict::Plain(head) => head,
    };
    let bytes = head.bytes + head.body_bytes;
    let Some(body) = input.get(head.bytes..bytes) else { return Sent::Part { has_head: true } };
    plain(head, body, shared, peer).map_or(Sent::Elsewhere, Sent::Purchase)
}

/// The purchase, where everything in it has the right shape.
fn plain<'a>(head: Head<'a>, body: &[u8], shared: &Shared, peer: &Peer) -> Option<Plain<'a>> {
    let is_admitted = !shared.gate.require_tls
        || came_over_tls(shared, Some(peer), head.get(Field::ForwardedProto));
    if !is_admitted || !head.get(Field::ContentType).is_none_or(is_json) {
        return None;
    }
    let caller = shared.verify(bearer(head.get(Field::Authorization)?)?).ok()?.caller;
    let said = Said {
        device: head.get(Field::Device),
        arm: head.get(Field::Canary),
        admission: head.get(Field::Admission),
    };
    let forwarded = head.get(Field::ForwardedFor).into_iter();
    let client = Client::behind(peer.clone(), forwarded, &said, shared).ok()?;
    let key = match head.get(Field::IdempotencyKey) {
        None => None,
        Some(value) => IdempotencyKey::read(value).ok()?.0,
    };
    let wanted = Wanted::read(body, key).ok()?;
    let bytes = head.bytes + head.body_bytes;
    Some(Plain { bytes, head, caller, client, wanted })
}

impl Plain<'_> {
    /// Buys, and appends the answer to `out`; nothing follows it on this connection where it
    /// `is_last`.
    pub(crate) async fn answer(self, shared: &Shared, is_last: bool, out: &mut Vec<u8>) {
        let Self { head, caller, client, wanted, .. } = self;
        let (activity, turn) = (activity_named(head.activity), turn::present());
        let bought = purchase::buy(shared, caller, &client, activity, Ok(wanted)).await;
        turn::ended(shared.app().ok(), turn).await;
        let envelope = Envelope {
            request_id: head.get(Field::RequestId),
            trace: head.get(Field::TraceParent).and_then(continuing),
            is_last,
        };
        let status = answer::write(&bought, &envelope, out);
        shared.metrics.request(Some(ROUTE), status);
    }
}
