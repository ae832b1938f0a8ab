//! A simulated disk: the page cache and the platter apart, so that a campaign can cut the power at
//! any operation and keep any subset of what was not yet synced.
//!
//! # What it models
//!
//! - A write lands in the cache. A sync makes the file's cache durable. At a power cut every
//!   unsynced 512-byte *sector*, independently, is old, new or garbage.
//! - A name created, renamed or removed is durable after its directory's sync; at a power cut every
//!   unsynced name operation is kept or lost, a rename as a whole.
//! - A failed sync leaves the pages clean and lost: a later sync succeeds and makes nothing of them
//!   durable. Readers then see the new content (as on ext4) or the old (as on Btrfs).
//! - A killed process loses nothing of the cache.
//! - Any operation can be made to fail, once or from then on.
//!
//! Everything is deterministic: the clock ticks once a question, random numbers come from a seed.

mod fault;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault::{Fault, FaultKind, Op};
use pages::Pages;

use super::{Device, Entry, File, FileSystem, Lock};

/// Bytes that are written whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Called before every operation, with the disk as it is then.
pub type Observer = Box<dyn FnMut(Op, &Image) + Send>;

/// The state of a disk at one instant. Clones share their pages.
#[derive(Clone, Default)]
pub struct Image {
    files: BTreeMap<u64, FileState>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameOp>,
    dirs: BTreeSet<String>,
    next_file: u64,
    clock_us: u64,
    random: u64,
    bad_blocks: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Default)]
struct FileState {
    cached: Pages,
    durable: Pages,
    dirty: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
enum NameOp {
    Create { name: String, file: u64 },
    Rename { from: String, to: String, file: u64 },
    Remove { name: String },
}

impl NameOp {
    fn dir(&self) -> &str {
        let (Self::Create { name, .. } | Self::Rename { to: name, .. } | Self::Remove { name }) =
            self;
        dir_of(name)
    }

    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create { name, file } => {
                names.insert(name.clone(), *file);
            }
            Self::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// What becomes of one unsynced sector at a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It never reached the disk.
    Old,
    /// It reached the disk.
    New,
    /// The disk was in the middle of it.
    Garbage,
}

impl Image {
    /// An empty disk whose random numbers come from `seed`.
    pub fn empty(seed: u64) -> Self {
        Self { clock_us: 1_700_000_000_000_000, random: seed | 1, ..Self::default() }
    }

    /// Number of unsynced sectors and of unsynced name operations.
    pub fn unsynced(&self) -> (usize, usize) {
        let sectors = self.files.values().map(|file| file.dirty.len()).sum();
        (sectors, self.pending_names.len())
    }

    /// The disk after a power cut: `sector` and `name` decide, by index, what becomes of what was
    /// not synced.
    pub fn power_cut(
        &self,
        mut sector: impl FnMut(usize) -> Fate,
        mut name: impl FnMut(usize) -> bool,
    ) -> Self {
        let mut after = self.clone();
        let mut index = 0;
        for file in after.files.values_mut() {
            let mut durable = file.durable.clone();
            for dirty in std::mem::take(&mut file.dirty) {
                match sector(index) {
                    Fate::Old => {}
                    Fate::New => durable.copy_sector(&file.cached, dirty),
                    Fate::Garbage => durable.garble_sector(dirty),
                }
                index += 1;
            }
            file.cached = durable.clone();
            file.durable = durable;
        }
        let mut names = after.durable_names.clone();
        for (index, op) in after.pending_names.drain(..).enumerate() {
            if name(index) {
                op.apply(&mut names);
            }
        }
        after.names = names.clone();
        after.durable_names = names;
        after
    }

    /// The disk after its process was killed: the cache survives.
    pub fn killed(&self) -> Self {
        self.clone()
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// The content of a file, as a reader sees it.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        Some(self.files.get(self.names.get(path)?)?.cached.to_vec())
    }

    /// Replaces the content of a file, durably, or makes the file.
    pub fn set_content(&mut self, path: &str, bytes: &[u8]) {
        let pages = Pages::from_bytes(bytes);
        let file = FileState { cached: pages.clone(), durable: pages, dirty: BTreeSet::new() };
        self.next_file += 1;
        self.files.insert(self.next_file, file);
        self.names.insert(path.to_owned(), self.next_file);
        self.durable_names.insert(path.to_owned(), self.next_file);
    }

    /// Removes a file, durably.
    pub fn remove(&mut self, path: &str) {
        self.names.remove(path);
        self.durable_names.remove(path);
    }

    /// Makes reads of a 4 KiB block of a file fail.
    pub fn make_unreadable(&mut self, path: &str, block: u64) {
        if let Some(file) = self.names.get(path) {
            self.bad_blocks.insert((*file, block));
        }
    }

    /// Moves the wall clock.
    pub fn advance_clock_us(&mut self, us: i64) {
        self.clock_us = self.clock_us.saturating_add_signed(us);
    }

    fn next_random(&mut self) -> u64 {
        // xorshift64*: G. Marsaglia, "Xorshift RNGs" (2003), with S. Vigna's multiplier.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

#[derive(Default)]
struct State {
    image: Image,
    locked: bool,
    ops: u64,
    fault: Option<Fault>,
    faults_hit: u64,
    free_bytes: Option<u64>,
}

struct Shared {
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation: shows the disk to the observer, counts, and fails where a fault says.
    fn begin(&self, op: Op) -> io::Result<MutexGuard<'_, State>> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observer) = observer.as_mut() {
            let image = self.state().image.clone();
            observer(op, &image);
        }
        drop(observer);
        let mut state = self.state();
        state.ops += 1;
        let error = state.fault.and_then(|fault| fault.error(op, state.ops));
        if let Some(error) = error {
            state.faults_hit += 1;
            return Err(error);
        }
        Ok(state)
    }
}

/// A process's view of a simulated disk.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Shared>,
}

