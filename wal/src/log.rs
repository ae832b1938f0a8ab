//! The open log: one handle for those who append, commit, wait and read.

use std::sync::Arc;

use crate::committer::{Parts, Tail};
use crate::control::Format;
use crate::device::{Device, Lock};
use crate::error::{Busy, LogUnavailable, OpenError};
use crate::failure;
use crate::ids::{LogIdentity, Lsn};
use crate::intake::{Batch, Class, Committed, Ticket};
use crate::limits::SPARES;
use crate::metrics::Metrics;
use crate::open::{OpenOptions, OpenReport, Opening};
use crate::reader::Reader;
use crate::recover::{self, Replay};
use crate::spares::SpareMade;
use crate::sync::{Mutex, block_on};
use crate::watermark::PassOn;

/// An open log; clones are the same log. Only one process at a time has it (W12).
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    tail: Mutex<Tail>,
    identity: LogIdentity,
    format: Format,
    /// Held for the life of the log.
    _lock: Box<dyn Lock>,
}

impl Log {
    pub(crate) fn new(
        parts: Parts,
        tail: Tail,
        identity: LogIdentity,
        format: Format,
        lock: Box<dyn Lock>,
    ) -> Self {
        let tail = Mutex::new(tail);
        Self { inner: Arc::new(Inner { parts, tail, identity, format, _lock: lock }) }
    }

    /// Opens the log of a directory, formatting one that is empty, and hands every record to
    /// `replay`: the three steps of [`Opening`] in one.
    pub fn open(
        device: Arc<dyn Device>,
        options: OpenOptions,
        replay: &mut Replay<'_>,
    ) -> Result<(Self, OpenReport), OpenError> {
        Opening::begin(device, options)?.replay(replay)?.finish()
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    /// Does something with the end of the log, which one at a time has.
    pub(crate) fn with_tail<T>(
        &self,
        act: impl FnOnce(&mut Tail, &Parts) -> Result<T, LogUnavailable>,
    ) -> Result<T, LogUnavailable> {
        let parts = &self.inner.parts;
        // Given back after a failure is told: who waits for it finds a log that has failed.
        let mut tail = self.inner.tail.lock();
        failure::guarded(parts, || act(&mut tail, parts))
    }

    /// Reserves room for `bytes` (the sum of the records' [`record_bytes`](crate::record_bytes))
    /// in `shard`'s lane and holds the lane.
    pub fn begin(&self, shard: u16, bytes: usize, class: Class) -> Result<Batch<'_>, Busy> {
        self.inner.parts.intake.begin(shard, bytes, class)
    }

    /// Makes what is waiting durable, as far as one frame holds it.
    pub fn commit(&self) -> Result<Committed, LogUnavailable> {
        self.with_tail(|tail, parts| tail.commit(parts, None))
    }

    /// [`Log::commit`] for the thread that does nothing else: it wakes few and has them wake the
    /// others. It must look after those that are [left](Log::wake_left).
    pub(crate) fn commit_passing_on(&self) -> Result<Committed, LogUnavailable> {
        self.with_tail(|tail, parts| tail.commit(parts, Some(PassOn::USUAL)))
    }

    /// Whether somebody may be told that was not yet woken.
    pub(crate) fn has_left(&self) -> bool {
        self.inner.parts.watermark.has_left()
    }

    /// Wakes everybody who may be told and was not yet woken.
    pub(crate) fn wake_left(&self) {
        self.inner.parts.watermark.wake_left(&mut Vec::new());
    }

    /// Writes a watermark if the last frame has no later one that vouches for it.
    pub fn seal_idle(&self) -> Result<(), LogUnavailable> {
        self.with_tail(|tail, parts| tail.seal_idle(parts))
    }

    /// Makes a spare segment if one is missing.
    pub fn make_spare(&self) -> Result<SpareMade, LogUnavailable> {
        let parts = &self.inner.parts;
        if parts.watermark.is_poisoned() {
            return Err(LogUnavailable);
        }
        failure::guarded(parts, || {
            let made = parts.spares.make(&*parts.device, &parts.intake);
            made.map_err(|failed| failure::fail_spare(parts, failed))
        })
    }

    /// Whether there are fewer spares than a log has at least.
    pub(crate) fn lacks_spares(&self) -> bool {
        self.inner.parts.spares.len() < SPARES
    }

    /// Reads one of the spares that an earlier run left; tells whether there was one.
    pub(crate) fn check_spare(&self) -> bool {
        self.inner.parts.spares.check_one(&*self.inner.parts.device)
    }

    /// Notes that so many bytes of log are foreseen from here on: spares for them are made ahead.
    pub fn foresee(&self, bytes: u64) {
        self.inner.parts.spares.foresee(bytes);
    }

    /// Whether there are as many spares as there should be, or no room for more.
    pub fn has_enough_spares(&self) -> bool {
        self.inner.parts.spares.are_enough() || self.is_out_of_room()
    }

    /// Whether the disk had no room for the spare segment that was to be made last.
    pub fn is_out_of_room(&self) -> bool {
        self.inner.parts.spares.is_out_of_room()
    }

    /// Refuses new records and makes those that wait durable: nothing changes any more. Returns the
    /// chain of the last frame with records, where this process knows it.
    pub fn quiesce(&self) -> Result<Option<u32>, LogUnavailable> {
        let parts = &self.inner.parts;
        parts.intake.close();
        parts.spares.stop();
        self.with_tail(|tail, parts| {
            while tail.commit(parts, None)? != Committed::Nothing {}
            Ok(tail.data_chain())
        })
    }

