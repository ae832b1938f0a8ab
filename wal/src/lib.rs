//! A write-ahead log with group commit: it knows bytes, not what they mean.
//!
//! # The story on one page
//!
//! Callers hold a lane of the [intake](Batch), decide, and append records under the same hold, so
//! that log order is decision order. The [committer](Log::commit) takes what has gathered from all
//! lanes, frames it, writes once, syncs once, and publishes how far the log is durable; waiting
//! callers are woken then and not before. While one sync runs the next batch gathers. Of a batch
//! that takes long to decide, what fills a chunk is on its way while the rest is being decided.
//!
//! The log is a chain of *segments*, zero-filled ahead of time. A segment holds *frames*, each one
//! group commit; a frame holds *records*. Every frame repeats the checksum of the one before it
//! and says how far the segment was known to be synced when it was written. At the next start
//! [recovery](OpenReport) reads all of it and judges the end by that evidence: a torn last write
//! was never acknowledged and is cut; damage that a later promise reaches beyond stops the start.
//! Old bytes are never edited: a new segment seals the log where it ends.
//!
//! When a write or sync fails, [everything stops](Fatal): no retry, no further acknowledgement.
//!
//! [`Reader`] gives durable frames in order, for those who carry the log outward.
//!
//! The log is not kept for ever. Its owner writes [snapshots](SnapshotWriter) of what the records
//! came to; a segment that the older of two snapshots covers and every [sink](SinkClass) has
//! confirmed is [retired](Log::retire), and its file lives on as a later segment.
//!
//! # Where to look
//!
//! | file | idea |
//! |---|---|
//! | `segment`, `frame`, `record`, `control` | the formats: a table beside its code |
//! | `features` | what an older build must not read past, and when it is used |
//! | `intake`, `pool`, `bell` | where records wait, and who is woken for them |
//! | `committer` | the only writer |
//! | `watermark`, `waiters` | what is durable, and who waits for it |
//! | `verdict` | where the log ends, as a decision table |
//! | `recover`, `listing`, `start`, `scan`, `leftover` | the reading that feeds it |
//! | `progress` | how far that has come |
//! | `spares` | segments made ahead |
//! | `snapshot` | the owner's state in a file |
//! | `retention`, `retire` | what of the log is still needed, and what becomes of the rest |
//! | `fatal`, `failure` | fail-stop, and what becomes of the file that saw the error |
//! | `reader` | the log as an outbox |
//! | `log`, `threads` | the handle, and what runs behind it |
//! | `open`, `premises` | from a directory to a log |
//! | `repair` | the damaged end of a log given up, on an operator's word |
//! | `device` | the one seam to the operating system |
//! | `sync` | the primitives of every hand-over, for the model checker |

#![warn(missing_docs)]

mod abort;
mod bell;
mod block;
mod checksum;
mod committer;
mod control;
mod cores;
pub mod device;
mod error;
mod failure;
mod fatal;
mod features;
mod fields;
mod frame;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod golden;
mod ids;
mod inspect;
mod intake;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod leftover;
pub mod limits;
mod listing;
mod log;
mod metrics;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
mod names;
mod open;
pub mod planted;
mod pool;
mod premises;
mod progress;
mod reader;
mod record;
mod recover;
mod repair;
mod retention;
mod retire;
mod scan;
mod segment;
mod snapshot;
mod spares;
mod start;
mod sync;
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod testing;
mod threads;
mod verdict;
mod waiters;
mod watermark;

pub use abort::AbortOnPanic;
pub use control::{Format, OWNER_BYTES};
pub use cores::{free_cores, loop_cores, stay_nowhere, stay_on};
pub use device::posix::PosixDevice;
pub use error::{Busy, LogUnavailable, OpenError, ReadError};
pub use fatal::{Fatal, OnFatal};
pub use features::{Upgraded, upgrade};
pub use ids::{Epoch, LogIdentity, LogUuid, Lsn, SegmentId};
pub use inspect::{Inspecting, Inspection, follow, inspect, read_format};
pub use intake::{Admission, Batch, Class, Committed, Ticket};
pub use limits::CONTROL_SHARD;
pub use log::Log;
pub use metrics::{
    Bounds, Buckets, FRAME_BYTES_BOUNDS, FRAME_RECORDS_BOUNDS, Metrics, SLOW_SYNC_US,
    SYNC_US_BOUNDS,
};
pub use open::{Judged, OpenOptions, OpenReport, Opening};
pub use progress::Progress;
pub use reader::{Frame, Reader};
pub use record::{RECORD_HEADER_BYTES, Record, RecordError, Records, record_bytes};
pub use recover::{RECORDS_TOGETHER, Rejection, Replay, Replaying, TornTail};
pub use repair::{Loss, RepairError, Repaired, repair};
pub use retention::{RetentionLimits, SinkClass, SinkError, SinkState};
pub use retire::{Retired, drop_sink};
pub use segment::FORMAT_VERSION;
pub use snapshot::{
    Item, Items, Lane, Piece, SnapshotError, SnapshotInfo, SnapshotReader, SnapshotWriter,
};
pub use spares::SpareMade;
pub use threads::{Threads, lower_priority};
pub use verdict::Case;
