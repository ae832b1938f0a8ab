//! What a process does beside appending: it makes snapshots, gives the log back, and feeds a sink
//! that pins it.

use std::fmt;

use wal::{
    CONTROL_SHARD, Lane, Log, Lsn, Opening, ReadError, SinkClass, SnapshotError, SnapshotReader,
};

use crate::process::{Process, Stopped};
use crate::truth::Counts;

/// The sink that pins the log once a workload makes a snapshot.
const SINK: &str = "orders";

/// Why a sink can't read on.
enum Lost {
    /// The disk refuses.
    Disk(String),
    /// The log is not what it was.
    Place(String),
}

/// Why a snapshot is not begun from.
enum Unloaded {
    /// It is damaged, or the disk refuses: the one before it counts.
    Unread(SnapshotError),
    /// It is whole, and holds what never happened.
    Wrong(String),
}

impl From<SnapshotError> for Unloaded {
    fn from(error: SnapshotError) -> Self {
        Self::Unread(error)
    }
}

impl Process {
    /// What the log is read on from: nothing, where no snapshot is whole.
    pub(crate) fn load_snapshot(&self, opening: &mut Opening) -> Result<Counts, Stopped> {
        let (mut start, mut wrong) = (Counts::default(), None);
        let loaded = opening.load_snapshot(&mut |snapshot| match self.load(snapshot) {
            Ok(counts) => {
                start = counts;
                Ok(())
            }
            Err(Unloaded::Unread(why)) => Err(why.to_string()),
            Err(Unloaded::Wrong(why)) => {
                wrong = Some(why.clone());
                Err(why)
            }
        });
        match (wrong, loaded) {
            (Some(wrong), _) => Err(Stopped::Wrong(wrong)),
            (None, loaded) => loaded.map(|_| start).map_err(Stopped::Open),
        }
    }

    /// What a snapshot holds: it must be what really happened up to its LSN.
    fn load(&self, snapshot: &mut SnapshotReader) -> Result<Counts, Unloaded> {
        let wrong = |what: &str| Unloaded::Wrong(format!("W14: a snapshot {what}"));
        let counts = self.truth.counts_at(snapshot.lsn().0);
        let counts = counts.ok_or_else(|| wrong("ends inside a frame"))?;
        let mut lane = 0;
        while let Some(piece) = snapshot.next_piece()? {
            let hash = self.truth.hash(lane, counts[lane]);
            let items: Vec<_> = piece.items().map(|item| item.body.to_vec()).collect();
            if piece.lane.seq != counts[lane] || items != [hash.to_le_bytes().to_vec()] {
                return Err(wrong("is not what was appended"));
            }
            lane += 1;
        }
        Ok(counts)
    }

    /// Begins a segment, makes a snapshot and gives back what is not needed, before and after the
    /// sink that pins the log has caught up.
    pub(crate) fn snapshot(&mut self, log: &Log) -> Result<(), Stopped> {
        // At the first snapshot it only registers: at the second its place lies in a segment that
        // it alone still holds.
        let first = self.truth.sink.is_none();
        if first {
            match log.register_sink(SINK, SinkClass::MustDeliver) {
                Ok(()) => self.truth.sink = Some(0),
                Err(_) => return Err(Stopped::Failed),
            }
        }
        self.rotate(log)?;
        // A disk that refuses a snapshot costs the snapshot alone.
        let made = self.write_snapshot(log);
        if log.is_poisoned() {
            return Err(Stopped::Failed);
        }
        log.retire()?;
        if made.is_ok() && !first {
            self.feed_sink(log)?;
        }
        log.retire().map(drop).map_err(Stopped::from)
    }

    fn write_snapshot(&self, log: &Log) -> std::io::Result<()> {
        let lsn = log.durable_lsn();
        let chain = log.reader().seek(lsn).map_err(std::io::Error::other)?;
        let counts = self.truth.counts_at(lsn.0);
        let counts = counts.ok_or_else(|| std::io::Error::other("no frame ends here"))?;
        let mut writer = log.begin_snapshot(lsn)?;
        for (lane, shard) in [0, 1, CONTROL_SHARD].into_iter().enumerate() {
            let hash = self.truth.hash(lane, counts[lane]);
            let seq = counts[lane];
            writer.lane(Lane { shard, seq, digest: u128::from(hash) })?;
            writer.item((1, 1), |out| out.extend_from_slice(&hash.to_le_bytes()))?;
        }
        log.finish_snapshot(writer, chain).map(drop)
    }

    /// The sink reads on from its place, which must still be there, to the end of the log.
    fn feed_sink(&mut self, log: &Log) -> Result<(), Stopped> {
        let Some(cursor) = self.truth.sink else { return Ok(()) };
        match self.read_from(log, cursor) {
            Ok(()) => {}
            // The disk did not give its place back: it asks again later.
            Err(Lost::Disk(_)) => return Ok(()),
            Err(Lost::Place(what)) => return Err(Stopped::Wrong(what)),
        }
        log.sink_confirmed(SINK, log.durable_lsn());
        self.truth.sink = Some(log.durable_lsn().0);
        Ok(())
    }

    fn read_from(&self, log: &Log, cursor: u64) -> Result<(), Lost> {
        let told = |what: &dyn fmt::Display| format!("W7: the sink at {cursor}: {what}");
        let lost = |error: ReadError| match error {
            ReadError::Io { .. } => Lost::Disk(told(&error)),
            _ => Lost::Place(told(&error)),
        };
        let place = |what: &dyn fmt::Display| Lost::Place(told(what));
        let mut reader = log.reader();
        reader.seek(Lsn(cursor)).map_err(lost)?;
        let counts = self.truth.counts_at(cursor).ok_or_else(|| place(&"no frame ends there"))?;
        let mut check = self.truth.check_after(counts);
        while let Some(frame) = reader.next_frame().map_err(lost)? {
            for record in frame.records() {
                check.record(&record.map_err(|error| place(&error))?);
            }
        }
        check.finish(self.truth.acked).map(drop).map_err(|what| place(&what))
    }

    /// Reads the open log as the sink does that pins it, from where it last confirmed, unless the
    /// crash came before that.
    ///
    /// # Errors
    /// What it misses.
    pub fn read_sink(&self) -> Result<(), String> {
        match (self.log(), self.truth.sink) {
            (Some(log), Some(cursor)) if cursor <= self.truth.acked => {
                self.read_from(log, cursor).map_err(|(Lost::Disk(what) | Lost::Place(what))| what)
            }
            _ => Ok(()),
        }
    }
}
