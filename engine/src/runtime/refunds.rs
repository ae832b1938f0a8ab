//! Refunds through the engine: asked for by operators, carried out by whoever speaks to the
//! providers.
//!
//! [`Engine::pending_refunds`] is that worker's whole memory: the log rebuilds it. A worker that
//! dies between the provider's answer and [`Engine::refund_settled`] asks the provider again under
//! the same number, which providers answer as the first time.

use wal::Busy;

use super::engine::Engine;
use super::pending::Pending;
use crate::core::command::{Command, Refusal, RequestRefund};
use crate::core::event::RefundScope;
use crate::core::ids::{ActivityId, ReservationId, UserId};
use crate::core::side::Refund;

/// A refund that the provider has yet to settle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingRefund {
    /// The activity of its reservation.
    pub activity: ActivityId,
    /// Whose payment goes back.
    pub reservation: ReservationId,
    /// Its number, which the provider is told as well.
    pub refund_no: String,
    /// The buyer.
    pub user: UserId,
    /// Whether the order's money goes back, or a payment's that paid nothing.
    pub scope: RefundScope,
    /// The way it was paid; empty where a back end brought a payment of its own, which only that
    /// back end can give back.
    pub channel: String,
    /// The payment.
    pub payment_no: String,
    /// The provider's transaction.
    pub transaction: String,
    /// What goes back.
    pub amount: u64,
    /// When it was asked for, Unix milliseconds.
    pub requested_ms: u64,
}

/// The refund after the command, or why nothing changed.
type Answered = Result<Pending<Result<Refund, Refusal>>, Busy>;

impl Engine {
    /// Asks for the refund of a paid order, once per number. Units and limit move as asked, when
    /// the provider has settled it. [`Refusal::Archived`]: ask again with what SQL knows.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn refund_request(&self, request: &RequestRefund<'_>) -> Answered {
        let of_archived = request.archived.map(|order| order.activity);
        let Some(activity) = self.activity_of(request.reservation).or(of_archived) else {
            return self.refused(0, Refusal::UnknownReservation);
        };
        let command = Command::RequestRefund(*request);
        self.refund(activity, request.reservation, request.refund_no, &command)
    }

    /// The provider gave the money back. Saying it again changes nothing.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn refund_settled(
        &self,
        activity: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
    ) -> Answered {
        let command = Command::SettleRefund { reservation, refund_no };
        self.refund(activity, reservation, refund_no, &command)
    }

    /// The provider refused for good: the order is paid again, and an operator must look at it. Of
    /// `note` the first 256 bytes are kept.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn refund_failed(
        &self,
        activity: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
        note: &str,
    ) -> Answered {
        let note = &note[..note.floor_char_boundary(crate::core::limits::NOTE_BYTES_MAX)];
        let command = Command::FailRefund { reservation, refund_no, note };
        self.refund(activity, reservation, refund_no, &command)
    }

    fn refund(
        &self,
        activity: ActivityId,
        reservation: ReservationId,
        refund_no: &str,
        command: &Command<'_>,
    ) -> Answered {
        let pending =
            self.run(activity, command, |shard, _| shard.refund(activity, reservation, refund_no))?;
        Ok(pending.map(|told| told?.ok_or(Refusal::UnknownRefund)))
    }

    /// Refunds that the providers have yet to settle, at most `count_max`. Only what is durable:
    /// a provider must not be asked for what a crash could take back.
    pub fn pending_refunds(&self, count_max: usize) -> Vec<PendingRefund> {
        let mut refunds = Vec::new();
        for (index, shard) in (0..).zip(&self.inner.shards) {
            let durable_seq = self.inner.log.durable_seq(index);
            let shard = shard.lock();
            let durable = shard.open_refunds().filter(|(.., it)| it.shard_seq <= durable_seq);
            let room = count_max - refunds.len();
            refunds.extend(durable.take(room).map(|(reservation, refund_no, it)| PendingRefund {
                activity: it.activity,
                reservation,
                refund_no: refund_no.to_owned(),
                user: it.user,
                scope: it.scope,
                channel: it.channel.to_string(),
                payment_no: it.payment_no.to_string(),
                transaction: it.transaction.to_string(),
                amount: it.amount,
                requested_ms: it.requested_ms,
            }));
        }
        refunds
    }
}