impl SimDevice {
    /// The device of `image`.
    pub fn new(image: Image) -> Self {
        let state = State { image, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), observer: Mutex::new(None) }) }
    }

    /// The disk as it is now.
    pub fn image(&self) -> Image {
        self.shared.state().image.clone()
    }

    /// Shows the disk to `observer` before every operation from now on.
    pub fn observe(&self, observer: Option<Observer>) {
        *self.shared.observer.lock().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    /// Makes operations fail from now on, or no more.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.state().fault = fault;
    }

    /// Number of operations begun, and of those that were made to fail.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.shared.state();
        (state.ops, state.faults_hit)
    }

    /// Lets files be created within `bytes` bytes more, or without bound.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.shared.state().free_bytes = bytes;
    }

    fn open_file(&self, path: &str, op: Op) -> io::Result<Arc<dyn File>> {
        let state = self.shared.begin(op)?;
        let file = *state.image.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        drop(state);
        Ok(Arc::new(SimFile { shared: Arc::clone(&self.shared), file }))
    }
}

struct SimFile {
    shared: Arc<Shared>,
    file: u64,
}

fn file_of(image: &mut Image, file: u64) -> io::Result<&mut FileState> {
    image.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl File for SimFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.shared.begin(Op::Write)?;
        let written = match state.fault {
            Some(fault) if fault.shortens(state.ops) => {
                state.faults_hit += 1;
                bytes.len().div_ceil(2)
            }
            _ => bytes.len(),
        };
        let file = file_of(&mut state.image, self.file)?;
        let dirty = file.cached.write(&bytes[..written], offset, &file.durable);
        file.dirty.extend(dirty);
        Ok(written)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.shared.begin(Op::Read)?;
        let last = offset + buffer.len().max(1) as u64 - 1;
        let mut blocks = offset / 4096..=last / 4096;
        if blocks.any(|block| state.image.bad_blocks.contains(&(self.file, block))) {
            return Err(io::Error::from_raw_os_error(fault::EIO));
        }
        Ok(file_of(&mut state.image, self.file)?.cached.read(buffer, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.shared.begin(Op::Sync) {
            Ok(mut state) => {
                let file = file_of(&mut state.image, self.file)?;
                for sector in std::mem::take(&mut file.dirty) {
                    file.durable.copy_sector(&file.cached, sector);
                }
                Ok(())
            }
            Err(error) => {
                let mut state = self.shared.state();
                let keeps_new = state.fault.is_some_and(|fault| fault.keeps_new_content());
                let file = file_of(&mut state.image, self.file)?;
                file.dirty.clear();
                if !keeps_new {
                    file.cached = file.durable.clone();
                }
                Err(error)
            }
        }
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.shared.state();
        Ok(file_of(&mut state.image, self.file)?.cached.len())
    }
}

struct SimLock(Arc<Shared>);

impl Lock for SimLock {
    fn note(&self, _text: &str) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl Device for SimDevice {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.shared.begin(Op::Create)?;
        if let Some(free) = state.free_bytes {
            if free < bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.free_bytes = Some(free - bytes);
        }
        let image = &mut state.image;
        image.next_file += 1;
        let file = image.next_file;
        let pages = Pages::zeroed(bytes);
        let content = FileState { cached: pages.clone(), durable: pages, dirty: BTreeSet::new() };
        image.files.insert(file, content);
        let op = NameOp::Create { name: path.to_owned(), file };
        op.apply(&mut image.names);
        image.pending_names.push(op);
        Ok(())
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path, Op::Open)
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path, Op::Open)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::Rename)?;
        let image = &mut state.image;
        let file = *image.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let op = NameOp::Rename { from: from.to_owned(), to: to.to_owned(), file };
        op.apply(&mut image.names);
        image.pending_names.push(op);
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::SyncDir)?;
        let image = &mut state.image;
        let pending = std::mem::take(&mut image.pending_names);
        for op in pending {
            if op.dir() == path {
                op.apply(&mut image.durable_names);
            } else {
                image.pending_names.push(op);
            }
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.shared.begin(Op::List)?;
        let image = &state.image;
        if !path.is_empty() && !image.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (name, file) in image.names.iter().filter(|(name, _)| dir_of(name) == path) {
            let name = name.rsplit('/').next().unwrap_or(name).to_owned();
            let bytes = image.files.get(file).map_or(0, |file| file.cached.len());
            entries.push(Entry { name, bytes });
        }
        if path.is_empty() {
            entries.extend(image.dirs.iter().map(|dir| Entry { name: dir.clone(), bytes: 0 }));
        }
        entries.sort();
        Ok(entries)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::Remove)?;
        let image = &mut state.image;
        if image.names.remove(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        image.pending_names.push(NameOp::Remove { name: path.to_owned() });
        Ok(())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::CreateDir)?;
        if !path.is_empty() {
            state.image.dirs.insert(path.to_owned());
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let mut state = self.shared.state();
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(SimLock(Arc::clone(&self.shared))))
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        Ok(FileSystem::Suitable)
    }

    fn now_us(&self) -> u64 {
        let mut state = self.shared.state();
        state.image.clock_us += 1;
        state.image.clock_us
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.shared.state().image.next_random())
    }

    fn pause_ms(&self, _ms: u64) {}

    fn display(&self, path: &str) -> String {
        format!("sim:{path}")
    }
}

#[cfg(test)]
mod tests;
