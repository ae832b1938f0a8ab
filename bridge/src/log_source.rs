//! The log's own reader as an [`EventSource`].

use wal::{ReadError, Reader};

use crate::tail::{Batch, Entry, EventSource, FrameEnd, SeekError, Unreadable};

impl EventSource for Reader {
    fn seek(&mut self, lsn: wal::Lsn) -> Result<u32, SeekError> {
        Reader::seek(self, lsn).map_err(|error| match error {
            ReadError::BeyondEnd { end, .. } => SeekError::BeyondEnd { end },
            ReadError::Retired { oldest, .. } => SeekError::Retired { oldest },
            ReadError::NotAFrameEnd(_) => SeekError::NotAFrameEnd,
            error => SeekError::Unreadable(unreadable(error)),
        })
    }

    fn read_frame(&mut self, batch: &mut Batch) -> Result<bool, Unreadable> {
        while let Some(frame) = self.next_frame().map_err(unreadable)? {
            if frame.first_lsn > frame.last_lsn {
                // A frame without records tells sinks nothing.
                continue;
            }
            for record in frame.records() {
                let record = record
                    .map_err(|error| Unreadable { passing: false, source: Box::new(error) })?;
                batch.push(Entry {
                    lsn: record.lsn,
                    shard: record.shard,
                    shard_seq: record.shard_seq,
                    kind: record.kind,
                    version: record.kind_version,
                    body: record.body,
                });
            }
            batch.end_frame(FrameEnd {
                lsn: frame.last_lsn,
                epoch: frame.epoch,
                chain: frame.chain,
                commit_us: frame.commit_us,
            });
            return Ok(true);
        }
        Ok(false)
    }
}

fn unreadable(error: ReadError) -> Unreadable {
    // What was given back beneath a reader is gone for it alone: another meeting finds where the
    // sink stands, and has it written from the state.
    let passing = matches!(error, ReadError::Io { .. } | ReadError::Retired { .. });
    Unreadable { passing, source: Box::new(error) }
}
