//! Snapshots of the engine's state: made beside the running engine, read at the next start and by
//! sinks that must be filled anew.
//!
//! # How one is made, and why so
//!
//! Not by copying live state: a background thread loads the last snapshot, replays the *sealed*
//! segments after it through the same `apply`, and writes what that gives. So
//!
//! - no lock of a shard is ever held for it: a purchase can't wait for a snapshot;
//! - its LSN is exact, the end of a segment, and the segments it covers can go whole;
//! - the log is read again from the disk while its records can still be had elsewhere: a rotten
//!   segment is found when the snapshot is made, not when it is needed;
//! - each lane's digest is checked when the last snapshot is loaded, so an error does not creep
//!   from one snapshot to the next (W14).
//!
//! The price is time, which the thread has (it runs at low priority; replay does what the sale did
//! on all cores, without waiting for a disk), and a second copy of state. The copy is bounded:
//! lanes are taken in groups of at most [`GROUP_BYTES_MAX`] as written, each group in a pass of its
//! own over the log; only a single shard larger than that takes more. It is made on a thread of its
//! own, with which its memory goes back to the system (see `apart`). Copying live state in chunks
//! would cost the same memory for what changes meanwhile, or a pause.
//!
//! At a clean end nothing changes any more: there a snapshot is written from live state, where
//! that is cheaper than the replay that it saves.

mod apart;
mod contents;
mod housekeeper;
mod load;
mod make;

pub use contents::{SnapshotContents, snapshot_contents};
pub use housekeeper::OnSnapshot;
pub(crate) use housekeeper::{House, Housekeeper};
pub use load::SnapshotLoadError;
pub(crate) use load::load;
pub use make::{SnapshotMade, SnapshotMakeError};

/// State in a group of lanes, as written, that a second copy is held of.
pub(crate) const GROUP_BYTES_MAX: u64 = 256 << 20;

/// Room set aside on the disk for the next snapshot, at least; else half again the last one.
pub(crate) const RESERVE_BYTES_MIN: u64 = 16 << 20;

/// The same on a disk that has not as much: enough for the state of a small sale.
pub(crate) const RESERVE_BYTES_SCARCE: u64 = 1 << 20;

/// Log beyond the newest snapshot after which the next is made, unless the last one was larger:
/// about two million purchases, a second or two of replay.
pub(crate) const SNAPSHOT_AFTER_BYTES: u64 = 256 << 20;
