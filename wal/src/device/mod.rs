//! The one seam to the operating system. No other module of this crate may touch a file.
//!
//! Paths are relative to the log's directory, with `/` between their parts; `""` is the directory
//! itself. Implementations: [`PosixDevice`](posix::PosixDevice), which writes segments past the
//! page cache where that pays, and behind feature `sim` the simulated disk of the campaigns.

use std::io;
use std::sync::Arc;

use crate::limits::BLOCK_BYTES;
use crate::planted::{self, Bug};

mod ahead;
mod direct;
mod memory;
pub(crate) mod posix;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod zeros;

pub use self::direct::{AppendChoice, Appends};
pub use self::memory::memory_bytes;
pub use crate::block::Blocks;

/// A file. Reads and writes name their offset; there is no position to share.
pub trait File: Send + Sync {
    /// Writes some of `bytes` at `offset`; returns how many.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Reads some bytes from `offset` into `buffer`; returns how many, 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Returns once everything written to this file before is on stable storage. After an error
    /// nothing may be assumed about any of it: the kernel may have marked it clean and lost it.
    fn sync_data(&self) -> io::Result<()>;
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// Its name, without the directory.
    pub name: String,
    /// Its length in bytes (0 for a directory).
    pub bytes: u64,
}

/// What kind of file system a log lies on, where that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// Nothing speaks against it.
    Suitable,
    /// Its files go with the machine's memory.
    Volatile,
    /// A sync's promise depends on another machine.
    Network,
    /// A container's writable layer: goes with the container.
    Overlay,
}

/// A directory held by this process alone; given back when dropped.
pub trait Lock: Send + Sync {
    /// Leaves a note for people who look into the lock's file.
    fn note(&self, text: &str) -> io::Result<()>;
}

/// A directory on a disk, a clock, and a source of random numbers.
pub trait Device: Send + Sync {
    /// Creates `path`, replacing what is there, with `bytes` real zeros in it, and syncs the
    /// file. Its name is durable only after [`Device::sync_dir`].
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()>;
    /// Opens an existing file to read and write.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing segment for the one that fills it, who writes whole blocks at block
    /// boundaries from [`Blocks`] and syncs after each write.
    fn open_to_append(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    /// Decides how [`Device::open_to_append`] opens from here on. Called once, when the directory
    /// is this process's own and about to be written to.
    fn settle_appends(&self) -> io::Result<Appends> {
        Ok(Appends::default())
    }
    /// Opens an existing segment for one who reads what another has just written: through the page
    /// cache where it was written through it. Buffers and offsets must be whole blocks.
    fn open_to_read(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    /// Opens an existing file to read what is on the disk, past the page cache where the file
    /// system can. Buffers and offsets must be whole blocks.
    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// The same, for who reads all of `from..to` once and in order.
    fn open_ahead(&self, path: &str, from: u64, to: u64) -> io::Result<Arc<dyn File>> {
        let _ = (from, to);
        self.open_uncached(path)
    }
    /// Renames, replacing what has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes names created, renamed or removed in the directory durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// The entries of a directory, by name; `NotFound` where it does not exist.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Creates a directory and what leads to it; fine where it exists.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Takes the directory for this process; `WouldBlock` where another has it.
    fn lock(&self) -> io::Result<Box<dyn Lock>>;
    /// The kind of file system the directory lies on.
    fn file_system(&self) -> io::Result<FileSystem>;
    /// Room that is left for this process; as much as can be where nobody counts it.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Wall clock, Unix microseconds.
    fn now_us(&self) -> u64;
    /// Random bits.
    fn random(&self) -> io::Result<u64>;
    /// Waits a while, for another process to let go of the lock.
    fn pause_ms(&self, ms: u64);
    /// The path as people know it, for messages.
    fn display(&self, path: &str) -> String;
}

/// What was looked for; `None` where it is not there.
pub(crate) fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Writes all of `bytes`: an interrupted write is repeated, a short one continued, any other error
/// is the caller's to fail on.
pub(crate) fn write_full(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) if planted::has(Bug::ShortWriteTakenForWhole) => break,
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; returns how many bytes there were.
pub(crate) fn read_full(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            // Only the end of a file cuts a read inside a block; asking on from there is an error
            // where the file is read past the page cache.
            Ok(read) if !read.is_multiple_of(BLOCK_BYTES) => return Ok(filled + read),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    /// A file that answers its reads and writes as it was told, one after the other.
    struct Told(Mutex<VecDeque<io::Result<usize>>>);

    impl Told {
        fn file(answers: impl IntoIterator<Item = io::Result<usize>>) -> Self {
            Self(Mutex::new(answers.into_iter().collect()))
        }

        fn next(&self) -> io::Result<usize> {
            self.0.lock().unwrap().pop_front().unwrap()
        }

        fn is_done(&self) -> bool {
            self.0.lock().unwrap().is_empty()
        }
    }

    impl File for Told {
        fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
            self.next()
        }

        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            self.next()
        }

        fn sync_data(&self) -> io::Result<()> {
            self.next().map(drop)
        }

        fn length(&self) -> io::Result<u64> {
            self.next().map(|bytes| bytes as u64)
        }
    }

    fn error<T>(kind: io::ErrorKind) -> io::Result<T> {
        Err(kind.into())
    }

    #[test]
    fn a_write_goes_on_where_it_was_interrupted_and_ends_with_any_other_error() {
        use io::ErrorKind::{Interrupted, PermissionDenied, WriteZero};
        let write = |answers: Vec<io::Result<usize>>| {
            let file = Told::file(answers);
            let told = write_full(&file, &[0; 10], 0).map_err(|error| error.kind());
            assert!(file.is_done(), "asked as often as there were answers");
            told
        };
        assert_eq!(write(vec![Ok(10)]), Ok(()));
        assert_eq!(write(vec![Ok(3), error(Interrupted), Ok(6), Ok(1)]), Ok(()));
        assert_eq!(write(vec![Ok(3), error(PermissionDenied)]), Err(PermissionDenied));
        assert_eq!(write(vec![Ok(3), Ok(0)]), Err(WriteZero), "else it would be asked for ever");
    }

    #[test]
    fn a_read_goes_on_until_it_is_full_or_the_file_ends() {
        use io::ErrorKind::{Interrupted, PermissionDenied};
        let read = |answers: Vec<io::Result<usize>>| {
            let file = Told::file(answers);
            let told = read_full(&file, &mut [0; 3 * BLOCK_BYTES], 0).map_err(|it| it.kind());
            assert!(file.is_done(), "asked as often as there were answers");
            told
        };
        const BLOCK: usize = BLOCK_BYTES;
        assert_eq!(read(vec![Ok(BLOCK), error(Interrupted), Ok(2 * BLOCK)]), Ok(3 * BLOCK));
        assert_eq!(read(vec![Ok(BLOCK), Ok(0)]), Ok(BLOCK));
        // Past the page cache a read that begins inside a block is an error.
        assert_eq!(read(vec![Ok(BLOCK), Ok(7)]), Ok(BLOCK + 7));
        assert_eq!(read(vec![Ok(BLOCK), error(PermissionDenied)]), Err(PermissionDenied));
    }

    #[test]
    fn only_what_is_not_there_is_none() {
        assert_eq!(if_found(Ok(1)).unwrap(), Some(1));
        assert_eq!(if_found(error::<u8>(io::ErrorKind::NotFound)).unwrap(), None);
        assert!(if_found(error::<u8>(io::ErrorKind::PermissionDenied)).is_err());
    }
}
