//! When the pages that SQLite wrote go to the disk.
//!
//! A commit that need not last leaves its pages in the kernel's cache, and the sync that makes many
//! of them last would send megabytes at once: durable writes of the log wait behind all of it, for
//! the disk there is one queue. So they are sent on their way after each commit, in pieces that
//! such a write hardly notices, and the sync finds little to do.
//!
//! What sends them is advice to forget them: what is clean by then, above all what was sent before,
//! leaves the kernel's cache, and who copies it or reads rows of it soon after has the disk give it
//! back. The index of SQLite's log is elsewhere, and the sink has its own cache of pages.
//!
//! Copying them from SQLite's log into its file is one large write with two syncs, whatever we do.
//! That is left to the next pause, unless the log becomes too large before.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::{Advice, fadvise};

use super::sqlite::{CHECKPOINT_PAGES, CHECKPOINT_PAGES_MAX};
use crate::place;

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
    /// Pages in the log.
    count: u64,
    /// They were copied, as far as that went: it is not tried again for fewer than these.
    again_from: u64,
}

impl Pages {
    /// Those of the database at `path`.
    pub(super) fn new(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self { path: log.into(), log: None, count: 0, again_from: 0 }
    }

    /// A new connection's commits are noted from now on; none of them copies pages by itself.
    pub(super) fn watch(&mut self, connection: &Connection) {
        connection.wal_hook(Some(|_, pages| {
            PAGES.set(u64::try_from(pages).unwrap_or(0));
            Ok(())
        }));
        (self.log, self.count, self.again_from) = (None, 0, 0);
    }

    /// A commit was made, which was synced or not.
    pub(super) fn committed(&mut self, was_synced: bool) {
        let count = PAGES.replace(0);
        if count == 0 {
            // It wrote nothing.
            return;
        }
        if count < self.count {
            // A log whose pages have all been copied, and are read by nobody, begins anew.
            (self.count, self.again_from) = (0, 0);
        }
        let before = mem::replace(&mut self.count, count);
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

    /// Syncs the log's file. A file system on which SQLite keeps no log has none.
    ///
    /// # Errors
    /// Where the disk can't.
    pub(super) fn sync_log(&self) -> io::Result<()> {
        match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            log => log?.sync_all(),
        }
    }

    /// Copies pages into the database where it is time: sooner in a pause. Those that a reader
    /// still needs, and all while another connection copies, are left for a later time.
    ///
    /// # Errors
    /// Where SQLite can't: what was not synced before may be lost.
    pub(super) fn copy(
        &mut self,
        connection: &Connection,
        is_pause: bool,
    ) -> Result<(), rusqlite::Error> {
        let enough = if is_pause { CHECKPOINT_PAGES } else { CHECKPOINT_PAGES_MAX };
        if self.count < self.again_from.max(enough.into()) {
            return Ok(());
        }
        // In the background of a busy core it would take minutes, and there is no way out.
        place::go_anywhere();
        checkpoint(connection)?;
        self.again_from = self.count + u64::from(CHECKPOINT_PAGES);
        Ok(())
    }
}

/// Copies pages into the database, as far as that hinders nobody. Tells whether that were all that
/// the log held.
///
/// # Errors
/// Where SQLite can't.
fn checkpoint(connection: &Connection) -> Result<bool, rusqlite::Error> {
    copy_by(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Copies all pages into the database and empties the log. Tells whether nobody was in the way.
///
/// # Errors
/// Where SQLite can't.
pub(super) fn empty_log(connection: &Connection) -> Result<bool, rusqlite::Error> {
    copy_by(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
}

fn copy_by(connection: &Connection, pragma: &str) -> Result<bool, rusqlite::Error> {
    connection.query_row(pragma, (), |row| {
        let (is_busy, all, copied): (i64, i64, i64) = row.try_into()?;
        Ok(is_busy == 0 && copied >= all)
    })
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
        assert!(database.copied() > many);
        database.commit(1);
        assert!((1..10).contains(&database.pages.count), "the log has begun anew");
    }

    #[test]
    fn pages_that_a_reader_needs_are_copied_once_as_many_have_come_again() {
        let (mut database, many) = (Database::new(), u64::from(CHECKPOINT_PAGES));
        let reader = Connection::open(database.directory.path().join("t.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        database.commit(many);
        database.pages.copy(&database.connection, true).unwrap();
        reader.execute_batch("COMMIT").unwrap();
        database.commit(100);
        assert!(database.pages.count > many, "the log goes on where it was");
        database.pages.copy(&database.connection, true).unwrap();
        assert!(database.copied() < 10, "each try is a sync");
        database.commit(many);
        database.pages.copy(&database.connection, true).unwrap();
        assert!(database.copied() > 2 * many);
    }

    #[test]
    fn a_checkpoint_says_whether_pages_were_left() {
        let mut database = Database::new();
        let reader = Connection::open(database.directory.path().join("t.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        database.commit(10);
        assert_eq!(checkpoint(&database.connection), Ok(false));
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(checkpoint(&database.connection), Ok(true));
    }

    #[test]
    fn a_log_is_emptied_once_nobody_reads_it() {
        let mut database = Database::new();
        let log_bytes = |database: &Database| database.pages.path.metadata().unwrap().len();
        database.connection.busy_timeout(Duration::ZERO).unwrap();
        database.commit(10);
        let reader = Connection::open(database.directory.path().join("t.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        assert_eq!(checkpoint(&database.connection), Ok(true), "the reader needs what is there");
        assert_eq!(empty_log(&database.connection), Ok(false));
        assert!(log_bytes(&database) > 0);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(empty_log(&database.connection), Ok(true));
        assert_eq!(log_bytes(&database), 0);
    }

    #[test]
    fn pages_are_copied_with_a_share_of_the_cores() {
        let mut database = Database::new();
        database.commit(CHECKPOINT_PAGES.into());
        place::choose(u64::MAX);
        database.pages.copy(&database.connection, false).unwrap();
        assert!(place::is_aside(), "there was nothing to copy");
        database.pages.copy(&database.connection, true).unwrap();
        assert!(!place::is_aside());
    }
}