    /// Ends the log cleanly: refuses new records, makes those that wait durable, and says so in
    /// CONTROL. The directory is given back when the last clone is dropped.
    pub fn close(&self) -> Result<(), LogUnavailable> {
        self.quiesce()?;
        self.with_tail(|tail, parts| tail.close(parts))
    }

    /// Ends every wait, present and to come, with [`LogUnavailable`]: what ran the commits is gone.
    pub fn abandon(&self) {
        self.inner.parts.watermark.poison();
        self.inner.parts.intake.close();
    }

    /// Waits until `ticket` is durable.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), LogUnavailable> {
        self.inner.parts.watermark.wait(self.lane(ticket.shard), ticket.shard_seq).await
    }

    /// Waits until `ticket` is durable, on this thread, which has nothing else to do: where nobody
    /// is committing it commits by itself. A lone caller is thus answered after one durable write,
    /// without waking another thread and being woken by it, which on an idle machine takes as long
    /// as the write. Who commits already is waited for; what is appended meanwhile is the
    /// committer's, whom every batch rings. Not for one whose [caller
    /// commits](crate::Batch::caller_commits): nobody is rung for it, so that caller must
    /// [commit](Log::commit) until it is told.
    pub fn wait_durable(&self, ticket: Ticket) -> Result<(), LogUnavailable> {
        let lane = self.lane(ticket.shard);
        loop {
            if let Some(told) = self.inner.parts.watermark.told(lane, ticket.shard_seq) {
                return told;
            }
            let Some(mut tail) = self.inner.tail.try_lock() else { break };
            let parts = &self.inner.parts;
            if failure::guarded(parts, || tail.commit(parts, None))? == Committed::Nothing {
                break;
            }
        }
        block_on(self.durable(ticket))
    }

    /// Waits until `ticket` is durable, on this thread, and leaves the commit to the others: for
    /// one that whoever wants to commit must not wait for. Only for a log that
    /// [runs](Log::start), whose committer every append rings; another would be waited for until
    /// its end.
    pub fn wait_for_commit(&self, ticket: Ticket) -> Result<(), LogUnavailable> {
        block_on(self.durable(ticket))
    }

    /// Waits until something beyond `lsn` is durable, on this thread, at most `timeout`; tells
    /// whether it is.
    #[cfg(not(loom))]
    pub fn wait_durable_beyond(&self, lsn: Lsn, timeout: std::time::Duration) -> bool {
        let wait = self.inner.parts.watermark.wait_lsn(lsn.plus(1));
        matches!(crate::sync::block_on_for(wait, timeout), Some(Ok(())))
    }

    /// The last durable sequence of `shard`.
    pub fn durable_seq(&self, shard: u16) -> u64 {
        self.inner.parts.watermark.durable(self.lane(shard))
    }

    /// The last sequence given out in `shard`.
    pub fn last_seq(&self, shard: u16) -> u64 {
        self.inner.parts.intake.last_seq(shard)
    }

    /// The last durable record.
    pub fn durable_lsn(&self) -> Lsn {
        self.inner.parts.watermark.durable_lsn()
    }

    /// Whether the log has failed: nothing may be answered any more (W16).
    pub fn is_poisoned(&self) -> bool {
        self.inner.parts.watermark.is_poisoned()
    }

    /// A reader of durable frames, before the first of them.
    pub fn reader(&self) -> Reader {
        let log = self.clone();
        Reader::new(
            Arc::clone(&self.inner.parts.device),
            self.inner.format,
            Box::new(move || Ok(log.durable_lsn())),
        )
    }

    /// Which log this is, in which incarnation.
    pub fn identity(&self) -> LogIdentity {
        self.inner.identity
    }

    /// The constants fixed when the directory was formatted.
    pub fn format(&self) -> &Format {
        &self.inner.format
    }

    /// The log's figures.
    pub fn metrics(&self) -> Metrics {
        let parts = &self.inner.parts;
        Metrics {
            in_flight_bytes: parts.intake.in_flight_bytes(),
            sync_under_way_us: parts.counters.under_way_us(parts.device.now_us()),
            new_admitted: parts.intake.admits_new(),
            spares: parts.spares.len() as u64,
            log_bytes: parts.retention.bytes(),
            snapshot_behind_bytes: parts.retention.bytes_beyond_snapshot(),
            snapshot_lsn: parts.retention.snapshot().map_or(0, |it| it.lsn.0),
            snapshot_bytes: parts.retention.snapshot().map_or(0, |it| it.bytes),
            backlog_bytes: parts.retention.backlog_bytes(),
            backlog_late: parts.retention.is_late(),
            segment_age_ms: (parts.device.now_us() / 1000)
                .saturating_sub(parts.retention.active_since_ms()),
            ..parts.counters.read()
        }
    }

    /// Waits until something was appended, or about `timeout_ms`. Tells whether something was.
    pub(crate) fn wait_for_work(&self, timeout_ms: u64) -> bool {
        self.inner.parts.intake.wait(timeout_ms)
    }

    /// Wakes what waits for work, to look whether it should end.
    pub(crate) fn interrupt(&self) {
        self.inner.parts.intake.interrupt();
        self.inner.parts.spares.stop();
    }

    /// Waits for the maker of spares: until one is missing, or a while on a full disk.
    pub(crate) fn wait_for_spare(&self, disk_full: bool, timeout_ms: u64) -> bool {
        let spares = &self.inner.parts.spares;
        if disk_full { spares.pause(timeout_ms) } else { spares.wait(timeout_ms) }
    }

    fn lane(&self, shard: u16) -> usize {
        recover::lane(shard, self.inner.format.shard_count).expect("callers name their own shards")
    }
}
