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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    struct Database {
        connection: Connection,
        pages: Pages,
        directory: tempfile::TempDir,
    }

    impl Database {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("t.db");
            let connection = Connection::open(&path).unwrap();
            connection.pragma_update(None, "journal_mode", "WAL").unwrap();
            connection.pragma_update(None, "synchronous", "OFF").unwrap();
            let mut pages = Pages::new(&path);
            pages.watch(&connection);
            connection.execute_batch("CREATE TABLE t (a BLOB)").unwrap();
            pages.committed(false);
            Self { connection, pages, directory }
        }

        fn commit(&mut self, pages: u64) {
            let sql = format!("INSERT INTO t VALUES (zeroblob({}))", pages * 4096);
            self.connection.execute_batch(&sql).unwrap();
            self.pages.committed(false);
        }

        /// Pages in the database's file.
        fn copied(&self) -> u64 {
            self.directory.path().join("t.db").metadata().unwrap().len() / 4096
        }
    }

    #[test]
    fn pages_are_copied_in_a_pause_once_they_are_many() {
        let (mut database, many) = (Database::new(), u64::from(CHECKPOINT_PAGES));
        database.commit(100);
        database.pages.copy(&database.connection, true).unwrap();
        assert!(database.copied() < 10, "a few are left for later");
        database.commit(many);
        database.pages.copy(&database.connection, false).unwrap();
        assert!(database.copied() < 10, "this is no pause");
        database.pages.copy(&database.connection, true).unwrap();
        assert!(database.copied() > many && database.pages.count == 0);
        database.commit(1);
        assert!((1..10).contains(&database.pages.count), "the log has begun anew");
    }

    #[test]
    fn pages_that_a_reader_needs_are_copied_when_it_is_gone() {
        let (mut database, many) = (Database::new(), u64::from(CHECKPOINT_PAGES));
        let reader = Connection::open(database.directory.path().join("t.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        database.commit(many);
        database.pages.copy(&database.connection, true).unwrap();
        assert!(database.pages.count > many);
        reader.execute_batch("COMMIT").unwrap();
        database.pages.copy(&database.connection, true).unwrap();
        assert_eq!(database.pages.count, 0);
    }
}
