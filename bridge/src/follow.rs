//! A sink following the log: meet, then step by step.
//!
//! [`Follower::meet`] reads the sink's cursor, judges it, takes it over and stands behind it;
//! [`Follower::step`] moves one batch, or fills one portion of a sink that the log has passed by.
//! After any error the follower is thrown away, with its connection and all it remembered, and
//! another one meets the sink anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use engine::core::event::{Body, Event};
use engine::core::ids::ReservationId;
use wal::Lsn;

use crate::announce::{Announcer, holds_only_marks};
use crate::cursor::{self, Cursor, Fork, Halt, Place, Verdict};
use crate::fill::Filling;
use crate::host::{Busy, Failure, Host};
use crate::lasting::Lasting;
use crate::sql::SinkError;
use crate::sql::fill::Filled;
use crate::sql::needs::decode;
use crate::sql::sink::{OrderOptions, SINK_NAME, SqlSink, Undeliverable};
use crate::sql::store::Store;
use crate::tail::{Batch, EventSource as _, SeekError, Unreadable};

/// Records after which a batch is closed. The more orders share a transaction, the fewer times an
/// index page is written for each; a tenth of a second's work still lets an order appear soon, and
/// another writer have its turn.
const RECORDS_MAX: usize = 5_000;

/// Why a follower ended.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// Sink and log don't belong together.
    #[error(transparent)]
    Fork(#[from] Fork),
    /// The sink can't go on.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// A batch could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] Unreadable),
    /// The engine took no dead letter now.
    #[error("the engine can't take a dead letter now: {0}")]
    Busy(#[from] Busy),
    /// The log no longer has what it had a moment ago.
    #[error("the log can't be read from where the sink stands: {0}")]
    Lost(#[source] SeekError),
}

impl FollowError {
    /// Whether another meeting may go better.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Sink(error) => error.is_transient(),
            Self::Log(error) => error.passing,
            Self::Busy(_) => true,
            _ => false,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A batch is in the sink.
    Applied {
        /// Records it held.
        records: usize,
        /// It was closed because it was full: the log may hold more.
        is_full: bool,
    },
    /// A portion of the state is in a sink that is being filled.
    Filled {
        /// Images it held.
        images: usize,
    },
    /// Everything durable is in the sink.
    CaughtUp,
}

/// A sink that follows a host's log.
#[derive(Debug)]
pub struct Follower<'h, H: Host, S> {
    pub(crate) host: &'h H,
    pub(crate) sink: SqlSink<S>,
    source: H::Source,
    batch: Batch,
    pub(crate) records_max: usize,
    /// Where the sink's row stands.
    pub(crate) cursor: Cursor,
    /// How far the log was read: ahead of the row by marks that need no row.
    pub(crate) position: Lsn,
    pub(crate) announcer: Announcer,
    pub(crate) lasting: Lasting,
    pub(crate) filling: Option<Box<Filling<H::Images>>>,
    pub(crate) filled: Option<Filled>,
    /// The sink stands before where it stood once.
    pub(crate) is_behind: bool,
}

impl<'h, H: Host, S: Store> Follower<'h, H, S> {
    /// Meets the sink in `store`.
    ///
    /// # Errors
    /// Where sink and log don't belong together, or one of them does not answer.
    pub async fn meet(host: &'h H, store: S, options: OrderOptions) -> Result<Self, FollowError> {
        let mut sink = SqlSink::new(store, host, options);
        let mut source = host.source();
        let found = sink.read_standing().await?;
        let at = found.furthest().map_or(Lsn(0), |cursor| cursor.lsn);
        let place = Place::of(source.seek(at))?;
        let filling = match cursor::judge(&found, host.identity(), place) {
            Verdict::Resume { .. } => None,
            Verdict::Fill => Some(Box::new(Filling::begin(host, &found)?)),
            Verdict::Fork(fork) => return Err(fork.into()),
        };
        let cursor = match &filling {
            None => sink.claim(found.cursor).await?,
            Some(filling) => sink.claim_filling(&found, filling.target()).await?,
        };
        let once = host.announced_lsn(SINK_NAME);
        let is_filling = filling.is_some();
        if !is_filling && cursor.lsn < once {
            host.keep_from(cursor.lsn);
        }
        let mut follower = Self {
            host,
            sink,
            source,
            batch: Batch::default(),
            records_max: RECORDS_MAX,
            cursor,
            position: cursor.lsn,
            announcer: Announcer::new(SINK_NAME, once),
            lasting: Lasting::always(),
            filling,
            filled: None,
            // Until it is seen not to be: an earlier server may have left the log kept.
            is_behind: true,
        };
        if !is_filling {
            follower.announce_again()?;
            follower.look_whether_caught_up();
        }
        Ok(follower)
    }

    /// Closes batches at `records_max` records instead of the usual number.
    #[must_use]
    pub fn with_records_max(mut self, records_max: usize) -> Self {
        self.records_max = records_max;
        self
    }

    /// While orders come fast, has the sink sync a commit once in `every` alone.
    #[must_use]
    pub fn syncing_once_in(mut self, every: Duration) -> Self {
        self.lasting = Lasting::once_in(every);
        self
    }

    /// Takes orders to come fast from so many records in a batch on, instead of the usual number.
    #[must_use]
    pub fn with_fast_records_min(mut self, records: usize) -> Self {
        self.lasting.set_fast_records_min(records);
        self
    }

    /// Everything up to here is in the sink.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Moves one batch.
    ///
    /// # Errors
    /// The follower must be dropped then.
    pub async fn step(&mut self) -> Result<Step, FollowError> {
        self.step_watched(|_| ()).await
    }

    /// The same; `read` is told when the oldest record of a batch was committed, Unix microseconds,
    /// before the batch is written.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub(crate) async fn step_watched(
        &mut self,
        read: impl FnOnce(u64),
    ) -> Result<Step, FollowError> {
        if let Some(filling) = self.filling.take() {
            return self.fill(filling).await;
        }
        self.batch.fill(&mut self.source, self.records_max)?;
        let Some(end) = self.batch.end() else {
            self.settle().await?;
            self.sink.store.tidy().map_err(SinkError::from)?;
            self.look_whether_caught_up();
            return Ok(Step::CaughtUp);
        };
        read(self.batch.oldest_commit_us());
        if !holds_only_marks(&self.batch) {
            let lasts = self.sink.store.set_lasting(self.lasting.is_due(self.batch.len()));
            self.apply().await?;
            self.lasting.committed(lasts, Instant::now());
            self.announcer.note(&self.batch);
            if lasts {
                self.announcer.announce(self.host);
            } else if self.lasting.is_overdue(Instant::now()) {
                self.settle().await?;
            }
        }
        self.position = end.lsn;
        self.look_whether_caught_up();
        let is_full = self.batch.is_full(self.records_max);
        Ok(Step::Applied { records: self.batch.len(), is_full })
    }

    /// Makes everything up to [`Follower::position`] outlast the machine, and tells the engine.
    ///
    /// # Errors
    /// As [`Follower::step`].
    pub async fn settle(&mut self) -> Result<(), FollowError> {
        if self.lasting.is_owed() {
            self.sink.store.set_lasting(true);
            self.sink.stay(&self.cursor).await?;
            self.lasting.committed(true, Instant::now());
        }
        self.announcer.announce(self.host);
        Ok(())
    }

    /// Writes the batch. What no order can hold is told to the log, and only then written as a dead
    /// letter: the rows behind it go on.
    async fn apply(&mut self) -> Result<(), FollowError> {
        let mut undeliverable = Undeliverable::default();
        loop {
            let applied = self.sink.apply(&self.batch, &self.cursor, &undeliverable).await;
            let error = match applied {
                Ok(cursor) => {
                    self.cursor = cursor;
                    return Ok(());
                }
                Err(error) => error,
            };
            self.tell_dead_letters(error, &mut undeliverable, |ids| self.failures(ids))?;
        }
    }

    /// Tells the log of the reservations that no order can hold, as `error` says, and notes them.
    ///
    /// # Errors
    /// `error`, where it is another one, or none of them is new.
    pub(crate) fn tell_dead_letters(
        &self,
        error: SinkError,
        undeliverable: &mut Undeliverable,
        failures: impl FnOnce(&[ReservationId]) -> Result<Vec<Failure>, SinkError>,
    ) -> Result<(), FollowError> {
        let Some((ids, why)) = error.undeliverable() else { return Err(error.into()) };
        let new: Vec<_> =
            ids.iter().copied().filter(|id| undeliverable.reason(*id).is_none()).collect();
        if new.is_empty() {
            // It is the reservation's own row that is refused: without it, or not at all.
            let is_tried = !undeliverable.leave_rows_out(ids);
            return if is_tried { Err(error.into()) } else { Ok(()) };
        }
        tracing::warn!(%error, first = %new[0], "dead letters");
        self.host.dead_letter(&failures(&new)?, &why)?;
        undeliverable.add(new, &why);
        Ok(())
    }

    /// The records of the batch that asked for the orders of `ids`, the last one of each.
    fn failures(&self, ids: &[ReservationId]) -> Result<Vec<Failure>, SinkError> {
        let mut asked = BTreeMap::new();
        for (entry, event) in self.batch.entries().zip(decode(&self.batch)?) {
            if let (_, Event { body, .. }) = event
                && let Body::Reserved { reservation, .. }
                | Body::ReservationAdopted { reservation, .. }
                | Body::DeadLetterResolved { reservation, .. } = body
            {
                asked.insert(reservation, entry.shard_seq);
            }
        }
        let failure = |reservation: &ReservationId| Failure {
            reservation: *reservation,
            shard_seq: asked.get(reservation).copied().unwrap_or(0),
        };
        Ok(ids.iter().map(failure).collect())
    }

    /// The server may have died between the sink's commit and the mark: says again what the sink
    /// holds beyond its last mark.
    fn announce_again(&mut self) -> Result<(), FollowError> {
        let announced = self.host.announced_lsn(SINK_NAME);
        if announced < self.cursor.lsn {
            match self.source.seek(announced) {
                Ok(_) => {}
                // What is gone had been confirmed; the kept log begins behind a frame.
                Err(SeekError::Retired { oldest }) => {
                    let before = Lsn(oldest.0.saturating_sub(1));
                    self.source.seek(before).map_err(FollowError::Lost)?;
                }
                Err(error) => return Err(FollowError::Lost(error)),
            }
            loop {
                // One frame at a time: not beyond the cursor.
                self.batch.fill(&mut self.source, 1)?;
                let Some(end) = self.batch.end().filter(|end| end.lsn <= self.cursor.lsn) else {
                    break;
                };
                if !holds_only_marks(&self.batch) {
                    self.announcer.note(&self.batch);
                }
                if end.lsn == self.cursor.lsn {
                    break;
                }
            }
            self.announcer.announce(self.host);
        }
        self.stand_behind(self.cursor.lsn)
    }

    /// Reads the log from `lsn` on.
    pub(crate) fn stand_behind(&mut self, lsn: Lsn) -> Result<(), FollowError> {
        self.source.seek(lsn).map(drop).map_err(FollowError::Lost)
    }
}
