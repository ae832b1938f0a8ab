//! Reservations that no order could hold, through the engine.

use super::engine::Engine;
use super::payment::Answered;
use crate::core::command::Command;
use crate::core::event::Actor;
use crate::core::ids::{ActivityId, ReservationId, UserId};
use crate::core::limits::{NOTE_BYTES_MAX, REFUND_NO_RESERVED_PREFIX};

/// A reservation that waits for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterView {
    /// The reservation.
    pub reservation: ReservationId,
    /// Its order number.
    pub order_no: String,
    /// Its activity.
    pub activity: ActivityId,
    /// Its buyer.
    pub user: UserId,
    /// Why no order could hold it.
    pub note: String,
    /// When that was noticed, Unix milliseconds.
    pub opened_ms: u64,
}

impl Engine {
    /// A sink could not make an order of `reservation`, at the record `failed_seq` of its shard:
    /// that of its acceptance, or of a later delivery. Its activity's policy says what becomes of
    /// it; a paid one always waits for an operator. Of `note` the first 256 bytes are kept. Saying
    /// it again, after a crash, changes nothing.
    ///
    /// # Errors
    /// [`Busy`](wal::Busy): nothing was decided.
    pub fn dead_lettered(
        &self,
        reservation: ReservationId,
        failed_seq: u64,
        note: &str,
    ) -> Answered {
        let note = &note[..note.floor_char_boundary(NOTE_BYTES_MAX)];
        self.settle(reservation, &Command::DeadLetter { reservation, failed_seq, note })
    }

    /// Has a dead letter delivered again: a sink finds that in the log. Refused as `RolledBack`
    /// where it was given back.
    ///
    /// # Errors
    /// [`Busy`](wal::Busy): nothing was decided.
    pub fn dead_letter_retry(&self, reservation: ReservationId, actor: Actor<'_>) -> Answered {
        self.settle(reservation, &Command::RetryDeadLetter { reservation, actor })
    }

    /// Gives a dead letter up: its units go back; a paid one's refund is asked for, and it is
    /// closed once that is settled.
    ///
    /// # Errors
    /// [`Busy`](wal::Busy): nothing was decided.
    pub fn dead_letter_rollback(&self, reservation: ReservationId, actor: Actor<'_>) -> Answered {
        let refund_no = format!("{REFUND_NO_RESERVED_PREFIX}dead-letter-{reservation}");
        let refund_no = refund_no.as_str();
        self.settle(reservation, &Command::RollBackDeadLetter { reservation, refund_no, actor })
    }

    /// Dead letters that wait for an operator, at most `count_max`, the oldest first. Shows what
    /// was decided, durable or not: they are looked at, not rested on.
    pub fn dead_letters(&self, count_max: usize) -> Vec<DeadLetterView> {
        let mut views = Vec::new();
        for shard in &self.inner.shards {
            let shard = shard.lock();
            for (id, activity) in shard.activities() {
                let open = activity.dead_letters().filter(|(_, letter)| letter.is_open());
                views.extend(open.take(count_max).filter_map(|(reservation, letter)| {
                    Some(DeadLetterView {
                        reservation,
                        order_no: self.order_no(activity, reservation).into(),
                        activity: id,
                        user: activity.slot(reservation)?.user(),
                        note: letter.note.to_string(),
                        opened_ms: letter.opened_ms,
                    })
                }));
            }
        }
        views.sort_by_key(|view| (view.opened_ms, view.reservation));
        views.truncate(count_max);
        views
    }
}
