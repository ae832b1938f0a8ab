//! A real directory whose every operation is written down.
//!
//! A write is noted before it is done, a sync after it has returned: between the two the disk may
//! hold any part of it, and that is what the simulated disk makes of it when the notes are played
//! to it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wal::PosixDevice;
use wal::device::{Appends, Device, Entry, File, FileSystem, Lock};

/// One operation, or what a caller was told between two.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named for the device's calls")]
pub enum Noted {
    Create {
        path: String,
        bytes: u64,
    },
    Open {
        path: String,
        handle: usize,
    },
    Write {
        handle: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    Sync {
        handle: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    SyncDir {
        path: String,
    },
    Remove {
        path: String,
    },
    CreateDir {
        path: String,
    },
    /// A caller was told that this place in the shard is durable.
    Acked {
        shard: u16,
        shard_seq: u64,
    },
}

#[derive(Default)]
struct Notes {
    all: Vec<Noted>,
    handles: usize,
}

/// The device of a real directory, and the notes.
#[derive(Clone)]
pub struct TraceDevice {
    real: PosixDevice,
    direct: Arc<AtomicBool>,
    notes: Arc<Mutex<Notes>>,
}

impl TraceDevice {
    /// Writes down what is done on `real` from now on.
    pub fn new(real: PosixDevice) -> Self {
        Self { real, direct: Arc::default(), notes: Arc::default() }
    }

    /// What was done, in order.
    pub fn notes(&self) -> Vec<Noted> {
        self.lock_notes().all.clone()
    }

    /// Adds a note of the caller's own.
    pub fn note(&self, noted: Noted) {
        self.lock_notes().all.push(noted);
    }

    fn lock_notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn traced(&self, path: &str, real: Arc<dyn File>, syncs_itself: bool) -> Arc<dyn File> {
        let mut notes = self.lock_notes();
        notes.handles += 1;
        let handle = notes.handles;
        notes.all.push(Noted::Open { path: path.to_owned(), handle });
        drop(notes);
        Arc::new(TraceFile { device: self.clone(), real, handle, syncs_itself })
    }
}

struct TraceFile {
    device: TraceDevice,
    real: Arc<dyn File>,
    handle: usize,
    syncs_itself: bool,
}

impl File for TraceFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let handle = self.handle;
        self.device.note(Noted::Write { handle, offset, bytes: bytes.to_vec() });
        let written = self.real.write_at(bytes, offset)?;
        if self.syncs_itself && written == bytes.len() {
            self.device.note(Noted::Sync { handle });
        }
        Ok(written)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.real.sync_data()?;
        self.device.note(Noted::Sync { handle: self.handle });
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.real.length()
    }
}

impl Device for TraceDevice {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        self.real.create_zeroed(path, bytes)?;
        self.note(Noted::Create { path: path.to_owned(), bytes });
        Ok(())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.traced(path, self.real.open(path)?, false))
    }

    fn open_to_append(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let direct = self.direct.load(Ordering::Relaxed);
        Ok(self.traced(path, self.real.open_to_append(path)?, direct))
    }

    fn settle_appends(&self) -> io::Result<Appends> {
        let appends = self.real.settle_appends()?;
        self.direct.store(appends.direct, Ordering::Relaxed);
        Ok(appends)
    }

    fn open_to_read(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.real.open_to_read(path)
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.real.open_uncached(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(Noted::Rename { from: from.to_owned(), to: to.to_owned() });
        self.real.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(Noted::Link { from: from.to_owned(), to: to.to_owned() });
        self.real.link(from, to)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.real.sync_dir(path)?;
        self.note(Noted::SyncDir { path: path.to_owned() });
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.real.list(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(Noted::Remove { path: path.to_owned() });
        self.real.remove(path)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.real.create_dir(path)?;
        self.note(Noted::CreateDir { path: path.to_owned() });
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.real.lock()
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.real.file_system()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.real.free_bytes()
    }

    fn now_us(&self) -> u64 {
        self.real.now_us()
    }

    fn random(&self) -> io::Result<u64> {
        self.real.random()
    }

    fn pause_ms(&self, ms: u64) {
        self.real.pause_ms(ms);
    }

    fn display(&self, path: &str) -> String {
        self.real.display(path)
    }
}
