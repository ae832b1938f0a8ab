//! Who gets the last units: the in-process API.
//!
//! # The story on one page
//!
//! An activity lives in one *shard*: a lock around a deterministic state machine and the tail of
//! its log. A command takes the lock, reserves room in the log, decides, applies the event and
//! appends it, all under that lock: log order is apply order, and nothing can fail after the
//! decision. What the caller gets is [`Pending`]: the answer exists, but can't be looked at before
//! what it rests on is durable. For an accepted command that is its own record; for a refusal or a
//! repeat it is the last record the shard had appended, since *that* may be what it saw.
//!
//! [`Engine::open`] loads the newest snapshot and replays the log after it through the same
//! `apply`. A timer gives unpaid reservations back. Readers of the log ([`Engine::reader`]) carry
//! it outward and tell back how far they are ([`Engine::sink_advanced`]); from then on a
//! reservation shows as ordered.
//!
//! # Where to look
//!
//! | folder | idea |
//! |---|---|
//! | [`core`] | the rules: pure, without clock, files or threads |
//! | `runtime/engine` | the shards over a log, and the one way a command goes through them |
//! | `runtime/{purchase,operator,payment,payments,refunds,dead_letters,calls}` | the commands |
//! | `runtime/adopt` | what is taken over from an older system, or from SQL |
//! | `runtime/controls` | switches and lists that the engine and its server heed |
//! | `runtime/pending` | answers held until durable |
//! | `runtime/handle` | a caller that commits by itself |
//! | `runtime/{open,replay,recovered,owner,directory}` | from files to state |
//! | `runtime/{ahead,supplies}` | the threads that help a long start |
//! | `runtime/provisions` | memory for what is for sale, before anybody buys |
//! | `runtime/{timer,archive,clock}` | time |
//! | `runtime/skus` | one live activity a SKU, where readers outside need that |
//! | `runtime/{sinks,views,present}` | what is told outward |
//! | `runtime/snapshots` | state in a file, so that the log need not be kept whole |
//! | `runtime/{verify,entries}` | reading a log without opening it |

#![warn(missing_docs)]

pub mod core;
pub mod planted;
mod runtime;

pub use runtime::adopt::{Adopted, FactError, OldId};
pub use runtime::archive::ArchivedView;
pub use runtime::calls::{Call, Called};
pub use runtime::clock::TimeSource;
pub use runtime::controls::PendingControl;
pub use runtime::dead_letters::DeadLetterView;
pub use runtime::engine::Engine;
pub use runtime::entries::{Entries, Entry, entries};
pub use runtime::error::{CloseError, OpenError};
pub use runtime::open::{EngineOptions, OpenReport};
pub use runtime::payments::{Callback, PaymentView, Recorded};
pub use runtime::pending::Pending;
pub use runtime::purchase::{BatchAnswer, BatchRequest, CountedAnswer, Purchase, Refused};
pub use runtime::recovered::Recovered;
pub use runtime::refunds::PendingRefund;
pub use runtime::repair::repair;
pub use runtime::sinks::{ORDERS_SINK, drop_sink};
pub use runtime::snapshots::{
    OnSnapshot, SnapshotContents, SnapshotLoadError, SnapshotMade, SnapshotMakeError,
    snapshot_contents,
};
pub use runtime::stats::EngineStats;
pub use runtime::verify::{ActivityReport, VerifyReport, verify, verify_watched};
pub use runtime::views::{ActivityView, DerivedState, PublicStatus, ReservationView};
pub use wal::{Busy, LogUnavailable, RetentionLimits, SinkClass, SinkError, SinkState};
