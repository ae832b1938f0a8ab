//! How far the sinks are, and what follows from it: a reservation whose order is in SQL shows as
//! ordered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use wal::{Busy, CONTROL_SHARD, Lsn, SinkClass, SinkError, SinkState, Ticket};

use super::engine::Engine;
use crate::core::codec;
use crate::core::control::Control;
use crate::core::event::{Body, Event, ShardMarks};
use crate::core::ids::ActivityId;
use crate::planted::{self, Bug};

/// The sink that makes orders.
pub const ORDERS_SINK: &str = "sql";

/// Under one of these names the log is kept for an orders database that came back older than it
/// was, or empty: the sink's own place has long passed what that one still needs. Both are there
/// only while one takes over from the other.
const ORDERS_BEHIND: [&str; 2] = ["sql-behind", "sql-behind-2"];

type Listener = Box<dyn Fn() + Send + Sync>;

/// The orders sink's marks, as far as they are durable themselves: a status that followed a mark
/// not yet on disk would go back to `pending_order` after a crash.
pub(crate) struct Ordered {
    seqs: Box<[AtomicU64]>,
    listeners: RwLock<Vec<Listener>>,
}

impl Ordered {
    /// The marks that the log holds.
    pub(crate) fn new(shard_count: u16, control: &Control) -> Self {
        let marks = control.sink(ORDERS_SINK);
        let seq = |shard: u16| marks.and_then(|sink| sink.shards.get(&shard)).copied();
        let seqs = (0..shard_count).map(|shard| AtomicU64::new(seq(shard).unwrap_or(0)));
        Self { seqs: seqs.collect(), listeners: RwLock::new(Vec::new()) }
    }

    /// Orders of `shard` are in SQL up to here.
    pub(crate) fn seq(&self, shard: u16) -> u64 {
        self.seqs.get(usize::from(shard)).map_or(0, |seq| seq.load(Ordering::Acquire))
    }

    fn publish(&self, marks: &[(u16, u64)]) {
        for (shard, seq) in marks {
            if let Some(mark) = self.seqs.get(usize::from(*shard)) {
                let more = u64::from(planted::has(Bug::OrderedAheadOfSql));
                mark.fetch_max(*seq + more, Ordering::AcqRel);
            }
        }
        for listener in self.listeners.read().iter() {
            listener();
        }
    }
}

impl Engine {
    /// Notes that `sink` holds everything up to `lsn`; `marks` are the shards it moved in, each
    /// with the sequence it now covers, ascending. Returns once the note is durable and shows.
    ///
    /// # Errors
    /// [`Busy`]; the sink says it again later.
    ///
    /// # Panics
    /// Where the log could not hold the note: a name of no or more than 32 bytes, marks that do not
    /// ascend by shard; and where a sink cannot hold what it says: marks beyond what is durable, or
    /// of a shard that the log does not have. Nothing has happened then.
    pub fn sink_advanced(&self, sink: &str, lsn: Lsn, marks: &[(u16, u64)]) -> Result<(), Busy> {
        let mut buffer = Vec::new();
        let shards = ShardMarks::encode(marks, &mut buffer);
        let body = Body::SinkAdvanced { sink, lsn: lsn.0, shards };
        let event = Event { at_ms: self.inner.clock.now_ms(), body };
        let is_durable = |(shard, seq): &(u16, u64)| *seq <= self.inner.log.durable_seq(*shard);
        assert!(marks.iter().all(is_durable), "sink {sink} holds what the log does not: {marks:?}");
        let is_within = |(_, seq): &(u16, u64)| *seq <= lsn.0;
        assert!(marks.iter().all(is_within), "W13: sink {sink} is at {lsn} and beyond: {marks:?}");
        assert_eq!(codec::check(&event), Ok(()), "a sink's note must be one that can be read");
        let shard_seq = {
            let mut control = self.inner.control.lock();
            // A sink that says less than the log knows already says nothing.
            if control.sink(sink).is_some_and(|known| known.lsn > lsn.0) {
                return Ok(());
            }
            self.record_control(&mut control, &event)?
        };
        let ticket = Ticket { shard: CONTROL_SHARD, shard_seq };
        // A sink steps back behind those who sell: while it committed they would wait for it. What
        // stops the threads commits what is left, or ends the waits.
        let log_runs = self.inner.threads.lock().is_some();
        let told = if log_runs {
            self.inner.log.wait_for_commit(ticket)
        } else {
            self.inner.log.wait_durable(ticket)
        };
        told.map_err(|_| Busy::LogUnavailable)?;
        if sink == ORDERS_SINK {
            self.inner.ordered.publish(marks);
        }
        self.sink_confirmed(sink, lsn);
        Ok(())
    }

    /// Registers a sink: the log is kept for it from now on, past its place where it
    /// [must deliver](SinkClass::MustDeliver), until it can be [rebuilt](SinkClass::Rebuildable)
    /// more cheaply otherwise. One that is registered already changes its class alone.
    ///
    /// # Errors
    /// [`SinkError`].
    pub fn register_sink(&self, name: &str, class: SinkClass) -> Result<(), SinkError> {
        self.inner.log.register_sink(name, class)?;
        self.confirm_announced();
        Ok(())
    }

