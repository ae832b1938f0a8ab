//! When the pages that SQLite wrote go to the disk.
//!
//! A commit that need not last leaves its pages in the kernel's cache, and the sync that makes many
//! of them last would send megabytes at once: durable writes of the log wait behind all of it, for
//! the disk there is one queue. So they are sent on their way after each commit, in pieces that
//! such a write hardly notices, and the sync finds little to do.
//!
//! Copying them from SQLite's log into its file is one large write with two syncs, whatever we do.
//! That is left to the next pause, unless the log becomes too large before.

use std::cell::Cell;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::{Advice, fadvise};

use super::sqlite::CHECKPOINT_PAGES;
use crate::place;

/// In a rush pages are copied from here on: half a minute at 20,000 orders a second. Bounds the log
/// at some 512 MiB, unless somebody reads for long.
const CHECKPOINT_PAGES_MAX: u64 = 8 * CHECKPOINT_PAGES as u64;

/// A page of SQLite's with what its log says of it, and what the log begins with.
const FRAME_BYTES: u64 = 4096 + 24;
const HEADER_BYTES: u64 = 32;

/// Bytes sent at once: a tenth of a millisecond on a disk that is fit for the log.
const PIECE_BYTES: NonZeroU64 = NonZeroU64::new(256 * 1024).unwrap();

/// Between two pieces.
const PIECE_REST: Duration = Duration::from_micros(500);

thread_local! {
    /// Pages in SQLite's log behind the last commit of this thread.
    static PAGES: Cell<u64> = const { Cell::new(0) };
}

/// What is known of the pages in the log of one connection's database.
#[derive(Debug)]
pub(super) struct Pages {
    path: PathBuf,
    log: Option<File>,
    count: u64,
}

impl Pages {
    /// Those of the database at `path`.
    pub(super) fn new(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self { path: log.into(), log: None, count: 0 }
    }

    /// A new connection's commits are noted from now on; none of them copies pages by itself.
    pub(super) fn watch(&mut self, connection: &Connection) {
        connection.wal_hook(Some(|_, pages| {
            PAGES.set(u64::try_from(pages).unwrap_or(0));
            Ok(())
        }));
        (self.log, self.count) = (None, 0);
    }

    /// A commit was made, which was synced or not.
    pub(super) fn committed(&mut self, was_synced: bool) {
        let count = PAGES.replace(0);
        if count == 0 {
            // It wrote nothing.
            return;
        }
        // A log whose pages have all been copied begins anew.
        let before = if count < self.count { 0 } else { self.count };
        self.count = count;
        if !was_synced {
            self.send(HEADER_BYTES + before * FRAME_BYTES, HEADER_BYTES + count * FRAME_BYTES);
        }
    }

    /// Sends these bytes of the log on their way. Best effort: the sync sends what is left, and it
    /// is told of what failed on the way.
    fn send(&mut self, from: u64, to: u64) {
        if self.log.is_none() {
            self.log = File::open(&self.path).ok();
        }
        let Some(log) = &self.log else { return };
        let mut at = from;
        while let Some(rest) = to.checked_sub(at).and_then(NonZeroU64::new) {
            let piece = rest.min(PIECE_BYTES);
            // The kernel begins to write what it is to forget, and keeps it until that is done.
            let _ = fadvise(log, at, Some(piece), Advice::DontNeed);
            place::pause(PIECE_REST);
            at += piece.get();
        }
    }

    /// Copies pages into the database where it is time: sooner in a pause.
    ///
    /// # Errors
    /// Where SQLite can't: the database is not available.
    pub(super) fn copy(
        &mut self,
        connection: &Connection,
        is_pause: bool,
    ) -> Result<(), rusqlite::Error> {
        let enough = if is_pause { CHECKPOINT_PAGES.into() } else { CHECKPOINT_PAGES_MAX };
        if self.count < enough {
            return Ok(());
        }
        // Those that a reader still needs are left for another time.
        let (all, copied) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        if all == copied {
            self.count = 0;
        }
        Ok(())
    }
}
