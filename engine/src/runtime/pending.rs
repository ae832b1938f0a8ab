//! An answer that can't be looked at before what it rests on is durable.
//!
//! This is how invariant W1 is kept: the value is private, and the only ways to it wait for the
//! ticket. A refusal waits as well: a `sold_out` that rests on a reservation not yet on disk would
//! be a phantom if the machine stopped now.

use wal::{Log, LogUnavailable, Ticket};

use crate::planted::{self, Bug};

/// An answer and the record it rests on.
#[must_use = "the answer is not told before it is waited for"]
pub struct Pending<T> {
    value: T,
    log: Log,
    ticket: Ticket,
}

impl<T> Pending<T> {
    pub(crate) fn new(value: T, log: &Log, ticket: Ticket) -> Self {
        Self { value, log: log.clone(), ticket }.held_unless(Bug::AnsweredBeforeDurable)
    }

    /// Held as it is, but for who has this fault: then by nothing.
    pub(crate) fn held_unless(mut self, bug: Bug) -> Self {
        if planted::has(bug) {
            self.ticket.shard_seq = 0;
        }
        self
    }

    /// The answer, once durable.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log failed first: the outcome is unknown, and the same request
    /// may be repeated after a restart.
    pub async fn durable(self) -> Result<T, LogUnavailable> {
        self.log.durable(self.ticket).await?;
        Ok(self.value)
    }

    /// The answer, once durable; blocks this thread until then.
    ///
    /// # Errors
    /// As [`Pending::durable`].
    pub fn wait(self) -> Result<T, LogUnavailable> {
        self.log.wait_durable(self.ticket)?;
        Ok(self.value)
    }

    /// The answer where it is durable by now, else itself: for a loop that commits what it waits
    /// for.
    ///
    /// # Errors
    /// Not an error: what is still waited for.
    pub fn try_durable(self) -> Result<Result<T, LogUnavailable>, Self> {
        let Ticket { shard, shard_seq } = self.ticket;
        if self.log.is_poisoned() {
            Ok(Err(LogUnavailable))
        } else if self.log.durable_seq(shard) >= shard_seq {
            Ok(Ok(self.value))
        } else {
            Err(self)
        }
    }

    /// The same answer in another form. For the engine alone: `make` sees the answer at once.
    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> Pending<U> {
        Pending { value: make(self.value), log: self.log, ticket: self.ticket }
    }
}