    /// Notes that a registered sink holds everything up to `lsn` *for good*, in a store whose syncs
    /// it has waited for: up to there it lets the log go. [`Engine::sink_advanced`] says it as
    /// well, and writes it into the log; a mirror that nobody's answers rest on says only this.
    pub fn sink_confirmed(&self, name: &str, lsn: Lsn) {
        self.inner.log.sink_confirmed(name, lsn);
    }

    /// Keeps the log behind `lsn` for an orders database that stands there, though it was told
    /// before that orders had come further.
    ///
    /// # Errors
    /// [`SinkError`]: the log is kept as before.
    pub fn keep_for_orders(&self, lsn: Lsn) -> Result<(), SinkError> {
        let log = &self.inner.log;
        let sinks = log.sinks();
        let place = |name: &str| sinks.iter().find(|it| it.name == name).map(|it| it.confirmed_lsn);
        let first = |fits: &dyn Fn(Option<Lsn>) -> bool| {
            ORDERS_BEHIND.into_iter().find(|name| fits(place(name)))
        };
        // A sink's place only grows: for one further back the name that is free is taken, and the
        // other one dropped after, so that what it kept is kept at every instant.
        let keeps = first(&|at| at.is_some_and(|at| at <= lsn)).or(first(&|at| at.is_none()));
        let [one, other] = ORDERS_BEHIND;
        let keeps = match keeps {
            Some(keeps) => keeps,
            // A crash left both, and both stand further on: neither keeps what is wanted.
            None => {
                log.drop_sink(one)?;
                one
            }
        };
        log.register_sink(keeps, SinkClass::MustDeliver)?;
        log.sink_confirmed(keeps, lsn);
        let keeps_it = |it: &SinkState| it.name == keeps && it.confirmed_lsn <= lsn;
        assert!(log.sinks().iter().any(keeps_it), "W7: nobody keeps the log behind {lsn}");
        let ends = if keeps == one { other } else { one };
        if place(ends).is_some() { log.drop_sink(ends) } else { Ok(()) }
    }

    /// Whether the orders database is not yet where it was told to be before.
    pub(crate) fn orders_are_behind(&self) -> bool {
        self.inner.log.sinks().iter().any(|sink| ORDERS_BEHIND.contains(&sink.name.as_str()))
    }

    /// Ends what [`Engine::keep_for_orders`] began: the orders database is where it was before.
    ///
    /// # Errors
    /// [`SinkError`]: the log is still kept.
    pub fn orders_caught_up(&self) -> Result<(), SinkError> {
        let sinks = self.inner.log.sinks();
        let kept = ORDERS_BEHIND.iter().filter(|name| sinks.iter().any(|it| it.name == **name));
        kept.copied().try_for_each(|name| self.inner.log.drop_sink(name))
    }

    /// Forgets a sink: the log is no longer kept for it.
    ///
    /// # Errors
    /// [`SinkError`].
    pub fn drop_sink(&self, name: &str) -> Result<(), SinkError> {
        self.inner.log.drop_sink(name)
    }

    /// The registered sinks.
    pub fn sinks(&self) -> Vec<SinkState> {
        self.inner.log.sinks()
    }

    /// What sinks have said in the log, CONTROL may know less of: it is not written for that.
    pub(crate) fn confirm_announced(&self) {
        let control = self.inner.control.lock();
        for (name, sink) in control.sinks() {
            self.inner.log.sink_confirmed(name, Lsn(sink.lsn));
        }
    }

    /// The LSN up to which `sink` has said that it holds everything; 0 where it never has.
    pub fn announced_lsn(&self, sink: &str) -> Lsn {
        Lsn(self.inner.control.lock().sink(sink).map_or(0, |sink| sink.lsn))
    }

    /// Sequence in the shard of `activity` up to which orders are known to be in SQL.
    pub fn ordered_seq(&self, activity: ActivityId) -> u64 {
        self.inner.ordered.seq(self.shard_index(activity))
    }

    /// Calls `listener` whenever more reservations show as ordered. It must not block.
    pub fn on_ordered(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.inner.ordered.listeners.write().push(listener);
    }

    /// Blocks until something beyond `lsn` is durable, at most `timeout`; whether it is.
    pub fn wait_durable_beyond(&self, lsn: Lsn, timeout: Duration) -> bool {
        self.inner.log.wait_durable_beyond(lsn, timeout)
    }
}

/// Forgets a sink of the directory of a server that does not run: the log is no longer kept for it.
/// Tells whether there was one of that name.
///
/// # Errors
/// [`OpenError`](crate::OpenError); locked where a server runs.
pub fn drop_sink(data_dir: &std::path::Path, name: &str) -> Result<bool, crate::OpenError> {
    Ok(wal::drop_sink(&wal::PosixDevice::new(data_dir), name)?)
}
