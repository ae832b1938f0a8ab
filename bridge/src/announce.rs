//! Telling the engine how far the sink is.
//!
//! After a transaction is committed and outlasts the machine, and never before, one `SinkAdvanced`
//! goes into the log: reservations it covers show `ordered`, after every restart too. A batch that
//! holds only such marks is not announced, or the two would chase each other for ever.
//!
//! A mark that was lost (the server died between the sink's commit and the mark's frame) is made
//! again from the log at the next start, before anything new is applied. A sink that came back
//! older than its last mark says nothing until it has passed it: a status never goes back.

use std::collections::BTreeMap;

use engine::core::codec;
use engine::core::event::Body;
use wal::{CONTROL_SHARD, Lsn};

use crate::host::Host;
use crate::place;
use crate::tail::{Batch, Entry};

/// Marks not yet in the log.
#[derive(Debug)]
pub(crate) struct Announcer {
    sink: &'static str,
    announced: Lsn,
    lsn: Lsn,
    marks: BTreeMap<u16, u64>,
}

impl Announcer {
    /// An announcer for `sink`, whose last mark in the log speaks of `announced`.
    pub(crate) fn new(sink: &'static str, announced: Lsn) -> Self {
        Self { sink, announced, lsn: announced, marks: BTreeMap::new() }
    }

    /// `batch` is in the sink. Events of the control shard are nobody's status.
    pub(crate) fn note(&mut self, batch: &Batch) {
        let Some(end) = batch.end() else { return };
        let announced = self.announced;
        let news = |entry: &Entry<'_>| entry.lsn > announced && entry.shard != CONTROL_SHARD;
        for entry in batch.entries().filter(news) {
            let mark = self.marks.entry(entry.shard).or_default();
            *mark = entry.shard_seq.max(*mark);
        }
        self.lsn = end.lsn.max(self.lsn);
    }

    /// Everything up to `lsn`, which is `marks`, is in the sink.
    pub(crate) fn cover(&mut self, lsn: Lsn, marks: &BTreeMap<u16, u64>) {
        if lsn > self.announced {
            for (shard, seq) in marks {
                let mark = self.marks.entry(*shard).or_default();
                *mark = (*mark).max(*seq);
            }
            self.lsn = lsn.max(self.lsn);
        }
    }

    /// Puts the marks into the log. Where the engine is busy they wait for the next call and go
    /// out together with what has come since.
    pub(crate) fn announce(&mut self, host: &impl Host) {
        if self.marks.is_empty() {
            return;
        }
        let marks: Vec<(u16, u64)> = self.marks.iter().map(|(shard, seq)| (*shard, *seq)).collect();
        match place::with_locks(|| host.sink_advanced(self.sink, self.lsn, &marks)) {
            Ok(()) => {
                self.announced = self.lsn;
                self.marks.clear();
            }
            Err(busy) => tracing::debug!(sink = self.sink, %busy, "mark postponed"),
        }
    }
}

/// Whether `batch` holds nothing but marks of sinks: it changes no row and no status, so the
/// sink's cursor needn't move for it.
pub(crate) fn holds_only_marks(batch: &Batch) -> bool {
    batch.entries().all(|entry| {
        codec::decode(entry.kind, entry.version, entry.body)
            .is_ok_and(|event| matches!(event.body, Body::SinkAdvanced { .. }))
    })
}
