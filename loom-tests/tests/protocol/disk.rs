//! A simulated disk on which a schedule may switch threads before every operation, as it may
//! between the calls of a real one.

use std::io;
use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering};
use wal::device::sim::{Fate, Image, SimDevice};
use wal::device::{Device, Entry, File, FileSystem, Lock};

/// The disk.
pub(crate) struct Disk {
    sim: SimDevice,
    /// Touched before every operation: what the scheduler sees of it.
    turn: Arc<AtomicU64>,
}

impl Disk {
    pub(crate) fn new(sim: SimDevice) -> Self {
        Self { sim, turn: Arc::new(AtomicU64::new(0)) }
    }

    fn turn(&self) -> &SimDevice {
        self.turn.fetch_add(1, Ordering::SeqCst);
        &self.sim
    }

    fn file(&self, file: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        let turn = Arc::clone(&self.turn);
        file.map(|file| Arc::new(Turning { file, turn }) as Arc<dyn File>)
    }
}

/// What the worst power cut leaves: of all that is not synced nothing has reached the disk.
pub(crate) fn worst_cut(image: &Image) -> Image {
    image.power_cut(|_| Fate::Old, |_| false)
}

struct Turning {
    file: Arc<dyn File>,
    turn: Arc<AtomicU64>,
}

impl Turning {
    fn turn(&self) -> &dyn File {
        self.turn.fetch_add(1, Ordering::SeqCst);
        &*self.file
    }
}

impl File for Turning {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.turn().write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.turn().read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.turn().sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.turn().length()
    }
}

impl Device for Disk {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        self.turn().create_zeroed(path, bytes)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.file(self.turn().open(path))
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.file(self.turn().open_uncached(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.turn().rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.turn().link(from, to)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.turn().sync_dir(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        self.turn().list(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.turn().remove(path)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.turn().create_dir(path)
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.sim.lock()
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        self.sim.file_system()
    }

    fn now_us(&self) -> u64 {
        self.sim.now_us()
    }

    fn random(&self) -> io::Result<u64> {
        self.sim.random()
    }

    fn pause_ms(&self, ms: u64) {
        self.sim.pause_ms(ms);
    }

    fn display(&self, path: &str) -> String {
        self.sim.display(path)
    }
}
